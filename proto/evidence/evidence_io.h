/* SPDX-License-Identifier: Apache-2.0 */ /* proto/evidence/evidence_io.h - files of evidence: whole pieces at fixed
 * places, heads. Only evidence*.c use it. */
#pragma once
#include <stdint.h>
#include <sys/types.h>

struct err;
struct evidence_head;

/* Writes all n bytes: 0, or -1 with errno. */
int evidence_pwrite(int fd, const void *bytes, size_t n, int64_t at);
/* Reads at most n bytes, fewer at the end of the file. Returns their number, or -1 with errno. */
ssize_t evidence_pread(int fd, void *bytes, size_t n, int64_t at);
/* Opens a regular file for reading, never through a link. Returns its descriptor, or -1 with errno. */
int evidence_open_file(int dirfd, const char *name);
/* Reads the head in the folder dirfd, called `dir` in errors. -ENOENT: there is no head. free() frees it. */
int evidence_head_read(int dirfd, const char *dir, struct evidence_head **ret_head, struct err *err);

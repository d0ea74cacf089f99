/* SPDX-License-Identifier: Apache-2.0 */ /* proto/evidence/evidence_io.h - files of evidence: whole pieces at fixed places, heads. Used by evidence*.c alone. */
#pragma once
#include <stdint.h>
#include <sys/types.h>

struct err;
struct evidence_head;

/* All n bytes: 0, or -1 with errno. */
int evidence_pwrite(int fd, const void *bytes, size_t n, int64_t at);
/* As many as there are, at most n: their number, or -1 with errno. */
ssize_t evidence_pread(int fd, void *bytes, size_t n, int64_t at);
/* A regular file for reading, never through a link: its descriptor, or -1 with errno. */
int evidence_open_file(int dirfd, const char *name);
/* The head in the folder dirfd, called `dir` in errors. -ENOENT: there is none. free() frees it. */
int evidence_head_read(int dirfd, const char *dir, struct evidence_head **ret_head, struct err *err);

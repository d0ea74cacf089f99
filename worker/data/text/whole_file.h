/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/text/whole_file.h - a file read into memory that is reused for
 * the next file. Read, not mapped: a user's file that is cut while it is used must be an error, not a SIGBUS. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

/* All zero is empty; the caller frees bytes. */
struct whole_file {
    uint8_t *bytes;
    size_t size, cap;
    int64_t mtime_ns;
};

/* Regular files of at most max_bytes. ERR_DATA or -errno, naming the file. */
int whole_file_read(struct whole_file *f, const char *path, int64_t max_bytes, struct err *err);
/* Does an error mean that the file is bad, for all readers and permanently? Other errors (no memory, too many open
 * files, a failing disk) are not a reason to leave a picture out: another rank or attempt might read it. */
bool file_at_fault(int code);

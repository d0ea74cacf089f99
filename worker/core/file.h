/* SPDX-License-Identifier: Apache-2.0 */ /* worker/core/file.h - whole files, read through a read-only map. They are
 * written beside their place and renamed when complete, so that a reader (or a power cut) sees the old file or the new
 * one and nothing between. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "proto/host/sha256.h"

struct err;

/* A file mapped read-only. An empty file has size 0 and data that points to nothing readable. If a mapped file is cut
 * short, its readers are killed; detd replaces its files by rename only. */
struct file_map {
    const unsigned char *data;
    size_t size;
};
/* Maps a regular file of at most max_bytes. Errors name the path and the reason: the error of open(), not a regular
 * file, or too large. */
int file_map_open(const char *path, size_t max_bytes, struct file_map *ret_map, struct err *err);
void file_map_close(struct file_map *m);

struct file_out;
/* Opens `path`.tmp for writing; the file at `path` stays as it is until file_out_commit(). A file at `path`.tmp is
 * taken for the remains of a killed writer and is lost. */
int file_out_open(const char *path, struct file_out **ret_out, struct err *err);
/* Tells whether detd wrote the file at `path`. */
typedef bool file_is_own(const char *path);
/* The same for a file that a user has named. No file of the user is lost: the temporary name, `path`.NUMBER.tmp, is a
 * free one, and the open and the commit fail if file_may_replace() does. A link is followed; a replaced file keeps its
 * mode. */
int file_out_open_named(const char *path, file_is_own *is_own, struct file_out **ret_out, struct err *err);
/* Returns 0 if a file may be written to `path`: no file is there, the file is empty, or is_own recognises it as detd's.
 * ERR_INPUT: the path holds a file that detd did not write, a write-protected file, or a folder, device or pipe. Links
 * are followed. */
int file_may_replace(const char *path, file_is_own *is_own, struct err *err);
/* Buffered. After a failure every later call fails in the same way, so callers may check only the commit. */
int file_out_write(struct file_out *o, const void *bytes, size_t size, struct err *err);
int file_out_printf(struct file_out *o, struct err *err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* SHA-256 of all bytes written so far. */
int file_out_hash(struct file_out *o, unsigned char ret[SHA256_BYTES], struct err *err);
/* Flushes, fsyncs, renames and fsyncs the folder, and frees o in every case; on failure the temporary file is
 * removed. */
int file_out_commit(struct file_out *o, struct err *err);
/* Gives up: removes the temporary file and frees o. NULL is ignored. */
void file_out_abort(struct file_out *o);

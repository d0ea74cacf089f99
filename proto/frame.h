/* SPDX-License-Identifier: Apache-2.0 */ /* proto/frame.h - cuts a byte stream into JSON lines. No I/O, so tests and
 * fuzzers can feed it. */
#pragma once
#include <stddef.h>

struct err;
struct frame;
/* A cutter that refuses lines over max_line bytes. Caller frees. NULL: out of memory. */
struct frame *frame_new(size_t max_line);
void frame_free(struct frame *f);
/* Copies len bytes in. Returns 0, ERR_PROTO when a line passes the limit, or -ENOMEM. */
int frame_push(struct frame *f, const char *bytes, size_t len, struct err *err);
/* The next whole line, NUL-terminated, without its newline (a CR before it is cut too), or NULL. Borrowed until the
 * next frame_push(). */
const char *frame_next(struct frame *f, size_t *ret_len);
/* The number of bytes that were pushed and not handed out yet. */
size_t frame_bytes(const struct frame *f);
/* Drops all bytes that were pushed and not handed out yet. */
void frame_clear(struct frame *f);
/* Frees the room of a long line that was handed out, unless further bytes are left. The line is gone then. */
void frame_trim(struct frame *f);

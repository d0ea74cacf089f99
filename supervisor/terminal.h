/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/terminal.h - the terminal of a job of `detctl shell`: a
 * pseudo-terminal for the program, and the socket `terminal` in the job's folder, to which detctl connects.
 *
 * detctl sends frames: a byte of kind, two bytes of length (big-endian), so many bytes. Kind 'd': what was typed. Kind
 * 'w': rows and columns of its window, two bytes each (big-endian). It gets the bytes of the program. One detctl at a
 * time is connected. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct err;
struct terminal;
struct uv_loop_s;

enum { TERMINAL_FRAME = 4096, TERMINAL_LOST_S = 60 };
#define TERMINAL_SOCKET "terminal"

/* Makes both. lost() is called when no detctl was connected for TERMINAL_LOST_S. The caller calls terminal_close(). */
int terminal_open(struct uv_loop_s *loop, void (*lost)(void *arg), void *arg, struct terminal **ret, struct err *err);
/* The program's end of the pseudo-terminal; to be closed by terminal_started() when the program has it. */
int terminal_fd(const struct terminal *t);
void terminal_started(struct terminal *t);
/* The program has ended: what it has written last is passed on. Memory goes when libuv has closed its handles. */
void terminal_close(struct terminal *t);

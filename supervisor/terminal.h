/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/terminal.h - the terminal of a job of `detctl shell`: a
 * pseudo-terminal for the program, and the socket `terminal` in the job's folder. A detctl that connects there gets the
 * other end of the pseudo-terminal, and keeps the connection for as long as it shows it. One at a time is connected. */
#pragma once
#include <stdbool.h>

struct err;
struct terminal;
struct uv_loop_s;

enum { TERMINAL_LOST_S = 60 };
#define TERMINAL_SOCKET "terminal"

/* Makes both. The caller calls terminal_close(). */
int terminal_open(struct uv_loop_s *loop, struct terminal **ret, struct err *err);
/* The program's end of the pseudo-terminal; to be closed by terminal_started() when the program has it. */
int terminal_fd(const struct terminal *t);
void terminal_started(struct terminal *t);
/* Once a second. True, once: no detctl was connected for TERMINAL_LOST_S. */
bool terminal_is_lost(struct terminal *t);
/* The program has ended. Memory goes when libuv has closed its handle. */
void terminal_close(struct terminal *t);

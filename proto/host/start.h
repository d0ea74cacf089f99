/* SPDX-License-Identifier: Apache-2.0 */ /* proto/host/start.h - repairs descriptors and signals that the parent process has closed, ignored or blocked. Needs the C
 * library alone. */
#pragma once

/* The first call of main() in a program that a person runs. It exits with 1 where it cannot do this:
 * - Missing standard descriptors lead to /dev/null, opened for reading alone. A read sees the end, a write fails with EBADF. So no socket or file that is
 *   opened later gets their numbers.
 * - SIGXFSZ is ignored: a write beyond the limit of file sizes fails with EFBIG.
 * - Other ignored signals have their default action, and no signal is blocked. Signals by which a terminal or a starter (nohup, the & of a script)
 *   stops programs stay ignored: SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN and SIGTTOU. */
void start_tool(void);
/* The same for a program that serves others. It also exits with 1 where it may have fewer than 64 files open. It ignores SIGPIPE, and programs that it
 * executes inherit the standard descriptors alone. */
void start_service(void);

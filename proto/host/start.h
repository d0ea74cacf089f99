/* SPDX-License-Identifier: Apache-2.0 */ /* proto/host/start.h - repairs descriptors and signals that the parent
 * process has closed, ignored or blocked. Needs only the C library. */
#pragma once

/* The first call of main() in a program that a person runs. It exits with 1 if it cannot do this:
 * - Missing standard descriptors lead to /dev/null, opened for reading alone. A read sees the end, a write fails with
 *   EBADF. So a socket or file that is opened later cannot get their numbers.
 * - SIGXFSZ is ignored: a write beyond the limit of file sizes fails with EFBIG.
 * - Other ignored signals get their default action, and no signal is blocked. Signals by which a terminal or a starter
 *   (nohup, the & of a script) stops programs stay ignored: SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN and
 *   SIGTTOU. */
void start_tool(void);
/* The same for a service. It also exits with 1 if it may have fewer than 64 files open. It ignores SIGPIPE. Programs
 * that it executes inherit only the standard descriptors. */
void start_service(void);

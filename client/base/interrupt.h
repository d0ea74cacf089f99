/* SPDX-License-Identifier: Apache-2.0 */ /* client/base/interrupt.h - Ctrl-C while a command waits. */
#pragma once
#include <signal.h>

/* Ctrl-C while waiting: after catch_interrupt(), SIGINT and SIGTERM only set `interrupted`, and calls return
 * CODE_INTERRUPTED. */
extern volatile sig_atomic_t interrupted;
void catch_interrupt(void);
/* Sleeps; returns early when interrupted. */
void sleep_ms(int ms);

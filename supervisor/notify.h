/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/notify.h - the command of a user that is to hear of something
 * (run.on_end), in a process of its own.
 *
 * It has none of this program's descriptors, locks or signals and a session of its own, so that it holds up nothing,
 * and lives on when this program leaves. What outlives the limit, and whatever it leaves behind, is killed. The first
 * NOTIFY_OUTPUT bytes it says go to this program's standard error, and a line there says how it ended. */
#pragma once
#include <stddef.h>
#include <sys/types.h>

struct err;

enum { NOTIFY_OUTPUT = 16 << 10, NOTIFY_INPUT = 16 << 10 };

/* Runs `command` by /bin/sh in the working directory, with `len` bytes of `text` on its standard input, at most
 * NOTIFY_INPUT. env: NULL-terminated. Returns the child that watches over it, for the caller to wait for, or an
 * error. */
pid_t notify_start(const char *command, char *const *env, const char *text, size_t len, int limit_ms, struct err *err);

/* SPDX-License-Identifier: Apache-2.0 */ /* launch/holders.h - those of a job that have its lock, whatever scope they are in. */
#pragma once
#include <stddef.h>

#include "proto/launch.h"

/* Sends SIGKILL to them, and to the rest of the session that is written in the lock, as the ticket's user, so that nobody else's process can be meant. How many
 * there are; -1: that was not found out within a second. `ret` names one. lock: its file. */
int holders_kill(const struct launch_ticket *t, int lock, char *ret, size_t size);

/* SPDX-License-Identifier: Apache-2.0 */ /* launch/tracers.h - processes that trace those of a job. A killed process
 * stays, as a zombie or in the middle of its exit, until its tracer waits for it or leaves. */
#pragma once
#include <sys/types.h>

/* Sends SIGKILL to the process that traces the thread, to the tracer of that process, and so on, as far as they are
 * the user's. */
void tracers_kill(pid_t thread, uid_t user);

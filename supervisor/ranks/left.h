/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/ranks/left.h - what ranks leave behind. This program is a
 * subreaper: every process of the job that has lost its parent is its child. */
#pragma once
#include <stddef.h>
#include <sys/types.h>

/* Names a process: "process 12 (name, state D)". */
void left_name(pid_t pid, char *ret, size_t size);
/* From here on orphans of the job fall to this process. */
void left_adopt(void);
/* A child that is none of the job's work, and that left_kill() leaves alone as long as it lives. */
void left_spare(pid_t pid);
/* Waits for those that are spared, so long at most: for who takes all processes of the job along when it leaves. */
void left_await_spared(int limit_ms);
/* Kills every child and takes the dead ones away; only while no rank lives. Returns how many are still there, being
 * killed or in a state that cannot be; `ret` names one of them: "process 12 (name, state D)". */
int left_kill(char *ret, size_t size);
/* The number of processes that left_kill() has killed since left_forget(). */
int left_killed(void);
void left_forget(void);

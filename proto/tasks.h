/* SPDX-License-Identifier: Apache-2.0 */ /* proto/tasks.h - why no thread, or no process, can be started, in words: the system's own name which limit it is for none. */
#pragma once

/* error: what pthread_create() returned. One that has no memory for its stack is told as EAGAIN by the C library, as is one that is one too many. Static text. */
const char *thread_lacks(int error);
/* error: errno of fork(), or what posix_spawn() returned. */
const char *process_lacks(int error);

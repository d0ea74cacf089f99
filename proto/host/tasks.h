/* SPDX-License-Identifier: Apache-2.0 */ /* proto/host/tasks.h - says which limit kept a thread or process from starting. strerror() does not name the limit. */
#pragma once

/* error: what pthread_create() returned. It returns EAGAIN both where there is no memory for the stack and where there are too many threads. Static text. */
const char *thread_lacks(int error);
/* error: errno of fork(), or what posix_spawn() returned. */
const char *process_lacks(int error);

/* SPDX-License-Identifier: Apache-2.0 */ /* proto/host/tasks.h - says which limit kept a thread or process from
 * starting. strerror() does not name the limit. */
#pragma once

/* error: the result of pthread_create(). It is EAGAIN both if there is no memory for the stack and if there are too
 * many threads. Static text. */
const char *thread_lacks(int error);
/* error: errno of fork(), or the result of posix_spawn(). */
const char *process_lacks(int error);

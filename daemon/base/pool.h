/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/base/pool.h - libuv's thread pool, started before the first client
 * is served. */
#pragma once
#include <uv.h>

struct err;

/* Starts the threads of the pool; to be called once in a process. libuv starts them at the first work, and ends the
 * process if a thread cannot be started, for example under a limit of the address space. Here that is an error. */
int pool_start(uv_loop_t *loop, struct err *err);

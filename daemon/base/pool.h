/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/base/pool.h - libuv's thread pool, started before anybody is served. */
#pragma once
#include <uv.h>

struct err;

/* Starts the threads of the pool. libuv starts them at the first work, and ends the process where one cannot be started, as under a limit of the address
 * space: here that is an error. Once a process. */
int pool_start(uv_loop_t *loop, struct err *err);

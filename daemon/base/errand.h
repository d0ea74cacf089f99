/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/base/errand.h - a thread of its own for work that may take long. Its
 * work is done in order, and keeps nothing else waiting. */
#pragma once
#include <uv.h>

struct err;
struct errands;

/* Starts the thread. An idle thread does not keep the loop alive. */
int errands_open(uv_loop_t *loop, struct errands **ret, struct err *err);
/* Runs work(arg) on the thread, then after(arg) on the loop. Returns 0, -ENOMEM, or -ECANCELED if e is NULL. */
int errands_add(struct errands *e, void (*work)(void *arg), void (*after)(void *arg), void *arg);
/* Finishes all remaining work, each with its after(), before it returns. Frees the memory once the loop has run. NULL
 * is allowed. */
void errands_close(struct errands *e);

/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/base/errand.h - a thread of its own for work that may take long: what is given to it is done in order, and keeps nothing else waiting. */
#pragma once
#include <uv.h>

struct err;
struct errands;

/* Starts the thread. The errands alone do not keep the loop alive while there is none. */
int errands_open(uv_loop_t *loop, struct errands **ret, struct err *err);
/* Runs work(arg) on the thread, then after(arg) on the loop. 0, -ENOMEM, or, where e is NULL, -ECANCELED. */
int errands_add(struct errands *e, void (*work)(void *arg), void (*after)(void *arg), void *arg);
/* Does what is left, each with its after(), before it returns; then frees, once the loop has run. NULL is allowed. */
void errands_close(struct errands *e);

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/wide.h - fp32 copies of tensors in bf16, for operations that
 * keep sums in their outputs: such sums round once, when all is added. */
#pragma once
#include "worker/cpu/cpu.h"

/* Tensors of all shards that an operation has in bf16. */
struct wide {
    const void *of; /* [nshards] structs of `each` bytes that begin with a tensor; NULL: no tensors */
    size_t each;
    bool read; /* their numbers are read, not only written */
    void *as;  /* the same structs with the copies in place of the tensors */
};

/* Makes `as` of each of them, in memory that lasts until the next call. 0 or -ENOMEM. */
int cpu_widen(struct device *dev, struct wide *w, int n, int nshards, struct err *err);
/* Rounds the copies back. */
void cpu_narrow(struct device *dev, const struct wide *w, int nshards);

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/tile_amx.h - the tile unit of x86, AMX. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "worker/cpu/tile.h"

/* May it be used, and does it compute what kernels/bf16.h says? Asks the kernel for this process; why: one sentence where not. */
bool amx_ready(char *ret_why, size_t size);
/* Only where it is ready. */
extern const struct tile_unit tile_amx;

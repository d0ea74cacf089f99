/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/tile_amx.h - the tile unit of x86, AMX. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "worker/cpu/tile.h"

/* May it be used, and does it compute like kernels/bf16.h? Asks the kernel for this process; ret_why: a sentence with
 * the reason if not. */
bool amx_ready(char *ret_why, size_t size);
/* Only if amx_ready(). */
extern const struct tile_unit tile_amx;

/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/plan_table.h - the table of measured choices, each for the GPU and the
 * library versions of its measurement. It is text inside the plugin (cuda/engines.txt, written by
 * tests/bench/bench_engines).
 *
 *     GPU NVIDIA H100 80GB HBM3, 132 multiprocessors, compute 9.0; cuDNN 9.19.0; cuBLASLt 13.1.0
 *     fwd bf16 any x[16,52,52,128] w[256,3,3,128] stride 1 pad 1: cudnn engine 43 knobs 2=5
 *
 * A title is followed by rows: a key for any tier (plan_key_any_tier()), then the name of a plan (cuda/plan.h). A key
 * may have several rows, best first: the filter of a tier may refuse some. Lines that begin with '#' are for people. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

/* The table that is part of the plugin. */
const char *plan_table_shipped(void);
/* The rows below the first such title; NULL if the text does not have it. */
const char *plan_table_rows(const char *text, const char *title);
/* The next name for the key from *rows on; *rows moves behind it. The text may contain a title several times. */
bool plan_table_next(const char **rows, const char *title, const char *key, char *ret_name, size_t size);

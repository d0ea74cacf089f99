/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/plan_table.h - choices that were measured, for the GPUs and the versions of the libraries that they were measured with: text that is
 * part of the plugin (cuda/engines.txt, written by tests/bench/bench_engines).
 *
 *     GPU NVIDIA H100 80GB HBM3, 132 multiprocessors, compute 9.0; cuDNN 9.19.0; cuBLASLt 13.1.0
 *     fwd bf16 any x[16,52,52,128] w[256,3,3,128] stride 1 pad 1: cudnn engine 43 knobs 2=5
 *
 * A title, then rows of keys, each tier's (plan_key_any_tier()), with the name of a plan (cuda/plan.h). A key may have several rows, best
 * first: the filter of a tier may refuse some. Lines that begin with '#' are for people. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

/* What the plugin brings along. */
const char *plan_table_shipped(void);
/* The rows below the first such title, NULL where it is not in the text. */
const char *plan_table_rows(const char *text, const char *title);
/* The next name of the key, from *rows on, which moves behind it. A title may stand there several times. */
bool plan_table_next(const char **rows, const char *title, const char *key, char *ret_name, size_t size);

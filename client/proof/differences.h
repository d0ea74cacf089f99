/* SPDX-License-Identifier: Apache-2.0 */ /* client/proof/differences.h - values that differ between two JSON objects, by the path of their key. */
#pragma once
#include <jansson.h>

/* Appends {"key":"train.lr","a":0.01,"b":0.001} to the array `out` for each value that differs; null: it is missing there. Objects are gone into, lists are
 * values. a, b: objects or NULL. prefix goes in front of the keys. */
void differences_add(json_t *out, const char *prefix, const json_t *a, const json_t *b);
/* As a table with the headers a and b; nothing where there is no difference. */
void differences_print(const json_t *differences, const char *a, const char *b);

/* SPDX-License-Identifier: Apache-2.0 */ /* client/proof/differences.h - values that differ between two JSON objects,
 * by the path of their key. */
#pragma once
#include <jansson.h>

/* Appends {"key":"train.lr","a":0.01,"b":0.001} to the array `out` for each value that differs; null: a missing value.
 * Objects are compared by member, lists as a whole. a, b: objects or NULL. prefix is put before the keys. */
void differences_add(json_t *out, const char *prefix, const json_t *a, const json_t *b);
/* Prints a table with the headers a and b; nothing if there are no differences. */
void differences_print(const json_t *differences, const char *a, const char *b);

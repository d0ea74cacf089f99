/* SPDX-License-Identifier: Apache-2.0 */ /* proto/near.h - finds the known word that an unknown word was meant to
 * be. */
#pragma once
#include <stdbool.h>

/* Edit distance (insert, delete, replace, swap of neighbours); words longer than the longest key of a job are far from
 * everything. */
unsigned near_distance(const char *a, const char *b);
/* Returns the word of a list that `word` most likely is a slip of, or NULL if no word is near. The list ends with
 * NULL. */
const char *near_word(const char *word, const char *const *known);
/* The number of edits from which on a word counts as a different one. */
unsigned near_bound(const char *word);
/* Whether the key `word` of a file is a misspelt `key`. It is if the two differ only by case, '_' and '-', or if `key`
 * has more than three letters and is fewer than near_bound() edits away. False if they are equal. */
bool near_misspelt(const char *word, const char *key);

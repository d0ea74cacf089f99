/* SPDX-License-Identifier: Apache-2.0 */ /* proto/near.h - which word was meant by one that nobody knows. */
#pragma once
#include <stdbool.h>

/* Edit distance (insert, delete, replace, swap of neighbours); words longer than the longest key of a job are far from everything. */
unsigned near_distance(const char *a, const char *b);
/* The word of a list that `word` is most likely a slip of. The list ends with NULL. Returns NULL where no word is near. */
const char *near_word(const char *word, const char *const *known);
/* So many edits, or more, make another word of it. */
unsigned near_bound(const char *word);
/* Whether a key of a file is a misspelt `key`: it differs by case, '_' and '-' alone, or `key` has more than three letters and fewer edits than near_bound() lead
 * there. */
bool near_misspelt(const char *word, const char *key);

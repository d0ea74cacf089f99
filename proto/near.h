/* proto/near.h - which word was meant by one that nobody knows. */
#pragma once

/* Edit distance (insert, delete, replace, swap of neighbours); words longer than the longest key of a job are far from everything. */
unsigned near_distance(const char *a, const char *b);
/* The word of a list that `word` is most likely a slip of. The list ends with NULL. Returns NULL where no word is near. */
const char *near_word(const char *word, const char *const *known);
/* So many edits, or more, make another word of it. */
unsigned near_bound(const char *word);

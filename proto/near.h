/* proto/near.h - which word was meant by one that nobody knows. */
#pragma once

/* Edit distance (insert, delete, replace, swap of neighbours); words longer than the longest key of a job are far from everything. */
unsigned near_distance(const char *a, const char *b);
/* So many edits, or more, make another word of it. */
unsigned near_bound(const char *word);

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/frames/split_list.h - the list of frames of a split: one
 * frame a line, up to three words with blanks between. Bounded; blank lines are ignored. A file with a name that ends
 * with .json has the lists of several splits, { "splits": { "train": ["a line", ..], .. } }: its elements are the
 * lines. */
#pragma once
#include <stdint.h>

#include "worker/data/text/whole_file.h"

struct err;

enum { SPLIT_MAX_BYTES = 1 << 28, SPLIT_MAX_WORDS = 3, SPLIT_MAX_WORD = 1023 };

struct split_list {
    const char *path;
    struct whole_file file; /* as it was read */
    char *text;             /* lines of one of its splits; NULL: the file's own */
    size_t at, size;
    int64_t line;
};

struct split_line {
    int64_t number;                                 /* from 1 */
    int n;                                          /* words */
    char word[SPLIT_MAX_WORDS][SPLIT_MAX_WORD + 1]; /* "" from n on */
};

/* path is borrowed. split: "train" or "val". ERR_DATA or -errno, naming the file. Must be closed with
 * split_list_close() in every case. */
int split_list_open(struct split_list *l, const char *path, const char *split, struct err *err);
void split_list_close(struct split_list *l);
/* The next line: 1; 0 at the end; ERR_DATA if it cannot be read, naming file and line. The next line may be asked for
 * after that. */
int split_list_next(struct split_list *l, struct split_line *ret, struct err *err);
/* A word that is a whole number 0 .. max and nothing else; -1: it is not. Zeros in front are allowed. */
int64_t split_number(const char *word, int64_t max);

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/text/text_lines.h - a text file line by line, without the
 * blanks at both ends of a line: lists, names, labels. Bounded; UTF-8. Empty lines and a byte order mark are
 * skipped. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

enum { TEXT_MAX_LINE = 1 << 20 };

struct text_lines {
    const char *path, *at, *end;
    int64_t line;
};

struct text_line {
    const char *text; /* in the caller's bytes, len > 0 of them, no NUL behind them */
    size_t len;
    int64_t number; /* from 1 */
};

/* Length of the byte order mark at the beginning of a file: 3, or 0. Every reader of text skips it. */
size_t text_mark(const void *bytes, size_t size);
/* path and bytes are borrowed. */
void text_lines_open(struct text_lines *l, const char *path, const void *bytes, size_t size);
/* The next line: 1; 0 at the end; ERR_DATA if it is not text, or too long, naming file and line. The next line may be
 * asked for after that. */
int text_lines_next(struct text_lines *l, struct text_line *ret, struct err *err);
/* Takes the first word off a line; false: there is no word. */
bool text_word(struct text_line *line, struct text_line *ret_word);
/* A word that is a finite number in decimal digits, and nothing else. */
bool text_number(const struct text_line *word, double *ret);

/* SPDX-License-Identifier: Apache-2.0 */ /* client/base/print.h - the output of detctl: aligned columns, units, JSON,
 * CSV numbers. A terminal gets no character of a user that it would obey; files and pipes get the bytes as they are. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Prints foreign text (names, reasons, paths): on a terminal, or in memory while stdout is one, with clean_shown() in
 * place of each character that a terminal would obey. */
void print_clean(FILE *out, const char *text);
/* The same for lines of a log: line ends, tabs and colours pass. */
void print_lines(FILE *out, const char *text, size_t len);
/* Number of cells for len bytes of text that print_clean() writes to a terminal: letters of East Asia take two, accents
 * that combine take zero. */
int print_width(const char *text, size_t len);
/* A CSV field on stdout, quoted if necessary. */
void print_csv_text(const char *text);
/* Indented JSON and a newline on stdout, with every character that a terminal would obey escaped. */
void print_json(const json_t *value);
/* The same with other flags of json_dumps(), and without the newline. */
void print_json_as(const json_t *value, size_t flags);
/* A number as %.17g; nothing if it is null. */
void print_real(FILE *out, const json_t *value);

/* Members of an answer of detd; "" or 0 if there is no member of that name and type. */
const char *text_of(const json_t *obj, const char *name);
long long int_of(const json_t *obj, const char *name);
double real_of(const json_t *obj, const char *name);

/* Whether the stream is a terminal that obeys escape sequences: TERM is set, is neither dumb nor unknown, and is known
 * on this node. */
bool print_moves(FILE *out);
/* Whether it is such a terminal, and NO_COLOR is not set. */
bool print_colour(FILE *out);
/* Whether to draw with UTF-8: the locale has it, and stdout is not the Linux console, which lacks the characters. */
bool print_utf8(void);
/* From now on text_time() writes UTC, with a Z behind it. */
void print_times_in_utc(void);
/* Columns and rows of the terminal on stdout; 80 and 24 if stdout is not a terminal. */
void print_size(int *ret_columns, int *ret_rows);

/* Short texts; each returns buf. */
struct text_buf {
    char s[40];
};
struct text_buf text_duration(double seconds); /* 1d 3h, 2h 05m, 6m 12s, 9 s */
struct text_buf text_bytes(double bytes);      /* 1.5 GiB */
struct text_buf text_time(double unix_time);   /* 2026-01-31 14:05:09, local unless UTC was chosen; "-" for 0 */
struct text_buf text_taken(const json_t *job); /* how long it took, or has run since its first start; "-" before */
struct text_buf text_step(const json_t *job);  /* 4/8; "-" for a job that evaluates */
struct text_tags_buf {
    char s[600];
};
struct text_tags_buf text_tags(const json_t *job); /* "base night"; "" without tags */
struct text_buf text_number(const json_t *v);      /* six digits; "-" if it is null or absent */

/* Aligned columns. The first character of a header gives the alignment: '<' left, '>' right. */
struct table;
struct table *table_new(int columns, const char *const *headers); /* all of table_ abort when out of memory */
void table_add(struct table *t, const char *cell);
void table_addf(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Hides a column. */
void table_hide(struct table *t, int column);
/* Width of the widest line in columns, with the blanks between. */
int table_width(const struct table *t);
void table_print(struct table *t, FILE *out);
void table_free(struct table *t);

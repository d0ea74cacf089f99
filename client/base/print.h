/* SPDX-License-Identifier: Apache-2.0 */ /* client/base/print.h - how detctl writes: aligned columns, units, JSON, CSV numbers, and nothing that a terminal would obey. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Text of others (names, reasons, paths), '?' for all that a terminal would obey (proto/clean.h). */
void print_clean(FILE *out, const char *text);
/* Cells of a terminal that len bytes of text take as print_clean() writes them: letters of East Asia take two, accents that combine none. */
int print_width(const char *text, size_t len);
/* A CSV field on stdout: quoted where it has to be. */
void print_csv_text(const char *text);
/* Indented JSON and a newline on stdout. */
void print_json(const json_t *value);
/* A number as %.17g, nothing where it is null. */
void print_real(FILE *out, const json_t *value);

/* Members of an answer of detd; "" or 0 where there is none of that kind. */
const char *text_of(const json_t *obj, const char *name);
long long int_of(const json_t *obj, const char *name);
double real_of(const json_t *obj, const char *name);

/* Whether the stream is a terminal that obeys escape sequences: TERM is set, is neither dumb nor unknown, and the node knows it. */
bool print_moves(FILE *out);
/* Such a terminal, and no NO_COLOR. */
bool print_colour(FILE *out);
/* Whether to draw with UTF-8: a locale that has it, and stdout is not the Linux console, which lacks the characters. */
bool print_utf8(void);
/* From here on text_time() writes UTC, with a Z behind it. */
void print_times_in_utc(void);
/* Columns and rows of the terminal on stdout; 80 and 24 where it is none. */
void print_size(int *ret_columns, int *ret_rows);

/* Short texts; each returns buf. */
struct text_buf {
    char s[40];
};
struct text_buf text_duration(double seconds); /* 1d 3h, 2h 05m, 6m 12s, 9 s */
struct text_buf text_bytes(double bytes);      /* 1.5 GiB */
struct text_buf text_time(double unix_time);   /* 2026-01-31 14:05:09, local unless UTC was asked for; "-" for 0 */
struct text_buf text_taken(const json_t *job); /* how long it took, or has run since it was started first; "-" before */
struct text_buf text_step(const json_t *job);  /* 4/8; "-" of one that evaluates */
struct text_tags_buf {
    char s[600];
};
struct text_tags_buf text_tags(const json_t *job); /* "base night"; "" where it has none */
struct text_buf text_number(const json_t *v);      /* six digits; "-" where it is null or absent */

/* Aligned columns. The header's first character says how: '<' left, '>' right. */
struct table;
struct table *table_new(int columns, const char *const *headers); /* aborts when out of memory, as all of table_ */
void table_add(struct table *t, const char *cell);
void table_addf(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A column is not printed. */
void table_hide(struct table *t, int column);
/* Columns of the widest line, blanks between included. */
int table_width(const struct table *t);
void table_print(struct table *t, FILE *out);
void table_free(struct table *t);

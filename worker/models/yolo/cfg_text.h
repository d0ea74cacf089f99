/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/yolo/cfg_text.h - the text of a .cfg file as sections of
 * key=value entries, and typed access to them. Lines are read like in darknet: blanks vanish everywhere, # and ; start
 * comments, the first of equal keys holds. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct err;

enum { CFG_MAX_BYTES = 1 << 20, CFG_MAX_LINE = 4096, CFG_MAX_KEYS = 256 /* of a section */, CFG_MAX_WARNINGS = 100 };

struct cfg_entry {
    const char *key, *value;
    int line;
};

struct cfg_section {
    const char *name;
    int line;
    int from, to; /* its entries */
};

/* rc is sticky: after the first error the functions below change nothing and return defaults, so that callers need no
 * branch per key. */
struct cfg_text {
    const char *name; /* of the file, for messages */
    char *text;       /* own copy; keys and values point into it */
    struct cfg_section *sections;
    struct cfg_entry *entries;
    int nsections, nentries;
    int rc;
    struct err *err;
    FILE *warnings;
    char *warning_text;
    size_t warning_size;
    int nwarnings;
};

/* Splits text[size]. `name` and err are kept. Returns rc; cfg_text_close() must follow in every case. */
int cfg_text_open(struct cfg_text *p, const char *text, size_t size, const char *name, struct err *err);
/* Frees everything and returns rc. On 0 *ret_warnings gets the warnings ("name:line: text\n" each), malloc'ed, caller
 * frees. */
int cfg_text_close(struct cfg_text *p, char **ret_warnings);

/* Records an error or a warning about a line; 0: a warning about the whole file. */
void cfg_fail(struct cfg_text *p, int line, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void cfg_warn(struct cfg_text *p, int line, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The value of a key; def if it is absent. Trailing garbage, hex, inf, nan and values out of range are errors. */
double cfg_real(struct cfg_text *p, const struct cfg_section *s, const char *key, double def, double min, double max);
int cfg_int(struct cfg_text *p, const struct cfg_section *s, const char *key, int def, int min, int max);
/* A list of at most `room` numbers, whole ones if asked for; returns how many. 0: the key is absent or wrong. */
int cfg_list(struct cfg_text *p, const struct cfg_section *s, const char *key, double *v, int room, double min, double max, bool whole);
/* Index of the value in words[], which ends with NULL. */
int cfg_word(struct cfg_text *p, const struct cfg_section *s, const char *key, int def, const char *const *words);
/* For a key with only one supported value. */
void cfg_only(struct cfg_text *p, const struct cfg_section *s, const char *key, double value);

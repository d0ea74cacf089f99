/* SPDX-License-Identifier: Apache-2.0 */ /* proto/job/jobspec_table.h - the rows of JOB_KEYS as data, for the parser, the help, and the test that writes
 * schema and manual. Private to proto/job/jobspec*.c. */
#pragma once
#include <stddef.h>
#include <string.h>

#include "proto/job/jobspec.h"

#define JOB_MAX_WHOLE 9007199254740992.0 /* 2^53: whole numbers up to it are exact in JSON readers everywhere */

enum job_type {
    TYPE_STR,
    TYPE_PATH,
    TYPE_ENUM,
    TYPE_INT,
    TYPE_REAL,
    TYPE_BOOL,
    TYPE_REALS,
    TYPE_MAP,
    TYPE_SIZE,
    TYPE_INTS,
    TYPE_STRS,
    TYPE_NUMBERS
};

struct job_key {
    const char *path;
    enum job_type type;
    const char *def;      /* JSON text, or "-" */
    const char *neutral;  /* JSON text, or "-", "*" or "~" */
    const char *families; /* separated by blanks; "": all */
    double min, max;
    const char *unit, *values, *help;
    size_t offset; /* of the member of struct jobspec */
};

enum {
#define X(field, ...) JOB_KEY_##field,
    JOB_KEYS(X)
#undef X
        JOB_KEY_COUNT
};

extern const struct job_key job_keys[JOB_KEY_COUNT];

/* Whether there is a neutral value. */
static inline int job_key_has_neutral(const struct job_key *k)
{
    return strcmp(k->neutral, "-") != 0 && strcmp(k->neutral, "*") != 0 && strcmp(k->neutral, "~") != 0;
}
/* Whether stored jobs have it. */
static inline int job_key_is_stored(const struct job_key *k)
{
    return strcmp(k->neutral, "~") != 0;
}
/* Whether models of a family have the key. NULL: no family is known, then all keys are had. */
int job_key_of(const struct job_key *k, const struct job_family *family);
/* Whether only networks that find masks have it. */
static inline int job_key_for_masks(const struct job_key *k)
{
    return strncmp(k->path, "model.mask_", 11) == 0;
}
/* A minimum that means "anything above zero". */
static inline int job_key_positive(const struct job_key *k)
{
    return k->min > 0 && k->min <= 1e-300;
}
/* Whether the key counts steps and takes a text with a unit, as "2 epochs", which who submits turns into steps. */
int job_key_takes_units(const struct job_key *k);
/* 1: value is such a text of k, or a list with one; 0: it is none; ERR_INPUT: a text that has no such form. */
int job_units_read(const struct job_key *k, const json_t *value, struct err *err);
/* The row whose path is the len bytes at path, or NULL. */
const struct job_key *job_key_find(const char *path, size_t len);
/* ERR_INPUT about the key at path, as "train.lr: must be > 0, is -1". */
int job_error(struct err *err, const char *path, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Sets preset and family, from model.preset and model.cfg. */
int jobspec_choose(struct jobspec *s, const struct job_presets *presets, struct err *err);
/* What d is for this job, as JSON text. */
const char *job_default_text(const struct jobspec *s, const struct job_default *d);
/* The rules between keys, and the defaults that depend on others; every member is filled in but for those. uncounted: train.epochs may stand for
 * train.steps, and what follows from that is left alone. */
int jobspec_finish(struct jobspec *s, bool uncounted, struct err *err);
/* A key that may have no effect. A key at its default is never complained of. */
struct job_wanted {
    const char *key;
    bool said, fits;   /* it has another value than by default; it has an effect in this job */
    const char *needs; /* its condition */
};
/* ERR_INPUT about the first of the keys that is said and does not fit. */
int job_all_fit(const struct job_wanted *keys, size_t n, struct err *err);
/* Default of a key with a number, JOB_KEY_..., in this job. */
double job_usual(const struct jobspec *s, int key);
/* Whether the numbers are those of a list as JSON text. */
bool job_reads_as(const struct jobspec_list *a, const char *text);
/* Regions that may be foreground in an image, at least one. */
int64_t job_all_foreground(const struct jobspec *s);
/* Sizes of data.augment.multiscale by default, for a longer side of `side` pixels. */
int64_t job_default_size_min(int64_t side);
int64_t job_default_size_max(int64_t side);
/* Keys that were given and change nothing, and values that are taken no more, which a job of an older version may hold. After jobspec_finish(). */
int jobspec_refuse_idle(const struct jobspec *s, struct err *err);
/* Whether the len bytes at path are an object that holds keys, as "data.train". */
int job_key_is_group(const char *path, size_t len);
/* What another program calls a key, told by the unknown-key error. */
struct job_word {
    const char *theirs; /* the last parts of a path, in lower case; NULL ends the table */
    const char *ours;   /* NULL: there is no such key */
    const char *said;   /* what to know besides, or "" */
};
extern const struct job_word job_words[];
/* ERR_INPUT: no key is called `path`. Names the key that was meant, where one is known or similar. */
int job_key_unknown(struct err *err, const char *path);

/* SPDX-License-Identifier: Apache-2.0 */ /* proto/job/jobspec_table.h - the rows of JOB_KEYS as data, for the parser,
 * the help, and the test that writes schema and manual. Private to proto/job/jobspec*.c. */
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
    TYPE_NUMBERS,
    TYPE_ARGS
};

struct job_key {
    const char *path;
    enum job_type type;
    const char *def;      /* JSON text, or "-" */
    const char *neutral;  /* JSON text, or "-", "*", "*code" or "~" */
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

/* Whether the key has a neutral value. */
static inline int job_key_has_neutral(const struct job_key *k)
{
    return strcmp(k->neutral, "-") != 0 && k->neutral[0] != '*' && strcmp(k->neutral, "~") != 0;
}
/* Whether the value is code that the job runs or loads. */
static inline int job_key_is_code(const struct job_key *k)
{
    return strcmp(k->neutral, "*code") == 0;
}
/* Whether stored jobs have the key. */
static inline int job_key_is_stored(const struct job_key *k)
{
    return strcmp(k->neutral, "~") != 0;
}
/* Whether models of a family have the key. True if family is NULL (not known). */
int job_key_of(const struct job_key *k, const struct job_family *family);
/* Whether the key is of programs alone. */
static inline int job_key_is_of_programs(const struct job_key *k)
{
    return strcmp(k->families, "program") == 0;
}
/* Whether the key is of no program, whatever its families: it is about a model of ours. */
int job_key_is_of_models(const struct job_key *k);
/* "family" or "families", as the key has one or several. */
static inline const char *job_key_families(const struct job_key *k)
{
    return strchr(k->families, ' ') ? "families" : "family";
}
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
/* Whether the key counts steps and takes a text with a unit, such as "2 epochs". The submitter turns such a text into
 * steps. */
int job_key_takes_units(const struct job_key *k);
/* Returns 1: value is such a text of k, or a list with one; 0: it is not; ERR_INPUT: a text of a wrong form. */
int job_units_read(const struct job_key *k, const json_t *value, struct err *err);
/* The row whose path is the len bytes at path, or NULL. */
const struct job_key *job_key_find(const char *path, size_t len);
/* ERR_INPUT about the key at path, as "train.lr: must be > 0, is -1". */
int job_error(struct err *err, const char *path, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Sets preset and family, from model.preset and model.cfg. */
int jobspec_choose(struct jobspec *s, const struct job_presets *presets, struct err *err);
/* The default d in this job, as JSON text. */
const char *job_default_text(const struct jobspec *s, const struct job_default *d);
/* Checks the rules between keys, and fills in the defaults that depend on other keys. All other members must be filled
 * in before. uncounted: train.epochs may stand for train.steps; then values that follow from train.steps are not
 * touched. */
int jobspec_finish(struct jobspec *s, bool uncounted, struct err *err);
/* A key that may have no effect. A key with its default value is never refused. */
struct job_wanted {
    const char *key;
    bool said, fits;   /* said: its value is not the default; fits: it has an effect in this job */
    const char *needs; /* its condition */
};
/* ERR_INPUT about the first of the keys with said and without fits. */
int job_all_fit(const struct job_wanted *keys, size_t n, struct err *err);
/* Default of a number key, JOB_KEY_..., in this job. */
double job_usual(const struct jobspec *s, int key);
/* Whether the numbers are those of a list as JSON text. */
bool job_reads_as(const struct jobspec_list *a, const char *text);
/* The rules for a program. */
int jobspec_finish_program(struct jobspec *s, struct err *err);
/* Maximum number of foreground regions in an image, at least 1. */
int64_t job_all_foreground(const struct jobspec *s);
/* Default sizes of data.augment.multiscale, for a longer side of `side` pixels. */
int64_t job_default_size_min(int64_t side);
int64_t job_default_size_max(int64_t side);
/* Refuses keys that were given and have no effect, and values that are no longer accepted but may be in a job of an
 * older version. To be called after jobspec_finish(). */
int jobspec_refuse_idle(const struct jobspec *s, struct err *err);
/* Whether the len bytes at path are the path of an object that holds keys, such as "data.train". */
int job_key_is_group(const char *path, size_t len);
/* The name of a key in another program, for the unknown-key error. */
struct job_word {
    const char *theirs; /* the last parts of a path, in lower case; NULL ends the table */
    const char *ours;   /* our key, or NULL: there is no such key */
    const char *said;   /* a further remark, or "" */
};
extern const struct job_word job_words[];
/* ERR_INPUT: there is no key `path`. Names the key that was probably meant, if another program's name or a similar key
 * is known. */
int job_key_unknown(struct err *err, const char *path);

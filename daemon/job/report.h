/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/job/report.h - the records of proto/report.h as C values, checked. Pure: what comes over sup.sock is cut to bounded sizes here. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct err;

enum { REPORT_MAX_TERMS = 256, REPORT_NAME_MAX = 63, REPORT_TEXT_MAX = 1023 };
enum report_type {
    REPORT_LOSS,
    REPORT_EVAL,
    REPORT_CHECKPOINT,
    REPORT_TIER,
    REPORT_DATA,
    REPORT_EVENT,
    REPORT_ATTEMPT,
    REPORT_IDENTITY,
    REPORT_ENDED,
    REPORT_END
};

/* A loss term (num, den) or a metric (num). NAN: not finite. */
struct report_value {
    char name[REPORT_NAME_MAX + 1];
    double num, den;
};

struct report {
    enum report_type type;
    int64_t job, seq;
    int64_t reported; /* by the job with this one, as job.h has it */
    bool dropped;     /* more than is kept of a job: its number is, and what it changes of the job's row, and no more */
    int64_t step;     /* LOSS EVAL CHECKPOINT TIER; ATTEMPT: resume_step */
    double time;      /* `now` where the record has none */
    double epoch;     /* LOSS; NAN: unknown */
    double images_per_s;
    double seconds;     /* ENDED END: since this supervisor took the job; 0: not said */
    double cpu_seconds; /* ENDED END: of all ranks since this supervisor started; 0: not said */
    int64_t max_rss;    /* likewise, bytes of the largest rank */
    bool val, best;     /* LOSS: the split; CHECKPOINT */
    int tier;           /* LOSS TIER; EVENT: that is refused, -1: of none, or of one that is not named */
    int attempt;        /* ATTEMPT IDENTITY ENDED END; END: 0 where it is not said */
    bool first;         /* ATTEMPT: of its supervisor */
    int64_t bytes;
    double val_loss;
    char kind[REPORT_NAME_MAX + 1];  /* EVENT: level, ENDED END: outcome, DATA: split */
    char label[REPORT_NAME_MAX + 1]; /* EVENT: kind, END: class */
    char text[REPORT_TEXT_MAX + 1];  /* EVENT: text, CHECKPOINT: path, ENDED END: reason, DATA: a sentence */
    char *json;                      /* IDENTITY: the object as text; NULL elsewhere. Behind the values */
    int count;
    struct report_value values[]; /* LOSS EVAL, sorted by name as they came */
};

/* Bytes that it takes up in the store, about. Pure. */
int64_t report_bytes(const struct report *r);
/* What a list of attempts, a restart and an end need; there is far less of it than of the others. */
bool report_is_vital(const struct report *r);
/* Checks a record. Caller frees with free(). ERR_PROTO names what is wrong. An unknown type is kept as an EVENT, so that a newer supervisor loses nothing. */
int report_parse(const json_t *rec, int64_t job, int64_t seq, double now, struct report **ret, struct err *err);
/* An event in the place of one that is none, which says why. */
int report_left_out(const char *why, int64_t job, int64_t seq, double now, struct report **ret, struct err *err);

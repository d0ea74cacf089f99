/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/job/report.h - the records of proto/report.h as C values, checked.
 * Pure. Input from sup.sock is cut to bounded sizes here. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct err;

/* The kind of events in which detd tells who has asked for what. A job's event of this kind gets another one. */
#define REPORT_AUDIT "audit"

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
    int64_t reported; /* reported bytes of the job with this report, as in job.h */
    bool dropped;     /* the job's limit is exceeded: only the number, and the changes to the job's row, are stored */
    int64_t step;     /* LOSS EVAL CHECKPOINT TIER; ATTEMPT: resume_step */
    double time;      /* `now` if the record has no time */
    double epoch;     /* LOSS; NAN: unknown */
    double images_per_s;
    double seconds;     /* ENDED END: since this supervisor took the job; 0: absent */
    double cpu_seconds; /* ENDED END: of all ranks since this supervisor started; 0: absent */
    int64_t max_rss;    /* the same, bytes of the largest rank */
    bool val, best;     /* LOSS: the split; CHECKPOINT */
    int tier;           /* LOSS TIER; EVENT: the refused tier, -1: no tier is refused or named */
    int attempt;        /* ATTEMPT IDENTITY ENDED END; END: 0 if absent */
    bool first;         /* ATTEMPT: the first of its supervisor */
    int64_t removed;    /* ATTEMPT: rows of later steps that store_rewind() has removed */
    int64_t bytes;
    double val_loss;
    char kind[REPORT_NAME_MAX + 1];  /* EVENT: level, ENDED END: outcome, DATA: split */
    char label[REPORT_NAME_MAX + 1]; /* EVENT: kind, END: class */
    char text[REPORT_TEXT_MAX + 1];  /* EVENT: text, CHECKPOINT: path, ENDED END: reason, DATA: a sentence */
    char *json;                      /* IDENTITY: the object as text; otherwise NULL. It lies behind the values */
    int count;
    struct report_value values[]; /* LOSS EVAL, in the order of the record */
};

/* Approximate bytes of the report in the store. Pure. */
int64_t report_bytes(const struct report *r);
/* Number of its rows in the writer's queue. Pure. */
int report_rows(const struct report *r);
/* Whether the list of attempts, a restart or an end needs the report. Such reports are far fewer than the others. */
bool report_is_vital(const struct report *r);
/* Checks a record. Caller frees with free(). ERR_PROTO names the wrong member. A record of an unknown type becomes an
 * EVENT, so that nothing of a newer supervisor is lost. */
int report_parse(const json_t *rec, int64_t job, int64_t seq, double now, struct report **ret, struct err *err);
/* Makes an event in the place of an invalid report; its text is `why`. */
int report_left_out(const char *why, int64_t job, int64_t seq, double now, struct report **ret, struct err *err);

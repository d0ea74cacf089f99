/* SPDX-License-Identifier: Apache-2.0 */ /* worker/report/report.h - a rank's side of fd 3: reports to detd-job, and
 * its answers (lines: proto/report.h).
 *
 * Only one thread (the trainer's) may use a struct report. Nothing here waits, except functions named _wait_, and any
 * report while detd-job does not read because its spool is full. The caller then waits in phase report_wait (see
 * report_on_wait()). A loss report costs one formatted line and one send().
 *
 * fd -1 is a worker that runs alone: reports go to stdout as the same lines, every question is answered with yes, and
 * no control word ever comes.
 *
 * All functions return 0 or a negative code with *err set: ERR_ABORTED when detd-job is gone (the rank must leave),
 * ERR_PROTO when it sends an invalid line, ERR_INPUT when a report does not fit in one line. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct err;
struct report;

enum { REPORT_MAX_TIERS = 256, REPORT_TEXT = 32, REPORT_ID = 1024, REPORT_STORE_ID = 64 };

/* Opens the socket (not owned: it stays open after report_close()). Caller closes. */
int report_open(int fd, int rank, int local_rank, int nranks, struct report **ret, struct err *err);
void report_close(struct report *r);
/* fn(arg, true) before a report has to wait because detd-job does not read, fn(arg, false) afterwards: the phase
 * report_wait. */
void report_on_wait(struct report *r, void (*fn)(void *arg, bool waiting), void *arg);

/* A rank's description of its device. */
struct report_device {
    const char *name, *uuid; /* uuid: NULL on the CPU */
    int devices;             /* GPUs that the process sees; left out if uuid is NULL */
    int64_t memory_bytes;
    const char *const *versions; /* name, value, name, value, ..., NULL; or NULL */
};
/* link_id: text that rank 0 gives to all, or NULL. */
int report_hello(struct report *r, const struct report_device *device, const char *link_id, struct err *err);

struct report_tier {
    int64_t step;
    char tier[REPORT_TEXT];
};
struct report_go {
    int attempt;
    char nccl_id[REPORT_ID];        /* "" if rank 0 gave no text */
    char store_id[REPORT_STORE_ID]; /* of the database that numbered the job; "": not known, or alone */
    int ntiers;
    struct report_tier tiers[REPORT_MAX_TIERS]; /* steps ascending; they win over run.deterministic */
};
/* Waits until all ranks said hello. ret is large: keep it off small stacks. */
int report_wait_go(struct report *r, struct report_go *ret, struct err *err);

/* ---- rank 0 only ---- */
/* checkpoint NULL: from scratch */
int report_start(struct report *r, int64_t resume_step, const char *checkpoint, struct err *err);
/* json: the object of proto/identity.h, at most IDENTITY_MAX_BYTES, without line breaks. Must come after `start`. */
int report_identity(struct report *r, const char *json, struct err *err);

struct report_term {
    const char *name;
    double num, den;
};
struct report_loss {
    const char *split; /* "train" or "val" */
    int64_t step;
    double epoch;
    const char *tier;
    double images_per_s;
    int nterms; /* including "total" */
    const struct report_term *terms;
};
int report_loss(struct report *r, const struct report_loss *loss, struct err *err);

struct report_metric {
    const char *name;
    double value;
};
/* Sends as many records as the metrics need, since a record holds RECORD_MAX_VALUES, all with the same time; without
 * metrics no record. Names must differ. */
int report_eval(struct report *r, int64_t step, int n, const struct report_metric *metrics, struct err *err);

/* Tells that step's checkpoint lies ready under a temporary name, and waits until every earlier report is durable. */
int report_ckpt_wait_publish(struct report *r, int64_t step, const char *path, struct err *err);
int report_ckpt_published(struct report *r, int64_t step, const char *path, int64_t bytes, double val_loss, bool best,
                          struct err *err); /* val_loss NAN: no loss */

/* Proposes `tier` from `step` on. Ask report_tier_ok() or wait with report_wait_tier() before acting on it. */
int report_tier_propose(struct report *r, int64_t step, const char *tier, struct err *err);
int report_tier_ok(struct report *r, int64_t step, const char *tier, bool *ret_ok, struct err *err);
int report_wait_tier(struct report *r, int64_t step, const char *tier, struct err *err);

/* Contents of a split. boxes -1: a split of frames, which have no boxes. skipped: bad records left out; bad[nbad]: the
 * first of them in words. */
int report_data(struct report *r, const char *split, int64_t images, int64_t boxes, int64_t skipped, int nbad, const char *const *bad,
                struct err *err);

enum report_word { WORD_NONE, WORD_PAUSE, WORD_CANCEL, WORD_CHECKPOINT, WORD_TIER, WORD_EVAL };
struct report_control {
    enum report_word word;
    char tier[REPORT_TEXT]; /* of WORD_TIER */
};
/* The next command, oldest first, or WORD_NONE. Makes a single recv() that does not wait. */
int report_control(struct report *r, struct report_control *ret, struct err *err);

/* ---- every rank ---- */
/* level "info", "warning" or "error"; kind is one word. */
int report_event(struct report *r, struct err *err, const char *level, const char *kind, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* A warning of kind "tier": the requested change to `tier` is refused. */
int report_tier_refused(struct report *r, const char *tier, struct err *err, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* A rank's last line. outcome "completed", "failed", "cancelled", "paused"; class "user", "data", "nonfinite", "fault"
 * or "". */
int report_end(struct report *r, const char *outcome, const char *reason, const char *class, struct err *err);

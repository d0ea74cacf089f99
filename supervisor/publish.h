/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/publish.h - checkpoints of a program: a checkpoint is complete
 * when all ranks have written it. Then the reports so far are made durable, it is noted in the file `published`, and
 * detd hears of it. The work on files is done by a thread. */
#pragma once
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "proto/err.h"
#include "supervisor/program/saved.h"
#include "supervisor/program/steps.h"

struct attempt;
struct going;
struct needs;
struct records;

enum {
    PUBLISH_OPEN = 8 /* of a rank, that others have not written */,
    PUBLISH_WAITING = 8 /* complete checkpoints that wait for the disk; further ones are left out */
};

/* Whether one is better than another. */
struct publish_score {
    int64_t step; /* of the newest value; 0: none */
    double value;
    bool lower; /* a lower value is better */
};

struct publish {
    uv_loop_t *loop;
    const char *job_dir;
    struct going *going; /* hears of checkpoints */
    struct attempt *attempt;
    const struct needs *needs;
    struct records *records;
    struct saved saved;
    struct publish_score score; /* of validations, by checkpoint.best */
    double val_loss;            /* of the newest validation, NAN: none */
    int64_t val_step;
    struct steps steps; /* checkpoints that some ranks have written and others have not */
    bool told;          /* about one that was not complete */
    int64_t last;       /* step of the newest complete one */
    /* Complete ones, the oldest first; the first of them is under way if busy. */
    int waiting;
    struct publish_one {
        struct saved_one saved;
        double val_loss; /* NAN: no validation since the one before */
        bool lower;
    } one[PUBLISH_WAITING];
    bool busy;
    uv_work_t work;
    struct err err;
};

/* Before each start: reads the file, and chooses the checkpoint to go on from: the newest that is still there. */
int publish_begin(struct publish *p, struct err *err);
/* A rank says `ready`. path: "": not given. */
void publish_take(struct publish *p, int rank, int64_t step, const char *path);
/* Once a second: work that waited for room on the disk. */
void publish_tick(struct publish *p);
/* The ranks have ended: tells of a checkpoint that some of them have not written. */
void publish_attempt_over(struct publish *p);
/* After the loop has ended. */
void publish_close(struct publish *p);

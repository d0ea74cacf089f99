/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/actions.h - the state of a running job. Tells the table of
 * going.h each fact, and carries out the action that the table names. job.h opens and closes the job. Only the thread
 * of the loop may call these functions. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "proto/err.h"
#include "supervisor/attempt.h"
#include "supervisor/going.h"
#include "supervisor/gpus.h"
#include "supervisor/job.h"
#include "supervisor/ranks/logs.h"
#include "supervisor/messages.h"
#include "supervisor/needs.h"
#include "supervisor/orders.h"
#include "supervisor/publish.h"
#include "supervisor/ranks/ranks.h"
#include "supervisor/records.h"
#include "supervisor/speech.h"
#include "supervisor/status.h"
#include "supervisor/terminal.h"

struct job {
    struct job_options options;
    uv_loop_t *loop;
    struct going going;
    struct going_end end; /* recorded by GOING_END */
    struct needs needs;
    struct gpus gpus;
    struct logs logs;
    struct records records;
    struct attempt attempt;
    struct messages messages;
    struct orders orders;
    struct speech speech;
    struct publish publish;
    struct terminal *terminal; /* of a program that has one; NULL: none */
    struct status status;
    struct err fatal;         /* code 0: none */
    struct ranks_usage usage; /* of the attempts before */
    uint64_t began_ms;        /* uv_now() when this process took the job */
    const char *said;         /* by the fact whose action is carried out; valid when that begins */
    char refusal[512];        /* of the system, told last; "": none since a start */
    char trouble[256];        /* what keeps the attempt from its end, for the status; "": nothing */
    bool opened;              /* the handles */
    uv_timer_t timer, tick;   /* timer: of the phase */
    uv_signal_t sigchld, sigterm, sigint;
    char hello[512];
};

/* The first fact of an opened job: it is to run, or its end is recorded, or it only ends here. */
void actions_begin(struct job *j);
/* The hook of the objects that tell facts. arg: the job. text: the cause, if the fact stops the attempt; else "". */
void actions_fact(void *arg, enum going_fact fact, const char *text);
/* An error that ends this process; job_close() returns the first. arg: the job. */
void actions_fatal(void *arg, const struct err *err);
/* detd has stored more of the spool. arg: the job. */
void actions_acked(void *arg);
/* Once a second: the lock, the logs, late records, the time limit, hangs, the status. timer->data: the job. */
void actions_tick(uv_timer_t *timer);

#include "launch/args.h" /* SPDX-License-Identifier: Apache-2.0 */
#include "proto/tier.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

struct args {
    char **argv;
    int count;
    bool failed;
};

static void add(struct args *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct args *l, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&l->argv[l->count], fmt, ap) < 0)
        l->failed = true;
    else
        l->count++;
    va_end(ap);
    l->argv[l->count] = NULL;
}

static void add_number(struct args *l, const char *name, long long value)
{
    add(l, "%s", name);
    add(l, "%lld", value);
}

/* Adds the name and its value as two arguments. getopt never takes such a value for an option, even if it begins with a
 * dash. */
static void add_text(struct args *l, const char *name, const char *value)
{
    add(l, "%s", name);
    add(l, "%s", value);
}

static void add_gpus(struct args *l, const char *gpus, int nlocks)
{
    char list[4 * LAUNCH_GPU_LOCKS] = "";
    size_t at = 0;

    for (int i = 0; i < nlocks; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%d", i > 0 ? "," : "", ARGS_GPU_FD + i);
    add_text(l, "--gpus", gpus);
    add_text(l, "--gpu-lock-fds", list);
}

static void add_run(struct args *l, const struct launch_ask *a, int ngpu_locks)
{
    add_number(l, "--attempt", a->attempt);
    add_number(l, "--last-seq", a->last_seq);
    add_text(l, "--nonce", a->nonce);
    add_text(l, "--store-id", a->ticket.store);
    add_number(l, "--spec-fd", ARGS_SPEC_FD);
    add_number(l, "--threads", a->threads);
    add_text(l, "--tier", tier_name(a->tier));
    add_number(l, "--log-max", a->log_max);
    add_number(l, "--ran", a->ran_s);
    if (a->gpus[0])
        add_gpus(l, a->gpus, ngpu_locks);
    if (a->reason[0])
        add_text(l, "--reason", a->reason);
    if (a->drain == LAUNCH_DRAIN_AGAIN) {
        add(l, "--anew");
    } else if (a->drain) {
        add_text(l, "--drain", a->drain == LAUNCH_DRAIN_CANCELLED ? "cancelled" : "failed");
        add_number(l, "--saved", a->saved);
    }
}

int args_fill(char *ret[ARGS_MAX], const char *program, const struct launch_ask *a, int ngpu_locks)
{
    struct args l = { .argv = ret };

    add(&l, "%s", program);
    add_text(&l, "--job-dir", ".");
    add_number(&l, "--job", a->ticket.job);
    add_number(&l, "--lock-fd", ARGS_LOCK_FD);
    add_number(&l, "--trouble-fd", ARGS_TROUBLE_FD);
    if (a->kind == LAUNCH_CLEAR)
        add(&l, "--clear");
    else
        add_run(&l, a, ngpu_locks);
    return l.failed ? -ENOMEM : 0;
}

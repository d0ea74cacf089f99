/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/models/plan_watch.h - compares the convolutions that a
 * model plans with those that its step computes: one key each, without repetition. Include it after cmocka.h. */
#pragma once
#include <string.h>

#include "worker/ops/families.h"

enum { MAX_ASKED = 400 };

struct asked {
    int n;
    struct {
        const struct param *weight;
        int pass, n, h, w, stride, pad;
        bool bias, add;
    } key[MAX_ASKED];
};
static struct asked planned, computed;
static const struct families *own;

static void ask(struct asked *a, int pass, const struct tensor *x, const struct conv *cv, const struct param *w, bool bias, bool add)
{
    memset(&a->key[a->n], 0, sizeof *a->key); /* compared as bytes */
    a->key[a->n].pass = pass;
    a->key[a->n].n = x->n;
    a->key[a->n].h = x->h;
    a->key[a->n].w = x->w;
    a->key[a->n].weight = w;
    a->key[a->n].stride = cv->stride;
    a->key[a->n].pad = cv->pad;
    a->key[a->n].bias = bias;
    a->key[a->n].add = add;
    for (int i = 0; i < a->n; i++)
        if (memcmp(&a->key[i], &a->key[a->n], sizeof *a->key) == 0)
            return;
    assert_true(++a->n < MAX_ASKED);
}

static int plan_conv(struct device *d, const struct tensor *x, const struct conv *cv, const struct param *w, bool bias,
                     enum conv_passes passes, int nshards, struct err *err)
{
    (void)d;
    (void)nshards;
    (void)err;
    ask(&planned, CONV_FORWARD, x, cv, w, bias, false);
    if (passes >= CONV_WEIGHTS)
        ask(&planned, CONV_WEIGHTS, x, cv, w, false, false);
    if (passes >= CONV_DATA)
        ask(&planned, CONV_DATA, x, cv, w, false, passes == CONV_DATA_ADD);
    return 0;
}

static int seen_fwd(struct device *d, struct tensor *y, const struct operand *x, const struct conv *cv, struct param *w, const float *bias,
                    double *const *stats, int nshards, struct err *err)
{
    ask(&computed, CONV_FORWARD, &x->x, cv, w, bias != NULL, false);
    return own->conv->fwd(d, y, x, cv, w, bias, stats, nshards, err);
}

static int seen_data(struct device *d, struct tensor *dx, float beta, const struct tensor *dy, const struct conv *cv, struct param *w,
                     int nshards, struct err *err)
{
    ask(&computed, CONV_DATA, dx, cv, w, false, beta != 0);
    return own->conv->bwd_data(d, dx, beta, dy, cv, w, nshards, err);
}

static int seen_weights(struct device *d, float *const *dw, float beta, const struct operand *x, const struct tensor *dy,
                        const struct conv *cv, const struct param *w, int nshards, struct err *err)
{
    ask(&computed, CONV_WEIGHTS, &x->x, cv, w, false, false);
    return own->conv->bwd_weights(d, dw, beta, x, dy, cv, w, nshards, err);
}

static void missing_from(const struct asked *a, const struct asked *b, const char *name, const char *what)
{
    for (int i = 0; i < a->n; i++) {
        bool found = false;

        for (int k = 0; k < b->n && !found; k++)
            found = memcmp(&a->key[i], &b->key[k], sizeof *a->key) == 0;
        if (!found)
            fail_msg("%s: %s: pass %d of %d times %d x %d, add %d is %s", name, a->key[i].weight->name, a->key[i].pass, a->key[i].n,
                     a->key[i].h, a->key[i].w, a->key[i].add, what);
    }
}

/* From here on, plans and computed convolutions are noted. */
static void plan_watch(struct device *d)
{
    static struct families watched;
    static struct plan_ops plans = { .conv = plan_conv };
    static struct conv_ops convs;

    own = d->on;
    watched = *own;
    convs = *own->conv;
    convs.fwd = seen_fwd;
    convs.bwd_data = seen_data;
    convs.bwd_weights = seen_weights;
    watched.plan = &plans;
    watched.conv = &convs;
    watched.conv_norm = NULL; /* plans assume that every gradient is written */
    planned.n = computed.n = 0;
    d->on = &watched;
}

/* Ends it. What was planned has been computed, and nothing else; name: for messages. */
static void plan_compare(struct device *d, const char *name)
{
    d->on = own;
    missing_from(&computed, &planned, name, "computed and not planned");
    missing_from(&planned, &computed, name, "planned and not computed");
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/bench/engines.h - the convolutions that bench_engines measures, and
 * the evaluation of its results. Independent of any GPU. */
#pragma once
#include <stdio.h>
#include <string.h>

#include "cuda/plan.h"
#include "tests/device/network_keys.h"

enum { WORKS_MAX = 512, RESULTS_MAX = 16384 };

/* ---- the convolutions of a training step ---- */

struct work {
    struct plan_key key;
    int times; /* in a step */
    double flops, bytes;
};

struct works {
    int n;
    struct work work[WORKS_MAX];
};

static inline void add_work(struct works *w, const struct conv_key *conv)
{
    double es = conv->dtype == DTYPE_BF16 ? 2 : 4, filter = (double)conv->k * conv->r * conv->s * conv->c;
    struct plan_key key = plan_key_make(conv, NULL);
    double pixels = (double)conv->n * plan_key_out_h(conv) * plan_key_out_w(conv);

    for (int i = 0; i < w->n; i++)
        if (plan_key_equal(&w->work[i].key, &key)) {
            w->work[i].times++;
            return;
        }
    if (w->n < WORKS_MAX)
        w->work[w->n++] = (struct work){ .key = key,
                                         .times = 1,
                                         .flops = 2 * pixels * filter,
                                         .bytes = es * (pixels * conv->k + filter + (double)conv->n * conv->h * conv->w * conv->c) };
}

/* The least seconds on a GPU like H100, to find the convolutions that matter. */
static inline double least_seconds(const struct work *w)
{
    const struct conv_key *k = &w->key.conv;
    double peak = k->dtype == DTYPE_BF16 ? 8e14 : k->precision == PRECISION_TF32 ? 4e14 : 6e13;
    double compute = w->flops / peak, memory = w->bytes / 3e12;

    return (compute > memory ? compute : memory) * w->times;
}

static inline int by_seconds(const void *a, const void *b)
{
    double x = least_seconds(a), y = least_seconds(b);

    return (x < y) - (x > y);
}

/* The distinct convolutions of a step with n images, the longest first. */
static inline void works_of(const struct darknet_net *net, enum precision precision, enum tier tier, int n, struct works *ret)
{
    memset(ret, 0, sizeof *ret);
    for (int i = 0; i < net->nlayers; i++) {
        const struct darknet_layer *l = &net->layers[i];
        struct conv_key k;

        if (l->type != DARKNET_CONV)
            continue;
        k = network_key(net, i, precision, tier, n);
        k.dir = CONV_FWD;
        k.bias = !l->bn;
        add_work(ret, &k);
        k.bias = false;
        k.dir = CONV_BWD_WEIGHTS;
        add_work(ret, &k);
        k.dir = CONV_BWD_DATA;
        k.add = adds_to_gradient(net, i);
        if (value_of(net, i - 1) >= 0) /* images need no gradient */
            add_work(ret, &k);
    }
    qsort(ret->work, (size_t)ret->n, sizeof *ret->work, by_seconds);
}

/* ---- the ways that are tried: the first ones of each library, and the first ones that repeat their bits ---- */

struct quota {
    int most, most_runtime; /* of one library; of these, compiled at run time, which takes seconds each */
    int made[2][2];         /* [runtime]: all, and the deterministic ones */
};

static inline bool quota_allows(const struct quota *q, const struct plan_name *n)
{
    int most = n->runtime ? q->most_runtime : q->most;

    return q->made[n->runtime][0] < most || (n->deterministic && q->made[n->runtime][1] < most);
}

static inline void quota_take(struct quota *q, const struct plan_name *n)
{
    q->made[n->runtime][0]++;
    q->made[n->runtime][1] += n->deterministic;
}

static inline const char *kind_of(const struct plan_name *n)
{
    return n->library == PLAN_OWN ? "own" : n->library == PLAN_CUBLASLT ? "cublaslt" : n->runtime ? "cudnn compiled" : "cudnn";
}

/* ---- results ---- */

struct result {
    int work, rank; /* in the order of plan_names() */
    double us;
    struct plan_name name;
};

struct results {
    int n;
    struct result result[RESULTS_MAX];
};

/* The measured way that plan_make() takes without a table; NULL: no way was measured. */
static inline const struct result *todays(const struct results *r, int work, bool deterministic)
{
    const struct result *first = NULL;

    for (int i = 0; i < r->n; i++)
        if (r->result[i].work == work && (!deterministic || r->result[i].name.deterministic) && (!first || r->result[i].rank < first->rank))
            first = &r->result[i];
    return first;
}

/* kind: of these only, or NULL. */
static inline const struct result *best_of(const struct results *r, int work, bool deterministic, const char *kind)
{
    const struct result *best = NULL;

    for (int i = 0; i < r->n; i++)
        if (r->result[i].work == work && (!deterministic || r->result[i].name.deterministic) &&
            (!kind || strcmp(kind_of(&r->result[i].name), kind) == 0) && (!best || r->result[i].us < best->us))
            best = &r->result[i];
    return best;
}

/* The best way; but today's way if the best is equal within the noise. */
static inline const struct result *worth(const struct results *r, int work, bool deterministic)
{
    const struct result *today = todays(r, work, deterministic), *best = best_of(r, work, deterministic, NULL);

    return best && best->us < 0.97 * today->us ? best : today;
}

/* Rows of the table for a convolution: no row if today's rule finds them; two rows if the better way does not repeat
 * its bits. */
static inline int rows_of(const struct results *r, int work, const struct result *ret[2])
{
    const struct result *any = worth(r, work, false), *fixed = worth(r, work, true);
    int n = 0;

    if (any == todays(r, work, false) && fixed == todays(r, work, true))
        return 0;
    ret[n++] = any;
    if (fixed && fixed != any)
        ret[n++] = fixed;
    return n;
}

/* Microseconds of a step's convolutions. */
struct total {
    int works;
    double today, best;
};

static inline struct total total_of(const struct works *w, const struct results *r, bool deterministic)
{
    struct total t = { 0 };

    for (int i = 0; i < w->n; i++) {
        const struct result *today = todays(r, i, deterministic);

        if (!today)
            continue;
        t.works++;
        t.today += today->us * w->work[i].times;
        t.best += best_of(r, i, deterministic, NULL)->us * w->work[i].times;
    }
    return t;
}

/* A single kind beside the best of all kinds, over the works of a direction that it can do: `today` is the kind's. */
static inline struct total total_of_kind(const struct works *w, const struct results *r, enum conv_dir dir, const char *kind)
{
    struct total t = { 0 };

    for (int i = 0; i < w->n; i++) {
        const struct result *own = best_of(r, i, false, kind);

        if (w->work[i].key.conv.dir != dir || !own)
            continue;
        t.works++;
        t.today += own->us * w->work[i].times;
        t.best += best_of(r, i, false, NULL)->us * w->work[i].times;
    }
    return t;
}

/* ---- in words ---- */

static inline void print_result(FILE *f, const struct works *w, const struct result *r, double make_s)
{
    char key[PLAN_KEY_TEXT];

    fprintf(f, "candidate us=%.2f tflops=%.1f rank=%d deterministic=%d compiled=%d make_ms=%.0f | %s | %s\n", r->us,
            w->work[r->work].flops / r->us * 1e-6, r->rank, r->name.deterministic, r->name.runtime, 1e3 * make_s,
            plan_key_text(&w->work[r->work].key, key), r->name.text);
}

static inline void print_choice(FILE *f, const struct works *w, const struct results *r, int work)
{
    const struct result *today = todays(r, work, false), *best = best_of(r, work, false, NULL);
    char key[PLAN_KEY_TEXT];

    if (today)
        fprintf(f, "choice today_us=%.2f best_us=%.2f ratio=%.3f times=%d best_rank=%d | %s | today %s | best %s\n", today->us, best->us,
                today->us / best->us, w->work[work].times, best->rank, plan_key_text(&w->work[work].key, key), today->name.text,
                best->name.text);
}

static inline void print_kinds(FILE *f, const struct works *w, const struct results *r)
{
    static const char *const dir[] = { [CONV_FWD] = "fwd", [CONV_BWD_DATA] = "bwd_data", [CONV_BWD_WEIGHTS] = "bwd_weights" };
    static const char *const kind[] = { "own", "cublaslt", "cudnn", "cudnn compiled" };

    for (int d = CONV_FWD; d <= CONV_BWD_WEIGHTS; d++)
        for (size_t k = 0; k < sizeof kind / sizeof *kind; k++) {
            struct total t = total_of_kind(w, r, (enum conv_dir)d, kind[k]);

            if (t.works > 0)
                fprintf(f, "kind dir=%s keys=%d ms=%.3f best_ms=%.3f ratio=%.3f | %s\n", dir[d], t.works, 1e-3 * t.today, 1e-3 * t.best,
                        t.today / t.best, kind[k]);
        }
}

static inline void print_total(FILE *f, const struct works *w, const struct results *r, bool deterministic)
{
    struct total t = total_of(w, r, deterministic);

    if (t.works > 0)
        fprintf(f, "total deterministic=%d keys=%d of=%d today_ms=%.3f best_ms=%.3f ratio=%.3f\n", deterministic, t.works, w->n,
                1e-3 * t.today, 1e-3 * t.best, t.today / t.best);
}

/* A section of cuda/engines.txt. */
static inline void print_table(FILE *f, const struct works *w, const struct results *r, const char *title)
{
    char key[PLAN_KEY_TEXT];

    fprintf(f, "%s\n", title);
    for (int i = 0; i < w->n; i++) {
        const struct result *row[2];
        int n = rows_of(r, i, row);

        for (int k = 0; k < n; k++)
            fprintf(f, "%s: %s\n", plan_key_any_tier(&w->work[i].key, key), row[k]->name.text);
    }
}

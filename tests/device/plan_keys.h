/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/plan_keys.h - convolutions without repetition, and plans of
 * them all: every chosen plan must be permitted by tier and precision. */
#pragma once
#include "cuda/engine.h"
#include "tests/device/plans.h"

enum { MAX_KEYS = 20000, KEY_BUCKETS = 1 << 15 };

struct keys {
    size_t n;
    struct plan_key key[MAX_KEYS];
    uint32_t bucket[KEY_BUCKETS]; /* 1 + index; the next free one is taken */
};

static void add_key(struct keys *s, const struct conv_key *conv)
{
    struct plan_key key = plan_key_make(conv, NULL);
    const unsigned char *byte = (const unsigned char *)&key;
    uint32_t h = 0;

    for (size_t i = 0; i < sizeof key; i++)
        h = (h ^ byte[i]) * 16777619u;
    for (h %= KEY_BUCKETS; s->bucket[h]; h = (h + 1) % KEY_BUCKETS)
        if (plan_key_equal(&s->key[s->bucket[h] - 1], &key))
            return;
    assert_true(s->n < MAX_KEYS);
    s->key[s->n++] = key;
    s->bucket[h] = (uint32_t)s->n;
}

struct summary {
    int plans, products, finished_by_us, nondeterministic_chosen;
    size_t workspace, scratch;
    struct cudnn_tally tally;
};

static void note(struct summary *s, const struct plan *p)
{
    s->plans++;
    s->products += lt_is_product(&p->key.conv);
    s->finished_by_us += p->finish != PLAN_DONE;
    s->workspace = p->workspace > s->workspace ? p->workspace : s->workspace;
    s->scratch = p->scratch > s->scratch ? p->scratch : s->scratch;
    s->tally.named += p->tally.named;
    s->tally.nondeterministic += p->tally.nondeterministic;
    s->tally.reduced += p->tally.reduced;
    s->tally.tensor_core += p->tally.tensor_core;
    s->tally.too_big += p->tally.too_big;
    s->tally.unmade += p->tally.unmade;
    s->tally.unmade_runtime += p->tally.unmade_runtime;
}

/* Checks for forbidden properties in the notes of the chosen engine, not in the filter. */
static void check_notes(const struct plan *p, struct summary *s)
{
    const struct conv_key *k = &p->key.conv;
    bool nondeterministic = p->dnn.notes >> CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC & 1;
    bool rounds = p->dnn.notes & (1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE | 1u << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);

    s->nondeterministic_chosen += nondeterministic;
    if (nondeterministic && k->tier != TIER_OFF)
        fail_msg("not deterministic: %s", p->text);
    if (rounds && k->precision == PRECISION_FP32)
        fail_msg("not fp32: %s", p->text);
    if (p->dnn.notes >> CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION & 1)
        fail_msg("sums in low precision: %s", p->text);
    if (k->precision == PRECISION_BF16 && k->tier == TIER_RERUN && strstr(p->text, "cudnn fallback")) /* tens of times slower */
        fail_msg("an engine of last resort: %s", p->text);
    if (p->workspace > CUDNN_WORKSPACE_MAX)
        fail_msg("too big: %s", p->text);
}

static void plan_all(const char *gpu, const struct keys *keys)
{
    struct summary s = { 0 };
    struct plan_target t;
    struct plan p;
    struct err err;

    describe(&t, gpu);
    for (size_t i = 0; i < keys->n; i++) {
        if (plan_make(&p, &t, &keys->key[i], &err) < 0)
            fail_msg("%s: %s", gpu, err.msg);
        check_notes(&p, &s);
        note(&s, &p);
        plan_free(&p);
    }
    plan_target_close(&t);
    printf("%s: %zu keys, %d plans; %d of 1x1 that cuBLASLt is asked for first where there is a GPU, here cuDNN's\n", gpu, keys->n, s.plans,
           s.products);
    printf("  engines looked at: %d; refused: %d not deterministic, %d low precision sums, %d tensor cores, %d too big; not made: %d, of "
           "these compiled at run time: %d\n",
           s.tally.named, s.tally.nondeterministic, s.tally.reduced, s.tally.tensor_core, s.tally.too_big, s.tally.unmade,
           s.tally.unmade_runtime);
    printf("  largest workspace %zu MiB; plans finished by a kernel of ours: %d, largest scratch %zu MiB; not deterministic in tier off: "
           "%d\n",
           s.workspace >> 20, s.finished_by_us, s.scratch >> 20, s.nondeterministic_chosen);
    assert_int_equal(s.plans, keys->n);
    assert_true(s.tally.nondeterministic > 0); /* or the filter was never asked */
    assert_true(s.tally.tensor_core > 0);
}

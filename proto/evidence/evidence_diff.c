#include "proto/evidence/evidence_diff.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/evidence/evidence_form.h"
#include "proto/tier.h"

enum { CHUNK = 512, NEAR = 64 }; /* records per read; steps that are tried for a record where some are missing */

struct search {
    const struct evidence *e[2];
    const volatile sig_atomic_t *stop;
    struct evidence_head head; /* the common part of both heads; tensors are a's */
    bool same_start;           /* the chains have the same start */
    int64_t last;              /* last step of the shorter run */
    struct evidence_diff *d;
    struct evidence_record *chunk[2]; /* [CHUNK] */
};

static bool same(struct hash128 a, struct hash128 b)
{
    return a.lane[0] == b.lane[0] && a.lane[1] == b.lane[1];
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void compare_heads(struct search *s)
{
    struct evidence_head a = *evidence_head(s->e[0]), b = *evidence_head(s->e[1]);

    s->d->same_spec = same(a.spec, b.spec);
    s->d->same_data = same(a.data, b.data);
    s->d->same_level = a.tensors == b.tensors;
    s->d->same_shards = a.shards == b.shards;
    s->head = a;
    s->head.tensors = a.tensors && b.tensors;
    b.spec = a.spec;
    b.data = a.data;
    b.tensors = a.tensors;
    b.shards = a.shards;
    s->d->same_tensors = evidence_head_equal(&a, &b) || (!s->d->same_level && (a.ntensors == 0 || b.ntensors == 0)); /* tensors unknown */
    s->same_start = s->d->same_spec && s->d->same_data && s->d->same_level && s->d->same_shards && s->d->same_tensors;
}

static bool stopped(const struct search *s)
{
    return s->stop && *s->stop;
}

/* ---- by chain ---- */

/* Whether the chains of a step are equal: 1 or 0; -1: one of the runs has no record of it. */
static int chains_equal(const struct search *s, int64_t step)
{
    struct evidence_record a, b;

    if (!evidence_read(s->e[0], step, &a) || !evidence_read(s->e[1], step, &b))
        return -1;
    return same(a.chain, b.chain);
}

/* A step between lo and hi, near their middle, with records in both runs; 0: no such step. */
static int64_t middle(const struct search *s, int64_t lo, int64_t hi, int *ret_equal)
{
    int64_t mid = lo + (hi - lo) / 2;

    for (int64_t step = mid; step < hi && step < mid + NEAR; step++)
        if ((*ret_equal = chains_equal(s, step)) >= 0)
            return step;
    return 0;
}

/* The first step with different chains. The chains of lo are equal, those of hi are not. 0: records are missing just
 * there. */
static int64_t bisect(const struct search *s, int64_t lo, int64_t hi)
{
    while (hi - lo > 1) {
        int equal = -1;
        int64_t mid = middle(s, lo, hi, &equal);

        if (mid == 0)
            return 0;
        *(equal ? &lo : &hi) = mid;
    }
    return hi;
}

/* Compares chains, from the first step that both runs have on. Returns whether the chains gave an answer. */
static bool by_chain(struct search *s, int64_t first)
{
    int64_t hi = s->last;
    int equal = -1;

    if (!s->same_start)
        return false;
    while (hi >= first && hi > s->last - NEAR && (equal = chains_equal(s, hi)) < 0)
        hi--;
    if (equal < 0)
        return false;
    if (hi < s->last && !s->d->missing)
        s->d->missing = hi + 1;
    s->d->lacking += s->last - hi;
    s->d->to = hi;
    s->d->apart = equal == 0;
    if (equal == 1)
        return true;
    if (chains_equal(s, first) == 1)
        s->d->step = bisect(s, first, hi);
    else if (first == 1)
        s->d->step = 1;
    return s->d->step > 0;
}

/* ---- record by record ---- */

/* The first step from `from` on that both runs have; 0: no such step. */
static int64_t first_common(const struct search *s, int64_t from)
{
    struct evidence_record a, b;

    while (from <= s->last && !stopped(s)) {
        int64_t na = evidence_next(s->e[0], from), nb = evidence_next(s->e[1], na);

        if (nb > na || na > from)
            from = nb > na ? nb : na;
        else if (evidence_read(s->e[0], from, &a) && evidence_read(s->e[1], from, &b))
            return from;
        else
            from++;
    }
    return 0;
}

static void note_missing(struct evidence_diff *d, int64_t step)
{
    d->missing = d->missing ? d->missing : step;
    d->lacking++;
}

/* Compares n records from `first` on, as far as both runs have them. Returns false if one differs. */
static bool compare_chunk(struct search *s, int64_t first, int n)
{
    struct evidence_difference ignored;

    for (int k = 0; k < 2; k++)
        evidence_read_range(s->e[k], first, n, s->chunk[k]);
    for (int i = 0; i < n; i++) {
        const struct evidence_record *a = &s->chunk[0][i], *b = &s->chunk[1][i];

        if (a->step == 0 || b->step == 0) {
            note_missing(s->d, first + i);
            continue;
        }
        s->d->to = first + i;
        if (s->same_start)
            s->d->apart = s->d->apart || !same(a->chain, b->chain);
        if (evidence_compare(&s->head, a, NULL, b, NULL, &ignored)) {
            s->d->step = first + i;
            return false;
        }
    }
    return true;
}

static void begin_with(struct search *s, int64_t first)
{
    s->d->from = first;
    s->d->to = first - 1;
    s->d->missing = s->d->lacking = 0;
}

static int one_by_one(struct search *s, int64_t first, struct err *err)
{
    bool more = true;

    begin_with(s, first);
    for (int k = 0; k < 2; k++) {
        s->chunk[k] = malloc(CHUNK * sizeof *s->chunk[k]);
        if (!s->chunk[k])
            return err_set(err, -ENOMEM, "out of memory");
    }
    for (int64_t at = first; at <= s->last && more && !stopped(s); at += CHUNK)
        more = compare_chunk(s, at, (int)smaller(CHUNK, s->last - at + 1));
    return 0;
}

/* ---- the step that differs ---- */

static int rank_of(int shard, int shards, int ranks)
{
    return shard < 0 || shard >= shards || ranks < 1 || ranks > shards ? -1 : ((shard + 1) * ranks - 1) / shards;
}

static int look_at_details(struct search *s, struct evidence_detail detail[2], struct err *err)
{
    struct evidence_diff_side *side = s->d->side;
    bool both, apply = s->d->same_shards && s->d->same_tensors;
    int rc = 0;

    for (int k = 0; k < 2 && rc == 0; k++) {
        evidence_read(s->e[k], s->d->step, &side[k].record);
        rc = evidence_detail_new(evidence_head(s->e[k]), &detail[k], err);
        side[k].kept = rc == 0 && evidence_read_detail(s->e[k], s->d->step, &detail[k]);
    }
    both = apply && side[0].kept && side[1].kept;
    if (rc == 0 && !evidence_compare(&s->head, &side[0].record, both ? &detail[0] : NULL, &side[1].record, both ? &detail[1] : NULL,
                                     &s->d->difference))
        s->d->step = 0; /* the chain differs, but the step's record does not */
    for (int k = 0; k < 2; k++)
        side[k].rank = s->d->step ? rank_of(s->d->difference.shard, s->head.shards, side[k].record.ranks) : -1;
    return rc;
}

static int look_at_step(struct search *s, struct err *err)
{
    struct evidence_detail detail[2] = { 0 };
    int rc = look_at_details(s, detail, err);

    evidence_detail_free(&detail[0]);
    evidence_detail_free(&detail[1]);
    return rc;
}

/* ---- words ---- */

/* Adds "; data and losses are equal": the parts that come before the part that differs. */
static void add_equal(const struct search *s, char *text, size_t size)
{
    static const int parts[] = { EVIDENCE_DATA, EVIDENCE_LOSS, EVIDENCE_GRADIENT, EVIDENCE_RATE, EVIDENCE_WEIGHT };
    static const char *const names[] = { "data", "losses", "gradients", "learning rate", "updates" };
    const char *list[5];
    size_t n = 0, used;

    for (size_t i = 0; i < 5 && parts[i] != s->d->difference.part; i++)
        if (s->head.tensors || (parts[i] != EVIDENCE_GRADIENT && parts[i] != EVIDENCE_WEIGHT))
            list[n++] = names[i];
    for (size_t i = 0; i < n; i++) {
        used = strlen(text);
        snprintf(text + used, size - used, "%s%s", i == 0 ? "; " : i + 1 < n ? ", " : " and ", list[i]);
    }
    used = strlen(text);
    if (n > 0)
        snprintf(text + used, size - used, " are equal");
}

static void describe_step(const struct search *s, char *text, size_t size)
{
    const struct evidence_record *a = &s->d->side[0].record, *b = &s->d->side[1].record;
    char what[256];
    size_t used;

    snprintf(text, size, "step %lld: %s", (long long)s->d->step, evidence_difference_text(&s->head, &s->d->difference, what, sizeof what));
    used = strlen(text);
    if (s->d->difference.part == EVIDENCE_RATE)
        snprintf(text + used, size - used, " %.6g | %.6g", (double)a->lr, (double)b->lr);
    if (s->d->side[0].rank >= 0 && s->d->side[1].rank >= 0)
        snprintf(text + used, size - used, " (of rank %d | %d)", s->d->side[0].rank, s->d->side[1].rank);
    used = strlen(text);
    snprintf(text + used, size - used, "%s", evidence_difference_then(&s->head, &s->d->difference, what, sizeof what));
    add_equal(s, text, size);
    used = strlen(text);
    snprintf(text + used, size - used, "; tier %s | %s; ranks %d | %d", tier_name(a->tier), tier_name(b->tier), a->ranks, b->ranks);
}

/* Writes "steps 289 .. 290 have no record in A". */
static void describe_missing(struct evidence_diff *d)
{
    static const char *const where[2][2] = { { "", "B" }, { "A", "A and B" } };
    int64_t first = d->missing_to - d->missing + 1; /* number of steps in that gap */
    size_t size = sizeof d->text, used = strlen(d->text);

    snprintf(d->text + used, size - used, "; steps %lld .. %lld have no record in %s", (long long)d->missing, (long long)d->missing_to,
             where[d->side[0].lacks][d->side[1].lacks]);
    used = strlen(d->text);
    if (d->lacking > first)
        snprintf(d->text + used, size - used, "; further steps without: %lld", (long long)(d->lacking - first));
}

static void describe(const struct search *s)
{
    struct evidence_diff *d = s->d;
    size_t size = sizeof d->text;

    if (d->step > 0)
        describe_step(s, d->text, size);
    else if (d->from == 0)
        snprintf(d->text, size, "no step has a record in both");
    else if (d->cut && !d->apart)
        snprintf(d->text, size, "not shown to be equal: steps %lld .. %lld are, nothing after them can be compared", (long long)d->from,
                 (long long)d->to);
    else
        snprintf(d->text, size, "%s: steps %lld .. %lld", d->apart ? "records are equal, chains are not" : "equal", (long long)d->from,
                 (long long)d->to);
    if (d->missing > 0)
        describe_missing(d);
}

/* ---- missing records ---- */

/* Finds the end of the first gap, and which run lacks its records. */
static void look_at_gap(const struct search *s)
{
    struct evidence_diff *d = s->d;
    struct evidence_record r;
    int64_t step = d->missing, end = smaller(s->last, d->missing + smaller(d->lacking, CHUNK) - 1);

    for (int k = 0; k < 2; k++)
        d->side[k].lacks = !evidence_read(s->e[k], step, &r);
    while (step < end && !evidence_read(s->e[0], step + 1, &r) == d->side[0].lacks &&
           !evidence_read(s->e[1], step + 1, &r) == d->side[1].lacks)
        step++;
    d->missing_to = step;
}

static void finish(const struct search *s)
{
    struct evidence_diff *d = s->d;

    if (d->step > 0) {
        d->to = d->step;
        d->apart = false;
    }
    if (d->step > 0 && d->missing > d->step)
        d->missing = d->lacking = 0;
    if (d->missing > 0)
        look_at_gap(s);
    d->cut = d->step == 0 && d->from > 0 && d->to < s->last;
    describe(s);
}

/* ---- all together ---- */

/* Compares chains first. If they give no answer, or show a difference but not its step, compares record by record. */
static int find(struct search *s, int64_t from, struct err *err)
{
    int64_t first = first_common(s, from);
    int rc = 0;

    if (first == 0 || stopped(s))
        return 0;
    begin_with(s, first);
    if (by_chain(s, first)) {
        rc = s->d->step > 0 ? look_at_step(s, err) : 0;
        if (rc < 0 || s->d->step > 0 || !s->d->apart)
            return rc;
    }
    rc = one_by_one(s, first, err);
    return rc == 0 && s->d->step > 0 ? look_at_step(s, err) : rc;
}

int evidence_diff(const struct evidence *a, const struct evidence *b, int64_t from, const volatile sig_atomic_t *stop,
                  struct evidence_diff *ret, struct err *err)
{
    struct search s = { .e = { a, b }, .stop = stop, .d = ret };
    int rc;

    *ret = (struct evidence_diff){ .side = { { .rank = -1 }, { .rank = -1 } }, .difference = { .shard = -1, .tensor = -1 } };
    for (int k = 0; k < 2; k++)
        ret->side[k].steps = evidence_steps(s.e[k]);
    s.last = smaller(ret->side[0].steps, ret->side[1].steps);
    compare_heads(&s);
    rc = find(&s, from, err);
    free(s.chunk[0]);
    free(s.chunk[1]);
    if (rc == 0 && stopped(&s))
        rc = err_set(err, -EINTR, "interrupted");
    if (rc < 0)
        return rc;
    finish(&s);
    return 0;
}

/* ---- JSON ---- */

/* An object under construction. o becomes NULL when a member cannot be made. */
struct object {
    json_t *o;
};

static void set(struct object *to, const char *name, json_t *value)
{
    if (json_object_set_new(to->o, name, value) == 0)
        return;
    json_decref(to->o);
    to->o = NULL;
}

static json_t *number_or_null(int64_t value, bool known)
{
    return known ? json_integer(value) : json_null();
}

/* JSON has neither infinities nor NaN. */
static json_t *real_or_null(float value)
{
    return isfinite(value) ? json_real((double)value) : json_null();
}

static json_t *string_or_null(const char *text)
{
    return text ? json_string(text) : json_null();
}

static json_t *side_json(const struct evidence_diff *d, int k)
{
    const struct evidence_diff_side *s = &d->side[k];
    struct object o = { json_object() };

    set(&o, "steps", json_integer(s->steps));
    set(&o, "lacks", json_boolean(s->lacks));
    if (d->step == 0)
        return o.o;
    set(&o, "attempt", json_integer(s->record.attempt));
    set(&o, "ranks", json_integer(s->record.ranks));
    set(&o, "tier", json_string(tier_name(s->record.tier)));
    set(&o, "skipped", json_boolean(s->record.skipped));
    set(&o, "lr", real_or_null(s->record.lr));
    set(&o, "loss", real_or_null(s->record.loss));
    set(&o, "kept", json_boolean(s->kept));
    set(&o, "rank", number_or_null(s->rank, s->rank >= 0));
    return o.o;
}

static json_t *difference_json(const struct evidence_head *h, const struct evidence_diff *d)
{
    const struct evidence_difference *at = &d->difference;
    bool state = at->located && at->part == EVIDENCE_STATE, tensor = at->located && at->tensor >= 0;
    struct object o = { json_object() };

    set(&o, "step", json_integer(d->step));
    set(&o, "part", json_string(evidence_part_name(at->part)));
    set(&o, "located", json_boolean(at->located));
    set(&o, "shard", number_or_null(at->shard, at->located && at->shard >= 0));
    set(&o, "tensor", string_or_null(tensor ? h->tensor[at->tensor].name : NULL));
    set(&o, "tensors", number_or_null(at->ntensors, tensor));
    set(&o, "state", string_or_null(state ? evidence_state_name(at->state) : NULL));
    return o.o;
}

static json_t *same_json(const struct evidence_diff *d)
{
    struct object o = { json_object() };

    set(&o, "spec", json_boolean(d->same_spec));
    set(&o, "data", json_boolean(d->same_data));
    set(&o, "level", json_boolean(d->same_level));
    set(&o, "shards", json_boolean(d->same_shards));
    set(&o, "tensors", json_boolean(d->same_tensors));
    return o.o;
}

static json_t *sides_json(const struct evidence_diff *d)
{
    json_t *list = json_array();

    for (int k = 0; k < 2; k++)
        if (json_array_append_new(list, side_json(d, k)) < 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

json_t *evidence_diff_json(const struct evidence_head *h, const struct evidence_diff *d)
{
    struct object o = { json_object() };

    set(&o, "text", json_string(d->text));
    set(&o, "equal", json_boolean(d->step == 0 && d->from > 0 && !d->apart && !d->cut));
    set(&o, "from", json_integer(d->from));
    set(&o, "to", json_integer(d->to));
    set(&o, "missing", number_or_null(d->missing, d->missing > 0));
    set(&o, "missing_to", number_or_null(d->missing_to, d->missing > 0));
    set(&o, "lacking", json_integer(d->lacking));
    set(&o, "cut", json_boolean(d->cut));
    set(&o, "apart", json_boolean(d->apart));
    set(&o, "difference", d->step > 0 ? difference_json(h, d) : json_null());
    set(&o, "same", same_json(d));
    set(&o, "sides", sides_json(d));
    return o.o;
}

#include "supervisor/program/rows.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "supervisor/program/steps.h"

enum { TEXT = 400 };

struct part { /* of a rank */
    struct steps_item item;
    int rank, n;
    double epoch, images;
    struct value {
        int term; /* index into names */
        double num, den;
    } values[];
};

struct split {
    struct rows *rows;
    const char *name;
    struct steps steps;
    char names[ROWS_NAMES][ROWS_NAME]; /* of terms, in the order in which they came */
    bool partial[ROWS_NAMES];          /* told that some rank lacks it */
    int nnames;
    bool told_names;
    const char *total; /* of names: the term that is stored as total; NULL: none yet */
    long given_up;
};

struct rows {
    int64_t resume_step;
    struct rows_hooks hooks;
    uint64_t backwards; /* ranks that were told */
    uint64_t left;      /* ranks that left without `finish`, and were not told */
    int told;           /* events about values */
    struct split split[2];
};

/* ---- events ---- */

static void event(const struct split *s, const char *kind, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void event(const struct split *s, const char *kind, const char *fmt, ...)
{
    char text[TEXT];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    s->rows->hooks.event(s->rows->hooks.arg, kind, text);
}

/* Only the first of a split is told; rows_end() tells the number. */
static void given_up(void *arg, int64_t step, int rank, const char *why)
{
    struct split *s = arg;

    if (s->given_up++ == 0)
        event(s, "incomplete", "no loss of %s is stored for step %lld: rank %d %s", s->name, (long long)step, rank, why);
}

static void tell_given_up(struct split *s)
{
    enum { SHOWN = 6 };
    char text[TEXT / 2] = "";
    size_t len = 0;

    for (int i = 0; i < s->steps.nranks && i < SHOWN && len < sizeof text; i++)
        if (s->steps.rank[i].interval > 0)
            len += (size_t)snprintf(text + len, sizeof text - len, "; rank %d reports every %lld steps", i,
                                    (long long)s->steps.rank[i].interval);
    if (s->given_up > 1)
        event(s, "incomplete", "%ld rows of %s were not stored, because not all ranks reported them%s", s->given_up, s->name, text);
    s->given_up = 0;
}

/* ---- a complete row ---- */

struct sum {
    int term, bad; /* bad: the first rank whose part is not finite, or -1 */
    double num, den;
};

static bool is_finite(double num, double den)
{
    return isfinite(num) && isfinite(den);
}

/* hint: the place that the term most probably has. NULL: the part lacks it. */
static const struct value *find_value(const struct part *p, int term, int hint)
{
    if (hint < p->n && p->values[hint].term == term)
        return &p->values[hint];
    for (int i = 0; i < p->n; i++)
        if (p->values[i].term == term)
            return &p->values[i];
    return NULL;
}

/* Adds value i of the first part, and that term of the others. False: a part lacks it. */
static bool add_up(struct part *const *parts, int nparts, int i, struct sum *ret)
{
    *ret = (struct sum){ .term = parts[0]->values[i].term, .bad = -1 };
    for (int k = 0; k < nparts; k++) {
        const struct value *v = find_value(parts[k], ret->term, i);

        if (!v)
            return false;
        if (ret->bad < 0 && !is_finite(v->num, v->den))
            ret->bad = parts[k]->rank;
        ret->num += v->num;
        ret->den += v->den;
    }
    return true;
}

static void tell_partial(struct split *s, int term, int64_t step)
{
    if (!s->partial[term])
        event(s, "terms", "term %s of %s is not stored, first at step %lld: some rank does not report it", s->names[term], s->name,
              (long long)step);
    s->partial[term] = true;
}

/* Many are of one kind, so they are counted. */
static void look_at_sum(struct split *s, int64_t step, const struct sum *sum)
{
    const char *term = s->names[sum->term];
    struct rows *r = s->rows;

    if ((is_finite(sum->num, sum->den) && sum->den != 0) || r->told++ > ROWS_TOLD)
        return;
    if (r->told > ROWS_TOLD)
        event(s, "loss", "further losses of this attempt that are not finite, or have no denominator, are not told");
    else if (isfinite(sum->num) && sum->den == 0)
        event(s, "loss", "%s step %lld: the denominators of term %s of all ranks add up to 0: it has no value", s->name, (long long)step,
              term);
    else if (sum->bad >= 0)
        event(s, "loss", "%s step %lld: term %s of rank %d is not finite", s->name, (long long)step, term, sum->bad);
    else
        event(s, "loss", "%s step %lld: the sum of term %s over the ranks is not finite", s->name, (long long)step, term);
}

/* Without `total` the first term of the first such row becomes it, in all rows that have that term. */
static void name_total(struct split *s, struct rows_term *terms, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(terms[i].name, "total") == 0)
            return;
    if (n > 0 && !s->total) {
        s->total = terms[0].name;
        event(s, "terms", "the ranks report no term total of %s: the first term, %s, is stored as total", s->name, s->total);
    }
    for (int i = 0; i < n; i++)
        if (terms[i].name == s->total)
            terms[i].name = "total";
}

static void tell_left(struct split *s, int rank, int64_t step)
{
    if (!(s->rows->left >> rank & 1))
        return;
    s->rows->left &= ~(UINT64_C(1) << rank);
    event(s, "incomplete",
          "rank %d ended with status 0, without run.finish(), before others had reported their last step: from step %lld of %s on, losses "
          "hold the shares of the other ranks alone",
          rank, (long long)step, s->name);
}

/* A rank without terms had no data: 0/0. */
static void complete(void *arg, int64_t step, struct steps_item *const *items)
{
    struct split *s = arg;
    struct part *parts[STEPS_RANKS];
    struct rows_term terms[ROWS_TERMS];
    struct rows_row row = { .val = s == &s->rows->split[1], .step = step, .epoch = NAN, .images = NAN, .terms = terms };
    struct sum sum;
    int nparts = 0;

    for (int k = 0; k < s->steps.nranks; k++) {
        struct part *p = (struct part *)items[k];

        if (!p)
            tell_left(s, k, step);
        if (p && isnan(row.epoch))
            row.epoch = p->epoch;
        if (p && !isnan(p->images))
            row.images = (isnan(row.images) ? 0 : row.images) + p->images;
        if (p && p->n > 0)
            parts[nparts++] = p;
    }
    for (int i = 0; nparts > 0 && i < parts[0]->n; i++)
        if (add_up(parts, nparts, i, &sum)) {
            look_at_sum(s, step, &sum);
            terms[row.n++] = (struct rows_term){ s->names[sum.term], sum.num, sum.den };
        } else {
            tell_partial(s, sum.term, step);
        }
    for (int k = 1; k < nparts; k++)
        for (int i = 0; i < parts[k]->n; i++)
            if (!find_value(parts[0], parts[k]->values[i].term, i))
                tell_partial(s, parts[k]->values[i].term, step);
    name_total(s, terms, row.n);
    if (row.n > 0)
        s->rows->hooks.row(s->rows->hooks.arg, &row);
}

/* ---- shares ---- */

/* hint: the index that the term most probably has. -1: there are too many names. */
static int find_name(struct split *s, const char *name, int hint)
{
    if (hint < s->nnames && strcmp(s->names[hint], name) == 0)
        return hint;
    for (int i = 0; i < s->nnames; i++)
        if (strcmp(s->names[i], name) == 0)
            return i;
    if (s->nnames == ROWS_NAMES) {
        if (!s->told_names)
            event(s, "terms", "the program reports more than %d different terms; further ones are not stored", ROWS_NAMES);
        s->told_names = true;
        return -1;
    }
    snprintf(s->names[s->nnames], ROWS_NAME, "%s", name);
    return s->nnames++;
}

static bool is_unfit(const char *name)
{
    for (; *name; name++)
        if ((unsigned char)*name < 0x20 || *name == '"' || *name == '\\')
            return true;
    return false;
}

static double real(const json_t *v)
{
    return json_is_number(v) ? json_number_value(v) : NAN;
}

/* NULL: out of memory. *ret_unfit: so many terms were left out. */
static struct part *new_part(struct split *s, int rank, const json_t *share, int *ret_unfit)
{
    json_t *terms = json_object_get(share, "terms"), *v;
    int room = json_object_size(terms) < ROWS_TERMS ? (int)json_object_size(terms) : ROWS_TERMS, i = 0, term;
    size_t bytes = sizeof(struct part) + (size_t)room * sizeof(struct value);
    struct part *p = malloc(bytes);
    const char *name;

    if (!p)
        return NULL;
    *p = (struct part){ .item = { .step = json_integer_value(json_object_get(share, "step")), .bytes = bytes },
                        .rank = rank,
                        .epoch = real(json_object_get(share, "epoch")),
                        .images = real(json_object_get(share, "images")) };
    *ret_unfit = 0;
    json_object_foreach (terms, name, v) {
        if (is_unfit(name) || i == room)
            ++*ret_unfit;
        else if ((term = find_name(s, name, i++)) >= 0)
            p->values[p->n++] = (struct value){ term, real(json_array_get(v, 0)), real(json_array_get(v, 1)) };
    }
    return p;
}

/* Only the first of a rank is told. */
static bool is_backwards(struct split *s, int rank, int64_t step)
{
    struct rows *r = s->rows;
    int64_t newest = s->steps.rank[rank].newest, last = newest > r->resume_step ? newest : r->resume_step;

    if (step > last)
        return false;
    if (!(r->backwards >> rank & 1))
        event(s, "backwards",
              "rank %d reports step %lld of %s after step %lld, and it is dropped: steps must rise, after a restart from run.step "
              "(DETD_RESUME_STEP) on",
              rank, (long long)step, s->name, (long long)last);
    r->backwards |= UINT64_C(1) << rank;
    return true;
}

int rows_take(struct rows *r, int rank, const json_t *share)
{
    struct split *s = &r->split[strcmp(json_string_value(json_object_get(share, "split")), "val") == 0];
    struct part *p;
    int unfit;

    if (s->steps.rank[rank].done || is_backwards(s, rank, json_integer_value(json_object_get(share, "step"))))
        return 0;
    p = new_part(s, rank, share, &unfit);
    if (!p)
        return -ENOMEM;
    steps_add(&s->steps, rank, &p->item);
    return unfit;
}

/* ---- the life of an attempt ---- */

struct rows *rows_new(int nranks, int64_t resume_step, const struct rows_hooks *hooks)
{
    static const char *const names[] = { "train", "val" };
    struct rows *r = calloc(1, sizeof *r);

    if (!r)
        return NULL;
    r->resume_step = resume_step;
    r->hooks = *hooks;
    for (int k = 0; k < 2; k++) {
        struct split *s = &r->split[k];

        s->rows = r;
        s->name = names[k];
        s->steps = (struct steps){
            .nranks = nranks, .max_open = ROWS_OPEN, .max_bytes = ROWS_BYTES, .complete = complete, .given_up = given_up, .arg = s
        };
    }
    return r;
}

void rows_free(struct rows *r)
{
    for (int k = 0; r && k < 2; k++)
        steps_close(&r->split[k].steps);
    free(r);
}

void rows_done(struct rows *r, int rank)
{
    for (int k = 0; k < 2; k++)
        steps_done(&r->split[k].steps, rank);
}

void rows_left(struct rows *r, int rank)
{
    if (!r->split[0].steps.rank[rank].done)
        r->left |= UINT64_C(1) << rank;
    rows_done(r, rank);
}

void rows_failed(struct rows *r, int rank)
{
    for (int k = 0; k < 2; k++)
        steps_failed(&r->split[k].steps, rank);
}

void rows_end(struct rows *r)
{
    for (int k = 0; k < 2; k++)
        tell_given_up(&r->split[k]);
}

int64_t rows_step(const struct rows *r, int rank)
{
    return r->split[0].steps.rank[rank].newest;
}

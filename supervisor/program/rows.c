#include "supervisor/program/rows.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 64, TEXT = 400 };

struct value {
    int term; /* index into names */
    double num, den;
};

struct part { /* of a rank */
    int n;
    double epoch, images;
    struct value values[];
};

struct open { /* a row that is not complete */
    int64_t step;
    uint64_t got;        /* ranks that have reported it */
    struct part *part[]; /* of each rank */
};

struct split {
    struct open *open[ROWS_OPEN]; /* by step */
    int n;
    struct {
        int64_t last, interval; /* the newest step, and how far it was from the one before; -1: none */
    } rank[MAX_RANKS];
    char names[ROWS_NAMES][ROWS_NAME]; /* of terms, in the order in which they came */
    bool partial[ROWS_NAMES];          /* told that some rank lacks it */
    int nnames;
    bool told_total, told_names;
    long given_up;
};

struct rows {
    int nranks;
    int64_t resume_step;
    struct rows_hooks hooks;
    uint64_t done, backwards; /* ranks; of backwards: those that were told */
    size_t bytes;             /* held by open rows */
    int told;                 /* events about values */
    struct split split[2];
};

static const char *const split_names[] = { "train", "val" };

static uint64_t bit(int rank)
{
    return (uint64_t)1 << rank;
}

struct rows *rows_new(int nranks, int64_t resume_step, const struct rows_hooks *hooks)
{
    struct rows *r = calloc(1, sizeof *r);

    if (!r)
        return NULL;
    r->nranks = nranks;
    r->resume_step = resume_step;
    r->hooks = *hooks;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < MAX_RANKS; i++)
            r->split[k].rank[i].last = r->split[k].rank[i].interval = -1;
    return r;
}

static size_t part_bytes(const struct part *p)
{
    return sizeof *p + (size_t)p->n * sizeof *p->values;
}

/* Frees the row at index i of the split. */
static void drop(struct rows *r, struct split *s, int i)
{
    struct open *o = s->open[i];

    for (int k = 0; k < r->nranks; k++)
        if (o->part[k]) {
            r->bytes -= part_bytes(o->part[k]);
            free(o->part[k]);
        }
    free(o);
    memmove(&s->open[i], &s->open[i + 1], (size_t)(--s->n - i) * sizeof *s->open);
}

void rows_free(struct rows *r)
{
    if (!r)
        return;
    for (int k = 0; k < 2; k++)
        while (r->split[k].n > 0)
            drop(r, &r->split[k], r->split[k].n - 1);
    free(r);
}

int64_t rows_step(const struct rows *r, int rank)
{
    return r->split[0].rank[rank].last;
}

/* ---- events ---- */

static const char *name_of(const struct rows *r, const struct split *s)
{
    return split_names[s == &r->split[1]];
}

static void event(const struct rows *r, const char *kind, const char *text)
{
    r->hooks.event(r->hooks.arg, kind, text);
}

/* Appends "rank 0 every 1, rank 1 every 10 steps" of the ranks, for the first few. */
static void tell_intervals(const struct rows *r, const struct split *s, char *text, size_t size)
{
    enum { SHOWN = 6 };
    size_t len = strlen(text);

    for (int i = 0; i < r->nranks && i < SHOWN && len < size; i++) {
        int64_t every = s->rank[i].interval;

        if (every > 0)
            len += (size_t)snprintf(text + len, size - len, "; rank %d reports every %lld steps", i, (long long)every);
    }
}

/* Gives up row i. Only the first of a split is told; rows_end() tells the number. why: what the rank did. */
static void give_up(struct rows *r, struct split *s, int i, int rank, const char *why)
{
    char text[TEXT];

    if (s->given_up++ == 0) {
        snprintf(text, sizeof text, "no loss of %s is stored for step %lld: rank %d %s", name_of(r, s), (long long)s->open[i]->step, rank,
                 why);
        event(r, "incomplete", text);
    }
    drop(r, s, i);
}

void rows_end(struct rows *r)
{
    char text[TEXT];

    for (int k = 0; k < 2; k++) {
        struct split *s = &r->split[k];

        if (s->given_up < 2)
            continue;
        snprintf(text, sizeof text, "%ld rows of %s were not stored, because not all ranks reported them", s->given_up, name_of(r, s));
        tell_intervals(r, s, text, sizeof text);
        event(r, "incomplete", text);
        s->given_up = 0;
    }
}

/* An event about a value. Many are of one kind, so they are counted. */
static void tell_value(struct rows *r, const struct split *s, int64_t step, const char *what)
{
    char text[TEXT];

    if (r->told++ > ROWS_TOLD)
        return;
    if (r->told > ROWS_TOLD)
        snprintf(text, sizeof text, "further losses of this attempt that are not finite, or have no denominator, are not told");
    else
        snprintf(text, sizeof text, "%s step %lld: %s", name_of(r, s), (long long)step, what);
    event(r, "loss", text);
}

/* ---- names of terms ---- */

/* hint: the index that the term most probably has. -1: there are too many names. */
static int find_name(struct rows *r, struct split *s, const char *name, int hint)
{
    if (hint < s->nnames && strcmp(s->names[hint], name) == 0)
        return hint;
    for (int i = 0; i < s->nnames; i++)
        if (strcmp(s->names[i], name) == 0)
            return i;
    if (s->nnames == ROWS_NAMES) {
        if (!s->told_names)
            event(r, "terms", "the program reports more than 1024 different terms; further ones are not stored");
        s->told_names = true;
        return -1;
    }
    snprintf(s->names[s->nnames], ROWS_NAME, "%s", name);
    return s->nnames++;
}

/* ---- a complete row ---- */

struct sum {
    int term;
    int parts; /* ranks that have it */
    double num, den;
};

/* Adds the parts in rank order. Returns the number of sums, in the order of the first part's terms. */
static int add_parts(const struct rows *r, const struct open *o, struct sum *sums, int *ret_parts)
{
    static short at[ROWS_NAMES]; /* place of a term in sums, plus 1 */
    int n = 0;

    *ret_parts = 0;
    for (int k = 0; k < r->nranks; k++) {
        const struct part *p = o->part[k];

        *ret_parts += p && p->n > 0; /* a rank without terms had no data: 0/0 */
        for (int i = 0; p && i < p->n; i++) {
            const struct value *v = &p->values[i];

            if (!at[v->term] && n < ROWS_NAMES) {
                sums[n] = (struct sum){ .term = v->term };
                at[v->term] = (short)++n;
            }
            sums[at[v->term] - 1].num += v->num;
            sums[at[v->term] - 1].den += v->den;
            sums[at[v->term] - 1].parts++;
        }
    }
    for (int i = 0; i < n; i++)
        at[sums[i].term] = 0;
    return n;
}

static void tell_partial(struct rows *r, struct split *s, int term, int64_t step)
{
    char text[TEXT];

    if (s->partial[term])
        return;
    s->partial[term] = true;
    snprintf(text, sizeof text, "term %s of %s is not stored, first at step %lld: some rank does not report it", s->names[term],
             name_of(r, s), (long long)step);
    event(r, "terms", text);
}

static int first_bad(const struct rows *r, const struct open *o, int term)
{
    for (int k = 0; k < r->nranks; k++)
        for (int i = 0; o->part[k] && i < o->part[k]->n; i++)
            if (o->part[k]->values[i].term == term && !(isfinite(o->part[k]->values[i].num) && isfinite(o->part[k]->values[i].den)))
                return k;
    return -1;
}

static void look_at_sum(struct rows *r, struct split *s, const struct open *o, const struct sum *sum)
{
    char what[TEXT / 2];
    int rank;

    if (isfinite(sum->num) && isfinite(sum->den) && sum->den != 0)
        return;
    rank = first_bad(r, o, sum->term);
    if (isfinite(sum->num) && sum->den == 0)
        snprintf(what, sizeof what, "the denominators of term %s of all ranks add up to 0: it has no value", s->names[sum->term]);
    else if (rank >= 0)
        snprintf(what, sizeof what, "term %s of rank %d is not finite", s->names[sum->term], rank);
    else
        snprintf(what, sizeof what, "the sum of term %s over the ranks is not finite", s->names[sum->term]);
    tell_value(r, s, o->step, what);
}

/* Without `total` the first term becomes it. */
static void name_total(struct rows *r, struct split *s, struct rows_term *terms, int n)
{
    char text[TEXT];

    for (int i = 0; i < n; i++)
        if (strcmp(terms[i].name, "total") == 0)
            return;
    if (n == 0)
        return;
    if (!s->told_total) {
        snprintf(text, sizeof text, "the ranks report no term total of %s: the first term, %s, is stored as total", name_of(r, s),
                 terms[0].name);
        event(r, "terms", text);
    }
    s->told_total = true;
    terms[0].name = "total";
}

static void complete(struct rows *r, struct split *s, int at)
{
    static struct sum sums[ROWS_NAMES];
    struct rows_term terms[ROWS_TERMS];
    const struct open *o = s->open[at];
    struct rows_row row = { .val = s == &r->split[1], .step = o->step, .epoch = NAN, .images = NAN, .terms = terms };
    int parts, n = add_parts(r, o, sums, &parts);

    for (int i = 0; i < n && row.n < ROWS_TERMS; i++) {
        if (sums[i].parts < parts) {
            tell_partial(r, s, sums[i].term, o->step);
            continue;
        }
        look_at_sum(r, s, o, &sums[i]);
        terms[row.n++] = (struct rows_term){ s->names[sums[i].term], sums[i].num, sums[i].den };
    }
    name_total(r, s, terms, row.n);
    for (int k = 0; k < r->nranks; k++) {
        const struct part *p = o->part[k];

        if (p && isnan(row.epoch))
            row.epoch = p->epoch;
        if (p && !isnan(p->images))
            row.images = (isnan(row.images) ? 0 : row.images) + p->images;
    }
    if (row.n > 0)
        r->hooks.row(r->hooks.arg, &row);
    drop(r, s, at);
}

static bool is_complete(const struct rows *r, const struct open *o)
{
    uint64_t all = r->nranks == MAX_RANKS ? UINT64_MAX : bit(r->nranks) - 1;

    return (o->got | r->done) == all;
}

/* ---- shares ---- */

/* Index of the first row at or after the step. */
static int place(const struct split *s, int64_t step)
{
    int low = 0, high = s->n;

    while (low < high) {
        int middle = (low + high) / 2;

        if (s->open[middle]->step < step)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_backwards(struct rows *r, const struct split *s, const struct rows_share *share)
{
    int64_t last = s->rank[share->rank].last;
    char text[TEXT];

    if (share->step > last && share->step > r->resume_step)
        return false;
    if (!(r->backwards & bit(share->rank))) {
        if (share->step <= r->resume_step)
            snprintf(text, sizeof text,
                     "rank %d reports step %lld of %s again, and it is dropped: this attempt goes on after step %lld (run.step, "
                     "DETD_RESUME_STEP)",
                     share->rank, (long long)share->step, name_of(r, s), (long long)r->resume_step);
        else
            snprintf(text, sizeof text,
                     "rank %d reports step %lld of %s after step %lld, and it is dropped: steps must rise. After a restart go on from "
                     "run.step (DETD_RESUME_STEP)",
                     share->rank, (long long)share->step, name_of(r, s), (long long)last);
        event(r, "backwards", text);
    }
    r->backwards |= bit(share->rank);
    return true;
}

static struct part *new_part(struct rows *r, struct split *s, const struct rows_share *share)
{
    struct part *p = malloc(sizeof *p + (size_t)share->n * sizeof *p->values);

    if (!p)
        return NULL;
    p->n = 0;
    p->epoch = share->epoch;
    p->images = share->images;
    for (int i = 0; i < share->n; i++) {
        int term = find_name(r, s, share->terms[i].name, i);

        if (term >= 0)
            p->values[p->n++] = (struct value){ term, share->terms[i].num, share->terms[i].den };
    }
    return p;
}

/* The row at index `at`, which is made if it is not there. NULL: out of memory. */
static struct open *find_or_add(struct rows *r, struct split *s, int at, int64_t step)
{
    struct open *o;

    if (at < s->n && s->open[at]->step == step)
        return s->open[at];
    o = calloc(1, sizeof *o + (size_t)r->nranks * sizeof *o->part);
    if (!o)
        return NULL;
    o->step = step;
    memmove(&s->open[at + 1], &s->open[at], (size_t)(s->n++ - at) * sizeof *s->open);
    s->open[at] = o;
    return o;
}

static int first_lacking(const struct rows *r, const struct open *o)
{
    for (int k = 0; k < r->nranks; k++)
        if (!((o->got | r->done) & bit(k)))
            return k;
    return 0;
}

/* A rank that has reported a later step, and so will never report this one; -1: none. */
static int first_ahead(const struct rows *r, const struct split *s, const struct open *o)
{
    for (int k = 0; k < r->nranks; k++)
        if (!(o->got & bit(k)) && s->rank[k].last > o->step)
            return k;
    return -1;
}

static void make_room(struct rows *r, struct split *s)
{
    while (s->n >= ROWS_OPEN || (s->n > 0 && r->bytes > ROWS_BYTES))
        give_up(r, s, 0, first_lacking(r, s->open[0]), "has not reported it, and too many rows wait");
}

/* Rows before this step that the rank lacks: it will never report them. */
static void give_up_before(struct rows *r, struct split *s, int rank, int64_t step)
{
    for (int i = 0; i < s->n && s->open[i]->step < step;)
        if (!(s->open[i]->got & bit(rank)))
            give_up(r, s, i, rank, "reports a later step and lacks this one");
        else
            i++;
}

bool rows_take(struct rows *r, const struct rows_share *share)
{
    struct split *s = &r->split[share->val];
    struct part *p;
    struct open *o;
    int ahead;

    if (r->done & bit(share->rank) || is_backwards(r, s, share))
        return true;
    s->rank[share->rank].interval = s->rank[share->rank].last < 0 ? -1 : share->step - s->rank[share->rank].last;
    s->rank[share->rank].last = share->step;
    give_up_before(r, s, share->rank, share->step);
    make_room(r, s);
    p = new_part(r, s, share);
    o = p ? find_or_add(r, s, place(s, share->step), share->step) : NULL;
    if (!o) {
        free(p);
        return false;
    }
    o->part[share->rank] = p;
    o->got |= bit(share->rank);
    r->bytes += part_bytes(p);
    if ((ahead = first_ahead(r, s, o)) >= 0)
        give_up(r, s, place(s, share->step), ahead, "has reported a later step and lacks this one");
    else if (is_complete(r, o))
        complete(r, s, place(s, share->step));
    return true;
}

void rows_done(struct rows *r, int rank)
{
    r->done |= bit(rank);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < r->split[k].n;)
            if (is_complete(r, r->split[k].open[i]))
                complete(r, &r->split[k], i);
            else
                i++;
}

void rows_failed(struct rows *r, int rank)
{
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < r->split[k].n;)
            if (!(r->split[k].open[i]->got & bit(rank)))
                give_up(r, &r->split[k], i, rank, "failed before it reported it");
            else
                i++;
}

#include <stdio.h> /* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "proto/evidence/evidence.h"

static bool differ(struct hash128 a, struct hash128 b)
{
    return a.lane[0] != b.lane[0] || a.lane[1] != b.lane[1];
}

/* Compares the bits: a value that is not a number is equal to itself here. */
static bool differ_float(float a, float b)
{
    uint32_t x, y;

    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    return x != y;
}

static bool part_differs(const struct evidence_record *a, const struct evidence_record *b, int part)
{
    return differ(a->part[part], b->part[part]) || (part == EVIDENCE_LOSS && differ_float(a->loss, b->loss)) ||
           (part == EVIDENCE_GRADIENT && a->skipped != b->skipped);
}

static bool find_part(const struct evidence_head *h, const struct evidence_record *a, const struct evidence_record *b, int *ret_part)
{
    static const int order[] = { EVIDENCE_DATA, EVIDENCE_LOSS, EVIDENCE_GRADIENT, EVIDENCE_RATE, EVIDENCE_WEIGHT, EVIDENCE_STATE };

    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        int part = order[i];

        if (!h->tensors && (part == EVIDENCE_GRADIENT || part == EVIDENCE_WEIGHT))
            continue;
        if (part == EVIDENCE_RATE ? differ_float(a->lr, b->lr) : part_differs(a, b, part)) {
            *ret_part = part;
            return true;
        }
    }
    return false;
}

/* Returns how many of n pairs differ, 0 if all are equal, and the first and the last pair that differ. */
static int count_different(const struct hash128 *a, const struct hash128 *b, int n, int *ret_first, int *ret_last)
{
    int count = 0;

    for (int i = 0; i < n; i++)
        if (differ(a[i], b[i])) {
            if (count++ == 0)
                *ret_first = i;
            *ret_last = i;
        }
    return count;
}

static int locate_gradient(const struct evidence_head *h, const struct evidence_detail *a, const struct evidence_detail *b,
                           struct evidence_difference *d)
{
    int first = -1, last = -1;

    d->ntensors = h->tensors ? count_different(a->gradient, b->gradient, h->ntensors, &first, &last) : 0;
    d->tensor = last;
    return d->ntensors;
}

static void locate(const struct evidence_head *h, const struct evidence_detail *a, const struct evidence_detail *b,
                   struct evidence_difference *d)
{
    int first = -1, last = -1, count = 0;

    switch (d->part) {
    case EVIDENCE_DATA:
        count = count_different(a->data, b->data, h->shards, &first, &last);
        d->shard = first;
        break;
    case EVIDENCE_LOSS:
        count = count_different(a->loss, b->loss, h->shards, &first, &last);
        d->shard = first;
        if (count > 0)
            locate_gradient(h, a, b, d);
        break;
    case EVIDENCE_GRADIENT:
        count = locate_gradient(h, a, b, d);
        break;
    case EVIDENCE_WEIGHT:
        count = count_different(a->weight, b->weight, h->ntensors, &first, &last);
        d->tensor = first;
        d->ntensors = count;
        break;
    case EVIDENCE_STATE:
        count = count_different(a->state, b->state, EVIDENCE_STATES, &first, &last);
        if (count > 0)
            d->state = (enum evidence_state)first;
        break;
    default:
        break;
    }
    d->located = count > 0;
}

bool evidence_compare(const struct evidence_head *h, const struct evidence_record *a, const struct evidence_detail *da,
                      const struct evidence_record *b, const struct evidence_detail *db, struct evidence_difference *ret)
{
    struct evidence_difference d = { .shard = -1, .tensor = -1 };

    if (!find_part(h, a, b, &d.part))
        return false;
    if (d.part == EVIDENCE_RATE)
        d.located = true;
    else if (da && db)
        locate(h, da, db, &d);
    *ret = d;
    return true;
}

/* ---- words ---- */

const char *evidence_part_name(int part)
{
    static const char *const names[] = { [EVIDENCE_DATA] = "data",     [EVIDENCE_LOSS] = "loss",   [EVIDENCE_GRADIENT] = "gradient",
                                         [EVIDENCE_WEIGHT] = "update", [EVIDENCE_STATE] = "state", [EVIDENCE_RATE] = "rate" };

    return names[part];
}

const char *evidence_state_name(enum evidence_state state)
{
    static const char *const names[] = { [EVIDENCE_WINDOW] = "window", [EVIDENCE_VALIDATION] = "validation", [EVIDENCE_SKIPS] = "skips" };

    return names[state];
}

static const char *state_text(enum evidence_state state)
{
    static const char *const texts[] = { [EVIDENCE_WINDOW] = "open log window",
                                         [EVIDENCE_VALIDATION] = "last and best validation",
                                         [EVIDENCE_SKIPS] = "number of skipped steps" };

    return texts[state];
}

const char *evidence_difference_text(const struct evidence_head *h, const struct evidence_difference *d, char *buf, size_t size)
{
    const char *part = evidence_part_name(d->part);

    if (d->part == EVIDENCE_RATE)
        snprintf(buf, size, "learning rate");
    else if (d->located && d->part == EVIDENCE_STATE)
        snprintf(buf, size, "%s", state_text(d->state));
    else if (d->located && d->shard >= 0)
        snprintf(buf, size, "%s of shard %d", part, d->shard);
    else if (d->located)
        snprintf(buf, size, "%s of %s (%d of %d tensors)", part, h->tensor[d->tensor].name, d->ntensors, h->ntensors);
    else
        snprintf(buf, size, "%s", part);
    return buf;
}

const char *evidence_difference_then(const struct evidence_head *h, const struct evidence_difference *d, char *buf, size_t size)
{
    buf[0] = '\0';
    if (d->part == EVIDENCE_LOSS && d->located && d->tensor >= 0)
        snprintf(buf, size, ", then gradient of %s (%d of %d tensors)", h->tensor[d->tensor].name, d->ntensors, h->ntensors);
    return buf;
}

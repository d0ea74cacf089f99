/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/conv_derived.c - the derived forms of weights, kept with a
 * parameter in a short list that is searched by key. */
#include <errno.h>
#include <stdlib.h>

#include "proto/err.h"
#include "worker/cpu/conv.h"

struct form {
    struct form *next;
    struct form_key key;
    size_t count;
    uint64_t version;
    float *data;
};

static bool same(const struct form_key *a, const struct form_key *b)
{
    return a->kind == b->kind && a->a == b->a && a->b == b->b;
}

static struct form *find(const struct param *p, const struct form_key *key, size_t count)
{
    struct form *f = p->derived;

    while (f && !(same(&f->key, key) && f->count == count))
        f = f->next;
    return f;
}

float *cpu_form_due(struct param *p, const struct form_key *key, size_t count)
{
    struct form *f = find(p, key, count);

    if (!f || f->version == p->version)
        return NULL;
    f->version = p->version;
    return f->data;
}

float *cpu_form(struct param *p, const struct form_key *key, size_t count, bool *ret_stale, struct err *err)
{
    struct form *f = find(p, key, count);

    if (f) {
        *ret_stale = f->version != p->version;
        f->version = p->version;
        return f->data;
    }
    f = calloc(1, sizeof *f);
    if (f)
        f->data = cpu_memory(count * sizeof *f->data);
    if (!f || !f->data) {
        free(f);
        err_set(err, -ENOMEM, "out of memory: %zu bytes for a packed form of '%s'", count * sizeof *f->data, p->name);
        return NULL;
    }
    f->key = *key;
    f->count = count;
    f->version = p->version;
    f->next = p->derived;
    p->derived = f;
    *ret_stale = true;
    return f->data;
}

void cpu_param_release(struct device *dev, struct param *p)
{
    (void)dev;
    for (struct form *f = p->derived, *next; f; f = next) {
        next = f->next;
        free(f->data);
        free(f);
    }
    p->derived = NULL;
}

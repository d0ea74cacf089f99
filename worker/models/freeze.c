#include "worker/models/freeze.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <fnmatch.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/layers/layers.h"
#include "worker/models/model.h"
#include "worker/models/registry.h"

enum { CLOSE = 3, TEXT_MAX = 160, FAR = 1000 };

struct span {
    int from, to; /* both included */
};

/* "3", "0-14" */
static bool read_span(const char *text, struct span *ret)
{
    char *end;

    if (*text < '0' || *text > '9')
        return false;
    ret->from = ret->to = (int)strtol(text, &end, 10);
    if (*end == '-' && end[1] >= '0' && end[1] <= '9')
        ret->to = (int)strtol(end + 1, &end, 10);
    return *end == '\0';
}

static int number_of(const struct model *m, const struct param *p)
{
    return m->family->layer ? m->family->layer(p) : p->index;
}

/* text is a pattern that fits the whole name, or the part of the name before a dot. */
static bool is_named(const char *name, const char *text)
{
    size_t len = strlen(text);

    return fnmatch(text, name, 0) == 0 || (strncmp(name, text, len) == 0 && name[len] == '.');
}

static int freeze_one(struct model *m, const char *text)
{
    struct span span;
    bool numbers = read_span(text, &span);
    int n = 0;

    for (int i = 0; i < m->nparams; i++) {
        struct param *p = m->params[i];
        int number = numbers ? number_of(m, p) : 0;

        if (numbers ? number < span.from || number > span.to : !is_named(p->name, text))
            continue;
        p->trainable = false;
        n++;
    }
    return n;
}

/* ---- proposals for a wrong name ---- */

/* The number of changed letters between a and the first len letters of b. */
static int distance(const char *a, const char *b, size_t len)
{
    int row[TEXT_MAX], rows = 0;

    if (len >= TEXT_MAX)
        return FAR;
    for (size_t j = 0; j <= len; j++)
        row[j] = (int)j;
    for (; *a; a++) {
        int corner = rows++;

        row[0] = rows;
        for (size_t j = 1; j <= len; j++) {
            int change = corner + (*a != b[j - 1]), least = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;

            corner = row[j];
            row[j] = change < least ? change : least;
        }
    }
    return row[len];
}

struct near {
    const char *name;
    size_t len; /* letters of name that count */
    int far;
};

static bool has(const struct near *list, const char *name, size_t len)
{
    for (int i = 0; i < CLOSE; i++)
        if (list[i].name && list[i].len == len && strncmp(list[i].name, name, len) == 0)
            return true;
    return false;
}

/* Inserts a name into the list of closest names. Among equals the first one stays in front. */
static void offer(struct near *list, const char *text, const char *name, size_t len)
{
    struct near it = { name, len, distance(text, name, len) };

    if (has(list, name, len))
        return;
    for (int i = 0; i < CLOSE; i++)
        if (!list[i].name || it.far < list[i].far) {
            struct near next = list[i];

            list[i] = it;
            it = next;
        }
}

static int unknown(const struct model *m, const char *text, struct err *err)
{
    struct near list[CLOSE] = { 0 };
    char plain[TEXT_MAX], said[3 * TEXT_MAX] = "";
    size_t n = 0, at = 0;

    for (const char *c = text; *c && n + 1 < sizeof plain; c++)
        if (*c != '*')
            plain[n++] = *c;
    while (n > 0 && plain[n - 1] == '.')
        n--;
    plain[n] = '\0';
    for (int i = 0; i < m->nparams; i++) {
        const char *name = m->params[i]->name;

        for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.'))
            offer(list, plain, name, (size_t)(dot - name));
        offer(list, plain, name, strlen(name));
    }
    for (int i = 0; i < CLOSE && list[i].name && at < sizeof said; i++)
        at += (size_t)snprintf(said + at, sizeof said - at, "%s%.*s", i ? ", " : "", (int)list[i].len, list[i].name);
    return err_field(err, ERR_INPUT, "train.freeze",
                     "train.freeze: nothing is called '%.60s'; similar names are %s; detctl layers lists all", text, said);
}

static int no_such_layer(const struct model *m, const char *text, struct err *err)
{
    int last = 0;

    for (int i = 0; i < m->nparams; i++)
        last = number_of(m, m->params[i]) > last ? number_of(m, m->params[i]) : last;
    return err_field(err, ERR_INPUT, "train.freeze",
                     "train.freeze: no layer with weights has the number '%.60s'; numbers are 0 to %d; detctl layers lists them", text,
                     last);
}

/* ---- all of it ---- */

static bool learns(const struct norm *n)
{
    return n->gamma->trainable || n->beta->trainable;
}

/* Freezes normalisations that no longer learn scale or shift, so that their statistics stay. learned: those that
 * learned before. The others keep the family's choice. */
static void freeze_norms(struct model *m, const bool *learned)
{
    for (int i = 0; i < m->nnorms; i++) {
        struct norm *n = &m->norms[i];

        if (!learned[i] || learns(n))
            continue;
        n->frozen = true;
        n->sync = false;
    }
}

static bool any_trains(const struct model *m)
{
    for (int i = 0; i < m->nparams; i++)
        if (param_trainable(m->params[i]))
            return true;
    return false;
}

static int freeze_all(struct model *m, const json_t *what, struct err *err)
{
    struct span span;
    json_t *x;
    size_t i;

    json_array_foreach (what, i, x) {
        const char *text = json_string_value(x);

        if (freeze_one(m, text) == 0)
            return read_span(text, &span) ? no_such_layer(m, text, err) : unknown(m, text, err);
    }
    return any_trains(m) ? 0 : err_field(err, ERR_INPUT, "train.freeze", "train.freeze: nothing is left that trains");
}

int model_freeze(struct model *m, const json_t *what, struct err *err)
{
    bool *learned;
    int rc;

    if (json_array_size(what) == 0)
        return 0;
    learned = calloc((size_t)m->nnorms + 1, sizeof *learned);
    if (!learned)
        return err_set(err, ERR_DEVICE, "out of memory");
    for (int i = 0; i < m->nnorms; i++)
        learned[i] = learns(&m->norms[i]);
    rc = freeze_all(m, what, err);
    if (rc >= 0)
        freeze_norms(m, learned);
    free(learned);
    return rc;
}

#include "client/proof/differences.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/base/print.h"

enum { KEY_BYTES = 256, MAX_DEPTH = 8, VALUE_BYTES = 120 };

static void add(json_t *out, const char *prefix, const json_t *a, const json_t *b, int depth);

static void add_value(json_t *out, const char *prefix, const char *key, const json_t *a, const json_t *b, int depth)
{
    char path[KEY_BYTES];

    snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", key);
    if ((json_is_object(a) || json_is_object(b)) && depth < MAX_DEPTH)
        add(out, path, a, b, depth + 1);
    else if (!a || !b || !json_equal(a, b))
        json_array_append_new(out, json_pack("{s:s, s:O?, s:O?}", "key", path, "a", a, "b", b));
}

static void add(json_t *out, const char *prefix, const json_t *a, const json_t *b, int depth)
{
    const char *key;
    json_t *value;

    json_object_foreach ((json_t *)a, key, value) {
        add_value(out, prefix, key, value, json_object_get(b, key), depth);
    }
    json_object_foreach ((json_t *)b, key, value) {
        if (!json_object_get(a, key))
            add_value(out, prefix, key, NULL, value, depth);
    }
}

void differences_add(json_t *out, const char *prefix, const json_t *a, const json_t *b)
{
    add(out, prefix, a, b, 0);
}

/* Adds strings as they are, and the rest as JSON; both are cut. */
static void add_cell(struct table *t, const json_t *v)
{
    char *text = !v || json_is_string(v) ? NULL : json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));

    table_addf(t, "%.*s", VALUE_BYTES, text ? text : v && json_is_string(v) ? json_string_value(v) : "-");
    free(text);
}

void differences_print(const json_t *differences, const char *a, const char *b)
{
    char heads[2][VALUE_BYTES];
    const char *const headers[] = { "<KEY", heads[0], heads[1] };
    struct table *t;
    json_t *d;
    size_t i;

    if (json_array_size(differences) == 0)
        return;
    snprintf(heads[0], sizeof heads[0], "<%s", a);
    snprintf(heads[1], sizeof heads[1], "<%s", b);
    t = table_new(3, headers);
    json_array_foreach (differences, i, d) {
        table_add(t, json_string_value(json_object_get(d, "key")));
        add_cell(t, json_object_get(d, "a"));
        add_cell(t, json_object_get(d, "b"));
    }
    table_print(t, stdout);
    table_free(t);
}

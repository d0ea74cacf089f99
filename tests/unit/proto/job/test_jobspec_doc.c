/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/proto/job/test_jobspec_doc.c - uses: proto
 * The files written from the table of keys must be up to date: help, schema and manual page. With DETD_GENERATE=1 in
 * the environment the test rewrites schema and manual page instead. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/job/jobspec_table.h"
#include "tests/unit/proto/job/job_file.h"

static char *help_of(const struct job_preset *preset)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    assert_int_equal(jobspec_write_help(f, preset), 0);
    fclose(f);
    return text;
}

/* ---- schema/job.schema.json ---- */

static json_t *type_of(const struct job_key *k)
{
    static const char *const names[] = { "string", "string",  "string",  "integer", "number", "boolean", "array",
                                         "object", "integer", "integer", "string",  "object", "array" };
    json_t *all = json_pack("[s]", names[k->type]);

    if (k->type == TYPE_SIZE || k->type == TYPE_INTS || k->type == TYPE_STRS)
        json_array_append_new(all, json_string("array"));
    if (job_key_takes_units(k))
        json_array_append_new(all, json_string("string"));
    if (strcmp(k->def, "null") == 0)
        json_array_append_new(all, json_string("null"));
    if (json_array_size(all) == 1) {
        json_decref(all);
        all = json_string(names[k->type]);
    }
    return all;
}

static json_t *words_json(const struct job_key *k)
{
    json_t *list = json_array();

    for (const char *p = k->values; *p;) {
        size_t n = strcspn(p, "|");

        json_array_append_new(list, json_stringn(p, n));
        p += n + (p[n] == '|');
    }
    if (strcmp(k->def, "null") == 0)
        json_array_append_new(list, json_null());
    return list;
}

/* Whole limits are written without a fraction. */
static json_t *limit(double x)
{
    return x == (double)(json_int_t)x ? json_integer((json_int_t)x) : json_real(x);
}

static void add_range(json_t *out, const struct job_key *k)
{
    json_object_set_new(out, job_key_positive(k) ? "exclusiveMinimum" : "minimum", limit(job_key_positive(k) ? 0 : k->min));
    json_object_set_new(out, "maximum", limit(k->max));
}

static void add_limits(json_t *out, const struct job_key *k)
{
    switch (k->type) {
    case TYPE_STR:
    case TYPE_PATH:
        json_object_set_new(out, "minLength", json_integer(1));
        json_object_set_new(out, "maxLength", limit(k->max));
        break;
    case TYPE_ENUM:
        json_object_set_new(out, "enum", words_json(k));
        break;
    case TYPE_INT:
    case TYPE_REAL:
        add_range(out, k);
        break;
    case TYPE_REALS:
        json_object_set_new(out, "items",
                            job_key_takes_units(k) ? json_pack("{s:[s,s]}", "type", "number", "string")
                                                   : json_pack("{s:s}", "type", "number"));
        json_object_set_new(out, "maxItems", limit(k->max));
        break;
    case TYPE_SIZE:
        add_range(out, k);
        json_object_set_new(out, "items", json_pack("{s:s}", "type", "integer"));
        add_range(json_object_get(out, "items"), k);
        json_object_set_new(out, "minItems", json_integer(2));
        json_object_set_new(out, "maxItems", json_integer(2));
        break;
    case TYPE_INTS:
        add_range(out, k);
        json_object_set_new(out, "items", json_pack("{s:s}", "type", "integer"));
        add_range(json_object_get(out, "items"), k);
        json_object_set_new(out, "minItems", json_integer(1));
        json_object_set_new(out, "maxItems", json_integer(JOB_MAX_LIST));
        break;
    case TYPE_MAP:
        json_object_set_new(out, "additionalProperties", json_pack("{s:s}", "type", "string"));
        json_object_set_new(out, "maxProperties", limit(k->max));
        break;
    case TYPE_NUMBERS:
        json_object_set_new(out, "additionalProperties", json_pack("{s:s}", "type", "number"));
        add_range(json_object_get(out, "additionalProperties"), k);
        json_object_set_new(out, "maxProperties", json_integer(JOB_MAX_NUMBERS));
        break;
    case TYPE_STRS:
    case TYPE_ARGS:
        json_object_set_new(out, "items", json_pack("{s:s}", "type", "string"));
        json_object_set_new(out, "maxItems", limit(k->max));
        break;
    case TYPE_BOOL:
        break;
    }
}

/* The help of a key, its unit, and the families of models that have it. */
static void add_description(json_t *out, const struct job_key *k)
{
    char text[2048];
    int n = snprintf(text, sizeof text, "%s%s%s%s%s", k->help, *k->help && *k->unit ? " " : "", *k->unit ? "[" : "", k->unit,
                     *k->unit ? "]" : "");

    if (strcmp(k->families, "!program") == 0)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s(not of programs)", n > 0 ? " " : "");
    else if (job_key_is_of_programs(k))
        n += snprintf(text + n, sizeof text - (size_t)n, "%s(only of programs)", n > 0 ? " " : "");
    else if (*k->families == '!')
        n += snprintf(text + n, sizeof text - (size_t)n, "%s(not of the %s %s)", n > 0 ? " " : "", job_key_families(k), k->families + 1);
    else if (*k->families)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s(only of the %s %s)", n > 0 ? " " : "", job_key_families(k), k->families);
    assert_in_range(n, 0, sizeof text - 1);
    if (n > 0)
        json_object_set_new(out, "description", json_string(text));
}

static json_t *property(const struct job_key *k)
{
    json_t *out = json_pack("{s:o}", "type", type_of(k));

    add_description(out, k);
    if (strcmp(k->def, "-") != 0)
        json_object_set_new(out, "default", json_loads(k->def, JSON_DECODE_ANY, NULL));
    add_limits(out, k);
    return out;
}

static void require(json_t *group, const char *name)
{
    json_t *list = json_object_get(group, "required"), *x;
    size_t i;

    if (!list) {
        list = json_array();
        json_object_set_new(group, "required", list);
    }
    json_array_foreach (list, i, x) {
        if (strcmp(json_string_value(x), name) == 0)
            return;
    }
    json_array_append_new(list, json_string(name));
}

static json_t *group_new(void)
{
    return json_pack("{s:s, s:b, s:{}}", "type", "object", "additionalProperties", 0, "properties");
}

static void add_key(json_t *root, const struct job_key *k)
{
    const char *name = k->path, *dot;
    int required = strcmp(k->def, "-") == 0;
    json_t *at = root;

    for (; (dot = strchr(name, '.')); name = dot + 1) {
        json_t *properties = json_object_get(at, "properties");
        char group[32];

        snprintf(group, sizeof group, "%.*s", (int)(dot - name), name);
        if (!json_object_get(properties, group))
            json_object_set_new(properties, group, group_new());
        if (required)
            require(at, group);
        at = json_object_get(properties, group);
    }
    json_object_set_new(json_object_get(at, "properties"), name, property(k));
    if (required)
        require(at, name);
}

static char *schema_text(void)
{
    json_t *root =
        json_pack("{s:s, s:s, s:s}", "$schema", "https://json-schema.org/draft/2020-12/schema", "title", "detd job file", "description",
                  "Relative paths are relative to the job file. Exactly one of model.preset and model.cfg is given, and of train.steps and "
                  "train.epochs.");
    json_t *body = group_new();
    char *json, *text;

    for (size_t i = 0; i < JOB_KEY_COUNT; i++)
        if (!job_word_is_errand(job_keys[i].path))
            add_key(body, &job_keys[i]);
    json_object_update(root, body);
    json = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    assert_true(asprintf(&text, "%s\n", json) > 0);
    free(json);
    json_decref(body);
    json_decref(root);
    return text;
}

/* ---- the keys of docs/man/detd-job-file.5: a paragraph a key, of the lines that --help-keys has ---- */

/* roff: a leading dot or quote, and every backslash and minus, need care. */
static void roff(FILE *out, const char *text)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", out);
    for (; *text; text++)
        switch (*text) {
        case '\\':
            fputs("\\e", out);
            break;
        case '-':
            fputs("\\-", out);
            break;
        default:
            fputc(*text, out);
        }
}

static char *manual_text(void)
{
    char *help = help_of(NULL), *text = NULL, *save = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);

    for (char *line = strtok_r(help, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        size_t key = strcspn(line, " ");

        if (key > 0)
            fprintf(out, ".TP\n.B %.*s\n", (int)key, line); /* nothing in a key's name needs care */
        else
            fputs(".br\n", out);
        line += key;
        roff(out, line + strspn(line, " "));
        fputs(key > 0 ? ".\n" : "\n", out);
    }
    fclose(out);
    free(help);
    return text;
}

static char *read_all(const char *path)
{
    FILE *f = fopen(path, "r");
    char *text = calloc(1, 1 << 18);

    if (f) {
        text[fread(text, 1, (1 << 18) - 1, f)] = '\0';
        fclose(f);
    }
    return text;
}

static void schema_is_current(void **state)
{
    char *now = schema_text(), *stored;
    json_t *json = json_loads(now, 0, NULL);

    (void)state;
    assert_non_null(json);
    json_decref(json);
    if (getenv("DETD_GENERATE"))
        write_file("schema/job.schema.json", now);
    stored = read_all("schema/job.schema.json");
    assert_string_equal(stored, now);
    free(now);
    free(stored);
}

/* Between its two marks the manual page holds the table. */
static void manual_is_current(void **state)
{
    static const char path[] = "docs/man/detd-job-file.5", from[] = ".\\\" begin keys\n", to[] = ".\\\" end keys\n";
    char *keys = manual_text(), *page = read_all(path), *a = strstr(page, from), *b = strstr(page, to), *want = NULL;

    (void)state;
    assert_non_null(a);
    assert_non_null(b);
    a += strlen(from);
    assert_true(asprintf(&want, "%.*s%s%s", (int)(a - page), page, keys, b) > 0);
    if (getenv("DETD_GENERATE"))
        write_file(path, want);
    else
        assert_string_equal(page, want);
    free(keys);
    free(page);
    free(want);
}

/* The help lists only the keys of such a model, with its own defaults. */
static void help_of_a_family(void **state)
{
    char *text = help_of(job_preset_find(&job_presets, "mask_rcnn_r50_fpn"));

    (void)state;
    assert_non_null(strstr(text, "model.roi_batch "));
    assert_non_null(strstr(text, "train.batch "));
    assert_non_null(strstr(text, "default 0.02 * train.batch / 16"));
    assert_non_null(strstr(text, "default false, true with model.init"));
    assert_null(strstr(text, "model.obj_gain "));
    assert_null(strstr(text, "\nmodel.size "));
    assert_null(strstr(text, "family"));
    assert_non_null(strstr(text, "\nmodel.mask_channels "));
    assert_non_null(strstr(text, "\nmodel.mask_pool "));
    free(text);
    text = help_of(job_preset_find(&job_presets, "faster_rcnn_r50_fpn"));
    assert_non_null(strstr(text, "\nmodel.roi_batch "));
    assert_null(strstr(text, "\nmodel.mask_"));
    free(text);
}

static void help_names_every_key(void **state)
{
    char *text = help_of(NULL);

    (void)state;
#define X(field, key, ...) assert_true((strstr(text, "\n" key " ") || strncmp(text, key " ", sizeof key) == 0) != job_word_is_errand(key));
    JOB_KEYS(X)
#undef X
    free(text);
}

/* The last word of the longest list is the last preset. */
static void no_list_is_cut(void **state)
{
    char *help = help_of(NULL), *man = manual_text();

    (void)state;
    assert_non_null(strstr(help, " featdepth_joint_r18 featdepth_joint_r50; optional\n"));
    assert_non_null(strstr(man, " featdepth_joint_r18 featdepth_joint_r50; optional.\n"));
    free(help);
    free(man);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schema_is_current), cmocka_unit_test(manual_is_current), cmocka_unit_test(help_names_every_key),
        cmocka_unit_test(help_of_a_family),  cmocka_unit_test(no_list_is_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

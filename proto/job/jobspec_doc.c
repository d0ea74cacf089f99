#include <errno.h> /* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "proto/job/jobspec_table.h"

/* ---- schema/job.schema.json ---- */

static json_t *type_of(const struct job_key *k)
{
    static const char *const names[] = { "string", "string", "string",  "integer", "number", "boolean",
                                         "array",  "object", "integer", "integer", "string", "object" };
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
        json_object_set_new(out, "items", json_pack("{s:s}", "type", "string"));
        json_object_set_new(out, "maxItems", limit(k->max));
        break;
    case TYPE_BOOL:
        break;
    }
}

/* "only of the family yolo", or nothing. */
static void put_whose(FILE *out, const struct job_key *k)
{
    if (*k->families == '!')
        fprintf(out, "not of the family %s", k->families + 1);
    else if (*k->families)
        fprintf(out, "only of the %s %s", strchr(k->families, ' ') ? "families" : "family", k->families);
}

/* What put writes, to be freed; NULL: out of memory. Whatever there is to say of a key, none of it is cut. */
static char *text_by(void (*put)(FILE *, const struct job_key *, const struct job_family *), const struct job_key *k,
                     const struct job_family *family)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return NULL;
    put(out, k, family);
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

static void put_description(FILE *out, const struct job_key *k, const struct job_family *family)
{
    (void)family;
    fputs(k->help, out);
    if (*k->unit)
        fprintf(out, "%s[%s]", *k->help ? " " : "", k->unit);
    if (*k->families) {
        fputs(*k->help || *k->unit ? " (" : "(", out);
        put_whose(out, k);
        fputc(')', out);
    }
}

static json_t *property(const struct job_key *k)
{
    json_t *out = json_pack("{s:o}", "type", type_of(k));
    char *text = text_by(put_description, k, NULL);

    if (text && *text)
        json_object_set_new(out, "description", json_string(text));
    free(text);
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

int jobspec_write_schema(FILE *out)
{
    json_t *root =
        json_pack("{s:s, s:s, s:s}", "$schema", "https://json-schema.org/draft/2020-12/schema", "title", "detd job file", "description",
                  "Relative paths are relative to the job file. Exactly one of model.preset and model.cfg is given, and of train.steps and "
                  "train.epochs.");
    json_t *body = group_new();

    for (size_t i = 0; i < JOB_KEY_COUNT; i++)
        if (!job_word_is_errand(job_keys[i].path))
            add_key(body, &job_keys[i]);
    json_object_update(root, body);
    int rc = json_dumpf(root, out, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    json_decref(body);
    json_decref(root);
    if (rc == 0)
        rc = fputc('\n', out) == EOF ? -1 : 0;
    return rc < 0 || ferror(out) ? -EIO : 0;
}

/* ---- text: "integer, 1 .. 64, default 1, processes" ---- */

static void put_words(FILE *out, const char *words)
{
    for (; *words; words++)
        fputc(*words == '|' ? ' ' : *words, out);
}

static void put_values(FILE *out, const struct job_key *k)
{
    static const char *const names[] = { "string",
                                         "path",
                                         "",
                                         "integer",
                                         "number",
                                         "true or false",
                                         "list of numbers",
                                         "object of strings",
                                         "integer or [integer, integer]",
                                         "integer or list of integers",
                                         "string or list of strings",
                                         "object of numbers" };

    if (k->type == TYPE_ENUM)
        put_words(out, k->values);
    else if (job_key_positive(k))
        fprintf(out, "%s > 0, at most %.16g", names[k->type], k->max);
    else if (k->type == TYPE_INT || k->type == TYPE_REAL || k->type == TYPE_SIZE || k->type == TYPE_INTS)
        fprintf(out, "%s %.16g .. %.16g", names[k->type], k->min, k->max);
    else
        fputs(names[k->type], out);
}

static void put_default(FILE *out, const struct job_key *k, const struct job_family *family)
{
    const struct job_default *d = job_default_find(family, k->path);

    if (d && d->batch)
        fprintf(out, "default %s * train.batch / %d", d->value, d->batch);
    else if (d && d->with_init)
        fprintf(out, "default %s, %s with model.init", d->value, d->with_init);
    else if (d && d->of_tv)
        fprintf(out, "default %s, %s with model.flavor tv", d->value, d->of_tv);
    else if (d)
        fprintf(out, "default %s", d->value);
    else if (strcmp(k->def, "-") == 0)
        fputs("required", out);
    else if (strcmp(k->def, "null") == 0)
        fputs("optional", out);
    else
        fprintf(out, "default %s", k->def);
}

/* "; of the family rcnn default 0.05", where it is another than the table's. */
static void put_other_defaults(FILE *out, const struct job_key *k)
{
    for (const struct job_default *d = job_defaults; d->family; d++) {
        const struct job_family family = { .name = d->family };

        if (strcmp(d->key, k->path) != 0)
            continue;
        fprintf(out, "; of the family %s ", d->family);
        put_default(out, k, &family);
    }
}

/* Without a family, for all of them. */
static void put_key(FILE *out, const struct job_key *k, const struct job_family *family)
{
    put_values(out, k);
    fprintf(out, "%s%s; ", *k->unit ? " " : "", k->unit);
    put_default(out, k, family);
    if (family)
        return;
    put_other_defaults(out, k);
    fputs(*k->families ? "; " : "", out);
    put_whose(out, k);
}

int jobspec_write_help(FILE *out, const struct job_preset *preset)
{
    const struct job_family *family = preset ? preset->family : NULL;

    for (size_t i = 0; i < JOB_KEY_COUNT; i++) {
        const struct job_key *k = &job_keys[i];

        if (job_word_is_errand(k->path) || !job_key_of(k, family) || (preset && job_key_for_masks(k) && !job_preset_masks(preset)))
            continue;
        fprintf(out, "%-26s ", k->path);
        put_key(out, k, family);
        fputc('\n', out);
        if (*k->help)
            fprintf(out, "%-26s     %s\n", "", k->help);
    }
    return ferror(out) ? -EIO : 0;
}

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

int jobspec_write_man(FILE *out)
{
    for (size_t i = 0; i < JOB_KEY_COUNT; i++) {
        const struct job_key *k = &job_keys[i];
        char *text;

        if (job_word_is_errand(k->path))
            continue;
        text = text_by(put_key, k, NULL);
        if (!text)
            return -ENOMEM;
        fputs(".TP\n.B ", out);
        roff(out, k->path);
        fputs("\n", out);
        roff(out, text);
        fputs(".\n", out);
        free(text);
        if (*k->help) {
            fputs(".br\n", out);
            roff(out, k->help);
            fputs("\n", out);
        }
    }
    return ferror(out) ? -EIO : 0;
}

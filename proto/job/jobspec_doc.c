#include <errno.h> /* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "proto/job/jobspec_table.h"

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
                                         "object of numbers",
                                         "list of strings" };

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

/* Writes "; of the family rcnn default 0.05" for each family that has a default of its own. */
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

/* Writes "only of the family yolo", or nothing. */
static void put_whose(FILE *out, const struct job_key *k)
{
    if (strcmp(k->families, "!program") == 0)
        fputs("not of programs", out);
    else if (job_key_is_of_programs(k))
        fputs("only of programs", out);
    else if (*k->families == '!')
        fprintf(out, "not of the %s %s", job_key_families(k), k->families + 1);
    else if (*k->families)
        fprintf(out, "only of the %s %s", job_key_families(k), k->families);
}

/* family NULL: writes the defaults of all families. */
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

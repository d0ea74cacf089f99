#include "proto/job/jobspec_table.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <string.h>

const struct job_key job_keys[JOB_KEY_COUNT] = {
#define X(field, key, type, def, neutral, families, min, max, unit, values, help) \
    { key, TYPE_##type, def, neutral, families, min, max, unit, values, help, offsetof(struct jobspec, field) },
    JOB_KEYS(X)
#undef X
};

const struct job_key *job_key_find(const char *path, size_t len)
{
    for (size_t i = 0; i < JOB_KEY_COUNT; i++)
        if (strncmp(job_keys[i].path, path, len) == 0 && job_keys[i].path[len] == '\0')
            return &job_keys[i];
    return NULL;
}

int job_key_is_group(const char *path, size_t len)
{
    for (size_t i = 0; i < JOB_KEY_COUNT; i++)
        if (strncmp(job_keys[i].path, path, len) == 0 && job_keys[i].path[len] == '.')
            return 1;
    return 0;
}

/* Whether the word is in a list that is separated by blanks. */
static int among(const char *list, const char *word)
{
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, " ");

        if (strlen(word) == n && strncmp(word, p, n) == 0)
            return 1;
        p += n + (p[n] == ' ');
    }
    return 0;
}

bool jobspec_is_program(const struct jobspec *s)
{
    return s->family == &job_program;
}

int job_key_is_of_models(const struct job_key *k)
{
    static const char *const groups[] = { "model.", "data.", "train.", "val.", "errand." };

    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        if (strncmp(k->path, groups[i], strlen(groups[i])) == 0)
            return 1;
    return 0;
}

int job_key_of(const struct job_key *k, const struct job_family *family)
{
    if (family == &job_program && job_key_is_of_models(k))
        return 0;
    if (!family || !*k->families)
        return 1;
    return *k->families == '!' ? !among(k->families + 1, family->name) : among(k->families, family->name);
}

bool job_word_is_errand(const char *word)
{
    static const char errand[] = JOB_ERRAND;
    const size_t len = sizeof errand - 1;

    return strncmp(word, errand, len) == 0 && (!word[len] || word[len] == '.' || word[len] == '=');
}

/* With model.sync_bn, statistics over all shards are those of one large batch: nothing has to be frozen. */
const char *job_default_text(const struct jobspec *s, const struct job_default *d)
{
    if (s->model_sync_bn && strcmp(d->key, "model.freeze_bn") == 0)
        return d->value;
    if (d->of_tv && s->model_flavor && strcmp(s->model_flavor, "tv") == 0)
        return d->of_tv;
    return s->model_init && d->with_init ? d->with_init : d->value;
}

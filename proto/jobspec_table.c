#include "proto/jobspec_table.h"

#include <string.h>

#include "proto/near.h"

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

/* Whether the word is one of a list with blanks between. */
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

int job_key_of(const struct job_key *k, const struct job_family *family)
{
    if (!family || !*k->families)
        return 1;
    return *k->families == '!' ? !among(k->families + 1, family->name) : among(k->families, family->name);
}

static const char *last_part(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot ? dot + 1 : path;
}

/* What other programs call them, by the last part of a path. */
static const struct {
    const char *theirs, *ours;
} others[] = {
    { "subdivisions", "train.waves" },       { "accumulate", "train.waves" },
    { "accumulation_steps", "train.waves" }, { "accumulate_grad_batches", "train.waves" },
    { "max_batches", "train.steps" },        { "learning_rate", "train.lr" },
    { "patience", "train.stop_after" },      { "early_stopping", "train.stop_after" },
    { "pretrained", "model.init" },          { "load_from", "model.init" },
    { "batch_size", "train.batch" },         { "class_weight", "train.class_weights" },
    { "cls_pw", "train.class_weights" },
};

const char *job_key_near(const char *path)
{
    const char *best = NULL;
    unsigned best_far = near_bound(path);

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(last_part(path), others[i].theirs) == 0)
            return others[i].ours;
    for (size_t i = 0; i < JOB_KEY_COUNT; i++) {
        unsigned far = near_distance(path, job_keys[i].path);

        if (far > 1 && strcmp(last_part(path), last_part(job_keys[i].path)) == 0)
            far = 1; /* right name in the wrong place */
        if (far < best_far) {
            best = job_keys[i].path;
            best_far = far;
        }
    }
    return best;
}

#include "client/base/run.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/base/command.h"
#include "client/base/print.h"
#include "proto/err.h"
#include "proto/hash/hash.h"
#include "proto/job/jobspec.h"
#include "proto/host/memory.h"

/* Takes the identity of an attempt or a folder. The newest attempt comes last, and its identity stays. */
static void take_identity(json_t *identity, struct run *r)
{
    const char *hex = json_string_value(json_object_get(json_object_get(identity, "data"), "train"));
    struct hash128 hash;

    if (!json_is_object(identity))
        return;
    json_decref(r->identity);
    r->identity = json_incref(identity);
    if (hex && hash_parse(hex, &hash) == 0)
        snprintf(r->data_hash, sizeof r->data_hash, "%s", hex);
}

static json_t *env_of(const json_t *spec)
{
    return json_object_get(json_object_get(spec, "run"), "env");
}

/* Hidden values of run.env are null, which no job file may have. */
static json_t *without_hidden(const json_t *stored)
{
    json_t *spec = json_deep_copy(stored), *value;
    const char *key;
    void *next;

    json_object_foreach_safe(env_of(spec), next, key, value)
    {
        if (json_is_null(value))
            json_object_del(env_of(spec), key);
    }
    return spec;
}

static void put_hidden_back(const json_t *stored, json_t *spec)
{
    json_t *run = json_object_get(spec, "run"), *value;
    const char *key;

    json_object_foreach (env_of(stored), key, value) {
        if (!json_is_null(value))
            continue;
        if (!json_is_object(env_of(spec)))
            json_object_set_new(run, "env", json_object());
        json_object_set(env_of(spec), key, value);
    }
}

/* Takes the values that the run was trained with, even if the keys' defaults have changed since. */
static int take_spec(const json_t *stored, struct run *r, struct err *err)
{
    struct jobspec *s;
    json_t *told = without_hidden(stored);
    int rc = jobspec_parse_stored(told, &s, err);

    json_decref(told);
    if (rc < 0) {
        err_prefix(err, "%s", r->name);
        return rc;
    }
    r->spec = jobspec_json(s);
    jobspec_free(s);
    put_hidden_back(stored, r->spec);
    return r->spec ? 0 : err_set(err, ERR_INPUT, "out of memory");
}

void run_hide_values(json_t *spec)
{
    json_t *env = json_object_get(json_object_get(spec, "run"), "env"), *value;
    const char *name;

    json_object_foreach (env, name, value) {
        json_object_set_new(env, name, json_string("set"));
    }
}

void run_hide_code(json_t *spec)
{
    json_t *names = jobspec_hide_code(spec);

    if (!names)
        memory_out();
    json_decref(names);
}

int run_check_model(const json_t *job)
{
    if (strcmp(text_of(job, "kind"), "program") != 0)
        return 0;
    fprintf(stderr, "detctl: job %lld is a program\n", int_of(job, "id"));
    return CODE_REFUSED;
}

int run_check_owner(const struct run *r)
{
    struct err err;

    if (json_array_size(r->hidden) == 0)
        return 0;
    err_set(&err, ERR_DENIED, "%s has %s, which is code: only its owner, %.80s, may see it and submit the job again", r->name,
            json_string_value(json_array_get(r->hidden, 0)), r->user);
    return complain(&err);
}

int run_check_env(const json_t *spec, const char *name, struct err *err)
{
    const char *key;
    json_t *value;

    json_object_foreach (env_of(spec), key, value)
        if (json_is_null(value))
            return err_set(err, ERR_DENIED, "%s: the value of run.env.%s is hidden: give all of run.env", name, key);
    return 0;
}

static int take_job(struct context *ctx, const char *text, struct run *r)
{
    struct err err = { 0 };
    const char *dir;
    json_t *job, *attempts;
    int rc = take_id(ctx, text, &r->id);

    if (rc == 0)
        rc = call(ctx, "job.get", json_pack("{s:I}", "id", (json_int_t)r->id), &job);
    if (rc)
        return rc;
    dir = json_string_value(json_object_get(job, "dir"));
    snprintf(r->name, sizeof r->name, "job %lld", (long long)r->id);
    snprintf(r->dir, sizeof r->dir, "%s", dir ? dir : "");
    snprintf(r->user, sizeof r->user, "%s", text_of(job, "user"));
    r->hidden = json_incref(json_object_get(job, "hidden"));
    attempts = json_object_get(job, "attempts");
    for (size_t i = json_array_size(attempts); i-- > 0;) /* newest first: the newest identity counts */
        take_identity(json_object_get(json_array_get(attempts, i), "identity"), r);
    r->program = strcmp(text_of(job, "kind"), "program") == 0;
    if (!r->program || json_array_size(r->hidden) == 0) /* else its command is hidden */
        rc = take_spec(json_object_get(job, "spec"), r, &err) < 0 ? complain(&err) : 0;
    json_decref(job);
    return rc;
}

static int read_file(const struct run *r, const char *name, json_t **ret, struct err *err)
{
    char path[PATH_MAX + 32];

    snprintf(path, sizeof path, "%s/%s", r->dir, name);
    return jobspec_read(path, ret, err);
}

static int take_folder(const char *text, struct run *r)
{
    json_t *spec = NULL, *identity = NULL;
    struct err err = { 0 }, none;
    int rc = realpath(text, r->dir) ? 0 : err_sys(&err, "folder '%s'", text);

    snprintf(r->name, sizeof r->name, "%.79s", text);
    if (rc == 0)
        rc = read_file(r, "spec.json", &spec, &err);
    if (rc == 0)
        run_hide_code(spec); /* the folder may come from anybody */
    if (rc == 0)
        rc = take_spec(spec, r, &err);
    if (rc == 0 && read_file(r, "identity.json", &identity, &none) == 0)
        take_identity(identity, r);
    json_decref(spec);
    json_decref(identity);
    return rc < 0 ? complain(&err) : 0;
}

static int take(struct context *ctx, const char *text, struct run *ret)
{
    *ret = (struct run){ 0 };
    return text[strspn(text, "0123456789")] ? take_folder(text, ret) : take_job(ctx, text, ret);
}

int run_take(struct context *ctx, const char *text, struct run *ret)
{
    int rc = take(ctx, text, ret);

    if (rc == 0 && ret->program) {
        fprintf(stderr, "detctl: %s is a program\n", ret->name);
        rc = CODE_REFUSED;
    }
    if (rc)
        run_free(ret);
    return rc;
}

int run_take_any(struct context *ctx, const char *text, struct run *ret)
{
    int rc = take(ctx, text, ret);

    if (rc == 0 && ret->program)
        rc = run_check_owner(ret);
    if (rc)
        run_free(ret);
    return rc;
}

void run_free(struct run *r)
{
    json_decref(r->spec);
    json_decref(r->identity);
    json_decref(r->hidden);
    r->spec = r->identity = r->hidden = NULL;
}

#include "client/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/command.h"
#include "proto/err.h"
#include "proto/hash.h"
#include "proto/jobspec.h"

/* Of an attempt or a folder; the newest attempt comes last. */
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

/* Whatever the keys' defaults are by now: what the run was trained with. */
static int take_spec(const json_t *stored, struct run *r, struct err *err)
{
    struct jobspec *s;
    int rc = jobspec_parse_stored(stored, &s, err);

    if (rc < 0) {
        err_prefix(err, "%s", r->name);
        return rc;
    }
    r->spec = jobspec_json(s);
    jobspec_free(s);
    return r->spec ? 0 : err_set(err, ERR_INPUT, "out of memory");
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
    attempts = json_object_get(job, "attempts");
    for (size_t i = json_array_size(attempts); i-- > 0;) /* newest first, and the newest that tells one counts */
        take_identity(json_object_get(json_array_get(attempts, i), "identity"), r);
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
        rc = take_spec(spec, r, &err);
    if (rc == 0 && read_file(r, "identity.json", &identity, &none) == 0)
        take_identity(identity, r);
    json_decref(spec);
    json_decref(identity);
    return rc < 0 ? complain(&err) : 0;
}

int run_take(struct context *ctx, const char *text, struct run *ret)
{
    int rc;

    *ret = (struct run){ 0 };
    rc = text[strspn(text, "0123456789")] ? take_folder(text, ret) : take_job(ctx, text, ret);
    if (rc)
        run_free(ret);
    return rc;
}

void run_free(struct run *r)
{
    json_decref(r->spec);
    json_decref(r->identity);
    r->spec = r->identity = NULL;
}

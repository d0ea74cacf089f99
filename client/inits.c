#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/checkpoint.h"
#include "client/command.h"
#include "client/inits.h"
#include "client/print.h"
#include "proto/err.h"

struct wish {
    const char *key;
    int64_t job;
    char which[32]; /* best, last, a step, or "": as is best */
};

/* 1: it is one; 0: it is a file. */
static int read_wish(const char *key, const char *text, struct wish *ret, struct err *err)
{
    const char *at;
    char *end;

    if (!text || strncmp(text, "job:", 4) != 0)
        return 0;
    *ret = (struct wish){ .key = key };
    errno = 0;
    ret->job = strtoll(text + 4, &end, 10);
    at = *end == '@' ? end + 1 : "";
    if (end == text + 4 || errno || ret->job < 1 || (*end && *end != '@') || (*end == '@' && !*at) || strlen(at) >= sizeof ret->which)
        return err_set(err, ERR_INPUT, "model.%s: '%s' should be job:ID, job:ID@best, job:ID@last or job:ID@STEP", key, text);
    memcpy(ret->which, at, strlen(at) + 1);
    return 1;
}

static int put(json_t *model, const struct wish *w, const json_t *checkpoints, struct err *err)
{
    const json_t *c = checkpoint_find(checkpoints, w->which);

    if (!c)
        return err_set(err, ERR_NOTFOUND,
                       "model.%s: of job %" PRId64 " no checkpoint is on the disk that is '%s'; detctl show %" PRId64 " lists them", w->key,
                       w->job, w->which[0] ? w->which : "last", w->job);
    return json_object_set_new(model, w->key, json_sprintf("%s/model.safetensors", json_string_value(json_object_get(c, "path")))) < 0
               ? err_set(err, ERR_INPUT, "model.%s: out of memory", w->key)
               : 0;
}

int inits_find(struct context *ctx, json_t *root)
{
    json_t *model = json_object_get(root, "model"), *value, *job;
    struct err err = { 0 };
    const char *key;
    struct wish w;
    void *next;
    int rc;

    json_object_foreach_safe(model, next, key, value)
    {
        if (strncmp(key, "init", 4) != 0 || (rc = read_wish(key, json_string_value(value), &w, &err)) == 0)
            continue;
        if (rc < 0)
            return complain(&err);
        if ((rc = call(ctx, "job.get", json_pack("{s:I}", "id", (json_int_t)w.job), &job)))
            return rc;
        rc = put(model, &w, json_object_get(job, "checkpoints"), &err);
        json_decref(job);
        if (rc < 0)
            return complain(&err);
    }
    return 0;
}

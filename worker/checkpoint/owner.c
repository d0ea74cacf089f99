#include "worker/checkpoint/owner.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/jobspec.h"
#include "proto/hash.h"

/* but: as jobspec_deciding() says. */
static int identity_but(const struct jobspec *job, const char *store_id, const char *but, struct ckpt_identity *ret, struct err *err)
{
    json_t *spec = jobspec_deciding(job, but);
    char *text = spec ? json_dumps(spec, JSON_COMPACT | JSON_SORT_KEYS) : NULL;

    memset(ret, 0, sizeof *ret);
    json_decref(spec);
    if (!text)
        return err_set(err, ERR_DEVICE, "out of memory: job file");
    hash_hex(hash_bytes(text, strlen(text), hash_name("spec")), ret->spec);
    snprintf(ret->store_id, sizeof ret->store_id, "%s", store_id);
    free(text);
    return 0;
}

int owner_identity(const struct jobspec *spec, const char *store_id, struct ckpt_identity *ret, struct err *err)
{
    return identity_but(spec, store_id, NULL, ret, err);
}

int owner_refuse(const struct jobspec *spec, const char *store_id, const char *dir, struct err *err)
{
    static const struct {
        const char *path, *neutral;
    } keys[] = {
#define X(field, key, type, def, neutral, ...) { key, neutral },
        JOB_KEYS(X)
#undef X
    };
    struct err why = *err, ignored;
    struct ckpt_identity id;
    int64_t step;

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (identity_but(spec, store_id, keys[i].path, &id, &ignored) >= 0 && ckpt_pick(dir, &id, NULL, NULL, &step, &ignored) >= 0 &&
            step > 0)
            return err_field(err, ERR_INPUT, keys[i].path, "%s: '%s/step-%lld' was trained with %s; another value needs a new job",
                             keys[i].path, dir, (long long)step, keys[i].neutral);
    return err_set(err, ERR_INPUT, "%s: it was trained by another job, or the job has changed since; train it as a new job", why.msg);
}

#include "client/jobs/epochs.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/base/command.h"
#include "client/jobs/spec.h"
#include "client/base/worker.h"
#include "proto/err.h"
#include "proto/job/jobspec.h"

static int count_images(const json_t *root, int64_t *ret_images, struct err *err)
{
    char path[PATH_MAX];
    int rc = spec_file(root, path, err);

    if (rc < 0)
        return rc;
    rc = worker_count((char *[]){ NULL, "--count-images", path, NULL }, ret_images);
    unlink(path);
    if (rc == CODE_INTERRUPTED)
        return err_set(err, -EINTR, "interrupted");
    return rc == CODE_DONE ? 0 : err_set(err, ERR_INPUT, "%s", ""); /* detd-worker has said why */
}

/* Tells the steps that texts with a unit became. */
static void tell_texts(const json_t *before, const json_t *root, int64_t images, int64_t batch)
{
    static const char *const keys[][2] = { { "train", "lr_steps" }, { "val", "every" }, { "checkpoint", "every" } };

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *was = json_object_get(json_object_get(before, keys[i][0]), keys[i][1]);
        const json_t *is = json_object_get(json_object_get(root, keys[i][0]), keys[i][1]);
        char *said = was && !json_equal(was, is) ? json_dumps(was, JSON_ENCODE_ANY) : NULL,
             *now = said ? json_dumps(is, JSON_ENCODE_ANY) : NULL;

        if (now && strstr(said, "epoch"))
            fprintf(stderr, "%s.%s %s of %lld images, batch %lld: steps %s\n", keys[i][0], keys[i][1], said, (long long)images,
                    (long long)batch, now);
        free(now);
        free(said);
    }
}

int epochs_count(json_t *root, const struct jobspec *s, const char *file, struct err *err)
{
    json_t *before = json_deep_copy(root);
    int64_t images = 1, steps = 0;
    bool epochs;
    int rc = jobspec_has_units(root, &epochs) && epochs ? count_images(root, &images, err) : 0;

    if (rc == 0) {
        rc = jobspec_count_steps(root, s, images, &steps, err);
        if (rc < 0)
            err_prefix(err, "%s", file);
    }
    if (rc == 0 && steps > 0)
        fprintf(stderr, "train.epochs %.10g of %lld images, batch %lld: %lld steps\n", s->train_epochs, (long long)images,
                (long long)s->train_batch, (long long)steps);
    if (rc == 0)
        tell_texts(before, root, images, s->train_batch);
    json_decref(before);
    return rc;
}

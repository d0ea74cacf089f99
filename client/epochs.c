#include "client/epochs.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "client/command.h"
#include "client/spec.h"
#include "client/worker.h"
#include "proto/err.h"
#include "proto/jobspec.h"

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

int epochs_count(json_t *root, const struct jobspec *s, const char *file, struct err *err)
{
    int64_t images, steps;
    int rc = count_images(root, &images, err);

    if (rc < 0)
        return rc;
    rc = jobspec_count_steps(root, s, images, &steps, err);
    if (rc < 0)
        err_prefix(err, "%s", file);
    else
        fprintf(stderr, "train.epochs %.10g of %lld images, batch %lld: %lld steps\n", s->train_epochs, (long long)images,
                (long long)s->train_batch, (long long)steps);
    return rc;
}

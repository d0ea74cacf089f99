#include "worker/datacheck.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/jobspec.h"
#include "worker/core/device.h"
#include "worker/data/check.h"
#include "worker/data/problems.h"

static struct check_options options(const struct jobspec *spec, const char *annotations, const char *images)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);

    return (struct check_options){ annotations, images, strcmp(spec->data_on_bad, "skip") == 0 ? BAD_SKIP : BAD_ERROR,
                                   cpus > 0 ? (int)cpus : 1 };
}

/* Lists the problems kept; a failure because of them needs no more than their number then. */
static int tell_problems(const struct problems *p, const char *split, const char *annotations, int rc, FILE *out, struct err *err)
{
    for (int i = 0; i < p->kept; i++)
        fprintf(out, "%s: %s\n", split, p->text[i]);
    if (rc < 0 && p->kept > 0)
        return err_set(err, rc, "%s: %lld problem%s", annotations, (long long)p->count, p->count == 1 ? "" : "s");
    return rc;
}

static int check_one(const struct jobspec *spec, const char *split, const char *annotations, const char *images, FILE *out, struct err *err)
{
    struct check_options opt = options(spec, annotations, images);
    struct problems *p = calloc(1, sizeof *p);
    struct dataset *d = NULL;
    int rc;

    if (!p)
        return err_set(err, ERR_DEVICE, "out of memory");
    rc = tell_problems(p, split, annotations, check_split(&opt, p, &d, err), out, err);
    if (rc >= 0)
        fprintf(out, "%s: %d images, %lld boxes, %d classes, %lld bad records skipped, %lld boxes clipped\n", split, d->nimages,
                (long long)d->offset[d->nimages], d->nclasses, (long long)p->count, (long long)d->clipped);
    dataset_free(d);
    free(p);
    return rc;
}

int datacheck_run(const struct jobspec *spec, FILE *out, struct err *err)
{
    int rc = check_one(spec, "train", spec->data_train_annotations, spec->data_train_images, out, err);

    if (rc < 0 || !spec->data_val_annotations)
        return rc;
    return check_one(spec, "val", spec->data_val_annotations, spec->data_val_images, out, err);
}

int datacheck_count(const struct jobspec *spec, int *ret_images, FILE *complaints, struct err *err)
{
    struct check_options opt = options(spec, spec->data_train_annotations, spec->data_train_images);
    struct problems *p = calloc(1, sizeof *p);
    int rc;

    if (!p)
        return err_set(err, ERR_DEVICE, "out of memory");
    rc = check_count(&opt, p, ret_images, err);
    if (rc < 0)
        rc = tell_problems(p, "train", opt.annotations, rc, complaints, err);
    free(p);
    return rc;
}

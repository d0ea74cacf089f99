#include "worker/datacheck.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/jobspec.h"
#include "worker/core/device.h"
#include "worker/data/check.h"
#include "worker/data/problems.h"

static int check_one(const struct jobspec *spec, const char *split, const char *annotations, const char *images, FILE *out, struct err *err)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    struct check_options opt = { annotations, images, strcmp(spec->data_on_bad, "skip") == 0 ? BAD_SKIP : BAD_ERROR,
                                 cpus > 0 ? (int)cpus : 1 };
    struct problems *p = calloc(1, sizeof *p);
    struct dataset *d;
    int rc = p ? check_split(&opt, p, &d, err) : err_set(err, ERR_DEVICE, "out of memory");

    for (int i = 0; p && i < p->kept; i++)
        fprintf(out, "%s: %s\n", split, p->text[i]);
    if (rc >= 0) {
        fprintf(out, "%s: %d images, %lld boxes, %d classes, %lld bad records skipped, %lld boxes clipped\n", split, d->nimages,
                (long long)d->offset[d->nimages], d->nclasses, (long long)p->count, (long long)d->clipped);
        dataset_free(d);
    } else if (p && p->kept > 0) { /* they are listed already */
        rc = err_set(err, rc, "%s: %lld problem%s", annotations, (long long)p->count, p->count == 1 ? "" : "s");
    }
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

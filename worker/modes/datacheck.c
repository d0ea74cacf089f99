#include "worker/modes/datacheck.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/modes/checkedfiles.h"
#include "worker/modes/checkprogress.h"
#include "worker/core/device.h"
#include "worker/data/set/census.h"
#include "worker/data/read/check.h"
#include "worker/data/set/dataset.h"
#include "worker/data/read/frames/depth_truth.h"
#include "worker/data/read/frames/pose_truth.h"
#include "worker/data/set/problems.h"
#include "worker/data/sample/task.h"
#include "worker/data/read/survey.h"
#include "worker/modes/modelcheck.h"
#include "worker/models/registry.h"
#include "worker/train/split_options.h"

/* train: for the validation split, the training split if it could be read. */
static void options(const struct model_registry *models, const struct jobspec *spec, bool val, const struct dataset *train,
                    struct split_options *ret)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);

    split_options(models, spec, val, train, cpus > 0 ? (int)cpus : 1, ret);
}

/* Lists the kept problems and notes. If the problems caused the failure, the error then gives only their number. */
static int tell_problems(const struct problems *p, const char *split, const struct check_options *opt, int rc, FILE *out, struct err *err)
{
    const char *advice = opt->on_bad == BAD_ERROR ? "; data.on_bad=skip leaves out bad records" : "";

    for (int i = 0; i < p->kept; i++)
        fprintf(out, "%s: %s\n", split, p->text[i]);
    if (p->count > p->kept)
        fprintf(out, "%s: ... and %lld more bad records\n", split, (long long)(p->count - p->kept));
    for (int i = 0; i < p->notes_kept; i++)
        fprintf(out, "%s: note: %s\n", split, p->note[i]);
    if (p->notes > p->notes_kept)
        fprintf(out, "%s: note: ... and %lld more notes\n", split, (long long)(p->notes - p->notes_kept));
    if (rc == ERR_DATA && p->count > 0)
        return err_set(err, rc, "%s: %lld problem%s%s", opt->annotations, (long long)p->count, p->count == 1 ? "" : "s", advice);
    return rc;
}

/* Images of an epoch: those that the task counts, by default all. */
static int images_of(const struct model_registry *models, const struct jobspec *spec, const struct dataset *d)
{
    const struct model_family *family = model_family_find(models, spec->family->name);

    return family && family->task->count ? family->task->count(d, spec) : dataset_targets(d);
}

/* Reports measured depth that is missing from its stated place. */
static void tell_depth(const char *split, const struct dataset *d, FILE *out)
{
    char text[DEPTH_TRUTH_TEXT];

    if (depth_truth_nowhere(d, text))
        fprintf(out, "%s: %s\n", split, text);
}

/* Reports objects that no validation can find, or that no training can match. */
static void tell_crowded(const char *split, const struct dataset *d, const struct jobspec *spec, FILE *out)
{
    struct census_limit limit;
    char text[CENSUS_TEXT];

    if (split_limit(spec, strcmp(split, "val") == 0, &limit) && census_crowded(d, &limit, text, sizeof text))
        fprintf(out, "%s: note: %s\n", split, text);
}

/* Reports that all frames are scored without losses. */
static void tell_lossless(const char *split, const struct dataset *d, const char *best, FILE *out)
{
    char text[CENSUS_TEXT];

    if (census_lossless(d, best, text, sizeof text))
        fprintf(out, "%s: %s\n", split, text);
}

/* Reports a file of poses that ends early: it leaves out scores, which no other message would say. */
static int tell_poses(const char *split, const struct dataset *d, FILE *out, struct err *err)
{
    char text[POSE_TRUTH_TEXT];
    int lacking, rc = pose_truth_lacking(d, &lacking, text, err);

    if (rc >= 0 && lacking > 0)
        fprintf(out, "%s: %s\n", split, text);
    return rc;
}

/* Reports facts and warnings of a split that could be read. */
static int tell_split(const struct model_registry *models, const struct jobspec *spec, bool val, const struct check_options *opt,
                      const struct problems *p, const struct dataset *d, const struct datacheck_out *out, struct err *err)
{
    const int kept = val ? d->nimages : images_of(models, spec, d);
    const char *split = val ? "val" : "train";
    char census[CENSUS_TEXT], also[64] = "";
    int rc;

    if (p->notes)
        snprintf(also, sizeof also, ", %lld note%s", (long long)p->notes, p->notes == 1 ? "" : "s");
    if (d->views)
        fprintf(out->facts, "%s: %d images, %lld bad records skipped%s\n", split, d->nimages, (long long)p->count, also);
    else
        fprintf(out->facts, "%s: %d images, %lld boxes, %d classes, %lld bad records skipped%s, %lld boxes clipped\n", split, d->nimages,
                (long long)d->offset[d->nimages], d->nclasses, (long long)p->count, also, (long long)d->clipped);
    fprintf(out->facts, "%s: %s\n", split, census_text(d, d->nimages - kept, census, sizeof census));
    tell_crowded(split, d, spec, out->warnings);
    if (val)
        tell_lossless(split, d, spec->checkpoint_best, out->warnings);
    tell_depth(split, d, out->warnings);
    rc = tell_poses(split, d, out->warnings, err);
    return rc < 0 ? rc : survey_split(d, split, opt->upright, out->facts, out->warnings, err);
}

/* *ret_set belongs to the caller, also after a failure. It may be NULL. */
static int check_one(const struct model_registry *models, const struct jobspec *spec, bool val, const struct dataset *train,
                     const struct datacheck_out *out, struct dataset **ret_set, struct err *err)
{
    const char *split = val ? "val" : "train";
    struct problems *p = calloc(1, sizeof *p);
    struct split_options opt;
    struct dataset *d = NULL;
    int rc;

    if (!p)
        return err_set(err, ERR_DEVICE, "out of memory");
    options(models, spec, val, train, &opt);
    opt.check.progress = checkprogress_phase(out->progress, split);
    rc = tell_problems(p, split, &opt.check, check_split(&opt.check, p, &d, err), out->warnings, err);
    if (rc >= 0)
        rc = tell_split(models, spec, val, &opt.check, p, d, out, err);
    *ret_set = d;
    free(p);
    return rc;
}

/* Like images_of(), but returns ERR_DATA if there are no images. */
static int count_images(const struct model_registry *models, const struct jobspec *spec, const struct dataset *d, int *ret_images,
                        struct err *err)
{
    *ret_images = images_of(models, spec, d);
    return *ret_images > 0 ? 0 : err_set(err, ERR_DATA, "%s: no image has an object to train on", spec->data_train_annotations);
}

static int check_train(const struct model_registry *models, const struct jobspec *spec, const struct datacheck_out *out,
                       struct dataset **ret_set, struct err *err)
{
    int images, rc = check_one(models, spec, false, NULL, out, ret_set, err);

    if (rc >= 0)
        rc = dataset_has_objects(*ret_set, err);
    return rc < 0 ? rc : count_images(models, spec, *ret_set, &images, err);
}

/* train may be NULL: it could not be read. */
static int check_val(const struct model_registry *models, const struct jobspec *spec, const struct dataset *train,
                     const struct datacheck_out *out, struct dataset **ret_set, struct err *err)
{
    int rc = check_one(models, spec, true, train, out, ret_set, err);

    if (rc >= 0 && train)
        rc = survey_common(train, *ret_set, out->warnings, err);
    return rc >= 0 && train ? dataset_same_classes(train, *ret_set, err) : rc;
}

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Checks validation also after a failure of training, so that one check shows everything. */
int datacheck_run(const struct model_registry *models, const struct jobspec *spec, const struct datacheck_out *out, struct err *err)
{
    struct dataset *train = NULL, *val = NULL;
    struct err of_val = { 0 }, of_model = { 0 }, lost;
    const int64_t start_ns = now_ns();
    int rc = check_train(models, spec, out, &train, err), rc_val = 0, rc_model = 0;

    if (spec->data_val_annotations)
        rc_val = check_val(models, spec, train, out, &val, &of_val);
    checkprogress_phase(out->progress, "the network and its weights");
    if (rc >= 0)
        rc_model = modelcheck_run(models, spec, train, out->facts, out->warnings, &of_model);
    if (rc_val < 0 && rc < 0)
        fprintf(out->warnings, "val: %s\n", of_val.msg);
    else if (rc_val < 0)
        *err = of_val;
    if (rc_model < 0 && rc_val < 0)
        fprintf(out->warnings, "%s\n", of_model.msg);
    else if (rc_model < 0)
        *err = of_model;
    rc = rc < 0 ? rc : rc_val < 0 ? rc_val : rc_model;
    if (rc >= 0 && out->files) /* if that fails, the next check runs in full */
        checkedfiles_write(out->files, spec, train, val, start_ns, &lost);
    dataset_free(train);
    dataset_free(val);
    return rc;
}

/* reader is a function of check.h. */
static int read_train(const struct model_registry *models, const struct jobspec *spec,
                      int (*reader)(const struct check_options *opt, struct problems *p, struct dataset **ret, struct err *err),
                      struct dataset **ret_set, FILE *complaints, struct err *err)
{
    struct problems *p = calloc(1, sizeof *p);
    struct split_options opt;
    int rc;

    if (!p)
        return err_set(err, ERR_DEVICE, "out of memory");
    options(models, spec, false, NULL, &opt);
    rc = reader(&opt.check, p, ret_set, err);
    if (rc < 0)
        rc = tell_problems(p, "train", &opt.check, rc, complaints, err);
    free(p);
    return rc;
}

int datacheck_list(const struct model_registry *models, const struct jobspec *spec, struct dataset **ret_set, FILE *complaints,
                   struct err *err)
{
    return read_train(models, spec, check_list, ret_set, complaints, err);
}

int datacheck_train(const struct model_registry *models, const struct jobspec *spec, struct dataset **ret_set, FILE *complaints,
                    struct err *err)
{
    return read_train(models, spec, check_split, ret_set, complaints, err);
}

int datacheck_count(const struct model_registry *models, const struct jobspec *spec, int *ret_images, FILE *complaints, struct err *err)
{
    struct dataset *d = NULL;
    int rc = datacheck_list(models, spec, &d, complaints, err);

    if (rc >= 0)
        rc = count_images(models, spec, d, ret_images, err);
    dataset_free(d);
    return rc;
}

/* *ret_set belongs to the caller. NULL: there is no index. */
static int same_split(const struct model_registry *models, const struct jobspec *spec, bool val, const struct dataset *train,
                      const char *job_dir, struct dataset **ret_set, struct err *err)
{
    struct split_options opt;
    char index[4096 + 32];
    int rc;

    options(models, spec, val, train, &opt);
    snprintf(index, sizeof index, "%s/index.%s", job_dir, val ? "val" : "train");
    rc = access(index, R_OK) == 0 ? index_load(index, &opt.check, ret_set, err) : 0;
    return rc == ERR_DATA || rc == -ENOENT ? rc : 0;
}

int datacheck_same(const struct model_registry *models, const struct jobspec *spec, const char *job_dir, struct err *err)
{
    struct dataset *train = NULL, *val = NULL;
    int rc = same_split(models, spec, false, NULL, job_dir, &train, err);

    if (rc == 0 && train && spec->data_val_annotations)
        rc = same_split(models, spec, true, train, job_dir, &val, err);
    dataset_free(val);
    dataset_free(train);
    return rc;
}

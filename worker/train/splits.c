#include "worker/train/splits.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/comm/comm.h"
#include "worker/core/device.h"
#include "worker/data/set/census.h"
#include "worker/data/read/check.h"
#include "worker/data/read/frames/depth_truth.h"
#include "worker/data/loader.h"
#include "worker/data/read/frames/pose_truth.h"
#include "worker/data/set/problems.h"
#include "worker/data/sample/task.h"
#include "worker/models/registry.h"
#include "worker/report/progress.h"
#include "worker/report/report.h"
#include "worker/train/course.h"
#include "worker/train/feed.h"
#include "worker/train/machine.h"
#include "worker/train/split_options.h"
#include "worker/train/trainer.h"

static const size_t cache_bytes = (size_t)1 << 30;

enum { GPU_WORKERS = 16 }; /* the most by default: a GPU does not use more pictures than 16 threads decode */

/* Compute threads of this rank. A rank that runs alone has no run.threads and may use all its cores. */
static int threads(const struct machine *m)
{
    cpu_set_t set;

    if (m->spec->run_threads > 0)
        return (int)m->spec->run_threads;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* The CPU device computes on the same cores, so it gets a quarter of the threads. Beside a GPU the cores have little
 * else to do. */
static int workers(const struct machine *m)
{
    int n = m->dev->host_memory ? threads(m) / 4 : threads(m) - 1;

    if (m->spec->data_workers > 0)
        return (int)m->spec->data_workers;
    if (!m->dev->host_memory && n > GPU_WORKERS)
        return GPU_WORKERS;
    return n > 1 ? n : 1;
}

static int report_split(const struct machine *m, const char *split, const struct dataset *d, const struct problems *p, struct err *err)
{
    const char *bad[20];
    int nbad = 0;

    while (nbad < p->kept && nbad < (int)(sizeof bad / sizeof *bad)) {
        bad[nbad] = p->text[nbad];
        nbad++;
    }
    return report_data(m->report, split, dataset_targets(d), d->views ? -1 : d->offset[d->nimages], p->count, nbad, bad, err);
}

static int report_notes(const struct machine *m, const char *split, const struct problems *p, struct err *err)
{
    int rc = 0;

    for (int i = 0; i < p->notes_kept && rc >= 0; i++)
        rc = report_event(m->report, err, "warning", "data", "%s: %s", split, p->note[i]);
    if (p->notes > p->notes_kept && rc >= 0)
        rc = report_event(m->report, err, "warning", "data", "%s: ... and %lld more notes", split, (long long)(p->notes - p->notes_kept));
    return rc;
}

/* Reports the images in use and the classes. */
static int report_census(const struct machine *m, const char *split, const struct dataset *d, struct err *err)
{
    const struct model_family *family = model_family_find(m->opt->models, m->spec->family->name);
    bool counted = strcmp(split, "train") == 0 && family && family->task->count;
    char text[CENSUS_TEXT];

    return report_event(m->report, err, "info", "data", "%s: %s", split,
                        census_text(d, counted ? d->nimages - family->task->count(d, m->spec) : 0, text, sizeof text));
}

static int report_crowded(const struct machine *m, const char *split, const struct dataset *d, struct err *err)
{
    struct census_limit limit;
    char text[CENSUS_TEXT];

    if (!split_limit(m->spec, strcmp(split, "val") == 0, &limit) || !census_crowded(d, &limit, text, sizeof text))
        return 0;
    return report_event(m->report, err, "warning", "data", "%s: %s", split, text);
}

static int report_lossless(const struct machine *m, const char *split, const struct dataset *d, struct err *err)
{
    char text[CENSUS_TEXT];

    if (strcmp(split, "val") != 0 || m->spec->eval_run || !census_lossless(d, m->spec->checkpoint_best, text, sizeof text))
        return 0;
    return report_event(m->report, err, "warning", "data", "%s: %s", split, text);
}

static int report_depth(const struct machine *m, const char *split, const struct dataset *d, struct err *err)
{
    char text[DEPTH_TRUTH_TEXT];

    return depth_truth_nowhere(d, text) ? report_event(m->report, err, "warning", "data", "%s: %s", split, text) : 0;
}

/* Warns of poses that are missing; scores of poses are computed from the others. An unreadable file is ignored here:
 * validation reports that its score is missing. */
static int report_poses(const struct machine *m, const char *split, const struct dataset *d, struct err *err)
{
    char text[POSE_TRUTH_TEXT];
    struct err ignored;
    int lacking;

    if (pose_truth_lacking(d, &lacking, text, &ignored) < 0 || lacking == 0)
        return 0;
    return report_event(m->report, err, "warning", "data", "%s: %s", split, text);
}

/* Rank 0 checks a split once in the life of the job and writes the index. The other ranks and all later attempts read
 * the index. */
static int check_once(const struct machine *m, const char *split, const struct check_options *opt, const char *index, struct err *err)
{
    struct problems *problems;
    struct dataset *d;
    int rc;

    if (m->opt->rank != 0 || access(index, F_OK) == 0)
        return 0;
    problems = calloc(1, sizeof *problems);
    if (!problems)
        return err_set(err, -ENOMEM, "out of memory");
    rc = check_split(opt, problems, &d, err);
    if (rc >= 0) {
        rc = index_write(index, d, err);
        if (rc >= 0)
            rc = report_split(m, split, d, problems, err);
        if (rc >= 0)
            rc = report_notes(m, split, problems, err);
        if (rc >= 0)
            rc = report_census(m, split, d, err);
        if (rc >= 0)
            rc = report_crowded(m, split, d, err);
        if (rc >= 0)
            rc = report_lossless(m, split, d, err);
        if (rc >= 0)
            rc = report_depth(m, split, d, err);
        if (rc >= 0)
            rc = report_poses(m, split, d, err);
        dataset_free(d);
    }
    free(problems);
    return rc;
}

static int open_split(const struct machine *m, bool val, const struct dataset *train, struct split *ret, struct err *err)
{
    const struct jobspec *s = m->spec;
    const char *split = val ? "val" : "train";
    struct split_options opt;
    char index[4096 + 32];
    int rc;

    split_options(m->opt->models, s, val, train, s->run_threads > 0 ? (int)s->run_threads : 1, &opt);
    snprintf(index, sizeof index, "%s/index.%s", m->opt->job_dir, split);
    rc = check_once(m, split, &opt.check, index, err);
    if (rc >= 0)
        rc = comm_barrier(m->comm, COMM_SYNC, err);
    if (rc >= 0)
        rc = index_load(index, &opt.check, &ret->set, err);
    return rc < 0 ? rc : index_hash(ret->set, &ret->hash, err);
}

/* A job that must repeat another job's training needs data with that job's hash. */
static int wanted_data(const struct jobspec *s, const struct split *train, struct err *err)
{
    char hex[33];

    hash_hex(train->hash, hex);
    if (!s->run_data_hash || strcmp(s->run_data_hash, hex) == 0)
        return 0;
    return err_field(err, ERR_DATA, "errand.data_hash",
                     "%s: the training set is another one than the job is to be trained on: its hash is %s, errand.data_hash is %s",
                     train->set->source, hex, s->run_data_hash);
}

int splits_open(const struct machine *m, struct split *ret_train, struct split *ret_val, struct err *err)
{
    const struct jobspec *s = m->spec;
    int rc;

    progress_phase(m->progress, PHASE_CHECK_DATA);
    rc = open_split(m, false, NULL, ret_train, err);
    if (rc >= 0)
        rc = wanted_data(s, ret_train, err);
    if (rc < 0 || !s->data_val_annotations)
        return rc;
    rc = open_split(m, true, ret_train->set, ret_val, err);
    return rc < 0 ? rc : dataset_same_classes(ret_train->set, ret_val->set, err);
}

int splits_open_val(const struct machine *m, struct split *ret_val, struct err *err)
{
    progress_phase(m->progress, PHASE_CHECK_DATA);
    return open_split(m, true, NULL, ret_val, err);
}

static int sample(const struct machine *m, const struct course *course, const struct model *model, bool train, struct split *split,
                  struct err *err)
{
    const struct task_options o = { m->spec, train, model->canvas, model->grain, cache_bytes / (size_t)course->nranks };

    return split->set ? model->family->task->open(split->set, &o, &split->task, err) : 0;
}

int splits_sample(const struct machine *m, const struct course *course, const struct model *model, struct split *train, struct split *val,
                  struct err *err)
{
    int rc = sample(m, course, model, true, train, err);

    return rc < 0 ? rc : sample(m, course, model, false, val, err);
}

static int begin(const struct machine *m, const struct loader_options *o, struct split *split, struct err *err)
{
    int rc = loader_open(split->task, o, &split->loader, err);

    if (rc < 0)
        return rc;
    split->feed = feed_open(m->dev, m->carrier, split->loader);
    return split->feed ? 0 : err_set(err, ERR_DEVICE, "out of memory: batches");
}

int splits_begin(const struct machine *m, const struct course *course, int64_t first, struct split *train, struct split *val,
                 struct err *err)
{
    const struct jobspec *s = m->spec;
    struct loader_options o = {
        .train = true,
        .batch = (int)course->batch,
        .shards = course->shards,
        .shard_lo = course->mine.lo,
        .shard_hi = course->mine.hi,
        .waves = course->waves,
        .first_step = first,
        .steps = course->steps,
        .hashes = strcmp(s->run_evidence, "off") != 0,
        .on_bad = strcmp(s->data_on_bad, "skip") == 0 ? BAD_SKIP : BAD_ERROR,
        .dev = m->dev,
        .workers = workers(m),
        .stress = m->stress,
    };
    int rc = first <= course->steps ? begin(m, &o, train, err) : 0;

    if (rc < 0 || !val->set)
        return rc;
    o.train = o.hashes = false;
    o.batch = (int)s->val_batch;
    o.rank = course->rank;
    o.ranks = course->nranks;
    return begin(m, &o, val, err);
}

void split_close(struct split *s)
{
    feed_close(s->feed);
    loader_close(s->loader);
    task_free(s->task);
    dataset_free(s->set);
}

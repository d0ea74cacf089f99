/* SPDX-License-Identifier: Apache-2.0 */ /* tests/golden/job.h - jobs of tests/golden/trainer/ by the trainer itself,
 * in folders of their own: every rank is a process, as under detd-job. */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/backend/devices.h"
#include "worker/models/builtin.h"
#include "worker/train/trainer.h"

#define GOLDEN "tests/golden/trainer"

static char root[64]; /* of all jobs of the program */
static const struct model_registry *job_models = &models_builtin;

static inline int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/test_golden.XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static inline int remove_root(void **state)
{
    char cmd[96];

    (void)state;
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", root);
    return system(cmd);
}

/* GOLDEN/<name>.json with assignments ("train.waves=1"), the last one NULL; NULL: as it is. Caller frees. */
static inline struct jobspec *read_job(const char *name, const char *const *assignments)
{
    char path[128], *dir = realpath(GOLDEN, NULL);
    struct jobspec *spec = NULL;
    struct err err = { 0 };
    json_t *json = NULL;
    int rc;

    snprintf(path, sizeof path, GOLDEN "/%s.json", name);
    rc = jobspec_read(path, &json, &err);
    for (int i = 0; assignments && assignments[i] && rc >= 0; i++)
        rc = jobspec_override(json, assignments[i], &err);
    if (rc >= 0)
        rc = jobspec_absolute(json, dir, &err);
    if (rc < 0 || jobspec_parse(json, &spec, &err) < 0)
        fail_msg("%s: %s", path, err.msg);
    json_decref(json);
    free(dir);
    return spec;
}

/* root/<job>, made where it is not there yet. */
static inline void job_folder(const char *job, char ret[128])
{
    snprintf(ret, 128, "%s/%s", root, job);
    if (mkdir(ret, 0700) < 0)
        assert_int_equal(access(ret, W_OK), 0);
}

/* In a child. Reports that go to no detd-job are lines of DIR/rank-<r>. */
static inline void be_rank(const struct jobspec *spec, struct trainer_options *opt)
{
    struct err err = { 0 };
    char log[192];
    int rc;

    snprintf(log, sizeof log, "%s/rank-%d", opt->job_dir, opt->rank);
    opt->models = job_models;
    if (!freopen(log, "w", stdout))
        _exit(1);
    rc = device_backend(spec->run_device, spec->run_isa, &opt->backend, &err);
    if (rc >= 0)
        rc = trainer_run(spec, opt, &err);
    if (rc < 0)
        fprintf(stderr, "rank %d of %s: %s\n", opt->rank, opt->job_dir, err.msg);
    fflush(stdout);
    _exit(rc < 0);
}

/* Trains, or continues, in a folder to the end. */
static inline void run_job(const struct jobspec *spec, const char *dir, int nranks)
{
    int fd = memfd_create("test-job", MFD_CLOEXEC), status;
    pid_t pids[JOB_MAX_RANKS];

    for (int r = 0; r < nranks; r++) {
        struct trainer_options opt = { .job_dir = dir,
                                       .rank = r,
                                       .nranks = nranks,
                                       .local_rank = r,
                                       .attempt = 1,
                                       .control_fd = -1,
                                       .comm_fd = nranks > 1 ? fd : -1,
                                       .progress_fd = -1 };

        fflush(stdout);
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r] == 0)
            be_rank(spec, &opt);
    }
    for (int r = 0; r < nranks; r++) {
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        assert_int_equal(status, 0);
    }
    close(fd);
}

/* The reports of a rank: an array of messages in order (proto/report.h). Caller drops it. */
static inline json_t *reports_of(const char *dir, int rank)
{
    char path[192], *line = NULL;
    json_t *all = json_array(), *msg;
    json_error_t why;
    size_t room = 0;
    FILE *f;

    snprintf(path, sizeof path, "%s/rank-%d", dir, rank);
    f = fopen(path, "re");
    assert_non_null(f);
    while (getline(&line, &room, f) > 0) {
        msg = json_loads(line, 0, &why);
        if (!msg)
            fail_msg("%s: %s: %s", path, why.text, line);
        json_array_append_new(all, msg);
    }
    free(line);
    fclose(f);
    return all;
}

static inline json_t *reports(const char *dir)
{
    return reports_of(dir, 0);
}

static inline const char *text_of(const json_t *msg, const char *key)
{
    const char *text = json_string_value(json_object_get(msg, key));

    return text ? text : "";
}

static inline int64_t int_of(const json_t *msg, const char *key)
{
    return json_integer_value(json_object_get(msg, key));
}

/* The loss record of a split after a step: its terms, {name: [num, den]}, borrowed. */
static inline const json_t *loss_of(const json_t *all, const char *split, int64_t step)
{
    const json_t *found = NULL, *msg;
    size_t i;

    json_array_foreach (all, i, msg) {
        if (strcmp(text_of(msg, "type"), "loss") != 0 || strcmp(text_of(msg, "split"), split) != 0 || int_of(msg, "step") != step)
            continue;
        assert_null(found);
        found = json_object_get(msg, "terms");
    }
    assert_non_null(found);
    return found;
}

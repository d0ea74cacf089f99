/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/models/test_registry.c
 * uses: proto worker worker/modes worker/predict worker/backend trainer cpu
 * Networks by name: the worker builds every network listed in proto/job/presets.h. Networks that a device or a program
 * lacks are refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "tests/stand/harness.h"
#include "tests/unit/worker/generic_cpu.h"
#include "worker/models/builtin.h"
#include "worker/ops/families.h"
#include "worker/worker.h"

static json_t *job_of(const char *preset)
{
    json_t *json = json_pack("{s:{s:s},s:{s:{s:s,s:s}},s:{s:i,s:i}}", "model", "preset", preset, "data", "train", "annotations", "none",
                             "images", "none", "train", "steps", 1, "batch", 1);

    assert_non_null(json);
    return json;
}

/* The smallest network of the preset. */
static struct jobspec *spec_of(const char *preset)
{
    json_t *json = job_of(preset);
    struct jobspec *spec = NULL;
    struct err err = { 0 };

    if (job_preset_depth(job_preset_find(&job_presets, preset)) == JOB_DEPTH_FEATURES) /* it needs weights; any path will do here */
        assert_int_equal(jobspec_override(json, "model.init_extractor=none", &err), 0);
    if (strncmp(preset, "sparse", 6) == 0)
        assert_int_equal(jobspec_override(json, "model.fpn_channels=16", &err), 0);
    if (jobspec_override(json, "model.width=0.01", &err) < 0 || jobspec_parse(json, &spec, &err) < 0)
        fail_msg("%s: %s", preset, err.msg);
    jobspec_forget_inits(spec);
    json_decref(json);
    return spec;
}

static void presets_are_built(void **state)
{
    (void)state;
    assert_ptr_equal(models_builtin.presets, &job_presets);
    for (int i = 0; i < job_presets.n; i++) {
        const struct job_preset *row = &job_presets.row[i];
        struct jobspec *spec = spec_of(row->name);
        struct model *m = NULL;
        struct err err = { 0 };

        if (model_open(&models_builtin, spec, (struct model_classes){ 2, NULL, NULL }, dev, &m, &err) < 0)
            fail_msg("%s: %s", row->name, err.msg);
        if (row->size > 0) { /* otherwise the size follows from the pictures */
            assert_int_equal(m->canvas.w, row->size);
            assert_int_equal(m->canvas.h, row->size);
        }
        assert_non_null(model_family_find(&models_builtin, row->family->name)->task);
        model_free(m);
        jobspec_free(spec);
    }
}

/* Every network has a name, and names are unique. */
static void families_have_presets(void **state)
{
    (void)state;
    for (int k = 0; k < models_builtin.nfamilies; k++) {
        const char *name = models_builtin.family[k]->name;
        int presets = 0;

        assert_ptr_equal(model_family_find(&models_builtin, name), models_builtin.family[k]);
        for (int i = 0; i < job_presets.n; i++)
            presets += strcmp(job_presets.row[i].family->name, name) == 0;
        assert_true(presets > 0);
    }
    for (int i = 0; i < job_presets.n; i++)
        assert_ptr_equal(job_preset_find(&job_presets, job_presets.row[i].name), &job_presets.row[i]);
}

static void refuses(const struct model_registry *r, const char *said)
{
    struct jobspec *spec = spec_of("yolov3_tiny");
    struct model *m = NULL;
    struct err err = { 0 };

    assert_int_equal(model_open(r, spec, (struct model_classes){ 2, NULL, NULL }, dev, &m, &err), ERR_UNSUPPORTED);
    assert_string_equal(err.msg, said);
    assert_string_equal(err.field, "model.preset");
    jobspec_free(spec);
}

static void lacking_operations_are_named(void **state)
{
    const struct families *all = dev->on;
    struct families some = *all;

    (void)state;
    some.yolo = NULL;
    dev->on = &some;
    refuses(&models_builtin, "model.preset: 'yolov3_tiny' needs operations of the family yolo, which the device does not have");
    some.yolo = all->yolo;
    some.resample = NULL;
    refuses(&models_builtin, "model.preset: 'yolov3_tiny' needs operations of the family resample, which the device does not have");
    dev->on = all;
}

static void lacking_families_are_named(void **state)
{
    const struct model_registry none = { &job_presets, NULL, 0 };

    (void)state;
    refuses(&none, "model.preset: 'yolov3_tiny' is of the family yolo, which this worker does not have");
}

/* Returns the output of a worker on stderr. The worker is a process of its own, with a stderr of its own. */
static void said_by_worker(const struct model_registry *r, char *const argv[], char *ret, size_t size)
{
    FILE *out = tmpfile();
    int status;
    size_t n;
    pid_t pid;

    assert_non_null(out);
    fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        status = dup2(fileno(out), STDERR_FILENO) < 0 ? 127 : worker_main(3, (char **)argv, r);
        fflush(NULL);
        _exit(status);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    rewind(out);
    n = fread(ret, 1, size - 1, out);
    ret[n] = '\0';
    fclose(out);
}

static void worker_has_its_own_networks(void **state)
{
    static const struct job_family family = { "other", 1, 1 };
    static const struct job_preset row = { "other_net", &family, 64 };
    const struct job_presets presets = { &row, 1, NULL };
    const struct model_registry other = { &presets, NULL, 0 };
    char path[TEMP_MAX], said[512], worker[] = "detd-worker", check[] = "--check";
    json_t *json = job_of("yolov3_tiny");
    int fd = mkstemp(temp_path(path, sizeof path, "detd-registry-XXXXXX"));

    (void)state;
    assert_true(fd >= 0 && json_dumpfd(json, fd, 0) == 0);
    said_by_worker(&other, (char *const[]){ worker, check, path, NULL }, said, sizeof said);
    assert_string_equal(said, "detd-worker: model.preset: must be other_net, is \"yolov3_tiny\"\n");
    close(fd);
    unlink(path);
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_are_built),
        cmocka_unit_test(families_have_presets),
        cmocka_unit_test(lacking_operations_are_named),
        cmocka_unit_test(lacking_families_are_named),
        cmocka_unit_test(worker_has_its_own_networks),
    };

    return cmocka_run_group_tests(tests, open_generic, close_generic);
}

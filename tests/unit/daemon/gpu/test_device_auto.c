/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/daemon/gpu/test_device_auto.c - uses: proto daemon
 * The device of a job: when "auto" takes GPUs, the note about its choice, and the answer for devices that a node
 * lacks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <jansson.h>
#include <cmocka.h>

#include "daemon/gpu/device.h"
#include "daemon/job/job.h"
#include "proto/err.h"
#include "proto/job/jobspec.h"

struct
try {
    int rc;
    char device[8], precision[8], note[DEVICE_TEXT];
    struct err err;
};

static struct try resolve_isa(const char *isa, const char *device, int ranks, int ranks_per_gpu, const char *precision,
                              struct device_node node)
{
    json_t *root = json_pack("{s:s, s:{s:s}, s:{s:{s:s, s:s}, s:{s:s, s:s}}, s:{s:i, s:i, s:i}, s:{s:s, s:i, s:i, s:s, s:s}}", "name", "a",
                             "model", "preset", "yolov3_tiny", "data", "train", "annotations", "/t.json", "images", "/t", "val",
                             "annotations", "/v.json", "images", "/v", "train", "steps", 4, "batch", 64, "shards", 64, "run", "device",
                             device, "ranks", ranks, "ranks_per_gpu", ranks_per_gpu, "precision", precision, "isa", isa);
    struct jobspec *spec = NULL;
    struct try t = { 0 };

    t.rc = jobspec_parse(root, &spec, &t.err);
    if (t.rc < 0)
        fail_msg("%s", t.err.msg);
    t.rc = device_resolve(spec, &node, t.note, &t.err);
    snprintf(t.device, sizeof t.device, "%s", spec->run_device);
    snprintf(t.precision, sizeof t.precision, "%s", spec->run_precision);
    jobspec_free(spec);
    json_decref(root);
    return t;
}

static struct try resolve(const char *device, int ranks, int ranks_per_gpu, const char *precision, struct device_node node)
{
    return resolve_isa("auto", device, ranks, ranks_per_gpu, precision, node);
}

static struct device_node node_of(int devices, int quarantined, int free)
{
    return (struct device_node){
        .plugin = true, .gpus = { .devices = devices, .usable = devices - quarantined, .quarantined = quarantined, .free = free }
    };
}

static void assert_takes(struct try t, const char *device, const char *note)
{
    assert_int_equal(t.rc, 0);
    assert_string_equal(t.device, device);
    assert_string_equal(t.note, note);
}

static void assert_refused(struct try t, const char *field, const char *text)
{
    assert_int_equal(t.rc, ERR_INPUT);
    assert_string_equal(t.err.field, field);
    assert_string_equal(t.err.msg, text);
}

/* GPUs in use become free again; a quarantined GPU may never become free. */
static void auto_takes_gpus_that_can_be_trusted(void **state)
{
    (void)state;
    assert_takes(resolve("auto", 2, 1, "fp32", node_of(2, 0, 0)), "cuda", "run.device auto: runs on GPUs: needs 2, this node has 2");
    assert_takes(resolve("auto", 3, 1, "fp32", node_of(2, 0, 2)), "cpu", "run.device auto: runs on the CPU: needs 3 GPUs, this node has 2");
    assert_takes(resolve("auto", 4, 2, "fp32", node_of(2, 0, 2)), "cuda", "run.device auto: runs on GPUs: needs 2, this node has 2");
    assert_takes(resolve("auto", 2, 1, "fp32", node_of(2, 1, 1)), "cpu",
                 "run.device auto: runs on the CPU: needs 2 GPUs, this node has 2, and 1 of them are quarantined (detctl gpus says why)");
}

static void auto_says_why_there_are_none(void **state)
{
    struct device_node node = node_of(0, 0, 0);

    (void)state;
    assert_takes(resolve("auto", 1, 1, "fp32", node), "cpu", "run.device auto: runs on the CPU: this node has no GPUs");
    strcpy(node.why_none, "no driver");
    assert_takes(resolve("auto", 1, 1, "fp32", node), "cpu", "run.device auto: runs on the CPU: this node has no GPUs (no driver)");
    node = node_of(8, 0, 8);
    node.plugin = false;
    assert_takes(resolve("auto", 1, 1, "fp32", node), "cpu", "run.device auto: runs on the CPU: libdetd-cuda.so does not lie beside detd");
}

static void what_only_gpus_do_is_refused_without(void **state)
{
    (void)state;
    assert_takes(resolve("auto", 1, 1, "bf16", node_of(1, 0, 1)), "cuda", "run.device auto: runs on GPUs: needs 1, this node has 1");
    assert_refused(resolve("auto", 1, 1, "tf32", node_of(0, 0, 0)), "run.precision",
                   "run.precision: tf32 needs a GPU, but run.device auto: runs on the CPU: this node has no GPUs");
    assert_takes(resolve("auto", 1, 1, "bf16", node_of(0, 0, 0)), "cpu", "run.device auto: runs on the CPU: this node has no GPUs");
}

static void assert_computes(struct try t, const char *precision, const char *note)
{
    assert_int_equal(t.rc, 0);
    assert_string_equal(t.precision, precision);
    assert_string_equal(t.note, note);
}

static void auto_takes_bf16_where_it_is_quick(void **state)
{
    struct device_node node = node_of(0, 0, 0);

    (void)state;
    assert_computes(resolve("cpu", 1, 1, "auto", node), "fp32", "run.precision auto: fp32, as the CPU has no unit for bf16 (AMX)");
    assert_computes(
        resolve("auto", 1, 1, "auto", node), "fp32",
        "run.device auto: runs on the CPU: this node has no GPUs; run.precision auto: fp32, as the CPU has no unit for bf16 (AMX)");
    assert_computes(resolve("auto", 1, 1, "auto", node_of(1, 0, 1)), "bf16",
                    "run.device auto: runs on GPUs: needs 1, this node has 1; run.precision auto: bf16 on GPUs");
    node.bf16_unit = true;
    assert_computes(resolve("cpu", 1, 1, "auto", node), "bf16", "run.precision auto: bf16, for which the CPU has a unit (AMX)");
    assert_computes(resolve_isa("avx512", "cpu", 1, 1, "auto", node), "fp32",
                    "run.precision auto: fp32, as the build that run.isa names does not use the CPU's unit for bf16 (AMX)");
    assert_computes(resolve("cpu", 1, 1, "fp32", node), "fp32", "");
}

/* A job that asks for GPUs waits until an admin ends a quarantine. It does not wait for GPUs that the node has never
 * had. */
static void cuda_waits_for_quarantined_ones_only(void **state)
{
    struct device_node node = node_of(2, 2, 0);

    (void)state;
    assert_takes(resolve("cuda", 2, 1, "fp32", node), "cuda", "");
    assert_refused(resolve("cuda", 3, 1, "fp32", node), "run.ranks",
                   "run.ranks: asks for 3 GPUs, this node has 2, and 2 of them are quarantined (detctl gpus says why)");
    assert_refused(resolve("cuda", 1, 1, "fp32", node_of(0, 0, 0)), "run.device", "run.device: asks for 1 GPUs, this node has no GPUs");
    node.plugin = false;
    assert_refused(resolve("cuda", 1, 1, "fp32", node), "run.device",
                   "run.device: cuda needs libdetd-cuda.so beside detd, which is not there");
}

static void a_job_has_so_many_gpus_at_most(void **state)
{
    (void)state;
    assert_takes(resolve("cuda", JOB_GPUS_MAX, 1, "fp32", node_of(GPU_MAX, 0, GPU_MAX)), "cuda", "");
    assert_refused(resolve("cuda", JOB_GPUS_MAX + 1, 1, "fp32", node_of(GPU_MAX, 0, GPU_MAX)), "run.ranks",
                   "run.ranks: asks for 17 GPUs, a job has at most 16");
    assert_string_equal(resolve("auto", JOB_GPUS_MAX + 1, 1, "fp32", node_of(GPU_MAX, 0, GPU_MAX)).device, "cpu");
}

static void the_cpu_is_asked_for_by_name(void **state)
{
    (void)state;
    assert_takes(resolve("cpu", 3, 1, "fp32", node_of(8, 0, 8)), "cpu", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auto_takes_gpus_that_can_be_trusted),  cmocka_unit_test(auto_says_why_there_are_none),
        cmocka_unit_test(auto_takes_bf16_where_it_is_quick),    cmocka_unit_test(what_only_gpus_do_is_refused_without),
        cmocka_unit_test(cuda_waits_for_quarantined_ones_only), cmocka_unit_test(a_job_has_so_many_gpus_at_most),
        cmocka_unit_test(the_cpu_is_asked_for_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

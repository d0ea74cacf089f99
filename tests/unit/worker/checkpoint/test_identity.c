/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/checkpoint/test_identity.c - uses: proto trainer cpu
 * The identity of an attempt, the report when it computes on another platform than the attempt before, and which
 * choices of algorithms are kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>
#include <jansson.h>

#include "proto/err.h"
#include "proto/identity.h"
#include "proto/record.h"
#include "tests/stand/harness.h"
#include "worker/core/device.h"
#include "worker/ops/families.h"
#include "worker/checkpoint/identity.h"
#include "worker/report/report.h"

/* A GPU that answers only for its name, its libraries and its plans. */
static const char *gpu, *cudnn, *chosen;

static void gpu_info(struct device *dev, struct device_info *ret)
{
    (void)dev;
    memset(ret, 0, sizeof *ret);
    snprintf(ret->name, sizeof ret->name, "%s", gpu);
    ret->nversions = 1;
    snprintf(ret->version[0].name, sizeof ret->version[0].name, "cudnn");
    snprintf(ret->version[0].value, sizeof ret->version[0].value, "%s", cudnn);
}

static int gpu_plans(struct device *dev, char **ret, struct err *err)
{
    (void)dev, (void)err;
    *ret = strdup(chosen);
    return 0;
}

static const struct device_ops ops = { .name = "gpu", .version = "1", .info = gpu_info };
static const struct plan_ops plan = { .text = gpu_plans };
static const struct families computes = { .plan = &plan };

static char folder[TEMP_MAX];
static struct device device = { .ops = &ops, .on = &computes };
static const char *precision, *cfg, *init, *other;
static int fds[2];
static json_t *told; /* the last identity reported */
static int times;    /* in an attempt */

static int open_job(void **state)
{
    temp_path(folder, sizeof folder, "test_identity.XXXXXX");
    precision = "bf16";
    (void)state;
    return mkdtemp(folder) && socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0 ? 0 : -1;
}

static int close_job(void **state)
{
    char path[TEMP_MAX + 32];

    (void)state;
    close(fds[0]);
    close(fds[1]);
    json_decref(told);
    told = NULL;
    snprintf(path, sizeof path, "%s/identity.json", folder);
    unlink(path);
    return rmdir(folder);
}

/* Identities go to `told`, events into `said`. */
static void take(char *lines, char *said, size_t size)
{
    enum record_type type;
    struct err err;
    json_t *msg;

    said[0] = '\0';
    for (char *line = strtok(lines, "\n"); line; line = strtok(NULL, "\n")) {
        if (record_parse(line, strlen(line), &type, &msg, &err) < 0)
            fail_msg("%s: %s", line, err.msg);
        if (type == RECORD_IDENTITY) {
            json_decref(told);
            told = json_incref(json_object_get(msg, "identity"));
            times++;
        } else {
            assert_int_equal(type, RECORD_EVENT);
            snprintf(said + strlen(said), size - strlen(said), "%s\n", line);
        }
        json_decref(msg);
    }
}

/* An attempt that continues after this step, and with `plans` a checkpoint of it. Returns its events. */
static const char *attempt(int64_t step, const char *plans)
{
    static char lines[16384], said[4096];
    struct identity_options opt = { .job_dir = folder,
                                    .precision = precision,
                                    .cfg = cfg,
                                    .init = { { "model.init", init } },
                                    .ninits = init != NULL,
                                    .other = other,
                                    .spec = "0123",
                                    .train = { { 1, 2 } },
                                    .dev = &device };
    struct identity *id;
    struct err err = { 0 };
    ssize_t n;

    chosen = plans;
    times = 0;
    assert_int_equal(report_open(fds[1], 0, 0, 2, &opt.report, &err), 0);
    assert_int_equal(identity_open(&opt, &id, &err), 0);
    if (identity_begin(id, step, false, &err) < 0 || (plans && identity_save(id, &err) < 0))
        fail_msg("%s", err.msg);
    identity_close(id);
    report_close(opt.report);
    n = recv(fds[0], lines, sizeof lines - 1, MSG_DONTWAIT);
    lines[n < 0 ? 0 : n] = '\0';
    take(lines, said, sizeof said);
    return said;
}

static const char *of_told(const char *group, const char *name)
{
    const char *text = json_string_value(json_object_get(group ? json_object_get(told, group) : told, name));

    return text ? text : "none";
}

/* The plans kept, one behind the other. */
static const char *kept(void)
{
    static char text[1024];
    char path[TEMP_MAX + 32];
    json_t *root;

    snprintf(path, sizeof path, "%s/identity.json", folder);
    root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    text[0] = '\0';
    for (size_t i = 0; i < json_array_size(json_object_get(root, "plans")); i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s;",
                 json_string_value(json_array_get(json_object_get(root, "plans"), i)));
    json_decref(root);
    return text;
}

static void plans_are_kept_by_key(void **state)
{
    (void)state;
    gpu = "H100";
    cudnn = "9.1";
    assert_string_equal(attempt(4, "conv 1: a\nconv 11: b\n"), "");
    assert_string_equal(kept(), "conv 1: a;conv 11: b;");
    assert_string_equal(attempt(4, "conv 1: a\nconv 2: c\n"), ""); /* has not met the other choice yet */
    assert_string_equal(kept(), "conv 1: a;conv 2: c;conv 11: b;");
    assert_non_null(
        strstr(attempt(8, "conv 11: d\nconv 2: e\n"), "\"2 convolutions are computed by other algorithms than before, as conv 2: e\""));
    assert_string_equal(kept(), "conv 11: d;conv 2: e;conv 1: a;");
    assert_string_equal(attempt(8, "conv 11: d\n"), "");
    assert_string_equal(attempt(8, "conv 11: d; measured\n"), ""); /* chosen for another reason */
    assert_non_null(strstr(attempt(8, "conv 11: dd; measured\n"), "as conv 11: dd; measured\""));
}

static void another_gpu_or_library_is_named(void **state)
{
    const char *said;

    (void)state;
    gpu = "H100";
    cudnn = "9.1";
    attempt(4, "");
    cudnn = "9.2";
    assert_string_equal(attempt(0, NULL), ""); /* begins anew */
    said = attempt(4, NULL);
    assert_non_null(strstr(said, "\"from step 5 on the bits may be others than before: cudnn 9.2 (was 9.1)\""));
    gpu = "A100";
    precision = "fp32";
    said = attempt(4, "");
    assert_non_null(strstr(said, "before: device A100 (was H100), precision fp32 (was bf16), cudnn 9.2 (was 9.1)\""));
    assert_string_equal(attempt(4, NULL), "");
}

/* Reported at its start, and again when choices were made that the attempts before had not made. */
static void the_identity_is_told(void **state)
{
    char first[33], second[33];

    (void)state;
    gpu = "H100";
    cudnn = "9.1";
    attempt(0, NULL);
    assert_int_equal(times, 1);
    assert_string_equal(of_told(NULL, "spec"), "0123");
    assert_string_equal(of_told("data", "train"), "00000000000000010000000000000002");
    assert_string_equal(of_told("data", "val"), "none");
    assert_string_equal(of_told(NULL, "device"), "H100");
    assert_string_equal(of_told("versions", "cudnn"), "9.1");
    snprintf(first, sizeof first, "%s", of_told(NULL, "hash"));
    attempt(0, "conv 1: a\nconv 2: b; measured\n");
    assert_int_equal(times, 2);
    assert_int_equal(json_integer_value(json_object_get(told, "plan_count")), 2);
    assert_null(json_object_get(told, "plans"));
    snprintf(second, sizeof second, "%s", of_told(NULL, "hash"));
    assert_string_not_equal(first, second);
    attempt(4, "conv 2: b\nconv 1: a\n"); /* the same choices, in another order */
    assert_int_equal(times, 1);
    assert_string_equal(of_told(NULL, "hash"), second);
    attempt(0, ""); /* begins anew, and meets nothing */
    assert_int_equal(times, 2);
    assert_string_equal(of_told(NULL, "hash"), second); /* earlier choices are kept with the checkpoint */
    attempt(4, "conv 2: c\nconv 1: a\n");
    assert_int_equal(times, 2);
    assert_string_not_equal(of_told(NULL, "hash"), second);
}

/* Variables read by libraries are reported if they do not name paths. The report has a bounded size. */
static void environment_is_told(void **state)
{
    char value[200], name[24], hash[33];
    const char *said;

    (void)state;
    gpu = "H100";
    cudnn = "9.1";
    attempt(4, "");
    assert_int_equal(json_object_size(json_object_get(told, "environment")), 0);
    setenv("CUDA_VISIBLE_DEVICES", "GPU-1", 1);
    setenv("NCCL_SOCKET_IFNAME", "eth0", 1);
    assert_string_equal(attempt(4, NULL), "");
    setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8", 1);
    setenv("NVIDIA_TF32_OVERRIDE", "", 1);
    setenv("NVIDIA_TF32_OVERRIDES", "1", 1);
    said = attempt(4, "");
    assert_non_null(strstr(said, "CUBLAS_WORKSPACE_CONFIG :16:8 (was none)"));
    assert_non_null(strstr(said, "NVIDIA_TF32_OVERRIDE  (was none)"));
    assert_int_equal(json_object_size(json_object_get(told, "environment")), 2);
    unsetenv("CUBLAS_WORKSPACE_CONFIG");
    unsetenv("NVIDIA_TF32_OVERRIDE");
    assert_non_null(strstr(attempt(4, NULL), "CUBLAS_WORKSPACE_CONFIG none (was :16:8)"));
    memset(value, 'v', sizeof value);
    value[101] = '\0';
    setenv("CUDNN_LONG", value, 1);
    setenv("CUDNN_OTHER", "\xff", 1);
    attempt(4, NULL);
    assert_int_equal(strlen(of_told("environment", "CUDNN_LONG")), 32);
    assert_int_equal(strlen(of_told("environment", "CUDNN_OTHER")), 32);
    memset(value, '"', 100);
    value[100] = '\0';
    for (int i = 0; i < 60; i++) {
        snprintf(name, sizeof name, "NCCL_%d", i);
        setenv(name, value, 1);
    }
    attempt(4, NULL); /* record_parse() refuses a record that is too large */
    assert_int_equal(strlen(of_told("environment", "others")), 32);
    snprintf(hash, sizeof hash, "%s", of_told(NULL, "hash"));
    setenv("NCCL_59", "1", 1);
    attempt(4, NULL);
    assert_string_not_equal(of_told(NULL, "hash"), hash);
    for (int i = 0; i < 60; i++) {
        snprintf(name, sizeof name, "NCCL_%d", i);
        unsetenv(name);
    }
    unsetenv("CUDNN_LONG");
    unsetenv("CUDNN_OTHER");
    unsetenv("NVIDIA_TF32_OVERRIDES");
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    fclose(f);
}

/* A file that describes the network is part of its identity, at any path. */
static void another_network_is_named(void **state)
{
    static const char *const texts[] = { "[net]\n", "[net]\n", "[net]\nwidth=32\n" };
    char path[3][TEMP_MAX + 32];
    char *said[3];

    (void)state;
    gpu = "H100";
    cudnn = "9.1";
    for (int i = 0; i < 3; i++) {
        snprintf(path[i], sizeof path[i], "%s/net-%d.cfg", folder, i);
        write_file(path[i], texts[i]);
        cfg = path[i];
        said[i] = strdup(attempt(i ? 4 : 0, "")); /* each is compared with the one before */
        assert_non_null(json_object_get(json_object_get(json_object_get(told, "files"), "model.cfg"), "hash"));
    }
    cfg = NULL;
    assert_string_equal(said[1], "");
    assert_non_null(strstr(said[2], "before: model.cfg hash "));
    for (int i = 0; i < 3; i++) {
        unlink(path[i]);
        free(said[i]);
    }
}

static const char *told_init(void)
{
    const char *hash = json_string_value(json_object_get(json_object_get(json_object_get(told, "files"), "model.init"), "hash"));

    return hash ? hash : "none";
}

/* Initial weights are read at the start of a run. Their hash stays that of the start, however often the run
 * continues. */
static void other_initial_weights_are_named(void **state)
{
    char path[TEMP_MAX + 32], first[33], said[600];
    json_t *was;

    (void)state;
    gpu = "H100";
    cudnn = "9.1";
    attempt(0, "");
    assert_string_equal(told_init(), "none");
    snprintf(path, sizeof path, "%s/start.weights", folder);
    init = path;
    assert_string_equal(attempt(4, NULL), "");
    assert_string_equal(told_init(), "none"); /* the initial weights were not reported */
    write_file(path, "1");
    attempt(0, "");
    snprintf(first, sizeof first, "%s", told_init());
    assert_int_equal(strlen(first), 32);
    was = json_incref(told);
    write_file(path, "2");
    assert_string_equal(attempt(4, ""), "");
    assert_string_equal(told_init(), first);
    unlink(path);
    assert_string_equal(attempt(8, NULL), "");
    assert_string_equal(told_init(), first);
    write_file(path, "2");
    other = folder; /* of a run that began with the first weights */
    assert_non_null(strstr(attempt(0, NULL), "than in the run that is verified: model.init hash "));
    other = NULL;
    assert_string_not_equal(told_init(), first);
    assert_int_equal(identity_compare(was, told, said, sizeof said), 1);
    assert_int_equal(strncmp(said, "model.init hash ", 16), 0);
    json_decref(was);
    unlink(path);
    init = NULL;
}

/* Two identities as reported. Files and data in only one of them count as no difference. */
static void compared(void **state)
{
    static const char was[] =
        "{'data':{'train':'aa','val':'bb'},'device':'H100','files':{'worker':{'version':'1','hash':'11'},'libpng':{'version':'1.6'}},"
        "'versions':{'cudnn':'9.18.0'},'environment':{'CUDA_X':'1'},'plan_count':2,'plan_hash':'01','spec':'77'}",
                      same[] = "{'data':{'train':'aa'},'device':'H100','files':{'worker':{'version':'1'}},'versions':{'cudnn':'9.18.0'},"
                               "'plan_count':3,'plan_hash':'02'}",
                      is[] = "{'data':{'train':'cc','val':'bb'},'device':'A100','files':{'worker':{'version':'2','hash':'11'}},"
                             "'versions':{'cudnn':'9.19.0','nccl':'2.25.1'},'environment':{},'plan_count':2,'plan_hash':'02','spec':'78'}";
    char copy[3][600], said[600];
    json_t *root[3];

    (void)state;
    for (int i = 0; i < 3; i++) {
        snprintf(copy[i], sizeof copy[i], "%s", i == 0 ? was : i == 1 ? same : is);
        for (char *p = copy[i]; *p; p++)
            *p = *p == '\'' ? '"' : *p;
        root[i] = json_loads(copy[i], 0, NULL);
        assert_non_null(root[i]);
    }
    assert_int_equal(identity_compare(root[0], root[1], said, sizeof said), 0);
    assert_string_equal(said, "");
    assert_int_equal(identity_compare(root[0], NULL, said, sizeof said), 0);
    assert_int_equal(identity_compare(root[0], root[2], said, sizeof said), 8);
    assert_string_equal(said, "keys of the job 78 (was 77), training data cc (was aa), device A100 (was H100), worker version 2 (was 1), "
                              "cudnn 9.19.0 (was 9.18.0), nccl 2.25.1 (was none), CUDA_X none (was 1), algorithms 02 (was 01)");
    assert_int_equal(identity_compare(root[0], root[2], said, 40), 8); /* whole differences only */
    assert_string_equal(said, "keys of the job 78 (was 77)");
    for (int i = 0; i < 3; i++)
        json_decref(root[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(plans_are_kept_by_key, open_job, close_job),
        cmocka_unit_test_setup_teardown(another_gpu_or_library_is_named, open_job, close_job),
        cmocka_unit_test_setup_teardown(the_identity_is_told, open_job, close_job),
        cmocka_unit_test_setup_teardown(environment_is_told, open_job, close_job),
        cmocka_unit_test_setup_teardown(another_network_is_named, open_job, close_job),
        cmocka_unit_test_setup_teardown(other_initial_weights_are_named, open_job, close_job),
        cmocka_unit_test(compared),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

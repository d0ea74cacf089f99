/* tests/unit/test_identity.c - what is said when an attempt computes on something else than the one before, and which choices of algorithms are kept.
 * uses: proto trainer cpu */
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
#include "tests/harness.h"
#include "worker/core/device.h"
#include "worker/ops/families.h"
#include "worker/checkpoint/identity.h"
#include "worker/report/report.h"

/* A GPU of which only the name, the libraries and the plans are asked. */
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
static const char *precision;
static int fds[2];

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
    snprintf(path, sizeof path, "%s/identity.json", folder);
    unlink(path);
    return rmdir(folder);
}

/* An attempt that goes on after this step, and with `plans` a checkpoint of it. Returns the events of it. */
static const char *attempt(int64_t step, const char *plans)
{
    static char said[4096];
    struct identity_options opt = { folder, precision, &device, NULL };
    struct identity *id;
    struct err err = { 0 };
    ssize_t n;

    chosen = plans;
    assert_int_equal(report_open(fds[1], 0, 0, 2, &opt.report, &err), 0);
    assert_int_equal(identity_open(&opt, &id, &err), 0);
    if (identity_check(id, step, &err) < 0 || (plans && identity_save(id, &err) < 0))
        fail_msg("%s", err.msg);
    identity_close(id);
    report_close(opt.report);
    n = recv(fds[0], said, sizeof said - 1, MSG_DONTWAIT);
    said[n < 0 ? 0 : n] = '\0';
    return said;
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
    assert_string_equal(attempt(4, "conv 1: a\nconv 2: c\n"), ""); /* has not met the other one yet */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(plans_are_kept_by_key, open_job, close_job),
        cmocka_unit_test_setup_teardown(another_gpu_or_library_is_named, open_job, close_job),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* Fails each allocation of the JSON library in turn: messages and job files
 * give an error or nothing, never a crash or (with the address sanitizer) a leak. uses: proto */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/err.h"
#include "proto/evidence/evidence_diff.h"
#include "proto/evidence/evidence_form.h"
#include "proto/job/jobspec.h"
#include "proto/rpc.h"

static const char job[] = "{\"model\":{\"preset\":\"yolov3\"},\"data\":{\"train\":{\"annotations\":\"a\",\"images\":\"b\"}},"
                          "\"train\":{\"steps\":9,\"batch\":8,\"lr_steps\":[0.5,8]},\"run\":{\"env\":{\"A\":\"b\"}}}";
static long left; /* allocations until the failing one; negative: no allocation fails */
static bool failed;
static json_t *reference, *deciding; /* the full form of the job and the keys that decide its results, when no allocation fails */

static void *allocate(size_t size)
{
    if (left >= 0 && left-- == 0) {
        failed = true;
        return NULL;
    }
    return malloc(size);
}

/* Runs fn with the first, second, ... allocation failing, until a run succeeds without a failure. fn returns whether it
 * succeeded, and checks its result. */
static void with_each_failing(bool (*fn)(void))
{
    long n = 0;

    do {
        failed = false;
        left = n++;
        bool ok = fn();

        assert_true(ok || failed);
        assert_true(n < 100000);
    } while (failed);
    assert_true(n > 1); /* one did fail */
    left = -1;
}

static bool one_request(void)
{
    static const char line[] = "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"m\"}";
    struct rpc_request req;
    struct err err = { 0 };
    int code = 0;
    int rc = rpc_request_parse(line, strlen(line), &req, &code, &err);

    if (rc == 0)
        assert_true(json_integer_value(req.id) == 7 && strcmp(req.method, "m") == 0 && json_is_object(req.params));
    else
        assert_true(err.code == rc && code != 0 && err.msg[0]);
    rpc_request_clear(&req);
    return rc == 0;
}

/* Whole, or not at all. */
static bool got(char *line, const char *want)
{
    bool ok = line != NULL;

    if (ok)
        assert_string_equal(line, want);
    free(line);
    return ok;
}

static bool one_result(void)
{
    json_t *id = json_integer(3), *value = json_string("x");
    char *line = id && value ? rpc_result(id, value, NULL) : NULL;

    if (!(id && value))
        json_decref(value);
    json_decref(id);
    return got(line, "{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":\"x\"}\n");
}

static bool one_error(void)
{
    struct err err = { ERR_INPUT, "train.lr", "caf\xe9\x80" };

    return got(rpc_error(NULL, RPC_BAD_PARAMS, &err, NULL),
               "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32602,\"message\":\"caf??"
               "\",\"data\":{\"field\":\"train.lr\",\"reason\":\"INPUT\"}}}\n");
}

static bool one_call(void)
{
    json_t *params = json_object();

    return got(params ? rpc_call(1, "m", params, NULL) : NULL, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{}}\n");
}

static bool one_job(void)
{
    json_t *root = json_loads(job, 0, NULL), *full = NULL, *part = NULL;
    struct jobspec *s = NULL;
    struct err err = { 0 };
    int rc = root ? jobspec_override(root, "train.lr=0.5", &err) : -1;

    if (rc == 0)
        rc = jobspec_absolute(root, "/home", &err);
    if (rc == 0)
        rc = jobspec_parse(root, &s, &err);
    if (root && rc < 0)
        assert_true(err.code == rc && err.msg[0] && !s);
    bool ok = rc == 0 && (full = jobspec_json(s)) != NULL && (part = jobspec_deciding(s, NULL)) != NULL;

    if (ok && reference) { /* no half-written form passes for a whole one */
        assert_true(json_equal(full, reference));
        assert_true(json_equal(part, deciding));
    } else if (ok) {
        reference = json_incref(full);
        deciding = json_incref(part);
    }
    json_decref(part);
    jobspec_free(s);
    json_decref(full);
    json_decref(root);
    return ok;
}

static bool one_head(void)
{
    struct evidence_tensor t[] = { { "conv.weight", 432, true }, { "bn.running_mean", 16, false } };
    struct evidence_head h = { .tensors = true, .shards = 4, .ntensors = 2, .tensor = t }, *again = NULL;
    struct err err = { 0 };
    char *text = NULL;
    size_t len = 0;
    int rc = evidence_head_text(&h, &text, &len, &err);

    if (rc == 0)
        rc = evidence_head_parse(text, len, &again, &err);
    if (rc == 0)
        assert_true(evidence_head_equal(&h, again));
    else
        assert_true(err.code == rc && err.msg[0] && !again);
    free(again);
    free(text);
    return rc == 0;
}

static bool one_diff(void)
{
    struct evidence_tensor t = { "conv.weight", 432, true };
    struct evidence_head h = { .tensors = true, .shards = 4, .ntensors = 1, .tensor = &t };
    struct evidence_diff d = { .from = 1,
                               .step = 7,
                               .difference = { .part = EVIDENCE_GRADIENT, .located = true, .shard = -1, .ntensors = 1 } };
    json_t *json = evidence_diff_json(&h, &d);
    bool ok = json != NULL;

    if (ok) /* whole, or not at all */
        assert_true(json_is_object(json_object_get(json, "difference")) &&
                    json_object_size(json_array_get(json_object_get(json, "sides"), 1)) == 10);
    json_decref(json);
    return ok;
}

static void evidence(void **state)
{
    (void)state;
    with_each_failing(one_head);
    with_each_failing(one_diff);
}

static void messages(void **state)
{
    (void)state;
    with_each_failing(one_request);
    with_each_failing(one_result);
    with_each_failing(one_error);
    with_each_failing(one_call);
}

static void job_files(void **state)
{
    (void)state;
    assert_true(one_job());
    with_each_failing(one_job);
    json_decref(reference);
    json_decref(deciding);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(messages), cmocka_unit_test(job_files), cmocka_unit_test(evidence) };

    left = -1;
    json_set_alloc_funcs(allocate, free);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

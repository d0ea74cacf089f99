/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/proto/test_rpc.c - uses: proto
 * JSON-RPC messages: accepted requests, the text of each refusal, and error codes both ways. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/err.h"
#include "proto/rpc.h"

static int parse(const char *line, struct rpc_request *req, int *ret_code, struct err *err)
{
    *ret_code = 0;
    return rpc_request_parse(line, strlen(line), req, ret_code, err);
}

static void good_requests(void **state)
{
    struct rpc_request req;
    struct err err;
    int code;

    (void)state;
    assert_int_equal(parse("{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"job.get\",\"params\":{\"id\":1}}", &req, &code, &err), 0);
    assert_int_equal(json_integer_value(req.id), 7);
    assert_string_equal(req.method, "job.get");
    assert_int_equal(json_integer_value(json_object_get(req.params, "id")), 1);
    rpc_request_clear(&req);
    assert_int_equal(parse("{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"daemon.info\"}", &req, &code, &err), 0);
    assert_string_equal(json_string_value(req.id), "a");
    assert_true(json_is_object(req.params));
    rpc_request_clear(&req);
}

static void bad_requests(void **state)
{
    static const struct {
        const char *line;
        int code;
        int has_id;
    } rows[] = {
        { "", RPC_PARSE, 0 },
        { "{", RPC_PARSE, 0 },
        { "{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"method\":\"m\"}", RPC_PARSE, 0 },
        { "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\xff\"}", RPC_PARSE, 0 },
        { "[]", RPC_INVALID, 0 },
        { "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}]", RPC_INVALID, 0 },
        { "12", RPC_INVALID, 0 },
        { "{\"id\":1,\"method\":\"m\"}", RPC_INVALID, 1 },
        { "{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"m\"}", RPC_INVALID, 1 },
        { "{\"jsonrpc\":\"2.0\",\"method\":\"m\"}", RPC_INVALID, 0 },
        { "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"m\"}", RPC_INVALID, 0 },
        { "{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"m\"}", RPC_INVALID, 0 },
        { "{\"jsonrpc\":\"2.0\",\"id\":1}", RPC_INVALID, 1 },
        { "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":5}", RPC_INVALID, 1 },
        { "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"extra\":1}", RPC_INVALID, 1 },
        { "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":[1]}", RPC_BAD_PARAMS, 1 },
        { "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":null}", RPC_BAD_PARAMS, 1 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rpc_request req;
        struct err err = { 0 };
        int code;

        assert_true(parse(rows[i].line, &req, &code, &err) < 0);
        assert_int_equal(code, rows[i].code);
        assert_int_equal(req.id != NULL, rows[i].has_id);
        assert_true(err.msg[0] != '\0');
        rpc_request_clear(&req);
    }
}

/* A request with `count` empty arrays in its params, in `depth` levels of arrays. */
static char *wide_request(int count, int depth)
{
    static const char head[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m[,\\\"[,\",\"params\":{\"a\":";
    char *line = malloc(sizeof head + 2 * (size_t)depth + 3 * (size_t)count + 8), *at;

    assert_non_null(line);
    at = stpcpy(line, head);
    for (int i = 0; i < depth; i++)
        *at++ = '[';
    for (int i = 0; i < count; i++)
        at = stpcpy(at, i ? ",[]" : "[]");
    for (int i = 0; i < depth; i++)
        *at++ = ']';
    strcpy(at, "}}");
    return line;
}

static void only_so_many_values(void **state)
{
    static const struct {
        int count, depth, marks, levels;
        bool good;
    } rows[] = {
        { 1, 1, 12, 4, true },
        { 0, RPC_MAX_DEPTH - 2, 10 + RPC_MAX_DEPTH - 2, RPC_MAX_DEPTH, true },
        { 0, RPC_MAX_DEPTH - 1, 10 + RPC_MAX_DEPTH - 1, RPC_MAX_DEPTH + 1, false },
        { RPC_MAX_MARKS / 2 - 6, 3, RPC_MAX_MARKS, 6, true },
        { RPC_MAX_MARKS / 2 - 6, 4, RPC_MAX_MARKS + 1, 7, false },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *line = wide_request(rows[i].count, rows[i].depth);
        struct rpc_request req;
        struct err err = { 0 };
        int code, depth;

        assert_int_equal(rpc_marks(line, strlen(line), &depth), rows[i].marks);
        assert_int_equal(depth, rows[i].levels);
        assert_int_equal(parse(line, &req, &code, &err), rows[i].good ? 0 : ERR_PROTO);
        assert_int_equal(code, rows[i].good ? 0 : RPC_INVALID);
        assert_int_equal(req.root != NULL, rows[i].good);
        rpc_request_clear(&req);
        free(line);
    }
}

static void replies(void **state)
{
    json_t *id = json_integer(9), *result = NULL;
    struct err err = { 0 }, got = { 0 };
    size_t len;
    long got_id;
    char *line = rpc_result(id, json_pack("{s:i}", "x", 3), &len);

    (void)state;
    assert_int_equal(line[len - 1], '\n');
    assert_int_equal(strlen(line), len);
    assert_int_equal(rpc_reply_parse(line, len, &got_id, &result, &got), 0);
    assert_int_equal(got_id, 9);
    assert_int_equal(json_integer_value(json_object_get(result, "x")), 3);
    json_decref(result);
    free(line);

    err_field(&err, ERR_INPUT, "train.lr", "train.lr: must be > 0, is -1");
    line = rpc_error(id, rpc_code(err.code), &err, &len);
    assert_non_null(strstr(line, "\"data\":{\"field\":\"train.lr\",\"reason\":\"INPUT\"}"));
    assert_int_equal(rpc_reply_parse(line, len, &got_id, &result, &got), ERR_INPUT);
    assert_string_equal(got.field, "train.lr");
    assert_string_equal(got.msg, err.msg);
    free(line);
    json_decref(id);
}

/* File names may be any bytes: the error still goes out. */
static void error_with_odd_bytes(void **state)
{
    struct err err = { 0 };
    json_t *back;
    size_t len;
    char *line;

    (void)state;
    err_set(&err, -ENOENT, "open 'caf\xe9.jpg'");
    line = rpc_error(NULL, rpc_code(err.code), &err, &len);
    assert_non_null(line);
    back = json_loadb(line, len, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(json_object_get(back, "error"), "message")), "open 'caf?.jpg'");
    assert_true(json_is_null(json_object_get(back, "id")));
    json_decref(back);
    free(line);
}

static void codes_round_trip(void **state)
{
    static const int ours[] = {
#define X(name, code, text) code,
        ERR_MAP(X)
#undef X
    };

    (void)state;
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        struct err err = { 0 }, got = { 0 };
        json_t *result = NULL;
        size_t len;
        long id;

        err_set(&err, ours[i], "x");
        char *line = rpc_error(NULL, rpc_code(ours[i]), &err, &len);
        assert_int_equal(rpc_reply_parse(line, len, &id, &result, &got), ours[i]);
        assert_int_equal(id, -1);
        free(line);
    }
    assert_int_equal(rpc_code(-ENOENT), RPC_INTERNAL);
    assert_int_equal(rpc_code(ERR_INPUT), RPC_BAD_PARAMS);
}

static void calls(void **state)
{
    struct rpc_request req;
    struct err err;
    size_t len;
    int code;
    char *line = rpc_call(3, "job.list", json_object(), &len);

    (void)state;
    assert_int_equal(rpc_request_parse(line, len, &req, &code, &err), 0);
    assert_string_equal(req.method, "job.list");
    rpc_request_clear(&req);
    free(line);
}

static void bad_replies(void **state)
{
    static const char *const lines[] = { "", "nonsense", "[]", "{}", "{\"id\":1}", "{\"result\":1}", "{\"id\":1,\"error\":7}" };

    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct err err = { 0 };
        json_t *result = NULL;
        long id;

        assert_int_equal(rpc_reply_parse(lines[i], strlen(lines[i]), &id, &result, &err), ERR_PROTO);
        assert_null(result);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_requests), cmocka_unit_test(bad_requests),         cmocka_unit_test(only_so_many_values),
        cmocka_unit_test(replies),       cmocka_unit_test(error_with_odd_bytes), cmocka_unit_test(codes_round_trip),
        cmocka_unit_test(calls),         cmocka_unit_test(bad_replies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/fuzz/test_rpc.c - uses: proto
 * A line as a request of a client, and as a reply of detd. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/clean.h"
#include "proto/err.h"
#include "proto/rpc.h"
#include "tests/fuzz/fuzz.h"

const char fuzz_name[] = "rpc";
const int fuzz_places = 120;

static void feed(const char *bytes, size_t len)
{
    struct rpc_request req;
    struct err err = { 0 }, told = { 0 };
    json_t *result = NULL, *shown;
    int code = 0, depth, rc = rpc_request_parse(bytes, len, &req, &code, &err);
    long id;

    if (rc == 0) {
        assert_true(req.id && req.method && json_is_object(req.params) && (json_is_integer(req.id) || json_is_string(req.id)));
    } else {
        bool large = rpc_marks(bytes, len, &depth) > RPC_MAX_MARKS || depth > RPC_MAX_DEPTH; /* that is found before */

        assert_int_equal(code == RPC_PARSE, !large && !fuzz_is_json(bytes, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY));
        assert_true(code == RPC_PARSE || code == RPC_INVALID || code == RPC_BAD_PARAMS);
        assert_true(rc == (code == RPC_BAD_PARAMS ? ERR_INPUT : ERR_PROTO) && err.code == rc && err.msg[0]);
    }
    char *line = rc ? rpc_error(req.id, code, &err, NULL) : rpc_result(req.id, json_object(), NULL);
    assert_non_null(line);
    assert_int_equal(rpc_reply_parse(line, strlen(line), &id, &result, &told) == 0, rc == 0 && json_is_integer(req.id));
    shown = clean_string(err.msg);
    if (rc != 0) /* the message arrives, as far as it is UTF-8 */
        assert_string_equal(told.msg, json_string_value(shown));
    json_decref(shown);
    json_decref(result);
    free(line);
    rpc_request_clear(&req);
    result = NULL;
    rc = rpc_reply_parse(bytes, len, &id, &result, &err);
    if (rc == 0)
        assert_non_null(result);
    else
        assert_true(!result && err.code == rc && err.msg[0] && (fuzz_is_json(bytes, len, 0) || rc == ERR_PROTO));
    json_decref(result);
}

void fuzz_one(const uint8_t *bytes, size_t size)
{
    feed((const char *)bytes, size);
}

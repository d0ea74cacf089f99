#include "proto/rpc.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/clean.h"
#include "proto/err.h"
#include "proto/grow.h"

/* ---- writing ---- */

struct text {
    char *data;
    size_t len, cap;
};

static int text_add(const char *bytes, size_t len, void *arg)
{
    struct text *t = arg;

    if (!GROW(t->data, t->cap, t->len + len))
        return -1;
    memcpy(t->data + t->len, bytes, len);
    t->len += len;
    return 0;
}

/* Returns the message as one line, and drops the reference. A message that could not be built (NULL) gives NULL. */
static char *to_line(json_t *msg, size_t *ret_len)
{
    struct text t = { 0 };
    int rc = msg ? json_dump_callback(msg, text_add, &t, JSON_COMPACT) : -1;

    json_decref(msg);
    if (rc < 0 || text_add("\n", 2, &t) < 0) { /* 2 bytes: with the NUL */
        free(t.data);
        return NULL;
    }
    if (ret_len)
        *ret_len = t.len - 1;
    return t.data;
}

static json_t *id_or_null(const json_t *id)
{
    return id ? json_deep_copy(id) : json_null();
}

char *rpc_result(const json_t *id, json_t *result, size_t *ret_len)
{
    return to_line(json_pack("{s:s, s:o, s:o}", "jsonrpc", "2.0", "id", id_or_null(id), "result", result), ret_len);
}

/* Error texts quote file names, which may be any bytes. */
char *rpc_error(const json_t *id, int rpc_code_, const struct err *err, size_t *ret_len)
{
    const char *reason = err_name(err->code);
    json_t *data = json_pack("{s:o, s:s}", "field", clean_string(err->field), "reason", reason ? reason : "SYSTEM");
    json_t *error = json_pack("{s:i, s:o, s:o}", "code", rpc_code_, "message", clean_string(err->msg), "data", data);

    return to_line(json_pack("{s:s, s:o, s:o}", "jsonrpc", "2.0", "id", id_or_null(id), "error", error), ret_len);
}

char *rpc_call(long id, const char *method, json_t *params, size_t *ret_len)
{
    return to_line(json_pack("{s:s, s:I, s:s, s:o}", "jsonrpc", "2.0", "id", (json_int_t)id, "method", method, "params", params), ret_len);
}

/* ---- codes: -32602 for bad input, -32000 - n for our n-th code, -32603 for errors of the system ---- */

enum { RPC_OURS = -32000, ERR_OURS = -20000, ERR_LAST = ERR_UNSUPPORTED };

int rpc_code(int err_code)
{
    if (err_code == ERR_INPUT)
        return RPC_BAD_PARAMS;
    if (err_code <= ERR_OURS && err_code >= ERR_LAST)
        return RPC_OURS + (err_code - ERR_OURS);
    return RPC_INTERNAL;
}

static int err_code_of(json_int_t code)
{
    if (code == RPC_BAD_PARAMS)
        return ERR_INPUT;
    if (code == RPC_NO_METHOD)
        return ERR_UNSUPPORTED;
    if (code == RPC_INTERNAL)
        return -EIO;
    if (code <= RPC_OURS && code >= RPC_OURS + (ERR_LAST - ERR_OURS))
        return ERR_OURS + (int)(code - RPC_OURS);
    return ERR_PROTO;
}

/* ---- reading ---- */

static int request_fail(int *ret_code, int code, struct err *err, const char *text)
{
    *ret_code = code;
    return err_set(err, code == RPC_BAD_PARAMS ? ERR_INPUT : ERR_PROTO, "%s", text);
}

static int check_members(const json_t *root, int *ret_code, struct err *err)
{
    const char *key;
    json_t *value;

    json_object_foreach ((json_t *)root, key, value) {
        if (strcmp(key, "jsonrpc") != 0 && strcmp(key, "id") != 0 && strcmp(key, "method") != 0 && strcmp(key, "params") != 0)
            return request_fail(ret_code, RPC_INVALID, err, "a request has the members jsonrpc, id, method and params only");
    }
    return 0;
}

/* Returns the place behind the closing quote of the string that begins before `at`. */
static size_t skip_string(const char *line, size_t at, size_t len)
{
    while (at < len && line[at] != '"')
        at += line[at] == '\\' ? 2 : 1;
    return at + 1;
}

size_t rpc_marks(const char *line, size_t len, int *ret_depth)
{
    size_t marks = 0, at = 0;
    int depth = 0, deepest = 0;

    while (at < len) {
        char c = line[at++];

        if (c == '"') {
            at = skip_string(line, at, len);
        } else if (c == '[' || c == '{') {
            marks++;
            deepest = ++depth > deepest ? depth : deepest;
        } else if (c == ']' || c == '}') {
            depth--;
        } else if (c == ',' || c == ':') {
            marks++;
        }
    }
    *ret_depth = deepest;
    return marks;
}

static int check_size(const char *line, size_t len, int *ret_code, struct err *err)
{
    int depth;
    size_t marks = rpc_marks(line, len, &depth);

    if (marks <= RPC_MAX_MARKS && depth <= RPC_MAX_DEPTH)
        return 0;
    *ret_code = RPC_INVALID;
    if (depth > RPC_MAX_DEPTH)
        return err_set(err, ERR_PROTO, "a request is nested %d levels deep at most", RPC_MAX_DEPTH);
    return err_set(err, ERR_PROTO, "a request has too many values: at most %d of the characters [ { , : outside strings", RPC_MAX_MARKS);
}

int rpc_request_parse(const char *line, size_t len, struct rpc_request *req, int *ret_code, struct err *err)
{
    json_error_t where;

    memset(req, 0, sizeof *req);
    if (check_size(line, len, ret_code, err) < 0)
        return ERR_PROTO;
    req->root = json_loadb(line, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &where);
    if (!req->root) {
        *ret_code = RPC_PARSE;
        return err_set(err, ERR_PROTO, "not JSON: %s (byte %d)", where.text, where.position);
    }
    if (json_is_array(req->root))
        return request_fail(ret_code, RPC_INVALID, err, "batches are not supported; send one request a line");
    if (!json_is_object(req->root))
        return request_fail(ret_code, RPC_INVALID, err, "a request must be an object");

    json_t *id = json_object_get(req->root, "id");
    if (json_is_integer(id) || json_is_string(id))
        req->id = id;
    const char *version = json_string_value(json_object_get(req->root, "jsonrpc"));
    if (!version || strcmp(version, "2.0") != 0)
        return request_fail(ret_code, RPC_INVALID, err, "jsonrpc must be \"2.0\"");
    if (!req->id)
        return request_fail(ret_code, RPC_INVALID, err, "id must be an integer or a string");
    req->method = json_string_value(json_object_get(req->root, "method"));
    if (!req->method)
        return request_fail(ret_code, RPC_INVALID, err, "method must be a string");
    if (check_members(req->root, ret_code, err) < 0)
        return ERR_PROTO;
    req->params = json_object_get(req->root, "params");
    if (!req->params && json_object_set_new(req->root, "params", json_object()) == 0)
        req->params = json_object_get(req->root, "params");
    if (!json_is_object(req->params))
        return request_fail(ret_code, RPC_BAD_PARAMS, err, "params must be an object");
    return 0;
}

void rpc_request_clear(struct rpc_request *req)
{
    json_decref(req->root);
    memset(req, 0, sizeof *req);
}

static int take_error(const json_t *error, struct err *err)
{
    json_t *message = json_object_get(error, "message"), *data = json_object_get(error, "data");
    const char *field = json_string_value(json_object_get(data, "field")), *text = json_string_value(message);
    int code = err_code_of(json_integer_value(json_object_get(error, "code")));

    return err_field(err, code, field ? field : "", "%s", text && text[0] ? text : "the daemon refused without a reason");
}

int rpc_reply_parse(const char *line, size_t len, long *ret_id, json_t **ret_result, struct err *err)
{
    json_error_t where;
    json_t *root = json_loadb(line, len, 0, &where), *id, *error, *result;
    int rc = 0;

    *ret_id = RPC_NO_REPLY;
    if (!root)
        return err_set(err, ERR_PROTO, "reply is not JSON: %s", where.text);
    id = json_object_get(root, "id");
    error = json_object_get(root, "error");
    result = json_object_get(root, "result");
    if (json_is_integer(id))
        *ret_id = (long)json_integer_value(id);
    else if (json_is_object(error))
        *ret_id = RPC_NO_ID;
    if (json_is_object(error))
        rc = take_error(error, err);
    else if (!json_is_integer(id) || !result)
        rc = err_set(err, ERR_PROTO, "not a reply: neither id with result nor error");
    else
        *ret_result = json_incref(result);
    json_decref(root);
    return rc;
}

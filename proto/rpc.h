/* SPDX-License-Identifier: Apache-2.0 */ /* proto/rpc.h - JSON-RPC 2.0 messages: building, checking, and the mapping of
 * our error codes. No I/O. */
#pragma once
#include <jansson.h>
#include <stddef.h>

struct err;

/* Names of the control socket, and of the one beside it that only root and admins may open. */
#define RPC_SOCKET       "/detd.sock"
#define RPC_ADMIN_SOCKET "/admin.sock"

enum { RPC_MAX_LINE = 1 << 20, RPC_MAX_IN_FLIGHT = 64, RPC_MAX_MARKS = 32 << 10, RPC_MAX_DEPTH = 32 };
enum { RPC_PARSE = -32700, RPC_INVALID = -32600, RPC_NO_METHOD = -32601, RPC_BAD_PARAMS = -32602, RPC_INTERNAL = -32603 };

struct rpc_request {
    json_t *id;         /* integer or string, borrowed from root */
    const char *method; /* borrowed from root */
    json_t *params;     /* object; never NULL */
    json_t *root;       /* owned; rpc_request_clear() drops it */
};

/* Estimates the size of a line as a tree, without making one. Returns the number of marks [ { , : outside strings,
 * which is at least the number of values and names minus one. *ret_depth: how deep they are nested. */
size_t rpc_marks(const char *line, size_t len, int *ret_depth);
/* Parses one line. A line with more than RPC_MAX_MARKS marks or RPC_MAX_DEPTH levels is RPC_INVALID and is not parsed:
 * a mebibyte of [[],[],...] has 350,000 values of 130 bytes. On failure *ret_code is the JSON-RPC error code and err
 * says why; req->id is set when it could be read. A request without an id, or a batch, is RPC_INVALID. The caller must
 * call rpc_request_clear() after a failure too. */
int rpc_request_parse(const char *line, size_t len, struct rpc_request *req, int *ret_code, struct err *err);
void rpc_request_clear(struct rpc_request *req);

/* All return one line ending in '\n' that the caller frees with free(), or NULL (out of memory). They steal result. id
 * NULL: null. */
char *rpc_result(const json_t *id, json_t *result, size_t *ret_len);
char *rpc_error(const json_t *id, int rpc_code, const struct err *err, size_t *ret_len); /* data: {field, reason} */
char *rpc_call(long id, const char *method, json_t *params, size_t *ret_len);            /* params stolen */
/* The JSON-RPC code for an error code: INPUT -> RPC_BAD_PARAMS, our other codes -32000 - n (documented in PROTOCOL.md),
 * codes of the system RPC_INTERNAL. */
int rpc_code(int err_code);
/* Parses a reply line into its result (new reference), or into *err with the server's message and field. Ignores
 * unknown members. *ret_id is RPC_NO_ID in the error of a request whose id could not be read, and RPC_NO_REPLY if the
 * line is not a reply, such as a notification. */
enum { RPC_NO_ID = -1, RPC_NO_REPLY = -2 };
int rpc_reply_parse(const char *line, size_t len, long *ret_id, json_t **ret_result, struct err *err);

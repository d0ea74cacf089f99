/* SPDX-License-Identifier: Apache-2.0 */ /* proto/record.h - checks the messages of ranks (proto/report.h) before they
 * are used. Pure. */
#pragma once
#include <jansson.h>
#include <stdint.h>

struct err;

enum { RECORD_MAX_VALUES = 256, RECORD_MAX_NAME = 63, RECORD_MAX_DEPTH = 32 };
#define RECORD_MAX_COUNT (INT64_MAX / 2) /* detd adds to counts */

enum record_type {
    RECORD_HELLO,
    RECORD_START,
    RECORD_LOSS,
    RECORD_EVAL,
    RECORD_CHECKPOINT,
    RECORD_TIER,
    RECORD_DATA,
    RECORD_IDENTITY,
    RECORD_EVENT,
    RECORD_END,
    RECORD_SHARE, /* of programs, as is what follows */
    RECORD_FINISH,
    RECORD_UNKNOWN
};

/* Parses one line of a rank. Returns 0 if its members have the right types and ranges: *ret_type is its type
 * (RECORD_UNKNOWN: of a later version), *ret_msg the object (new reference). Returns ERR_PROTO otherwise; err names the
 * wrong member. */
int record_parse(const char *text, size_t len, enum record_type *ret_type, json_t **ret_msg, struct err *err);
/* The same for the lines of a program (PROTOCOL.md). */
int record_parse_program(const char *text, size_t len, enum record_type *ret_type, json_t **ret_msg, struct err *err);

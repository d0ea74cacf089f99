/* SPDX-License-Identifier: Apache-2.0 */ /* proto/record.h - checks the messages of ranks (proto/report.h) before anything is built on them. Pure. */
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
    RECORD_UNKNOWN
};

/* One line of a rank. 0: *ret_type is its type (RECORD_UNKNOWN: of a later version) and its members have the right types and ranges,
 * *ret_msg the object (new reference). ERR_PROTO names the member that is wrong. */
int record_parse(const char *text, size_t len, enum record_type *ret_type, json_t **ret_msg, struct err *err);

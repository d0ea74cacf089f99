/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/program/share.h - the message `share` of a rank as a C value.
 * Pure. */
#pragma once
#include <jansson.h>

#include "supervisor/program/rows.h"

/* msg: as record_parse_program() has checked it; the names of the terms are borrowed from it. Returns how many terms
 * were left out, since their names have control characters, quotes or backslashes: escaped in a record they could be
 * longer than detd takes. */
int share_read(const json_t *msg, int rank, struct rows_term terms[ROWS_TERMS], struct rows_share *ret);

/* SPDX-License-Identifier: Apache-2.0 */ /* proto/evidence/evidence_carry.h - the evidence of a run that goes on under other keys, with which its steps so far would have been the same: a job that was given more
 * steps. */
#pragma once
#include <stdint.h>

struct err;
struct evidence_head;

/* Makes the evidence in `dir`, whose head may differ from h in the hash of the keys alone, that of a run with the head h: the records of steps 1 .. last and
 * their details stay, chained from there; later ones go. What has that head already is left alone. Killed at any moment it may be called again; nobody
 * else writes there meanwhile. ERR_INPUT: it is of another run, or a record is missing; -ENOENT: there is none. Then all is as it was. */
int evidence_carry(const char *dir, const struct evidence_head *h, int64_t last, struct err *err);

/* SPDX-License-Identifier: Apache-2.0 */ /* proto/evidence/evidence_carry.h - the evidence of a run that continues with
 * other keys, under which its steps so far would have been the same: a job that was given more steps. */
#pragma once
#include <stdint.h>

struct err;
struct evidence_head;

/* Changes the evidence in `dir` into evidence of a run with the head h. The old head may differ from h only in the hash
 * of the keys. The records of steps 1 .. last and their details stay, and are chained anew; later ones are removed.
 * Evidence that has the head h already stays unchanged. After a kill at any moment the call may be repeated. No other
 * process may write there meanwhile. ERR_INPUT: it is of another run, or a record is missing; -ENOENT: there is no
 * evidence. Both leave everything unchanged. */
int evidence_carry(const char *dir, const struct evidence_head *h, int64_t last, struct err *err);

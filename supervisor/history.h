/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/history.h - the spool of a job as this program finds it, and
 * what its records tell of attempts before. */
#pragma once
#include <stdint.h>

struct err;
struct going;
struct job_options;
struct spool;

/* Opens ./spool.0 and ./spool.1. Those of another database are set aside under other names first. Caller closes *ret,
 * which may be set even after an error. */
int history_open(const struct job_options *o, struct spool **ret, struct err *err);
/* Tells *g all records, also those that are acked and not yet overwritten. */
int history_read(struct spool *s, uint64_t last_seq, struct going *g, struct err *err);

/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/given.h - the folder of a job that runs as its submitter: detd
 * cannot write into it, so what it would put there is given to detd-job. */
#pragma once
#include <stdint.h>

struct err;

/* Makes spec.json of the text in the file fd, with the threads of a rank (0: as it says) and the tier (NULL: likewise)
 * that detd has worked out. last_seq: the last report that detd has; with one there has to be a spool, else
 * -ENODATA. */
int given_take(int fd, int threads, const char *tier, uint64_t last_seq, struct err *err);
/* Removes all that is in the working directory. */
int given_clear(struct err *err);
/* Removes the spool: detd has stored the end of the job. */
void given_drop_spool(void);

/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/program/saved.h - the checkpoints that a program has published:
 * the file `published` in the working directory, the oldest first. A checkpoint is a file or a folder anywhere; those
 * below ./checkpoints may be removed here. */
#pragma once
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct err;

enum { SAVED_MAX = 1100 /* checkpoint.keep, and the best */ };

struct saved_one {
    int64_t step, bytes;
    double changed; /* newest time of a change, Unix seconds */
    double value;   /* of checkpoint.best; NAN: it is no candidate */
    bool best;      /* when it was published */
    char path[PATH_MAX];
};

struct saved {
    int n;
    struct saved_one *all; /* owned */
};

/* Reads the file, which is made if it is missing. A line that cannot be read ends the list. The caller calls
 * saved_close(). */
int saved_open(struct saved *s, struct err *err);
void saved_close(struct saved *s);
/* Fills in bytes and time of what lies at one->path: a file, or a folder with what is in it. File work, for a thread.
 * */
int saved_measure(struct saved_one *one, struct err *err);
/* Forgets the newest ones that are not there any more, with their bytes and time, and writes the file. So the last that
 * stays is the one to go on from. Those that it forgets stay behind s->n until the next change. */
int saved_rewind(struct saved *s, struct err *err);
/* Adds one, in place of others of its step or later, and writes the file durably. */
int saved_add(struct saved *s, const struct saved_one *one, struct err *err);
/* Removes all but the newest `keep` and the best. Only paths below job_dir/checkpoints are removed from the disk; an
 * entry that cannot be removed is forgotten, too. File work, for a thread. */
int saved_prune(struct saved *s, const char *job_dir, int keep, struct err *err);
/* Step of the newest entry of the file `published`, without looking at its path; 0: none, -1: there is no such file. */
int64_t saved_newest(void);
/* Whether `value` is better than that of the best one so far. lower: a lower value is better. */
bool saved_is_best(const struct saved *s, double value, bool lower);

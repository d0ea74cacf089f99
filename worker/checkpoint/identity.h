/* worker/checkpoint/identity.h - what the bits of a run depend on besides the job: program, plugin and image codecs (version and hash of each), device,
 * versions of libraries, the algorithms that were chosen. Kept as identity.json in the job's folder, so that an attempt with another program, on
 * another GPU or with another library is noticed (specs determinism 1.2). All CPUs give the same bits, so of them only the word is kept. Rank 0
 * alone. */
#pragma once
#include <stdint.h>

struct device;
struct err;
struct identity;
struct report;

struct identity_options {
    const char *job_dir, *precision;
    struct device *dev;
    struct report *report; /* what is noticed becomes an event */
};

/* Reads the program's and the libraries' files. Everything in opt is borrowed. Caller closes. */
int identity_open(const struct identity_options *opt, struct identity **ret_identity, struct err *err);
/* NULL is nothing. */
void identity_close(struct identity *id);
/* Before an attempt that goes on after a checkpoint of `step`: an event names what differs from the attempt before. 0: it begins anew. */
int identity_check(const struct identity *id, int64_t step, struct err *err);
/* With a checkpoint: keeps the choices made so far. An event names those that have changed, or why they could not be kept. */
int identity_save(const struct identity *id, struct err *err);

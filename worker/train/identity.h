/* worker/train/identity.h - what the bits of a run depend on besides the job: program, plugin and image codecs (version and hash of each),
 * device, versions of libraries, the algorithms that were chosen. Kept as identity.json in the job's folder, so that an attempt with another
 * program, on another GPU or with another library is noticed (specs determinism 1.2). All CPUs give the same bits, so of them only the word
 * is kept. Rank 0 alone. */
#pragma once

struct err;
struct trainer;

/* At the start: an event names what differs from the attempt before, where this one goes on from a checkpoint of it. */
int identity_check(struct trainer *t, struct err *err);
/* With a checkpoint: keeps the choices made so far. An event names those that have changed, or why they could not be kept. */
int identity_save(struct trainer *t, struct err *err);

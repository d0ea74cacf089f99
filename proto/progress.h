/* SPDX-License-Identifier: Apache-2.0 */ /* proto/progress.h - one page of shared memory per rank: written by the rank,
 * compared by detd-job, so that a hang has a name. */
#pragma once
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define PROGRESS_MAGIC 0x64657464u
enum { PROGRESS_BYTES = 4096, PROGRESS_VERSION = 2 /* of detd-worker */, PROGRESS_VERSION_PROGRAM = 3 };

/* The activity of a rank. No progress for deadline_s inside the phase is a hang (0: never). waited_s is the deadline
 * while other ranks wait for this one in a collective: work on files may keep them waiting, computing may not. The rule
 * of the heartbeat holds in all phases. */
/* clang-format off */
#define PROGRESS_PHASES(X)                     \
    /* ident      name          deadline_s waited_s */ \
    X(STARTING, "starting", 120, 120)          \
    X(WAIT_GO, "wait_go", 0, 0)                \
    X(CHECK_DATA, "check_data", 0, 0)          \
    X(LOAD, "load_checkpoint", 600, 600)       \
    X(DATA, "data", 300, 45)                   \
    X(FORWARD, "forward", 300, 45)             \
    X(BACKWARD, "backward", 300, 45)           \
    X(REDUCE, "reduce", 45, 45)                \
    X(SYNC, "sync_bn", 45, 45)                 \
    X(OPTIMIZER, "optimizer", 120, 45)         \
    X(REPORT_WAIT, "report_wait", 0, 0)        \
    X(VALIDATE, "validate", 600, 600)          \
    X(CHECKPOINT, "checkpoint", 600, 600)      \
    X(ENDING, "ending", 120, 45)               \
    X(PLAN, "plan", 1800, 1800)               \
    X(PROGRAM, "program", 0, 0)
/* clang-format on */
#define X(ident, name, deadline_s, waited_s) PHASE_##ident,
enum progress_phase { PROGRESS_PHASES(X) PHASE_COUNT };
#undef X

/* Collectives have two channels. Each is entered by one thread of a rank and has its own numbers. */
/* clang-format off */
#define PROGRESS_CHANNELS(X) X(GRAD, "grad") X(SYNC, "sync")
/* clang-format on */
#define X(ident, name) CHANNEL_##ident,
enum progress_channel { PROGRESS_CHANNELS(X) CHANNEL_COUNT };
#undef X

enum { PROGRESS_NAME_WORDS = 8 };

/* Only the rank writes the members, with relaxed stores. It bumps `changes` last (release) at every change of step,
 * phase or collective, and with every layer, so that a slow rank that still computes is seen to make progress.
 *
 * detd-job and the trainer may have different versions: an upgrade can come between their files when a job starts, and
 * a trainer may be a foreign program. So a new version only appends members, and a reader uses an appended member only
 * in pages of that version or newer. */
struct progress {
    _Atomic uint32_t magic, version; /* written last at the start; a trainer that leaves the page empty is not watched */
    _Atomic uint64_t heartbeat;      /* bumped every second by its own thread, which does nothing else */
    _Atomic uint64_t changes;
    _Atomic uint64_t step;
    _Atomic uint32_t phase;
    _Atomic uint32_t unused;
    _Atomic uint64_t unused_too;
    _Atomic uint64_t images;                       /* images trained in this attempt, all by this rank */
    _Atomic uint64_t images_total;                 /* images of the job's finished steps (global) */
    _Atomic uint64_t done_in_phase, todo_in_phase; /* e.g. validation shards; done_in_phase counts as progress */
    /* For each channel, the collective that was entered last in this attempt. The upper half is its number, from 1 on.
     * The lower half is a hash of its kind and bytes, on which ranks at the same number must agree. Both are in one
     * word, so that a reader never sees the number of one collective with the hash of another. 0: no collective yet. */
    _Atomic uint64_t collective[CHANNEL_COUNT];
    /* From version 3 on, of programs (PROTOCOL.md). Only detd-job writes `order`. */
    _Atomic uint64_t entered;  /* step for which the rank asks for words */
    _Atomic uint64_t order;    /* word for the ranks: proto/word.h; 0: none */
    _Atomic uint64_t answered; /* copy of the order that the rank has answered with yes */
    _Atomic uint64_t phase_deadline_ms;
    _Atomic uint64_t phase_name[PROGRESS_NAME_WORDS]; /* UTF-8, padded with zeros */
};
_Static_assert(offsetof(struct progress, entered) == 12 * 8 && offsetof(struct progress, phase_name) == 16 * 8, "as in PROTOCOL.md");

const char *progress_phase_name(unsigned phase); /* "?" for a number out of range */
const char *progress_channel_name(enum progress_channel channel);

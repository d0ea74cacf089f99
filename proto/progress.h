/* SPDX-License-Identifier: Apache-2.0 */ /* proto/progress.h - one page of shared memory per rank: written by the rank, compared by detd-job, so that a hang has a name. */
#pragma once
#include <stdatomic.h>
#include <stdint.h>

#define PROGRESS_MAGIC 0x64657464u
enum { PROGRESS_BYTES = 4096, PROGRESS_VERSION = 2 };

/* What a rank is doing. No progress for deadline_s inside the phase is a verdict (0: never); waited_s is the deadline while other
 * ranks wait for this one in a collective: work on files may keep them waiting, computing may not. The heartbeat rule holds in all. */
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
    X(PLAN, "plan", 1800, 1800)
/* clang-format on */
#define X(ident, name, deadline_s, waited_s) PHASE_##ident,
enum progress_phase { PROGRESS_PHASES(X) PHASE_COUNT };
#undef X

/* Collectives have two channels, each entered by one thread of a rank and numbered for itself. */
/* clang-format off */
#define PROGRESS_CHANNELS(X) X(GRAD, "grad") X(SYNC, "sync")
/* clang-format on */
#define X(ident, name) CHANNEL_##ident,
enum progress_channel { PROGRESS_CHANNELS(X) CHANNEL_COUNT };
#undef X

/* All members are written with relaxed stores by the rank alone; `changes` is bumped last (release) at every change of step, phase or collective,
 * and with every layer: a rank that computes, however slowly, gets on.
 *
 * detd-job and the trainer may be of two versions: an upgrade can come between their files when a job starts, and a trainer may be anybody's.
 * So a new version only appends, and what it appended is read of pages of that version on. */
struct progress {
    _Atomic uint32_t magic, version; /* written last at the start; a trainer that leaves the page empty is not watched */
    _Atomic uint64_t heartbeat;      /* bumped every second by a thread of its own that does nothing else */
    _Atomic uint64_t changes;
    _Atomic uint64_t step;
    _Atomic uint32_t phase;
    _Atomic uint32_t unused;
    _Atomic uint64_t unused_too;
    _Atomic uint64_t images;                       /* images trained in this attempt, all by this rank */
    _Atomic uint64_t images_total;                 /* images of the job's finished steps (global) */
    _Atomic uint64_t done_in_phase, todo_in_phase; /* e.g. validation shards; done_in_phase counts as progress */
    /* Of each channel the collective entered last in this attempt: its number, from 1 on, in the upper half, below it a hash of what it is (kind,
     * bytes) on which ranks at the same number must agree. One word, so that nobody sees the number of one with the hash of another; 0: none. */
    _Atomic uint64_t collective[CHANNEL_COUNT];
};

const char *progress_phase_name(unsigned phase); /* "?" for a number out of range */
const char *progress_channel_name(enum progress_channel channel);

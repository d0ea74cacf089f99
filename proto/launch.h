/* SPDX-License-Identifier: Apache-2.0 */ /* proto/launch.h - what detd and detd-launch say to each other, so that jobs of a node run as their submitters.
 *
 * Three parties, each of which trusts the ones above it alone:
 *   detd-launch  root. Knows a key that nobody else knows, and which scopes (cgroups) and detd-jobs are its own. Parses nothing but the fixed messages below;
 *                opens no path but its key, the state folder of detd, the programs beside it, the user database and its own cgroup. Everything that a user may have put somewhere is
 *                opened after its rights were given up, by a child that is the user already.
 *   detd         an unprivileged user. Parses what clients and supervisors send. Decides when a job starts, on which GPUs, with how many threads, and when it
 *                is killed; never as whom, nor what it is.
 *   the job      its submitter, in a scope of its own. Knows its nonce, and nothing of other jobs.
 *
 * Sequenced packets over a Unix socket that belongs to detd (0600, in a folder of root's); each way one struct a packet, of exactly that size. detd-launch asks
 * the kernel who is at the other end, and takes its own --user and root alone; detd takes nobody but root for detd-launch.
 *
 *   SEAL   detd passes the descriptor of the client who submits, with the job's number, the store's name and the hash of the spec that it has stored.
 *          detd-launch asks the kernel who connected by that descriptor. It has to be an accepted end of a stream (its other end has no name, so it is nobody's
 *          listening socket that detd has called), and not root's. The answer is a ticket: those four and the group, sealed with the key.
 *   START  detd shows the ticket, with the job's lock, the spec in a sealed file of memory, whose hash has to be the ticket's, and the locks of its GPUs, which
 *          detd alone may open (gpulock.h); where another daemon has one of them only those before it, and the reason says who: the job is then given back.
 *          What is left of the job's last run is killed first; a new start waits till that has gone. detd-launch makes the job's folder where there is none
 *          (in <state>/jobs, which has to be detd's own, and only if it is new or the user's), puts a child into a scope with limits, makes it the user and executes the
 *          detd-job beside it with arguments that it writes itself: numbers, and texts of a few harmless characters. STARTED says its session; EXITED comes when
 *          it has left and its scope is empty (or its processes did not die within LAUNCH_DIE_S), with the number of the START, and whether nothing of it lives.
 *   CLEAR  with the ticket of a job that was removed, and its lock: as START, but the child only removes what is in the job's folder,
 *          and is killed after LAUNCH_CLEAR_S, whatever is left: its user may stop it, or make files faster.
 *   KILL   with the ticket, kills every process of the job's scope; where there is none, of its session, and those of the user's that hold the job's lock. KILLED
 *          comes at once, and says whether there was none any more, else whom that reached, and names one. Where detd says that the lock is free, none of them
 *          is looked for, and the scope goes as soon as it is empty; else that it is can be told to whoever asks later, till the next START or CLEAR.
 *   REFUSED answers any of them, with a sentence. After a REFUSED START nothing of the job runs.
 *
 * What a ticket is worth: nothing to who cannot speak to detd-launch as detd. To a detd that has been taken over: to run what its owner once submitted, as him, in
 * that job's folder, one at a time, as often as it likes, with other GPUs, threads and outcomes; to kill it, and to empty that folder. It cannot change a byte of the spec (so no path, no
 * variable of the environment and no program), nor the user, nor use the job's number for another. Besides, it gets tickets for specs of its own in the name of
 * whoever connects to its socket meanwhile, root excepted. Tickets do not run out; all become void when the key is removed (/var/lib/detd-launch/key).
 * A stolen nonce lets its thief speak as that job's supervisor only if he is the same user.
 * Who takes the lock, one of a GPU or the connection to detd out of the scope (to a login of his own, say) has them in vain: where detd-launch tells that nothing
 * is left in the scope, detd makes other locks and hangs up.
 * What leaves the scope by way of another service of the node (cron, a login to itself) is not the job's any more, and not killed with it. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum {
    LAUNCH_VERSION = 1,
    LAUNCH_DIE_S = 5,
    LAUNCH_CLEAR_S = 30,
    LAUNCH_SPEC_MAX = 2 << 20,
    LAUNCH_TEXT = 256,
    LAUNCH_GPUS = 1024,
    LAUNCH_GPU_LOCKS = 16,
    LAUNCH_REASON = 256,
    LAUNCH_NAME = 40 /* store, nonce */
};

#define LAUNCH_SOCKET "/run/detd-launch/sock"

struct launch_ticket {
    uint32_t version, uid, gid, unused;
    int64_t job;
    char store[LAUNCH_NAME];
    unsigned char spec[32]; /* SHA-256 */
    unsigned char seal[32]; /* of all before it */
};

enum { LAUNCH_TICKET_HEX = 2 * sizeof(struct launch_ticket) };

enum launch_kind {
    LAUNCH_SEAL = 1,
    LAUNCH_START,
    LAUNCH_KILL,
    LAUNCH_SEALED,
    LAUNCH_STARTED,
    LAUNCH_EXITED,
    LAUNCH_KILLED,
    LAUNCH_REFUSED,
    LAUNCH_CLEAR
};

/* Whom a kill reached, where anything lived. Who was started by an earlier detd-launch without scopes, or below another group, is known by the lock alone. */
enum launch_reach {
    LAUNCH_REACH_UNSAID, /* by a detd-launch of before this was said */
    LAUNCH_REACH_NOBODY,
    LAUNCH_REACH_SCOPE,
    LAUNCH_REACH_SESSION,
    LAUNCH_REACH_HOLDERS /* of the job's lock */
};

/* START: what the supervisor is started for. KILL: whether the job's lock is free. */
enum launch_drain {
    LAUNCH_DRAIN_NONE,      /* START: to run the job; KILL: the lock may be held */
    LAUNCH_DRAIN_CANCELLED, /* START: to read the spool to its end and end the job as cancelled */
    LAUNCH_DRAIN_FAILED,    /* START: the same, and end it as failed */
    LAUNCH_DRAIN_AGAIN,     /* START: to run the job after an end, with which its spool went */
    LAUNCH_DRAINS,
    LAUNCH_KILL_FREE = 1 /* KILL: the job's lock is free */
};

/* detd asks. Descriptors: SEAL the client; START the lock, the spec, the locks of GPUs in their order; CLEAR the lock. Texts end with a zero. */
struct launch_ask {
    uint32_t version, kind;
    int64_t number; /* comes back with each answer; no other detd's, so it begins anywhere */
    struct launch_ticket ticket;
    int32_t attempt, threads, tier;
    int32_t drain; /* enum launch_drain */
    int64_t last_seq, saved, log_max, ran_s;
    char nonce[LAUNCH_NAME];
    char gpus[LAUNCH_GPUS];     /* UUIDs with commas */
    char reason[LAUNCH_REASON]; /* of a drain, or why a lock of a GPU is missing */
};

struct launch_answer {
    uint32_t version, kind;
    int64_t number, job;
    int32_t status, session; /* EXITED: as of a process that detd has started itself; STARTED: session */
    int32_t gone;            /* EXITED, KILLED: 1: nothing lives in its scope, whoever may hold the lock; 0: that is not known */
    int32_t reached;         /* KILLED: enum launch_reach */
    char text[LAUNCH_TEXT];  /* REFUSED: why; EXITED: detd-job's own words; KILLED: a process of those that are killed, "": not known */
    struct launch_ticket ticket;
};

_Static_assert(sizeof(struct launch_ticket) == 4 * 4 + 8 + LAUNCH_NAME + 64, "no byte of a ticket is unsealed or undefined");

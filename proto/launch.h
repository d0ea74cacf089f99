/* SPDX-License-Identifier: Apache-2.0 */ /* proto/launch.h - the messages between detd and detd-launch. With
 * detd-launch, the jobs of a node run as their submitters.
 *
 * There are three parties, and each trusts only those above it:
 *   detd-launch  root. Only it knows the key, and it knows its own scopes (cgroups) and detd-jobs. It parses nothing
 *                but the fixed messages below. It opens only its key, the state folder of detd, the programs beside it,
 *                the user database and its own cgroup. A path that a user may have changed is opened by a child that
 *                has given up its rights and is the user already.
 *   detd         an unprivileged user. Parses the messages of clients and supervisors. Decides when a job starts, on
 *                which GPUs, with how many threads, and when it is killed; never the user that it runs as, nor its
 *                contents.
 *   the job      its submitter, in a scope of its own. Knows its nonce, and nothing of other jobs.
 *
 * The socket is a Unix socket of sequenced packets that belongs to detd (0600, in a folder of root's). Each packet is
 * one struct of exactly that size. detd-launch asks the kernel for the peer's user, and accepts only its own --user and
 * root; detd accepts only root as detd-launch.
 *
 *   SEAL   detd passes the descriptor of the submitting client, with the job's number, the store's name and the hash of
 *          the stored spec. detd-launch asks the kernel for the user that connected by that descriptor. It must be an
 *          accepted end of a stream (its other end has no name, so it is not a foreign listening socket that detd has
 *          called), and not root's. The answer is a ticket: those four, the group, and the name of the user's account
 *          as
 *          detd found it, sealed with the key.
 *   START  detd shows the ticket, with the job's lock, the spec in a sealed file of memory, whose hash must be the
 *          ticket's, and the locks of its GPUs, which only detd may open (gpulock.h). If another daemon has one of the
 *          GPUs, only the locks before it are passed, and the reason names that daemon: the job is then given back.
 *          Remains of the job's last run are killed first; a new start waits until they are gone. detd-launch makes the
 *          job's folder if it is missing (in <state>/jobs, which must be detd's own) and gives it to the user. It puts
 *          a child into a scope with limits. The child refuses an account that is expired or has another name than the
 *          ticket's: so a wrong name of detd's only makes the start fail. It becomes the user, enters the folder, which
 *          must be the user's, and executes the detd-job beside detd-launch. A child that has not done so within
 *          LAUNCH_BEGIN_S is killed, since its user may have mounted a file system that does not answer. detd-launch
 *          writes the arguments itself: numbers, and texts of a few harmless characters. The scope's name holds the
 *          begin of the seal, so a ticket reaches only what it has started. STARTED tells the session.
 *          EXITED comes when detd-job has left and its scope is empty (or its processes did not die within
 *          LAUNCH_DIE_S), with the number of the START, and tells whether anything of it lives.
 *   CLEAR  with the ticket of a removed job, and its lock: like START, but the child only removes the contents of the
 *          job's folder. It is killed after LAUNCH_CLEAR_S in any case, since its user may stop it, or make files
 *          faster.
 *   KILL   with the ticket, kills every process of the job's scope. Without a scope it kills the processes of its
 *          session, and those of the user that hold the job's lock. KILLED comes at once. It tells that no process was
 *          left, or which group of processes was killed, and names one process. If detd says that the lock is free,
 *          detd-launch searches for no holders of it, and removes the scope as soon as it is empty. Otherwise an empty
 *          scope stays until the next START or CLEAR, so that a later KILL gets the same answer.
 *   REFUSED answers any of them, with a sentence. After a REFUSED START nothing of the job runs.
 *
 * A ticket is worthless without detd's right to speak to detd-launch. A detd that an attacker has taken over can use it
 * to run the submitted job again, as its owner, in that job's folder, one run at a time, as often as the attacker
 * likes, with other GPUs, threads and outcomes. It can kill the job, and empty that folder. It cannot change a byte of
 * the spec (so no path, no variable of the environment and no program), nor the user, nor use the job's number for
 * another job. Besides, it gets tickets for its own specs in the name of every user, except root, that connects to its
 * socket meanwhile. Tickets do not expire; all become void when the key is removed (/var/lib/detd-launch/key). A thief
 * of a nonce can speak as that job's supervisor only if the thief is the same user. Processes may carry the lock, a
 * GPU's lock or the connection to detd out of the scope (into a login of the user, say). This is in vain: when
 * detd-launch tells that the scope is empty, detd makes other locks and closes the connection. Processes that leave the
 * scope through another service of the node (cron, a login to itself) no longer belong to the job, and are not killed
 * with it. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum {
    LAUNCH_VERSION = 1,
    LAUNCH_DIE_S = 5,
    LAUNCH_CLEAR_S = 30,
    LAUNCH_BEGIN_S = 30, /* for a child to execute its program */
    LAUNCH_SPEC_MAX = 2 << 20,
    LAUNCH_TEXT = 256,
    LAUNCH_GPUS = 1024,
    LAUNCH_GPU_LOCKS = 16,
    LAUNCH_REASON = 256,
    LAUNCH_NAME = 40, /* store, user, nonce */
    LAUNCH_USER = 32
};

#define LAUNCH_SOCKET "/run/detd-launch/sock"

struct launch_ticket {
    uint32_t version, uid, gid, unused;
    int64_t job;
    char store[LAUNCH_NAME];
    char user[LAUNCH_NAME]; /* its account, as detd named it; at most LAUNCH_USER bytes of the name */
    unsigned char spec[32]; /* SHA-256 */
    unsigned char seal[32]; /* over all bytes before it */
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

/* The processes that a kill reached, if any lived. Processes of an earlier detd-launch without scopes, or below another
 * group, are found by the lock alone. */
enum launch_reach {
    LAUNCH_REACH_UNSAID, /* by an older detd-launch, which does not tell */
    LAUNCH_REACH_NOBODY,
    LAUNCH_REACH_SCOPE,
    LAUNCH_REACH_SESSION,
    LAUNCH_REACH_HOLDERS, /* holders of the job's lock */
    LAUNCH_REACH_DYING    /* those of its scope, and none of them runs its program again, however long it takes to end */
};

/* START: the task of the supervisor. KILL: whether the job's lock is free. */
enum launch_drain {
    LAUNCH_DRAIN_NONE,      /* START: to run the job; KILL: the lock may be held */
    LAUNCH_DRAIN_CANCELLED, /* START: to read the spool to its end and end the job as cancelled */
    LAUNCH_DRAIN_FAILED,    /* START: the same, and end it as failed */
    LAUNCH_DRAIN_AGAIN,     /* START: to run the job after an end that removed its spool */
    LAUNCH_DRAINS,
    LAUNCH_KILL_FREE = 1 /* KILL: the job's lock is free */
};

/* A request of detd. Descriptors: SEAL the client; START the lock, the spec, the locks of GPUs in their order; CLEAR
 * the lock. Texts end with a zero. */
struct launch_ask {
    uint32_t version, kind;
    int64_t number; /* comes back with each answer; unique among the detds, so it begins anywhere */
    struct launch_ticket ticket;
    int32_t attempt, threads, tier;
    int32_t drain;         /* enum launch_drain */
    int32_t slots, unused; /* START: slots of the CPU; the scope gets its share of the CPUs by them */
    int64_t last_seq, saved, log_max, ran_s;
    char nonce[LAUNCH_NAME];
    char gpus[LAUNCH_GPUS];     /* UUIDs with commas */
    char reason[LAUNCH_REASON]; /* of a drain, or why the lock of a GPU is missing */
};

struct launch_answer {
    uint32_t version, kind;
    int64_t number, job;
    int32_t status, session; /* EXITED: as of a child process of detd; STARTED: session */
    int32_t gone;            /* EXITED, KILLED: 1: nothing lives in its scope, even if its lock is held; 0: not known */
    int32_t reached;         /* KILLED: enum launch_reach */
    char text[LAUNCH_TEXT];  /* REFUSED: why; EXITED: detd-job's message; KILLED: one of the killed processes, "": not known */
    struct launch_ticket ticket;
};

_Static_assert(sizeof(struct launch_ticket) == 4 * 4 + 8 + 2 * LAUNCH_NAME + 64, "no byte of a ticket is unsealed or undefined");

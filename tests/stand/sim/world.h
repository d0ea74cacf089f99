/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/sim/world.h - shared declarations of the simulator's files: a
 * node on which only detd's own code is real. A process runs a single seed. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/job/job.h"
#include "daemon/launch/launch.h"
#include "daemon/store/store.h"

enum { WORLD_JOBS = 6, WORLD_SLOTS = 4, WORLD_GPUS = 3, WORLD_STEPS = 12, TERMS = 2, RECORD_TEXT = 400, BYTES_ROOM = 64 << 10 };
#define CLOCK_BEGIN 1.76e9
enum { HOSTILE = 1000 }; /* a user that floods the queue with jobs of the highest priority */

/* ---- world.c: chance, time, words ---- */
uint32_t roll(uint32_t n); /* 0 .. n - 1 */
bool chance(int percent);
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));            /* the trace, with -v */
_Noreturn void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* an invariant does not hold: the seed ends here */

/* The values that a seed chooses before it begins. */
struct plan {
    uint64_t seed;
    int events; /* steps of the world before faults stop */
    bool verbose;
    bool with_gpus;
    bool liars; /* the supervisors of HOSTILE are hostile too */
    int gpus;
    int user_running;   /* of detd.conf; 0: no limit */
    const char *folder; /* of the database */
};

/* A record that a supervisor made durable in its spool. Records up to `acked` may be overwritten, so a detd that lacks
 * them has lost them. */
struct record {
    int64_t seq, step;
    enum { REC_LOSS, REC_EVAL, REC_CHECKPOINT, REC_TIER, REC_EVENT, REC_ATTEMPT, REC_ENDED, REC_END } type;
    bool val;
    int attempt;
    char outcome[16];
    char *text; /* JSON */
};

struct liar;
struct sup;

/* The state of a job that lies outside detd and outlives it. */
struct folder {
    int64_t id; /* 0: not accepted yet */
    char token[16];
    int slot; /* place in the world */
    uint32_t uid;
    /* as submitted */
    bool cuda;
    int time_limit;                                            /* seconds; 0: none */
    int ranks, threads, steps, restarts, save_every, fails_at; /* fails_at: the step at which ranks report a user's error; 0: no step */
    int64_t after;                                             /* job that it waits for; 0: no job */
    bool after_ok;
    /* actions of users */
    bool cancelled, paused;
    int submits;
    bool answered; /* detd has said that it is accepted */
    bool removed;  /* a user wished that */
    int more;      /* steps that a user requested; 0: no request since its last end */
    bool again;    /* a user requested a resume after its failure; 0: no request since its last end */
    bool unread;   /* when it was queued again, reports in its spool were not stored */
    int reopened;  /* times that the store was seen to have queued it again after an end */
    int told;      /* the same count, as known to detd's loop */
    bool failed;   /* it has failed once, even if it ran again */
    /* spool and checkpoints */
    struct record *records;
    int count, cap;
    int64_t acked, saved;
    int noted;           /* enum job_want, in the block of launch_note_want() */
    int cancel_noted_by; /* number of the detd that noted a cancel; 0: none. Its own starts may be on their way by then */
    bool spent;          /* detd has removed the spool; the records are remembered here */
    /* processes */
    enum { LOCK_FREE, LOCK_DETD, LOCK_SUP, LOCK_STRAY } lock;
    int stray_s;  /* a process that a supervisor left behind goes by itself after; -1: only when it is killed */
    int stubborn; /* kills that do nothing, as in state D */
    struct sup *sup;
    struct liar *liar; /* its processes, if its supervisor is hostile */
    char ticket[16];   /* of a job with hostile supervisors; "": it runs as detd's user */
    bool begun;        /* detd-launch has told that it was started */
    bool cleared;      /* of a removed job with a ticket: its user's files are gone */
    int overdue_s;     /* seconds for which detd should have ended these processes */
    bool run_drains;   /* it only sends the remaining reports of a cancelled job */
    int run_threads;   /* granted, while the lock is held by a supervisor or a stray process */
    char run_gpus[JOB_GPUS_MAX * (JOB_UUID_MAX + 1)];
    char nonce[JOB_NONCE_LEN + 1]; /* of the supervisor started last */
    int deaths;                    /* supervisors killed since the newest checkpoint */
    int starts;
    double died, started; /* on the monotonic clock */
    int died_under;       /* number of the detd that had started the dead one; 0: it died otherwise, or made progress */
    double refused;
    int refused_under, refusals;
    int unreadable; /* times in a row that its spool could not be read */
    int mute;       /* times in a row that its supervisor left before it said hello */
    /* contents of the store, as seen */
    bool stored;
    int64_t stored_seq;
    int end;     /* enum job_state; 0: no end */
    bool gone;   /* the store has no such job any more */
    int entries; /* of its folder during its removal; -1: the folder is gone */
};

enum fault {
    FAULT_CRASH,
    FAULT_STOP,
    FAULT_DISK,
    FAULT_TORN,
    FAULT_POWER,
    FAULT_BUSY,
    FAULT_CLOCK,
    FAULT_IMPOSTOR,
    FAULT_KILL,
    FAULT_SILENCE,
    FAULT_STUBBORN,
    FAULT_RANK,
    FAULT_LINK,
    FAULT_GPU,
    FAULT_KINDS
};

/* How often things happen: each seed has its own mixture, as rare sequences need some faults to be frequent and others
 * absent. */
struct rates {
    uint32_t weight[FAULT_KINDS];
    int fault, wish, second; /* percent of the steps */
    int refused, lost;       /* percent of starts, and of reports on their way */
    int unreadable;          /* percent of starts that find a spool */
    int mute;                /* percent of starts: the supervisor leaves before it says hello */
    int memory;              /* percent of detd's actions that run out of memory */
};

struct world {
    struct plan plan;
    struct rates rates;
    double mono, wall_offset, offset_min, offset_max; /* of the wall clock, and how far it has ever been set */
    bool faults;                                      /* they still happen */
    bool disk_full;
    int disk_full_till; /* step */
    int busy_till;      /* step until which another program writes to the database; 0: no other program */
    int steps;
    struct folder jobs[WORLD_JOBS];
    int njobs;
};
extern struct world world;
struct folder *folder_of(int64_t job); /* NULL: no such job */
const char *kind_of(const struct record *r);

/* ---- sim.c ---- */
void power_off(void); /* all processes are gone, and all unsynced writes */

/* ---- loop.c: libuv, threads, connections ---- */
void loop_forget(void); /* detd is dead: so is all that it had */
void loop_post(void (*fn)(void *arg), void *arg);
bool loop_turn(void);    /* one callback; false: no callback waits */
bool pool_step(void);    /* a thread of the pool does one piece of work */
bool threads_step(void); /* a thread of detd's own continues till it waits */
bool links_step(void);   /* bytes arrive at detd, or the end of a connection */
bool links_idle(void);

/* A connection between a supervisor and detd. Both directions are bytes in order; the end may be cut off. */
struct link {
    struct link *next;
    char to_detd[BYTES_ROOM], to_sup[2 * BYTES_ROOM];
    size_t nto_detd, nto_sup;
    bool sup_closed, detd_closed;
    bool accepted;
    uint32_t uid;                  /* of the process that connected; 0: detd's user */
    bool by_liar;                  /* its bytes in to_sup stay queued in detd until they are read */
    char nonce[JOB_NONCE_LEN + 1]; /* of the hello that was sent */
    int64_t job;
    struct wire *wire;
};
/* NULL: there is no listener. */
struct link *link_connect(void);
void link_send(struct link *l, const char *line);
bool link_write(struct link *l, const char *bytes, size_t len); /* false: there is no room */
/* The supervisor's end closes; torn: a part of the bytes on the way is lost. */
void link_drop(struct link *l, bool torn);
/* A line without its newline from detd, static; NULL: no line. */
const char *link_line(struct link *l);

/* ---- disk.c ---- */
void disk_take(void);
void disk_tear(
    bool soon); /* one of the next writes is done by half or one of the next syncs not at all, and no write after it; false: all are done */
bool disk_is_torn(void); /* detd must die before it answers any client */
/* All connections are gone, as with their processes. With `power`, unsynced writes are lost, all or some of them. */
void disk_crash(bool power);

/* ---- memory.c ---- */
void memory_fail(int after);   /* the allocation of this number from now on fails; 0: no allocation fails */
void *must_alloc(size_t size); /* zeroes; never fails */

/* ---- launch.c ---- */
void launch_detd_died(void);
void launch_tick(void);
void gpu_fault(void); /* the driver reports an error of a GPU */
void launch_sup_left(struct folder *f, int detd, int status, const char *why);
void launch_liar_left(struct folder *f, int detd, int status); /* of a job with a ticket */

/* ---- sup.c: detd-job and its ranks ---- */
void sup_start(struct folder *f, const struct launch_request *rq);
void sup_kill(struct folder *f); /* the session is dead */
bool sups_step(void);
void sups_tick(void);
void sup_fault(enum fault what);
void sups_power_off(void);

/* ---- hostile.c: processes in the place of detd-job ---- */
void liar_start(struct folder *f, const struct launch_request *rq);
void liar_kill(struct folder *f); /* all its processes */
bool liars_step(void);
void liars_tick(void);
void liars_power_off(void);
void impostor_come(void);

/* ---- detd.c ---- */
extern int detd_number; /* counts from 1; 0: no detd runs */
void detd_start(void);
void detd_crash(void);
void detd_torn(void);      /* it is killed in the midst of a transaction */
void detd_power_off(void); /* and all processes that run with it */
void detd_stop(void);
void detd_tick(void);
void client_step(void);
void clients_resume(bool enough); /* enough: an admin ends the jobs of the hostile user */
void detd_scope_is_empty(int64_t job, bool exited);
void detd_check_shares(void);
bool detd_job_is_late(int64_t id); /* the job should have left its slots to another one by now */
bool detd_is_idle(void);           /* it holds no slot and no GPU for any job; true: no detd runs */

/* ---- check.c ---- */
void check_open(void);
void check_close(void);
void check_store(void);                  /* after each commit: ends, numbers */
void check_rows(const struct folder *f); /* rows and records, as of the number stored */
void check_welcome(const struct link *l, const char *line);
void check_unread(const struct link *l, const char *line); /* a line behind others that are not read yet */
void check_ack(struct folder *f, int64_t seq);
void check_view(int64_t job, const char *json);
void check_connection(const struct link *l, bool taken);
void check_start(struct folder *f, const struct launch_request *rq);
bool check_done(void); /* every job has ended */
void check_end(void);

#include "daemon/run/ingest.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "daemon/base/bounds.h"
#include "daemon/base/clock.h"
#include "daemon/jobs/event.h"
#include "daemon/jobs/jobs.h"
#include "daemon/job/report.h"
#include "daemon/store/store.h"
#include "daemon/socket/gate.h"
#include "daemon/socket/listener.h"
#include "daemon/socket/wire.h"
#include "proto/err.h"
#include "proto/host/passed.h"
#include "proto/record.h"
#include "proto/report.h"

/* UNREAD_BYTES: messages that a supervisor may leave unread; at its next hello the welcome repeats what it must
 * know. */
enum { OLDEST_PROTOCOL = 1, SUPS_MAX = 4096, REFUSALS_S = 10, AGAIN_S = 3600, GAP_BYTES = 256, UNREAD_BYTES = 64 << 10 };

/* A supervisor's connection. */
struct sup {
    struct ingest *in;
    struct sup *prev, *next;
    struct wire *wire;
    uid_t uid; /* user of its process */
    struct user_share *share;
    struct job *job; /* NULL before hello */
    int64_t acked;   /* the last seq that was acked */
    bool held;       /* not read: see must_wait() */
    bool ack_later;  /* an ack is due once the supervisor has read the earlier messages */
};

struct ingest {
    struct ingest_config c;
    struct listener *listener;
    bool open, bound;
    struct sup *first;
    int count;
    int64_t guest_rows; /* on their way to the disk, of users other than the daemon's and root */
    double refused;     /* when the last event about a refused connection was written; 0: never */
    /* The last rejection of a supervisor before its job was known. It comes again every few seconds as long as it
     * lives. */
    char rejected[200];
    double rejected_at;
};

/* ---- talking ---- */

static void send_json(struct sup *s, json_t *msg)
{
    char *line = json_dumps(msg, JSON_COMPACT);

    if (line && wire_queued(s->wire) < UNREAD_BYTES) {
        wire_send(s->wire, line, strlen(line));
        wire_send(s->wire, "\n", 1);
    } else {
        wire_close(s->wire);
    }
    free(line);
    json_decref(msg);
}

/* Whether this reason was told less than AGAIN_S ago, or another one less than REFUSALS_S ago. If not, notes it as told
 * now. */
static bool is_told_again(struct ingest *in, const char *why)
{
    double ago = in->rejected[0] ? mono_s() - in->rejected_at : AGAIN_S;

    if (ago < (strncmp(in->rejected, why, sizeof in->rejected - 1) == 0 ? AGAIN_S : REFUSALS_S))
        return true;
    snprintf(in->rejected, sizeof in->rejected, "%.199s", why);
    in->rejected_at = mono_s();
    return false;
}

static void reject(struct sup *s, const struct err *err)
{
    if (s->job ? jobs_keep(s->in->c.jobs, s->job, (int64_t)sizeof err->msg, false) : !is_told_again(s->in, err->msg))
        event_add(s->in->c.events, s->job ? s->job->row.id : 0, "error", "supervisor", "%s", err->msg);
    wire_close(s->wire);
}

void ingest_send_word(struct job *j, const char *word, const char *tier)
{
    json_t *msg;

    if (!j->sup || !j->sup->wire)
        return;
    msg = jobs_word(j->sup->in->c.jobs, j, word, tier);
    json_object_set_new(msg, "type", json_string("control"));
    send_json(j->sup, msg);
}

/* At most one ack waits, however often a supervisor that reads nothing asks: it tells the newest number when it is
 * sent. */
static void send_ack(struct sup *s)
{
    char line[64];
    int n = snprintf(line, sizeof line, "{\"type\":\"ack\",\"seq\":%lld}\n", (long long)s->job->committed);

    s->ack_later = wire_queued(s->wire) > 0;
    if (s->ack_later)
        return;
    s->acked = s->job->committed;
    wire_send(s->wire, line, (size_t)n);
}

static void on_drained(struct wire *w)
{
    struct sup *s = wire_owner(w);

    if (s && s->job && s->ack_later)
        send_ack(s);
}

static bool is_ours(uid_t uid)
{
    return uid == geteuid();
}

/* Whether its reports must wait in its socket: its user has enough rows queued, the writer is behind, or its job goes
 * back to a checkpoint. times 2: it waits already, until only half as many rows are queued. */
static bool must_wait(const struct sup *s, int times)
{
    const struct bound_load load = { (int64_t)store_backlog(s->in->c.store) * times, s->in->guest_rows * times, s->share->rows * times };
    const struct job *j = s->job;

    return (j && (j->rewinding || j->attempt_seq > j->committed)) || bound_check(BOUND_QUEUED_ROWS, &load, is_ours(s->uid), NULL) < 0;
}

/* Sends one ack a batch: it stands for everything before it. */
static void send_acks(void *arg)
{
    struct ingest *in = arg;

    for (struct sup *s = in->first; s; s = s->next)
        if (s->job && s->job->committed > s->acked)
            send_ack(s);
    for (struct sup *s = in->first, *next; s; s = next) {
        next = s->next;
        if (s->held && !must_wait(s, 2)) {
            s->held = false;
            wire_hold(s->wire, false);
        }
    }
}

/* ---- listening to one ---- */

static int64_t int_of(const json_t *msg, const char *key, int64_t otherwise)
{
    const json_t *v = json_object_get(msg, key);

    return json_is_integer(v) ? json_integer_value(v) : otherwise;
}

static int check_hello(struct sup *s, const json_t *msg, struct job **ret, struct err *err)
{
    int64_t protocol = int_of(msg, "protocol", 0), id = int_of(msg, "job", 0);
    const char *nonce = json_string_value(json_object_get(msg, "nonce"));
    struct job *j = jobs_find(s->in->c.jobs, id);

    if (protocol < OLDEST_PROTOCOL || protocol > SUP_PROTOCOL)
        return err_set(err, ERR_PROTO, "a supervisor speaks protocol %lld, this detd %d", (long long)protocol, SUP_PROTOCOL);
    if (!j || j->leaving)
        return err_set(err, ERR_NOTFOUND, "unexpected supervisor connection for job %lld", (long long)id);
    if (!nonce || strcmp(nonce, j->row.nonce) != 0 || !j->row.nonce[0])
        return err_set(err, ERR_DENIED, "refused a supervisor of job %lld: its nonce is not that of the last start", (long long)id);
    if (!is_ours(s->uid) && (!j->row.ticket[0] || s->uid != j->row.uid))
        return err_set(err, ERR_DENIED, "a process of uid %u connected as supervisor of job %lld, which belongs to another user", s->uid,
                       (long long)id);
    *ret = j;
    return 0;
}

bool ingest_reads(const struct job *j)
{
    return j->sup && !j->sup->held;
}

void ingest_hang_up(struct job *j)
{
    if (!j->sup)
        return;
    j->sup->job = NULL;
    wire_close(j->sup->wire);
    j->sup = NULL;
    j->says[0] = '\0';
}

/* Reports before `first` exist nowhere any more. Either the older half of a spool was removed, or the database is a
 * copy from before they came and the spool has been written anew since. The job goes on without them. */
static void take_gap(struct sup *s, int64_t first)
{
    struct job *j = s->job;

    if (first <= j->row.last_seq + 1 || first > RECORD_MAX_COUNT)
        return;
    if (jobs_keep(s->in->c.jobs, j, GAP_BYTES, true))
        event_add(s->in->c.events, j->row.id, "error", "reports_lost",
                  "reports %lld to %lld of the job are lost: its spool begins after them", (long long)j->row.last_seq + 1,
                  (long long)first - 1);
    j->row.last_seq = j->committed = first - 1;
    jobs_save(s->in->c.jobs, j);
}

/* A second connection of the same supervisor replaces the first. */
static void on_hello(struct sup *s, const json_t *msg)
{
    struct err err = { 0 };
    struct job *j = NULL;
    int rc = s->job ? err_set(&err, ERR_PROTO, "a second hello") : check_hello(s, msg, &j, &err);

    if (rc < 0 || !j) {
        reject(s, &err);
        return;
    }
    if (j->rewinding || j->reopening) { /* rewinding by an earlier connection: it is early, and comes again */
        life_put_off(&j->life, mono_s());
        wire_close(s->wire);
        return;
    }
    ingest_hang_up(j); /* the supervisor has lost its first one, even if the kernel does not know yet */
    j->sup = s;
    j->heard = NULL;
    s->job = j;
    j->life.beats = json_is_true(json_object_get(msg, "beats"));
    take_gap(s, int_of(msg, "first", 0));
    s->in->c.connected(s->in->c.arg, j);
    send_json(s, json_pack("{s:s, s:I, s:s, s:o}", "type", "welcome", "last_seq", (json_int_t)j->committed, "store_id",
                           store_id(s->in->c.store), "control", jobs_wishes(s->in->c.jobs, j)));
    send_ack(s); /* the last ack may have been lost with the connection */
}

struct pending {
    struct ingest *in;
    struct user_share *share;
    int64_t job, seq;
    int rows;
    bool rewound; /* an attempt after the first one: the newest losses are older ones */
};

static void count_rows(struct ingest *in, struct user_share *share, int rows)
{
    share->rows += rows;
    in->guest_rows += is_ours(share->uid) ? 0 : rows;
}

/* Frees the memory of a record that the writer has. A refused row (a number reported twice) is noted and counts as
 * taken. A row that was never written is not acked. */
static void on_committed(void *arg, int rc, int64_t value, const struct err *err)
{
    struct pending *p = arg;
    struct jobs *jobs = p->in->c.jobs;
    struct job *j = jobs_find(jobs, p->job);

    (void)value;
    (void)err;
    if (j && (rc == 0 || rc == ERR_STATE))
        job_committed(jobs, j, p->seq);
    if (j && rc == 0 && p->rewound)
        jobs_reload_losses(jobs, j);
    count_rows(p->in, p->share, -p->rows);
    free(p);
}

/* Without a ticket its supervisor runs as the daemon's user. */
static struct user_share *share_of(const struct ingest *in, const struct job *j)
{
    return user_shares_of(&in->c.jobs->shares, j->row.ticket[0] ? j->row.uid : geteuid());
}

/* Takes rep. After an error nothing is changed, and the supervisor sends the report again: so a job whose new place in
 * the queue is on the way to the disk does not become one that has ended. */
static int store_record(struct ingest *in, struct job *j, struct report *rep, struct err *err)
{
    const struct ingest_config *c = &in->c;
    struct user_share *share = share_of(in, j);
    struct pending *p = share ? malloc(sizeof *p) : NULL;
    int rc = !p             ? err_set(err, -ENOMEM, "out of memory")
             : j->reopening ? err_set(err, ERR_STATE, "the job is being queued again")
                            : store_reserve(c->store, err);
    bool save;

    if (rc < 0) {
        free(p);
        free(rep);
        return rc;
    }
    *p = (struct pending){ in, share, j->row.id, rep->seq, report_rows(rep), rep->type == REPORT_ATTEMPT && rep->attempt > 1 };
    count_rows(in, share, p->rows);
    if (rep->type == REPORT_ATTEMPT)
        j->attempt_seq = rep->seq;
    rep->reported = j->row.reported;
    if (rep->type == REPORT_EVENT && !rep->dropped)
        event_tell(c->events, j->row.id, rep->kind, rep->label, rep->text, rep->time);
    save = jobs_report(c->jobs, j, rep);
    store_report(c->store, rep, save ? &j->row : NULL, on_committed, p);
    return 0;
}

/* The way of an attempt to the store: rows of later steps are removed piece by piece, each behind the rows that others
 * have queued meanwhile. Only then does the attempt count, in memory and in the store. So after a kill of detd the
 * supervisor sends it again, and all begins anew. A piece counts as so many rows of the user: else a user whose jobs
 * rewind all the time would fill the room of all users. */
struct rewind {
    struct ingest *in;
    struct user_share *share;
    struct report *rep;
    struct store_rewind work;
};

static void on_piece(void *arg, int rc, int64_t value, const struct err *err)
{
    struct rewind *r = arg;
    struct job *j = r->in->open ? jobs_find(r->in->c.jobs, r->work.job) : NULL;
    struct err why;

    (void)value;
    (void)err;
    r->work.at = r->work.next;
    if (j && rc == 0 && r->work.at.table < STORE_REWOUND) {
        store_rewind(r->in->c.store, &r->work, on_piece, r);
        return;
    }
    count_rows(r->in, r->share, -STORE_PIECE_ROWS);
    if (j)
        j->rewinding = false;
    r->rep->removed = r->work.at.removed;
    if (!j || rc < 0)
        free(r->rep);
    else
        rc = store_record(r->in, j, r->rep, &why);
    if (j && rc < 0 && j->sup)
        wire_close(j->sup->wire); /* it comes again, with this attempt */
    free(r);
}

static int begin_rewind(struct sup *s, struct report *rep, struct err *err)
{
    struct user_share *share = share_of(s->in, s->job);
    struct rewind *r = share ? malloc(sizeof *r) : NULL;

    if (!r) {
        free(rep);
        return err_set(err, -ENOMEM, "out of memory");
    }
    *r = (struct rewind){ s->in, share, rep, { .job = rep->job, .step = rep->step } };
    s->job->rewinding = true;
    count_rows(s->in, share, STORE_PIECE_ROWS);
    store_rewind(s->in->c.store, &r->work, on_piece, r);
    return 0;
}

static int take_record(struct sup *s, const json_t *rec, int64_t seq, struct err *err)
{
    struct job *j = s->job;
    struct report *rep;
    struct err why = { 0 };
    double now = now_s();
    int rc = report_parse(rec, j->row.id, seq, now, &rep, &why);

    if (rc == 0 && rep->type == REPORT_ATTEMPT && rep->attempt <= j->attempted) {
        rc = err_set(&why, ERR_PROTO, "attempt %d comes after attempt %d", rep->attempt, j->attempted);
        free(rep);
    }
    if (rc == ERR_PROTO) /* else it comes again for ever, and blocks all that follow */
        rc = report_left_out(why.msg, j->row.id, seq, now, &rep, err);
    else if (rc < 0)
        *err = why;
    if (rc < 0)
        return rc;
    rep->dropped = !jobs_keep(s->in->c.jobs, j, report_bytes(rep), report_is_vital(rep));
    rep->time = rep->time > now ? now : rep->time; /* the time of a supervisor is not believed */
    rep->time = rep->time < j->row.submitted ? j->row.submitted : rep->time;
    life_reported(&j->life);
    return rep->type == REPORT_ATTEMPT && !rep->dropped ? begin_rewind(s, rep, err) : store_record(s->in, j, rep, err);
}

/* seq counts without a gap. A number that came before is a repetition after a reconnect. A gap means that the
 * supervisor and detd do not speak of the same job. */
static void on_report(struct sup *s, const json_t *msg)
{
    int64_t seq = int_of(msg, "seq", 0);
    struct err err = { 0 };

    if (seq <= s->job->row.last_seq) {
        send_ack(s); /* tells again how far it is */
        return;
    }
    if (seq != s->job->row.last_seq + 1)
        err_set(&err, ERR_PROTO, "job %lld: report %lld came after %lld", (long long)s->job->row.id, (long long)seq,
                (long long)s->job->row.last_seq);
    else
        take_record(s, json_object_get(msg, "rec"), seq, &err);
    if (err.code < 0) {
        err_prefix(&err, "job %lld, report %lld", (long long)s->job->row.id, (long long)seq);
        reject(s, &err);
    }
}

static void on_status(struct sup *s, const json_t *msg)
{
    struct job *j = s->job;
    const char *phase = json_string_value(json_object_get(msg, "phase")), *trouble = json_string_value(json_object_get(msg, "trouble"));
    const json_t *rate = json_object_get(msg, "images_per_s"), *cpu = json_object_get(msg, "cpu_seconds");
    const json_t *seconds = json_object_get(msg, "seconds");
    int64_t rss = int_of(msg, "max_rss", 0), step = int_of(msg, "step", 0);

    if (!job_is_live(j->row.state))
        return;
    if (phase)
        snprintf(j->phase, sizeof j->phase, "%s", phase);
    snprintf(j->says, sizeof j->says, "%s", trouble ? trouble : "");
    if (json_is_number(rate))
        j->row.images_per_s = json_number_value(rate);
    if (json_is_number(cpu) && j->counts &&
        int_of(msg, "attempt", 0) == j->row.attempt) /* else it belongs to attempts that are not stored yet */
        jobs_computed(j, json_number_value(cpu));
    if (json_is_number(seconds) && j->counts)
        jobs_ran(j, json_number_value(seconds));
    if (rss > j->row.max_rss)
        j->row.max_rss = rss;
    j->rss = int_of(msg, "rss", 0);
    j->heard = s;
    j->pausable = json_is_true(json_object_get(msg, "pausable"));
    if (step > j->row.step && (step <= j->row.steps || (j->row.kind == JOB_RUNS && j->row.steps == 0)))
        j->row.step = step;
    job_changed(s->in->c.jobs, j);
}

static void on_line(struct wire *w, const char *line, size_t len)
{
    struct sup *s = wire_owner(w);
    json_error_t where;
    json_t *msg = json_loadb(line, len, JSON_REJECT_DUPLICATES, &where);
    const char *type = json_string_value(json_object_get(msg, "type"));
    struct err err;

    if (s->job)
        s->job->life.silent_s = 0;
    if (!type) {
        err_set(&err, ERR_PROTO, "supervisor: %s", msg ? "a line without a type" : where.text);
        reject(s, &err);
    } else if (strcmp(type, "hello") == 0) {
        on_hello(s, msg);
    } else if (!s->job) {
        err_set(&err, ERR_PROTO, "supervisor: '%.40s' before hello", type);
        reject(s, &err);
    } else if (strcmp(type, "report") == 0) {
        on_report(s, msg);
    } else if (strcmp(type, "status") == 0) {
        on_status(s, msg);
    }
    json_decref(msg);
    if (!s->held && must_wait(s, 1)) {
        s->held = true;
        wire_hold(w, true);
    }
}

static void on_broken(struct wire *w, const struct err *err)
{
    reject(wire_owner(w), err);
}

static void on_closed(struct wire *w)
{
    struct sup *s = wire_owner(w);
    struct job *j;

    if (!s)
        return;
    j = s->job;
    if (s->prev)
        s->prev->next = s->next;
    else
        s->in->first = s->next;
    if (s->next)
        s->next->prev = s->prev;
    s->in->count--;
    if (j && j->sup == s) {
        j->sup = NULL;
        j->says[0] = '\0';
    }
    if (j && !j->sup && s->in->open)
        s->in->c.gone(s->in->c.arg, j);
    free(s);
}

static const struct wire_events events = { on_line, on_broken, NULL, on_drained, on_closed };

/* Other users may connect only while they have jobs that run. Each job allows two connections: the one in use, and a
 * lost one that the kernel still holds. */
static bool may_come(const struct ingest *in, uid_t uid)
{
    int jobs = 0, open = 0;

    if (is_ours(uid) || !in->c.others)
        return is_ours(uid);
    for (int i = 0; i < in->c.jobs->count; i++) {
        const struct job *j = in->c.jobs->all[i];

        jobs += j->row.uid == uid && j->row.ticket[0] && j->life.phase != LIFE_IDLE;
    }
    for (const struct sup *s = in->first; s; s = s->next)
        open += s->uid == uid;
    return open < 2 * jobs;
}

/* Writes at most one event in REFUSALS_S, however many connections are refused. */
static void tell_refusal(struct ingest *in, const char *why)
{
    if (in->refused != 0 && mono_s() - in->refused < REFUSALS_S)
        return;
    in->refused = mono_s();
    event_add(in->c.events, 0, "warning", "supervisor", "refused a connection to sup.sock: %s", why);
}

static void on_connection(void *arg, int fd, uid_t uid)
{
    struct ingest *in = arg;
    struct err err = { 0 };
    struct sup *s = NULL;
    struct wire *w = NULL;

    if (!may_come(in, uid))
        err_set(&err, ERR_DENIED, "%s",
                in->c.others ? "its process belongs to a user without a running job, or connects too often"
                             : "its process belongs to another user");
    else if (in->count >= SUPS_MAX)
        err_set(&err, ERR_STATE, "too many connections are open");
    else if (!(s = calloc(1, sizeof *s)) || !(s->share = user_shares_of(&in->c.jobs->shares, uid)))
        err_set(&err, -ENOMEM, "out of memory");
    if (!s || err.code)
        passed_close(fd);
    else
        w = wire_accept(in->c.wires, fd, SUP_MAX_LINE, &events, &err);
    if (!w) {
        tell_refusal(in, err.msg);
        free(s);
        return;
    }
    s->in = in;
    s->wire = w;
    s->uid = uid;
    s->next = in->first;
    if (s->next)
        s->next->prev = s;
    in->first = s;
    in->count++;
    wire_set_owner(w, s);
    if (is_ours(uid))
        wire_trust(w);
    else
        wire_set_guest(w, uid);
}

static void on_failed(void *arg, const char *why)
{
    tell_refusal(arg, why);
}

/* ---- life ---- */

int ingest_open(const struct ingest_config *config, struct ingest **ret, struct err *err)
{
    static const struct listener_events listening = { on_connection, on_failed };
    const struct gate gate = { "sup.sock", !config->others, config->others, (gid_t)-1 };
    struct ingest *in = calloc(1, sizeof *in);
    int rc;

    if (!in)
        return err_set(err, -ENOMEM, "out of memory");
    in->c = *config;
    in->open = true;
    *ret = in;          /* from here on the caller closes it */
    unlink("sup.sock"); /* the state folder is locked, so the maker of this file is gone */
    rc = gate_bind(&gate, &in->bound, err);
    if (rc >= 0)
        rc = listener_open(config->loop, rc, SUPS_MAX, &config->jobs->shares, &listening, in, &in->listener, err);
    store_on_batch(config->store, send_acks, in);
    if (rc < 0)
        err_prefix(err, "in '%s'", config->state);
    return rc < 0 ? rc : 0;
}

void ingest_close(struct ingest *in)
{
    if (!in || !in->open)
        return;
    in->open = false;
    if (in->bound)
        unlink("sup.sock");
    listener_close(in->listener);
    for (struct sup *s = in->first, *next; s; s = next) {
        next = s->next;
        wire_close(s->wire);
    }
}

void ingest_free(struct ingest *in)
{
    free(in);
}

#include "supervisor/speech.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <jansson.h>
#include <math.h>
#include <linux/membarrier.h>
#include <signal.h>
#include <stdatomic.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/progress.h"
#include "proto/record.h"
#include "proto/report.h"
#include "proto/word.h"
#include "supervisor/attempt.h"
#include "supervisor/going.h"
#include "supervisor/needs.h"
#include "supervisor/publish.h"
#include "supervisor/program/rows.h"
#include "supervisor/ranks/log.h"
#include "supervisor/ranks/program.h"
#include "supervisor/ranks/ranks.h"
#include "supervisor/ranks/watch.h"
#include "supervisor/records.h"

enum {
    MARGIN = 1024, /* bytes of a record beside its metrics */
    FENCE_US = 20000,
    WORD_ACCESSES = 1 << 16 /* to pages, for a word: ranks that go on may take it further */
};

static const char *string_of(const json_t *msg, const char *key)
{
    const char *s = json_string_value(json_object_get(msg, key));

    return s ? s : "";
}

/* ---- rows on their way to the spool ---- */

static void on_event(void *arg, const char *kind, const char *text)
{
    const struct speech *s = arg;

    records_event(s->records, -1, "warning", kind, text, NULL);
}

/* Images a second since the row before. */
static double rate(struct speech *s, const struct rows_row *row, double now)
{
    double span = now - s->row_time, ret = s->row_time > 0 && span > 0 && row->images > 0 ? row->images / span : 0;

    s->row_time = row->val ? s->row_time : now;
    return row->val ? 0 : ret;
}

static void put_terms(struct line *l, const struct rows_row *row)
{
    bool bad = false;

    line_open(l, "terms", '{');
    for (int i = 0; i < row->n; i++) {
        line_open(l, row->terms[i].name, '[');
        line_real(l, NULL, row->terms[i].num);
        line_real(l, NULL, row->terms[i].den);
        line_close(l, ']');
        bad = bad || !isfinite(row->terms[i].num) || !isfinite(row->terms[i].den);
    }
    line_close(l, '}');
    if (!bad)
        return;
    line_open(l, "nonfinite", '[');
    for (int i = 0; i < row->n; i++)
        if (!isfinite(row->terms[i].num) || !isfinite(row->terms[i].den))
            line_str(l, NULL, row->terms[i].name);
    line_close(l, ']');
}

/* A validation may make the next checkpoint the best: by its loss, or by the term that checkpoint.best names. */
static void note_validation(const struct speech *s, const struct rows_row *row)
{
    const char *best = s->needs->spec->checkpoint_best;
    struct publish *p = s->publish;

    for (int i = 0; i < row->n; i++) {
        double value = row->terms[i].num / row->terms[i].den;

        if (strcmp(row->terms[i].name, "total") == 0) {
            p->val_loss = value;
            p->val_step = row->step;
        }
        if (strcmp(row->terms[i].name, strcmp(best, "loss") == 0 ? "total" : best) == 0)
            p->score = (struct publish_score){ row->step, value, true };
    }
}

static void on_row(void *arg, const struct rows_row *row)
{
    struct speech *s = arg;
    struct line *l = records_begin(s->records, "loss");
    double now = job_time(), images_per_s = rate(s, row, now);

    line_str(l, "split", row->val ? "val" : "train");
    line_int(l, "step", row->step);
    if (isfinite(row->epoch))
        line_real(l, "epoch", row->epoch);
    line_str(l, "tier", s->tier);
    line_real(l, "time", now);
    if (images_per_s > 0)
        line_real(l, "images_per_s", images_per_s);
    put_terms(l, row);
    records_add(s->records, NULL);
    if (row->val)
        note_validation(s, row);
}

/* ---- the messages ---- */

static unsigned words_of(const json_t *array)
{
    static const char *const names[] = {
#define X(ident, number, name) [number] = name,
        WORDS(X)
#undef X
    };
    unsigned ret = 0;
    json_t *v;
    size_t i;

    json_array_foreach (array, i, v) {
        for (int w = WORD_CHECKPOINT; w < WORD_END; w++)
            if (strcmp(names[w], json_string_value(v)) == 0)
                ret |= 1u << w;
    }
    return ret;
}

/* A stack is no reason to kill: signals that cannot be handled are no signals for stacks. */
static int stacks_of(const json_t *msg)
{
    json_int_t n = json_integer_value(json_object_get(msg, "stacks"));

    return n > 0 && n < NSIG && n != SIGKILL && n != SIGSTOP ? (int)n : 0;
}

static void answer(const struct speech *s, int rank)
{
    const struct program *p = s->needs->program;
    char text[PATH_MAX + 256];
    struct line l;

    line_begin(&l, text, sizeof text, "go");
    line_int(&l, "attempt", s->going->attempt);
    line_int(&l, "resume_step", p->resume_step);
    line_str(&l, "checkpoint", p->resume[0] ? p->resume : NULL);
    ranks_say(s->attempt->ranks, rank, &l);
}

static void take_hello(struct speech *s, int rank, const json_t *msg)
{
    struct speech_rank *r = &s->rank[rank];
    const char *tier = string_of(msg, "tier");

    r->words = words_of(json_object_get(msg, "words"));
    r->stacks = stacks_of(msg);
    r->pid = (pid_t)json_integer_value(json_object_get(msg, "pid"));
    if (tier[0] && rank == 0)
        snprintf(s->tier, sizeof s->tier, "%s", tier);
    job_log("attempt %d: rank %d says hello%s%s", s->going->attempt, rank, string_of(msg, "device")[0] ? ", on " : "",
            string_of(msg, "device"));
    answer(s, rank);
}

static void take_share(struct speech *s, int rank, const json_t *msg)
{
    int unfit = rows_take(s->rows, rank, msg);
    long long step = json_integer_value(json_object_get(msg, "step"));
    char why[200];

    s->reported = true;
    snprintf(why, sizeof why,
             "%d terms of the share of step %lld: a share has at most %d, and names without control characters, quotes and "
             "backslashes",
             unfit, step, ROWS_TERMS);
    if (unfit < 0)
        job_log("rank %d: out of memory: its share of step %lld is lost", rank, step);
    else if (unfit > 0)
        speech_left_out(s, rank, why);
}

static void take_finish(struct speech *s, int rank, const json_t *msg)
{
    (void)msg;
    s->rank[rank].finished = true;
    rows_done(s->rows, rank);
}

/* Metrics are better when they are higher. */
static void note_metric(const struct speech *s, const json_t *metric, int64_t step)
{
    if (json_is_number(metric))
        s->publish->score = (struct publish_score){ step, json_number_value(metric), false };
}

static void take_checkpoint(struct speech *s, int rank, const json_t *msg)
{
    publish_take(s->publish, rank, json_integer_value(json_object_get(msg, "step")), string_of(msg, "path"));
}

static void take_eval(struct speech *s, int rank, const json_t *msg)
{
    char *metrics = rank == 0 ? json_dumps(json_object_get(msg, "metrics"), JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    struct line *l;

    if (!metrics || strlen(metrics) > REPORT_MAX_LINE - MARGIN) {
        speech_left_out(s, rank, rank == 0 ? "eval: its metrics are too long" : "eval: only rank 0 may say that");
        free(metrics);
        return;
    }
    note_metric(s, json_object_get(json_object_get(msg, "metrics"), s->needs->spec->checkpoint_best),
                json_integer_value(json_object_get(msg, "step")));
    l = records_begin(s->records, "eval");
    line_int(l, "step", json_integer_value(json_object_get(msg, "step")));
    line_real(l, "time", job_time());
    line_json(l, "metrics", metrics);
    records_add(s->records, NULL);
    free(metrics);
}

static void take_event(struct speech *s, int rank, const json_t *msg)
{
    if (++s->rank[rank].events < SPEECH_EVENTS)
        records_event(s->records, rank, string_of(msg, "level"), string_of(msg, "kind"), string_of(msg, "text"), NULL);
    else if (s->rank[rank].events == SPEECH_EVENTS)
        records_warn(s->records, rank, "events", "further events of rank %d in this attempt are not stored", rank);
}

static void (*const takers[RECORD_UNKNOWN])(struct speech *s, int rank, const json_t *msg) = {
    [RECORD_HELLO] = take_hello, [RECORD_SHARE] = take_share, [RECORD_FINISH] = take_finish,
    [RECORD_EVAL] = take_eval,   [RECORD_EVENT] = take_event, [RECORD_CHECKPOINT] = take_checkpoint,
};

void speech_left_out(struct speech *s, int rank, const char *why)
{
    if (s->rank[rank].left_out++ == 0)
        records_warn(s->records, rank, "line", "a line of rank %d on descriptor 3 is left out: %.250s; further ones are counted", rank,
                     why);
}

void speech_take(struct speech *s, int rank, const char *text, size_t len)
{
    struct err err = { 0 };
    enum record_type type;
    json_t *msg = NULL;

    if (!s->rows)
        return;
    s->rank[rank].lines++;
    if (record_parse_program(text, len, &type, &msg, &err) < 0) {
        speech_left_out(s, rank, err.msg);
    } else if (type == RECORD_UNKNOWN || !takers[type]) {
        snprintf(err.msg, sizeof err.msg, "there is no message '%.40s'", string_of(msg, "type"));
        speech_left_out(s, rank, err.msg);
    } else if (s->rank[rank].finished && type == RECORD_SHARE) {
        speech_left_out(s, rank, "share: came after finish");
    } else {
        takers[type](s, rank, msg);
    }
    json_decref(msg);
}

/* ---- the life of an attempt ---- */

void speech_begin(struct speech *s)
{
    const struct rows_hooks hooks = { on_row, on_event, s };
    const struct program *p = s->needs->program;
    struct err err;

    memset(s->rank, 0, sizeof s->rank);
    snprintf(s->tier, sizeof s->tier, "off");
    s->reported = s->given = false;
    s->row_time = 0;
    silence_begin(&s->silence, s->attempt->nranks, s->needs->spec->program_silent_after);
    s->rows = rows_new(s->attempt->nranks, p->resume_step, &hooks);
    if (!s->rows) {
        err_set(&err, -ENOMEM, "out of memory");
        s->records->fatal(s->records->arg, &err);
        return;
    }
    records_attempt(s->records, s->attempt->nranks, p->resume_step, s->needs->spec->program_gpus > 0 ? "cuda" : "cpu");
    job_log("attempt %d starts after step %lld, MASTER_PORT %d", s->going->attempt, (long long)p->resume_step, p->port.number);
}

void speech_gone(struct speech *s, int rank, int status)
{
    if (!s->rows)
        return;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        rows_left(s->rows, rank);
    else if (!s->rank[rank].finished)
        rows_failed(s->rows, rank);
}

void speech_end(struct speech *s)
{
    if (!s->rows)
        return;
    for (int i = 0; i < s->attempt->nranks; i++)
        if (s->rank[i].left_out > 1)
            records_warn(s->records, i, "line", "%llu lines of rank %d on descriptor 3 were left out",
                         (unsigned long long)s->rank[i].left_out, i);
    rows_end(s->rows);
    rows_free(s->rows);
    s->rows = NULL;
}

/* ---- whether they hang ---- */

static bool is_asking(const struct speech *s, int rank)
{
    return !s->attempt->rank[rank].gone && !s->rank[rank].finished && ranks_pid(s->attempt->ranks, rank) != 0;
}

static uint64_t log_bytes(int rank)
{
    struct stat st;
    char path[64];

    snprintf(path, sizeof path, "log/rank-%d.log", rank);
    return lstat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

void speech_look(const struct speech *s, int rank, struct silence_page *ret)
{
    uint64_t said = s->rows ? (uint64_t)rows_step(s->rows, rank) : 0;

    silence_read(ranks_page(s->attempt->ranks, rank), ret);
    ret->step = said > ret->step ? said : ret->step;
    ret->lines = s->rank[rank].lines;
    ret->output = log_bytes(rank);
    ret->held = ranks_is_held(s->attempt->ranks, rank);
    ret->gone = !is_asking(s, rank);
}

bool speech_hangs(struct speech *s, double now_s, struct watch_verdict *ret)
{
    struct silence_page pages[JOB_MAX_RANKS];

    if (!s->attempt->ranks || !s->rows)
        return false;
    for (int i = 0; i < s->attempt->nranks; i++)
        speech_look(s, i, &pages[i]);
    silence_look(&s->silence, pages, now_s, ret);
    return ret->rank >= 0;
}

/* The process that dumps the rank's stacks; 0: none. It must be one of this job. */
static pid_t tracer(const struct speech *s, int rank)
{
    const struct speech_rank *r = &s->rank[rank];
    pid_t pid = r->pid > 0 ? r->pid : ranks_pid(s->attempt->ranks, rank);

    return r->stacks && is_asking(s, rank) && getsid(pid) == getsid(0) ? pid : 0;
}

bool speech_dump_stacks(const struct speech *s)
{
    bool any = false;

    for (int i = 0; i < s->attempt->nranks; i++)
        if (tracer(s, i))
            any = kill(tracer(s, i), s->rank[i].stacks) == 0 || any;
    return any;
}

/* ---- words ---- */

bool speech_knows(const struct speech *s, unsigned words)
{
    for (int i = 0; i < s->attempt->nranks; i++)
        if ((s->rank[i].words & words) != words)
            return false;
    return true;
}

static int64_t get_entered(void *arg, int rank)
{
    const struct speech *s = arg;

    return (int64_t)(atomic_load(&ranks_page(s->attempt->ranks, rank)->entered) & INT64_MAX);
}

static void put_order(void *arg, int rank, uint64_t order)
{
    const struct speech *s = arg;

    atomic_store(&ranks_page(s->attempt->ranks, rank)->order, order);
}

/* Where the kernel offers no barrier, any processor has let its stores through after so long. */
static void fence(void *arg)
{
    (void)arg;
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) < 0)
        usleep(FENCE_US);
}

bool speech_give(struct speech *s, enum word word)
{
    const struct words_memory memory = { get_entered, put_order, fence, s };
    int n = 0;

    s->words.nranks = s->attempt->nranks;
    s->words.left_out = 0;
    for (int i = 0; i < s->attempt->nranks; i++) {
        if (!is_asking(s, i))
            s->words.left_out |= UINT64_C(1) << i;
        else if (!(s->rank[i].words & 1u << word))
            return false;
        n += is_asking(s, i);
    }
    if (n == 0)
        return false;
    words_begin(&s->words, word);
    for (int i = 0; i < WORD_ACCESSES && words_next(&s->words, &memory); i++)
        continue;
    s->given = true;
    job_log("word %d passed to the ranks, for step %lld", (int)word, (long long)word_step(s->words.order));
    return true;
}

bool speech_has_answer(const struct speech *s, bool any)
{
    int yes = 0, asked = 0;

    for (int i = 0; s->given && i < s->attempt->nranks; i++) {
        bool has = atomic_load(&ranks_page(s->attempt->ranks, i)->answered) == s->words.order;

        yes += has;
        asked += is_asking(s, i) && !has && !(s->words.left_out >> i & 1);
    }
    return any ? yes > 0 : asked == 0;
}

/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/status.c - once a second: who hangs, and what detd shows of a running job. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "supervisor/job_impl.h"

enum { BEAT_LOOKS = 10 }; /* one in so many is sent though nothing has changed: a sign of life */

void job_usage(const struct job *j, struct ranks_usage *ret)
{
    struct ranks_usage now = { 0 };

    if (j->ranks)
        ranks_usage(j->ranks, &now);
    ret->cpu_seconds = j->usage.cpu_seconds + now.cpu_seconds;
    ret->max_rss = now.max_rss > j->usage.max_rss ? now.max_rss : j->usage.max_rss;
    ret->rss = now.rss;
}

static void hang(struct job *j, const struct watch_verdict *v)
{
    struct line l;

    j->hung = true;
    job_log("%s", v->text);
    line_begin(&l, j->record, sizeof j->record, "event");
    line_str(&l, "level", "error");
    line_str(&l, "kind", v->kind);
    line_str(&l, "text", v->text);
    line_real(&l, "time", job_time());
    line_int(&l, "rank", v->rank);
    line_int(&l, "attempt", j->attempt);
    line_str(&l, "phase", progress_phase_name(v->phase));
    line_int(&l, "step", (int64_t)v->step);
    job_append(j, &l, NULL);
    job_tell_command(j, "hang", "", v->text);
    job_stop_ranks(j, 0, v->text);
}

static void look(struct job *j, const struct watch_page *pages)
{
    struct watch_verdict v;

    watch_look(j->watch, pages, (double)uv_now(j->loop) / 1000, &v);
    if (v.rank >= 0)
        hang(j, &v);
}

/* Images a second of the whole job, over the last looks. */
static double rate(struct job *j)
{
    struct job_rate *r = &j->rate;
    int at = r->looks % JOB_RATE_LOOKS, oldest = r->looks < JOB_RATE_LOOKS ? 0 : (at + 1) % JOB_RATE_LOOKS;
    double span;

    r->images[at] = atomic_load_explicit(&ranks_page(j->ranks, 0)->images_total, memory_order_relaxed);
    if (r->images[at] == 0) /* no step yet; after a resume the count jumps to that of the checkpoint, which is no speed */
        return 0;
    r->time_s[at] = (double)uv_now(j->loop) / 1000;
    r->looks++;
    span = r->time_s[at] - r->time_s[oldest];
    return span > 0 && r->images[at] >= r->images[oldest] ? (double)(r->images[at] - r->images[oldest]) / span : 0;
}

static void put_ranks(struct job *j, struct line *l)
{
    line_open(l, "ranks", '[');
    for (int i = 0; i < j->nranks; i++) {
        struct watch_page p;

        watch_read(ranks_page(j->ranks, i), &p);
        line_open(l, NULL, '{');
        line_int(l, "rank", i);
        line_str(l, "phase", progress_phase_name(p.phase));
        line_int(l, "step", (int64_t)(p.step & INT64_MAX));
        line_int(l, "pid", ranks_pid(j->ranks, i));
        line_close(l, '}');
    }
    line_close(l, ']');
}

void job_send_status(struct job *j)
{
    struct ranks_usage u;
    struct watch_page p = { 0 };
    char text[sizeof j->status];
    struct err err;
    struct line l;
    size_t said;

    if (j->ranks)
        watch_read(ranks_page(j->ranks, 0), &p);
    job_usage(j, &u);
    line_begin(&l, text, sizeof text, "status");
    line_int(&l, "attempt", j->attempt);
    line_int(&l, "step", (int64_t)(p.step & INT64_MAX));
    line_str(&l, "phase", j->ranks ? progress_phase_name(p.phase) : "backoff");
    line_real(&l, "images_per_s", j->ranks ? rate(j) : 0);
    line_real(&l, "cpu_seconds", u.cpu_seconds);
    line_int(&l, "max_rss", u.max_rss);
    line_int(&l, "rss", u.rss);
    if (j->trouble[0] || j->no_room[0] || j->waits[0])
        line_text(&l, "trouble", j->trouble[0] ? j->trouble : j->no_room[0] ? j->no_room : j->waits, sizeof j->waits);
    if (j->ranks)
        put_ranks(j, &l);
    said = l.len;
    line_real(&l, "seconds", job_seconds(j)); /* which alone is no news */
    if (line_done(&l, &err) < 0 || (strncmp(text, j->status, said) == 0 && ++j->quiet < BEAT_LOOKS))
        return;
    j->quiet = 0;
    if (link_send(j->link, text, l.len))
        memcpy(j->status, text, l.len + 1);
}

/* Somebody removed the lock's file, so that detd took the job for dead: it is not to run twice. Where detd is not back yet, it goes on. */
static bool is_replaced(const struct job *j)
{
    struct stat held, now;

    return !j->options.own_folder && fstat(j->options.lock_fd, &held) == 0 && held.st_nlink == 0 && lstat("lock", &now) == 0;
}

void job_tick(struct job *j)
{
    struct watch_page pages[JOB_MAX_RANKS];
    struct err err;

    if (is_replaced(j)) {
        err_set(&err, ERR_STATE, "the job's lock was removed, and another detd-job has a new one");
        job_fatal(j, &err);
        return;
    }
    if (logs_bound(&j->logs, j->nranks, &err) < 0)
        job_log("%s", err.msg);
    job_write_late(j);
    if (j->state == RUN_ENDED) {
        if (j->late && link_is_up(j->link))
            job_send_status(j);
        return;
    }
    job_look_at_limit(j);
    for (int i = 0; j->ranks && i < j->nranks; i++) {
        watch_read(ranks_page(j->ranks, i), &pages[i]);
        pages[i].gone = j->rank[i].gone || j->rank[i].out.ended || ranks_pid(j->ranks, i) == 0;
        pages[i].held = ranks_is_held(j->ranks, i) || (i == 0 && j->durable);
    }
    if (j->state == RUN_HELLO || j->state == RUN_GOING)
        look(j, pages);
    if (link_is_up(j->link))
        job_send_status(j);
}

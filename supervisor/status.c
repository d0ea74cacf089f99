#include "supervisor/status.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "proto/err.h"
#include "proto/line.h"
#include "proto/progress.h"
#include "supervisor/attempt.h"
#include "supervisor/link.h"
#include "proto/word.h"
#include "supervisor/ranks/watch.h"
#include "supervisor/speech.h"

enum { BEAT_LOOKS = 10 };     /* one in so many is sent though nothing has changed: a sign of life */
enum { TROUBLE_BYTES = 256 }; /* the most of it that is told */

/* What is shown of a rank. */
struct shown {
    int64_t step;
    char phase[SILENCE_NAME];
};

static struct shown look(const struct status_view *v, int rank)
{
    struct silence_page own;
    struct watch_page p;
    struct shown ret;

    if (v->speech) {
        speech_look(v->speech, rank, &own);
        ret.step = (int64_t)own.step;
        snprintf(ret.phase, sizeof ret.phase, "%s", own.phase[0] ? own.phase : "program");
        return ret;
    }
    watch_read(ranks_page(v->attempt->ranks, rank), &p);
    ret.step = (int64_t)(p.step & INT64_MAX);
    snprintf(ret.phase, sizeof ret.phase, "%s", progress_phase_name(p.phase));
    return ret;
}

/* Images a second of the whole job, over the last looks. */
static double rate(struct status_rate *r, const struct status_view *v)
{
    int at = r->looks % STATUS_RATE_LOOKS, oldest = r->looks < STATUS_RATE_LOOKS ? 0 : (at + 1) % STATUS_RATE_LOOKS;
    double span;

    r->images[at] = atomic_load_explicit(&ranks_page(v->attempt->ranks, 0)->images_total, memory_order_relaxed);
    if (r->images[at] == 0) /* no step yet; after a resume the count jumps to that of the checkpoint, which is no speed */
        return 0;
    r->time_s[at] = v->now_s;
    r->looks++;
    span = r->time_s[at] - r->time_s[oldest];
    return span > 0 && r->images[at] >= r->images[oldest] ? (double)(r->images[at] - r->images[oldest]) / span : 0;
}

static void put_ranks(const struct status_view *v, struct line *l)
{
    const struct attempt *a = v->attempt;

    line_open(l, "ranks", '[');
    for (int i = 0; i < a->nranks; i++) {
        struct shown shown = look(v, i);

        line_open(l, NULL, '{');
        line_int(l, "rank", i);
        line_str(l, "phase", shown.phase);
        line_int(l, "step", shown.step);
        line_int(l, "pid", ranks_pid(a->ranks, i));
        line_close(l, '}');
    }
    line_close(l, ']');
}

void status_begin(struct status *s)
{
    memset(&s->rate, 0, sizeof s->rate);
}

void status_forget(struct status *s)
{
    s->last[0] = '\0';
}

void status_send(struct status *s, const struct status_view *v, struct link *link)
{
    const struct attempt *a = v->attempt;
    struct shown first = { 0, "backoff" };
    char text[sizeof s->last];
    struct err err;
    struct line l;
    size_t said;

    if (a->ranks)
        first = look(v, 0);
    line_begin(&l, text, sizeof text, "status");
    line_int(&l, "attempt", v->number);
    line_int(&l, "step", first.step);
    line_str(&l, "phase", first.phase);
    if (!v->speech) /* rows of a program say how fast it is */
        line_real(&l, "images_per_s", a->ranks ? rate(&s->rate, v) : 0);
    else if (a->ranks && speech_knows(v->speech, 1u << WORD_PAUSE))
        line_bool(&l, "pausable", true);
    line_real(&l, "cpu_seconds", v->usage.cpu_seconds);
    line_int(&l, "max_rss", v->usage.max_rss);
    line_int(&l, "rss", v->usage.rss);
    if (v->trouble[0])
        line_text(&l, "trouble", v->trouble, TROUBLE_BYTES);
    if (a->ranks)
        put_ranks(v, &l);
    said = l.len;
    line_real(&l, "seconds", v->seconds); /* which alone is no news */
    if (line_done(&l, &err) < 0 || (strncmp(text, s->last, said) == 0 && ++s->quiet < BEAT_LOOKS))
        return;
    s->quiet = 0;
    if (link_send(link, text, l.len))
        memcpy(s->last, text, l.len + 1);
}

#include "supervisor/status.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdatomic.h>
#include <string.h>

#include "proto/err.h"
#include "proto/line.h"
#include "proto/progress.h"
#include "supervisor/attempt.h"
#include "supervisor/link.h"
#include "supervisor/ranks/watch.h"

enum { BEAT_LOOKS = 10 };     /* one in so many is sent though nothing has changed: a sign of life */
enum { TROUBLE_BYTES = 256 }; /* the most of it that is told */

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

static void put_ranks(const struct attempt *a, struct line *l)
{
    line_open(l, "ranks", '[');
    for (int i = 0; i < a->nranks; i++) {
        struct watch_page p;

        watch_read(ranks_page(a->ranks, i), &p);
        line_open(l, NULL, '{');
        line_int(l, "rank", i);
        line_str(l, "phase", progress_phase_name(p.phase));
        line_int(l, "step", (int64_t)(p.step & INT64_MAX));
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
    struct watch_page p = { 0 };
    char text[sizeof s->last];
    struct err err;
    struct line l;
    size_t said;

    if (a->ranks)
        watch_read(ranks_page(a->ranks, 0), &p);
    line_begin(&l, text, sizeof text, "status");
    line_int(&l, "attempt", v->number);
    line_int(&l, "step", (int64_t)(p.step & INT64_MAX));
    line_str(&l, "phase", a->ranks ? progress_phase_name(p.phase) : "backoff");
    line_real(&l, "images_per_s", a->ranks ? rate(&s->rate, v) : 0);
    line_real(&l, "cpu_seconds", v->usage.cpu_seconds);
    line_int(&l, "max_rss", v->usage.max_rss);
    line_int(&l, "rss", v->usage.rss);
    if (v->trouble[0])
        line_text(&l, "trouble", v->trouble, TROUBLE_BYTES);
    if (a->ranks)
        put_ranks(a, &l);
    said = l.len;
    line_real(&l, "seconds", v->seconds); /* which alone is no news */
    if (line_done(&l, &err) < 0 || (strncmp(text, s->last, said) == 0 && ++s->quiet < BEAT_LOOKS))
        return;
    s->quiet = 0;
    if (link_send(link, text, l.len))
        memcpy(s->last, text, l.len + 1);
}

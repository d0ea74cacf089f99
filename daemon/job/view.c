#include "daemon/job/view.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>

#include "daemon/job/label.h"
#include "proto/tier.h"

static void string(struct text *out, const char *key, const char *value)
{
    text_addf(out, ",\"%s\":", key);
    text_json(out, value);
}

static void number(struct text *out, const char *key, int64_t value)
{
    text_addf(out, ",\"%s\":%lld", key, (long long)value);
}

/* Writes null for a time that has not come yet. */
static void when(struct text *out, const char *key, double t)
{
    text_addf(out, ",\"%s\":", key);
    text_real(out, t == 0 ? NAN : t);
}

static void real(struct text *out, const char *key, double v)
{
    text_addf(out, ",\"%s\":", key);
    text_real(out, v);
}

void view_job(struct text *out, const struct job_row *row, const char *root, const char *phase, const char *losses)
{
    text_addf(out, "{\"id\":%lld", (long long)row->id);
    string(out, "name", row->name);
    string(out, "kind", job_kind_name(row->kind));
    string(out, "state", job_state_name(row->state));
    string(out, "reason", row->reason);
    string(out, "user", row->user);
    number(out, "attempt", row->attempt);
    number(out, "step", row->step);
    number(out, "steps", row->steps);
    string(out, "phase", phase ? phase : "");
    real(out, "images_per_s", row->images_per_s);
    real(out, "cpu_seconds", row->cpu_seconds);
    number(out, "max_rss", row->max_rss);
    real(out, "seconds", row->seconds);
    when(out, "submitted", row->submitted);
    when(out, "started", row->started);
    when(out, "ended", row->ended);
    string(out, "tier", tier_name(row->tier));
    string(out, "device", row->cuda ? "cuda" : "cpu");
    number(out, "ranks", row->ranks);
    number(out, "threads", row->threads);
    number(out, "ranks_per_gpu", row->ranks_per_gpu);
    string(out, "gpus", job_is_live(row->state) ? row->gpus : ""); /* the row still has the GPUs of the last run */
    number(out, "priority", row->priority);
    if (row->after)
        number(out, "after", row->after);
    else
        text_add(out, ",\"after\":null");
    text_addf(out, ",\"after_ok\":%s", row->after_ok ? "true" : "false");
    text_addf(out, ",\"backfill\":%s", row->backfill && job_is_live(row->state) ? "true" : "false");
    string(out, "note", row->note);
    text_add(out, ",\"tags\":");
    label_text(out, row->tags);
    text_addf(out, ",\"losses\":%s,\"dir\":", losses);
    text_json(out, root);
    /* The folder's text ends in a quote, which must come after the job's own folder instead. */
    if (!out->failed)
        out->p[--out->len] = '\0';
    text_addf(out, "/%lld\"", (long long)row->id);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/sim/spool.c - the records of a supervisor, in the order and
 * form of supervisor/actions.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "proto/tier.h"
#include "tests/stand/sim/sup.h"

int64_t spool_last(const struct folder *f)
{
    return f->count ? f->records[f->count - 1].seq : 0;
}

static struct record *append(struct sup *s, int type, const char *text)
{
    struct folder *f = s->f;
    struct record *r;

    if (f->count == f->cap) {
        f->cap = f->cap ? 2 * f->cap : 64;
        f->records = realloc(f->records, (size_t)f->cap * sizeof *f->records);
        if (!f->records)
            abort();
    }
    r = &f->records[f->count];
    *r = (struct record){ .type = type, .seq = spool_last(f) + 1, .attempt = s->going.attempt, .step = s->step, .text = strdup(text) };
    f->count++;
    say("job %lld: spools %lld: %s", (long long)f->id, (long long)r->seq, text);
    return r;
}

void spool_loss(struct sup *s, bool val)
{
    char text[RECORD_TEXT];
    double value = 1000.0 * s->f->slot + (double)s->step + (val ? 0.5 : 0);

    snprintf(text, sizeof text,
             "{\"type\":\"loss\",\"split\":\"%s\",\"step\":%lld,\"epoch\":1,\"tier\":\"%s\",\"time\":%.17g,\"images_per_s\":8,"
             "\"terms\":{\"total\":[%.17g,2],\"box\":[%.17g,2]}}",
             val ? "val" : "train", (long long)s->step, tier_name(s->tier), now_s(), value, value / 2);
    append(s, REC_LOSS, text)->val = val;
}

void spool_eval(struct sup *s)
{
    char text[RECORD_TEXT];

    snprintf(text, sizeof text, "{\"type\":\"eval\",\"step\":%lld,\"time\":%.17g,\"metrics\":{\"AP\":0.25}}", (long long)s->step, now_s());
    append(s, REC_EVAL, text);
}

void spool_checkpoint(struct sup *s)
{
    char text[RECORD_TEXT];

    snprintf(text, sizeof text,
             "{\"type\":\"checkpoint\",\"step\":%lld,\"phase\":\"published\",\"path\":\"checkpoints/step-%lld\",\"bytes\":1,\"val_loss\":1,"
             "\"best\":false}",
             (long long)s->step, (long long)s->step);
    append(s, REC_CHECKPOINT, text);
    going_saved(&s->going, s->step);
    s->f->deaths = 0;
    s->f->died_under = 0;
}

void spool_attempt(struct sup *s)
{
    char text[RECORD_TEXT];

    snprintf(text, sizeof text,
             "{\"type\":\"attempt\",\"attempt\":%d,\"resume_step\":%lld,\"time\":%.17g,\"ranks\":%d,\"device\":\"cpu\",\"first\":%s}",
             s->going.attempt, (long long)s->step, now_s(), s->f->ranks, s->told ? "false" : "true");
    append(s, REC_ATTEMPT, text);
    going_saved(&s->going, s->step);
    s->told = true;
}

int64_t spool_outcome(struct sup *s, bool end, const char *outcome, const char *reason)
{
    char text[RECORD_TEXT];
    struct record *r;

    snprintf(
        text, sizeof text,
        "{\"type\":\"%s\",\"attempt\":%d,\"outcome\":\"%s\",\"reason\":\"%.100s\",\"class\":\"fault\",\"time\":%.17g,\"cpu_seconds\":1,"
        "\"max_rss\":1}",
        end ? "end" : "ended", s->going.attempt, outcome, reason, now_s());
    r = append(s, end ? REC_END : REC_ENDED, text);
    snprintf(r->outcome, sizeof r->outcome, "%s", outcome);
    return r->seq;
}

void spool_tier(struct sup *s)
{
    char text[RECORD_TEXT];

    snprintf(text, sizeof text, "{\"type\":\"tier\",\"step\":%lld,\"tier\":\"%s\",\"time\":%.17g}", (long long)s->step + 1,
             tier_name(s->tier), now_s());
    append(s, REC_TIER, text);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/sim/hostile.c - what a hostile user runs in the place of
 * detd-job. It knows its own nonce, and those of other jobs. By chance it does what proto/report.h allows and what it
 * forbids, in any order. Each of these processes has habits of its own, so a lie may come once or all the time. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/job/report.h"
#include "proto/record.h"
#include "proto/report.h"
#include "tests/stand/sim/world.h"

enum { LINKS = 3, LINE_ROOM = 16 << 10, FLOOD_LINES = 24 };

struct liar {
    struct folder *f;
    struct launch_request rq;
    int detd;                  /* the number of the detd that is its parent */
    struct link *links[LINKS]; /* NULL: not connected */
    int64_t seq, attempt;      /* as it believes that detd has them */
    unsigned habits;           /* a bit for each row of `deeds` */
    int strength;              /* deeds that it may still do in this second */
    int silent_s;
};

/* ---- what it says ---- */

static const char *any_time(char *buf, size_t size)
{
    static const char *const far[] = { "0", "-1e300", "1e300", "1e9", "3e9", "null", "\"noon\"", "1.76e9", "9223372036854775807" };

    if (chance(30))
        snprintf(buf, size, "%.17g", now_s() + (chance(50) ? -1 : 1) * (double)roll(100000));
    else
        snprintf(buf, size, "%s", far[roll(sizeof far / sizeof *far)]);
    return buf;
}

static int64_t any_count(int64_t near)
{
    static const int64_t far[] = { 0,       1,       -1,      INT64_MAX, INT64_MIN, RECORD_MAX_COUNT, RECORD_MAX_COUNT + 1,
                                   1000000, 1000001, INT_MAX, 1LL << 40 };

    return chance(70) ? near + (int64_t)roll(4) - 1 : far[roll(sizeof far / sizeof *far)];
}

static const char *any_outcome(void)
{
    static const char *const all[] = { "completed", "failed", "cancelled", "paused", "stopped", "won", "" };

    return all[roll(sizeof all / sizeof *all)];
}

/* Many terms: each is a row of the store. */
static size_t add_terms(char *to, size_t size, int count)
{
    size_t len = 0;
    unsigned from = roll(3);

    for (int i = 0; i < count && len < size; i++)
        len += (size_t)snprintf(to + len, size - len, "%s\"%s%u\":[%u,%u]", i ? "," : "", chance(2) ? "\\u001b" : "t", from + (unsigned)i,
                                roll(9), roll(3));
    return len;
}

static void any_loss(const struct liar *s, char *ret, size_t size, int terms)
{
    char time[40];
    size_t len = (size_t)snprintf(
        ret, size,
        "{\"type\":\"loss\",\"split\":\"%s\",\"step\":%lld,\"epoch\":1e300,\"tier\":\"rerun\",\"time\":%s,\"images_per_s\":%d,\"terms\":{",
        chance(50) ? "val" : "train", (long long)any_count((int64_t)roll(20)), any_time(time, sizeof time), (int)s->attempt);

    len += add_terms(ret + len, size - len, terms);
    snprintf(ret + len, size - len, "}}");
}

static void any_record(const struct liar *s, char *ret, size_t size)
{
    long long step = (long long)any_count((int64_t)roll(20)), attempt = (long long)any_count(s->attempt);
    char time[40];

    any_time(time, sizeof time);
    switch (roll(9)) {
    case 0:
    case 1:
        any_loss(s, ret, size, (int)roll(4));
        break;
    case 2:
        snprintf(ret, size, "{\"type\":\"attempt\",\"attempt\":%lld,\"resume_step\":%lld,\"time\":%s,\"ranks\":-1,\"first\":%s}", attempt,
                 step, time, chance(50) ? "true" : "false");
        break;
    case 3:
        snprintf(
            ret, size,
            "{\"type\":\"checkpoint\",\"step\":%lld,\"phase\":\"published\",\"path\":\"../../%u\",\"bytes\":-1,\"time\":%s,\"best\":true}",
            step, roll(9), time);
        break;
    case 4:
        snprintf(ret, size, "{\"type\":\"tier\",\"step\":%lld,\"tier\":\"%s\",\"time\":%s}", step, chance(80) ? "world" : "none", time);
        break;
    case 5:
        snprintf(ret, size, "{\"type\":\"event\",\"level\":\"error\",\"kind\":\"%s\",\"text\":\"\\u0007 %lld\",\"time\":%s}",
                 chance(50) ? "tier" : "waits", step, time);
        break;
    case 6:
        snprintf(ret, size, "{\"type\":\"eval\",\"step\":%lld,\"time\":%s,\"metrics\":{\"AP\":1e308,\"B\":null}}", step, time);
        break;
    case 7:
        snprintf(ret, size,
                 "{\"type\":\"ended\",\"attempt\":%lld,\"outcome\":\"%s\",\"time\":%s,\"cpu_seconds\":-1e300,\"seconds\":1e300,\"max_rss\":"
                 "%lld}",
                 attempt, any_outcome(), time, step);
        break;
    default:
        snprintf(ret, size, "{\"type\":\"%s\",\"attempt\":%lld,\"identity\":{\"hash\":%lld},\"images\":%lld,\"time\":%s}",
                 chance(50) ? "identity" : "data", attempt, step, step, time);
    }
}

/* ---- deeds: each returns false if it is not possible now ---- */

static struct link **any_link(struct liar *s)
{
    return &s->links[roll(LINKS)];
}

static bool put(struct link *l, const char *line)
{
    size_t len = strlen(line);

    return l && l->nto_detd + len + 1 <= sizeof l->to_detd && link_write(l, line, len) && link_write(l, "\n", 1);
}

static bool report(struct liar *s, struct link *l, int64_t seq, const char *rec)
{
    char line[LINE_ROOM + 64];

    snprintf(line, sizeof line, "{\"type\":\"report\",\"seq\":%lld,\"rec\":%s}", (long long)seq, rec);
    if (!put(l, line))
        return false;
    if (seq == s->seq + 1)
        s->seq = seq;
    return true;
}

static bool greet(struct liar *s, struct link *l, const struct folder *as)
{
    char line[256];

    if (!l)
        return false;
    l->job = as->id;
    memcpy(l->nonce, as->nonce, sizeof l->nonce);
    snprintf(line, sizeof line,
             "{\"type\":\"hello\",\"protocol\":%d,\"job\":%lld,\"attempt\":%lld,\"nonce\":\"%s\",\"pid\":-1,\"beats\":%s,\"first\":%lld}",
             chance(97) ? 1 : (int)roll(3), (long long)as->id, (long long)any_count(s->attempt), as->nonce, chance(50) ? "true" : "false",
             (long long)(chance(95) ? 0 : any_count(s->seq + 1)));
    return put(l, line);
}

static bool come(struct liar *s)
{
    struct link **at = any_link(s);

    if (*at || !(*at = link_connect()))
        return false;
    (*at)->uid = s->f->uid;
    (*at)->by_liar = true;
    return greet(s, *at, s->f);
}

static bool greet_again(struct liar *s)
{
    return greet(s, *any_link(s), s->f);
}

static bool greet_as_other(struct liar *s)
{
    struct link **at = any_link(s);

    if (*at || !(*at = link_connect()))
        return false;
    (*at)->uid = s->f->uid;
    (*at)->by_liar = true;
    return greet(s, *at, &world.jobs[roll((uint32_t)world.njobs)]);
}

static bool report_next(struct liar *s)
{
    char rec[RECORD_TEXT];

    any_record(s, rec, sizeof rec);
    return report(s, *any_link(s), s->seq + 1, rec);
}

static bool report_any(struct liar *s)
{
    char rec[RECORD_TEXT];

    any_record(s, rec, sizeof rec);
    return report(s, *any_link(s), any_count(s->seq), rec);
}

/* An attempt that falls, repeats or jumps, from any step: a rewind each time that it is believed. */
static bool attempt(struct liar *s)
{
    char rec[RECORD_TEXT], time[40];
    int64_t number = chance(60) ? s->attempt + 1 : any_count(s->attempt);

    snprintf(rec, sizeof rec, "{\"type\":\"attempt\",\"attempt\":%lld,\"resume_step\":%u,\"time\":%s,\"first\":true}", (long long)number,
             roll(20), any_time(time, sizeof time));
    if (!report(s, *any_link(s), s->seq + 1, rec))
        return false;
    if (number > s->attempt && number < 1000000)
        s->attempt = number;
    return true;
}

static bool flood(struct liar *s)
{
    struct link *l = *any_link(s);
    char rec[LINE_ROOM];
    int sent = 0;

    for (int i = 0; l && i < FLOOD_LINES; i++) {
        any_loss(s, rec, sizeof rec, REPORT_MAX_TERMS);
        sent += report(s, l, s->seq + 1, rec);
    }
    return sent > 0;
}

static bool status(struct liar *s)
{
    char line[512];

    snprintf(
        line, sizeof line,
        "{\"type\":\"status\",\"attempt\":%lld,\"step\":%lld,\"phase\":\"%s\",\"images_per_s\":1e308,\"cpu_seconds\":%s,\"max_rss\":%lld,"
        "\"rss\":%lld,\"seconds\":%s,\"trouble\":\"\\u001b[2J\"}",
        (long long)any_count(s->attempt), (long long)any_count(5), chance(50) ? "forward" : "", chance(50) ? "-1e308" : "1e308",
        (long long)any_count(9), (long long)any_count(9), chance(50) ? "-5" : "1e308");
    return put(*any_link(s), line);
}

static bool end(struct liar *s)
{
    char rec[RECORD_TEXT], time[40];

    snprintf(rec, sizeof rec, "{\"type\":\"end\",\"attempt\":%lld,\"outcome\":\"%s\",\"reason\":\"\",\"class\":\"%s\",\"time\":%s}",
             (long long)any_count(s->attempt), any_outcome(), chance(50) ? "missing" : "fault", any_time(time, sizeof time));
    return report(s, *any_link(s), s->seq + 1, rec);
}

static bool garbage(struct liar *s)
{
    static const char *const lines[] = { "",
                                         "{",
                                         "[]",
                                         "null",
                                         "{}",
                                         "{\"type\":7}",
                                         "{\"type\":\"report\"}",
                                         "{\"type\":\"report\",\"seq\":\"1\"}",
                                         "{\"type\":\"welcome\"}",
                                         "\xff\xfe",
                                         "{\"type\":\"status\",\"type\":\"end\"}",
                                         "[[[[[[[[[[[[[[[[" };
    struct link *l = *any_link(s);

    if (chance(30)) /* half a line: what comes next completes it */
        return l && link_write(l, "{\"type\":\"rep", 1 + roll(11));
    return put(l, lines[roll(sizeof lines / sizeof *lines)]);
}

/* More bytes than a line may have. */
static bool babble(struct liar *s)
{
    struct link *l = *any_link(s);
    static const char bytes[4096] = { 1 };
    int n = 0;

    while (l && n < 16 && link_write(l, bytes, sizeof bytes))
        n++;
    return n > 0;
}

static bool hang_up(struct liar *s)
{
    struct link **at = any_link(s);

    if (!*at)
        return false;
    link_drop(*at, chance(50));
    *at = NULL;
    return true;
}

static bool hear(struct liar *s)
{
    struct link *l = *any_link(s);
    const char *line = l ? link_line(l) : NULL, *seq = line ? strstr(line, "seq\":") : NULL;

    if (seq)
        s->seq = strtoll(seq + 5, NULL, 10);
    return line != NULL;
}

static bool sleep_long(struct liar *s)
{
    s->silent_s = (int)roll(200);
    return true;
}

/* Its first process is gone. Others may stay, and hold the lock. */
static void vanish(struct folder *f, int code, bool some_stay)
{
    struct liar *s = f->liar;
    int detd = s->detd;

    for (int i = 0; i < LINKS; i++)
        if (s->links[i])
            link_drop(s->links[i], chance(50));
    free(s);
    f->liar = NULL;
    f->lock = some_stay ? LOCK_STRAY : LOCK_FREE;
    f->stray_s = -1;
    say("job %lld: its hostile process leaves with %d%s", (long long)f->id, code, some_stay ? ", and others stay" : "");
    launch_liar_left(f, detd, code);
}

static bool leave(struct liar *s)
{
    static const int states[] = { 0, 1, 127, SUP_EXIT_REFUSED, SUP_EXIT_UNREADABLE, SUP_EXIT_UNREACHABLE };

    vanish(s->f, states[roll(sizeof states / sizeof *states)], chance(40));
    return true;
}

/* ---- life ---- */

static const struct {
    bool (*fn)(struct liar *s);
    uint32_t weight;
} deeds[] = {
    { come, 12 },   { hear, 12 },      { report_next, 12 }, { status, 4 },         { attempt, 3 },
    { flood, 4 },   { report_any, 2 }, { greet_again, 1 },  { greet_as_other, 1 }, { end, 1 },
    { garbage, 1 }, { babble, 1 },     { hang_up, 2 },      { sleep_long, 1 },     { leave, 1 },
};
enum { DEEDS = sizeof deeds / sizeof *deeds, ALWAYS = 1 << 0 };

void liar_start(struct folder *f, const struct launch_request *rq)
{
    struct liar *s = must_alloc(sizeof *s);

    *s = (struct liar){ .f = f, .rq = *rq, .detd = detd_number, .seq = rq->last_seq, .attempt = rq->attempt };
    s->habits = ALWAYS | (chance(5) ? 0 : roll(1u << DEEDS));
    f->liar = s;
    f->lock = LOCK_SUP;
    f->overdue_s = 0;
    say("job %lld: a hostile process of attempt %d started, last_seq %lld, habits %x", (long long)f->id, rq->attempt,
        (long long)rq->last_seq, s->habits);
}

void liar_kill(struct folder *f)
{
    vanish(f, 137, false);
}

void liars_power_off(void)
{
    for (int i = 0; i < world.njobs; i++)
        if (world.jobs[i].liar)
            liar_kill(&world.jobs[i]);
}

static void forget_closed(struct liar *s)
{
    for (int i = 0; i < LINKS; i++)
        if (s->links[i] && s->links[i]->detd_closed) {
            link_drop(s->links[i], false);
            s->links[i] = NULL;
        }
}

static bool act(struct liar *s)
{
    uint32_t sum = 0, at;
    int i = 0;

    for (int k = 0; k < DEEDS; k++)
        sum += s->habits & (1u << k) ? deeds[k].weight : 0;
    for (at = roll(sum);; i++) {
        uint32_t weight = s->habits & (1u << i) ? deeds[i].weight : 0;

        if (at < weight)
            return deeds[i].fn(s);
        at -= weight;
    }
}

bool liars_step(void)
{
    uint32_t from = world.njobs ? roll((uint32_t)world.njobs) : 0;

    for (int i = 0; i < world.njobs; i++) {
        struct liar *s = world.jobs[(from + (uint32_t)i) % (uint32_t)world.njobs].liar;

        if (!s || s->silent_s > 0 || s->strength == 0)
            continue;
        s->strength--;
        forget_closed(s);
        act(s);
        return true;
    }
    return false;
}

/* It does a few things a second, so that time passes. */
void liars_tick(void)
{
    for (int i = 0; i < world.njobs; i++) {
        struct liar *s = world.jobs[i].liar;

        if (s && s->silent_s > 0)
            s->silent_s--;
        else if (s)
            s->strength = (int)roll(12);
    }
}

/* A stranger that knows a job's number and an old nonce, or no nonce. */
void impostor_come(void)
{
    struct folder *f = world.njobs ? &world.jobs[roll((uint32_t)world.njobs)] : NULL;
    struct link *l = f && f->id ? link_connect() : NULL;
    char line[256];

    if (!l)
        return;
    snprintf(l->nonce, sizeof l->nonce, "%032u", roll(1000));
    l->job = f->id;
    l->uid = world.plan.liars ? HOSTILE + 5 : 0;
    snprintf(line, sizeof line, "{\"type\":\"hello\",\"protocol\":1,\"job\":%lld,\"attempt\":1,\"nonce\":\"%s\",\"pid\":1}",
             (long long)f->id, l->nonce);
    link_send(l, line);
    snprintf(line, sizeof line,
             "{\"type\":\"report\",\"seq\":%lld,\"rec\":{\"type\":\"end\",\"attempt\":1,\"outcome\":\"completed\",\"reason\":\"\","
             "\"class\":\"\"}}",
             (long long)f->stored_seq + 1);
    link_send(l, line);
    link_drop(l, false);
    say("job %lld: an impostor says hello", (long long)f->id);
}

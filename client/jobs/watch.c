#include "client/jobs/watch.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/base/command.h"
#include "client/base/curve.h"
#include "client/base/link.h"
#include "client/base/plot.h"
#include "client/base/print.h"
#include "proto/clean.h"
#include "proto/host/clock.h"
#include "proto/grow.h"
#include "proto/host/memory.h"
#include "proto/host/pictures.h"

/* LOOK_MS: pause between two looks at a job without news: the reason for waiting, which a screen shows, changes without
 * news. */
enum { LOOK_MS = 2000, LOOK_QUIETLY_MS = 30000, NEWS_MS = 200 /* news within this time are one look */ };
enum { BAR_CHARS = 30, BAR_LEAST = 5, PLOT_MAX_ROWS = 20 };
enum { ROWS_AT_ONCE = 1000 /* roughly; also the steps of the first query */, RATE_LEAST_S = 10 /* least time for a useful rate */ };

struct watch {
    struct context *ctx;
    int64_t id;
    const char *term;
    enum watch_how how;
    json_t *job;     /* the job as detd last told it */
    char state[24];  /* state that the user was last told */
    int64_t attempt; /* attempt of the printed rows */
    size_t tiers;    /* WATCH_LINES: number of printed entries of the history of tiers */
    int64_t seen[2]; /* WATCH_LINES: last step printed of train and val */
    int64_t shown;   /* WATCH_LINES: last step with a picture that was told */
    char waits[400]; /* WATCH_STEPS: why it waits, as last told; "": no reason was told */
    int lines;       /* WATCH_SCREEN: lines of the picture on the screen */
    double rate;     /* steps a second, smoothed; 0: not known */
    int64_t rate_step;
    double rate_time, rate_since; /* when that step was seen to end; when the first one was */
};

/* The exit code of a final state, or -1. */
static int outcome(const char *state)
{
    if (strcmp(state, "completed") == 0)
        return CODE_DONE;
    if (strcmp(state, "failed") == 0)
        return CODE_JOB_FAILED;
    return strcmp(state, "cancelled") == 0 ? CODE_JOB_CANCELLED : -1;
}

/* Why a queued job waits; the caller frees. NULL: it does not wait, or the reason is unknown. */
static char *why_queued(struct watch *w)
{
    json_t *result;
    char *text;

    if (strcmp(text_of(w->job, "state"), "queued") != 0 ||
        call_patiently(w->ctx, "job.why", json_pack("{s:I}", "id", (json_int_t)w->id), &result))
        return NULL;
    text = strdup(text_of(result, "text"));
    json_decref(result);
    return text;
}

static void print_state(struct watch *w)
{
    char *why = why_queued(w);

    printf("job %lld is %s", (long long)w->id, text_of(w->job, "state"));
    fputs(why && *why ? ": " : "", stdout);
    print_clean(stdout, why ? why : "");
    putchar('\n');
    free(why);
}

/* The last step of the job. A verify job may end before all steps are trained, and an eval job trains no steps. */
static int64_t last_step(const json_t *job)
{
    const json_t *spec = json_object_get(job, "spec"), *to = json_object_get(json_object_get(spec, "errand"), "to");

    if (int_of(job, "steps") == 0)
        to = json_object_get(json_object_get(spec, "errand"), "step");
    return json_is_integer(to) ? json_integer_value(to) : int_of(job, "steps");
}

/* ---- lines ---- */

struct rows {
    json_t **row;
    size_t n, cap;
};

static int add_row(void *arg, const json_t *row)
{
    struct rows *r = arg;

    if (!GROW(r->row, r->cap, r->n + 1))
        memory_out();
    r->row[r->n++] = json_incref((json_t *)row);
    return 0;
}

/* Sorts by step, then train before val, then terms by name. */
static int compare_rows(const void *pa, const void *pb)
{
    const json_t *a = *(json_t *const *)pa, *b = *(json_t *const *)pb;
    int64_t sa = int_of(a, "step"), sb = int_of(b, "step");
    int splits = strcmp(text_of(a, "split"), text_of(b, "split"));

    if (sa != sb)
        return sa < sb ? -1 : 1;
    return splits ? splits : strcmp(text_of(a, "term"), text_of(b, "term"));
}

static void print_row(struct watch *w, const json_t *row)
{
    bool val = strcmp(text_of(row, "split"), "val") == 0;

    printf("step %lld/%lld  %s  ", (long long)int_of(row, "step"), (long long)last_step(w->job), text_of(row, "split"));
    print_clean(stdout, text_of(row, "term"));
    printf("  %s\n", text_number(json_object_get(row, "value")).s);
    if (int_of(row, "step") > w->seen[val])
        w->seen[val] = int_of(row, "step");
}

/* Prints steps from .. to (0: all later ones), in their order. */
static int print_steps(struct watch *w, int64_t from, int64_t to, size_t *ret_count)
{
    static const char *const splits[] = { "train", "val" };
    struct rows r = { 0 };
    int rc = 0;

    for (int k = 0; k < 2 && rc == 0; k++) {
        struct curve_query q = {
            .job = w->id, .split = splits[k], .term = w->term, .from = from > w->seen[k] ? from : w->seen[k] + 1, .to = to
        };

        if (to == 0 || q.from <= to)
            rc = curve_rows(w->ctx, &q, add_row, &r);
    }
    if (r.n > 1)
        qsort(r.row, r.n, sizeof *r.row, compare_rows);
    for (size_t i = 0; i < r.n; i++) {
        if (rc == 0)
            print_row(w, r.row[i]);
        json_decref(r.row[i]);
    }
    free(r.row);
    *ret_count = r.n;
    return rc;
}

/* Prints a part of the steps at a time: a job may have a million rows. */
static int print_rows(struct watch *w)
{
    int64_t from = (w->seen[0] < w->seen[1] ? w->seen[0] : w->seen[1]) + 1, span = ROWS_AT_ONCE, last = int_of(w->job, "step");
    size_t count;
    int rc = 0;

    for (; rc == 0 && last - from >= span; from += span, span *= count < ROWS_AT_ONCE ? 2 : 1)
        rc = print_steps(w, from, from + span - 1, &count);
    return rc == 0 ? print_steps(w, from, 0, &count) : rc;
}

/* The newest attempt of the job; NULL: no attempt has begun. */
static const json_t *newest_attempt(const json_t *job)
{
    json_t *newest = NULL, *a;
    size_t i;

    json_array_foreach (json_object_get(job, "attempts"), i, a) {
        if (!newest || int_of(a, "attempt") > int_of(newest, "attempt"))
            newest = a;
    }
    return newest;
}

/* A new attempt began at a checkpoint: later steps come again. */
static void notice_rewind(struct watch *w)
{
    const json_t *newest = newest_attempt(w->job);
    int64_t step = int_of(newest, "resume_step");

    if (!newest || int_of(newest, "attempt") == w->attempt)
        return;
    if (w->attempt > 0)
        printf("attempt %lld continues from step %lld\n", (long long)int_of(newest, "attempt"), (long long)step);
    w->attempt = int_of(newest, "attempt");
    for (int k = 0; k < 2; k++)
        if (w->seen[k] > step)
            w->seen[k] = step;
    if (w->shown > step)
        w->shown = step;
}

/* Prints changes of the tier alone, not the first one. */
static void notice_tiers(struct watch *w)
{
    const json_t *tiers = json_object_get(w->job, "tiers"), *entry;

    for (; w->tiers < json_array_size(tiers); w->tiers++) {
        entry = json_array_get(tiers, w->tiers);
        if (w->tiers > 0)
            printf("tier %s from step %lld on\n", text_of(entry, "tier"), (long long)int_of(entry, "step"));
    }
}

/* Finds the job's newest picture of validation. Returns its step, or -1. */
static int64_t newest_picture(const struct watch *w, char path[PATH_MAX])
{
    return pictures_newest(text_of(w->job, "dir"), path, PATH_MAX);
}

static void notice_picture(struct watch *w)
{
    char path[PATH_MAX];
    int64_t step = newest_picture(w, path);

    if (step <= w->shown)
        return;
    printf("picture of step %lld: ", (long long)step);
    print_clean(stdout, path);
    putchar('\n');
    w->shown = step;
}

static int show_lines(struct watch *w)
{
    int rc;

    notice_rewind(w);
    notice_tiers(w);
    rc = print_rows(w);
    notice_picture(w);
    if (strcmp(w->state, text_of(w->job, "state")) != 0 && outcome(text_of(w->job, "state")) < 0)
        print_state(w);
    fflush(stdout);
    return rc;
}

/* ---- the screen ---- */

static void bar(FILE *out, double part, int chars)
{
    int full = (int)(part * chars + 0.5);
    bool utf8 = print_utf8();

    fputc('[', out);
    for (int i = 0; i < chars; i++)
        fputs(i < full ? (utf8 ? "█" : "#") : (utf8 ? "░" : "."), out);
    fputc(']', out);
}

/* Measures steps a second while watching. The job's images a second say little about validation and saving. The time
 * before the first observed end of a step does not count: it also holds the reading of data, or a wait. */
static void measure_rate(struct watch *w)
{
    double now = clock_s(), rate;
    int64_t step = int_of(w->job, "step");

    if (step < w->rate_step || strcmp(text_of(w->job, "state"), "running") != 0) {
        w->rate = w->rate_time = 0;
        w->rate_step = step;
    } else if (step > w->rate_step && w->rate_time == 0) {
        w->rate_time = w->rate_since = now;
        w->rate_step = step;
    } else if (step > w->rate_step && now - w->rate_time >= 2) {
        rate = (double)(step - w->rate_step) / (now - w->rate_time);
        w->rate = w->rate > 0 ? 0.7 * w->rate + 0.3 * rate : rate;
        w->rate_time = now;
        w->rate_step = step;
    }
}

/* Steps a second of the newest attempt since it began, including reading data and loading weights; 0: unknown. */
static double rate_of_attempt(const struct watch *w)
{
    const json_t *a = newest_attempt(w->job);
    double began = real_of(a, "started"), now = (double)time(NULL);
    int64_t steps = int_of(w->job, "step") - int_of(a, "resume_step");

    return strcmp(text_of(w->job, "state"), "running") == 0 && began > 0 && now > began && steps > 0 ? (double)steps / (now - began) : 0;
}

/* Prints " 12 min left", or nothing if that is not known yet. */
static void print_left(const struct watch *w, FILE *out)
{
    int64_t step = int_of(w->job, "step"), steps = last_step(w->job);
    bool seen = w->rate > 0 && w->rate_time - w->rate_since >= RATE_LEAST_S;
    double rate = seen ? w->rate : rate_of_attempt(w);

    if (rate > 0 && step < steps && outcome(text_of(w->job, "state")) < 0)
        fprintf(out, "  %s%s left", seen ? "" : "about ", text_duration((double)(steps - step) / rate).s);
}

/* Prints " 12/90  61.5 images/s"; of a program that reports no images steps/s, and no number of steps if it gives
 * none. */
static void print_pace(const struct watch *w, FILE *out)
{
    int64_t step = int_of(w->job, "step"), steps = last_step(w->job);
    double images = real_of(w->job, "images_per_s"), rate = w->rate > 0 ? w->rate : rate_of_attempt(w);
    bool program = strcmp(text_of(w->job, "kind"), "program") == 0;

    fprintf(out, " %lld", (long long)step);
    if (steps > 0 || !program)
        fprintf(out, "/%lld", (long long)steps);
    if (images > 0 || !program)
        fprintf(out, "  %.1f images/s", images);
    else if (rate > 0)
        fprintf(out, "  %.1f steps/s", rate);
}

/* Prints the line of the bar. The bar becomes shorter if the text behind it needs room. */
static void progress(struct watch *w, FILE *out, int columns)
{
    int64_t step = int_of(w->job, "step"), steps = last_step(w->job);
    const char *phase = text_of(w->job, "phase");
    char *rest = NULL;
    size_t len;
    FILE *behind = open_memstream(&rest, &len);
    int room;

    if (!behind)
        memory_out();
    print_pace(w, behind);
    print_left(w, behind);
    fputs(*phase ? "  " : "", behind);
    print_clean(behind, phase);
    fclose(behind);
    room = columns - 2 - print_width(rest, len);
    bar(out, steps > 0 ? (double)step / (double)steps : 0, room > BAR_CHARS ? BAR_CHARS : room < BAR_LEAST ? BAR_LEAST : room);
    fprintf(out, "%s\n", rest);
    free(rest);
}

/* Prints the line that tells which job it is, with as many parts as have room. */
static void what(const struct watch *w, FILE *out, int columns)
{
    const json_t *j = w->job;
    char part[5][256];
    int width = 0, n = 0;

    snprintf(part[n++], sizeof *part, "job %lld  %s", (long long)w->id, text_of(j, "name"));
    snprintf(part[n++], sizeof *part, "  %s", text_of(j, "state"));
    snprintf(part[n++], sizeof *part, "  %lld rank%s on %s", int_of(j, "ranks"), int_of(j, "ranks") == 1 ? "" : "s", text_of(j, "device"));
    snprintf(part[n++], sizeof *part, "  attempt %lld", int_of(j, "attempt"));
    snprintf(part[n++], sizeof *part, "  tier %s", text_of(j, "tier"));
    for (int i = 0; i < n; i++) {
        int more = print_width(part[i], strlen(part[i]));

        if (i == 0 || width + more <= columns)
            print_clean(out, part[i]);
        width += i == 0 || width + more <= columns ? more : 0;
    }
    fputc('\n', out);
}

static void head(struct watch *w, FILE *out, int columns)
{
    const json_t *j = w->job;
    char path[PATH_MAX];
    int64_t shown = newest_picture(w, path);
    char *why;

    what(w, out, columns);
    progress(w, out, columns);
    why = why_queued(w);
    print_clean(out, why ? why : text_of(j, "reason"));
    fputc('\n', out);
    free(why);
    if (shown < 0)
        return;
    fprintf(out, "picture of step %lld: ", (long long)shown);
    print_clean(out, path);
    fputc('\n', out);
}

/* The present picture as text; the caller frees. */
static int picture(struct watch *w, char **ret_text)
{
    struct curve train, val = { 0 };
    int columns, rows, rc;
    size_t len;
    FILE *out;

    print_size(&columns, &rows);
    struct curve_query q = { .job = w->id, .split = "train", .term = w->term, .points = 2 * columns };
    rc = curve_fetch(w->ctx, &q, &train);
    if (rc)
        return rc;
    q.split = "val";
    rc = curve_fetch(w->ctx, &q, &val);
    struct plot p = { .width = columns,
                      .height = rows - 7 > PLOT_MAX_ROWS ? PLOT_MAX_ROWS : rows - 7,
                      .utf8 = print_utf8(),
                      .colour = print_colour(stdout),
                      .title = w->term,
                      .curve = { { "train", train.x, train.y, train.n, false }, { "val", val.x, val.y, val.n, true } } };
    curve_tiers(w->job, &p);
    char *plot = rc == 0 ? plot_text(&p) : NULL;

    if (plot && (out = open_memstream(ret_text, &len))) {
        head(w, out, columns);
        fputs(plot, out);
        fclose(out);
    } else if (rc == 0) {
        memory_out();
    }
    free(plot);
    curve_free(&train);
    curve_free(&val);
    return rc;
}

/* The number of bytes at the text's beginning that must be written as a whole: an escape sequence, which takes no cell,
 * or a character. */
static size_t piece(const char *text, int *ret_cells)
{
    size_t left = strlen(text), n;
    uint32_t code;

    if (*text == '\033') {
        n = strcspn(text, "m");
        *ret_cells = 0;
        return n < left ? n + 1 : left;
    }
    n = clean_next(text, left, &code);
    n = n ? n : left;
    *ret_cells = print_width(text, n);
    return n;
}

/* Cuts lines that are longer than the terminal: they would break the count of lines to go back. */
static int put_lines(const char *text, int columns)
{
    int lines = 0, at = 0, cells;
    size_t n;

    for (; *text; text += n) {
        n = piece(text, &cells);
        if (*text == '\n') {
            fputs("\033[K\n", stdout);
            lines++;
            at = 0;
            continue;
        }
        at += cells;
        if (cells == 0 || at <= columns)
            fwrite(text, 1, n, stdout);
    }
    return lines;
}

static int show_screen(struct watch *w)
{
    char *text = NULL;
    int columns, rows, rc;

    measure_rate(w);
    rc = picture(w, &text);
    if (rc)
        return rc;
    print_size(&columns, &rows);
    if (w->lines > 0)
        printf("\033[%dA\r", w->lines);
    w->lines = put_lines(text, columns);
    fputs("\033[J", stdout);
    fflush(stdout);
    free(text);
    return 0;
}

/* ---- one line ---- */

/* For a log: tells why the job waits when the reason has changed. A terminal shows it in one line that changes. */
static void tell_wait(struct watch *w)
{
    char *why = why_queued(w);

    if (why && *why && strncmp(why, w->waits, sizeof w->waits - 1) != 0) {
        fprintf(stderr, "job %lld waits: ", (long long)w->id);
        print_clean(stderr, why);
        fputc('\n', stderr);
        snprintf(w->waits, sizeof w->waits, "%s", why);
    } else if (w->waits[0] && strcmp(text_of(w->job, "state"), "running") == 0) {
        fprintf(stderr, "job %lld runs\n", (long long)w->id);
        w->waits[0] = '\0';
    }
    free(why);
}

static void show_steps(struct watch *w)
{
    int64_t step = int_of(w->job, "step"), steps = last_step(w->job);
    const char *state = text_of(w->job, "state");
    bool over = outcome(state) >= 0;
    char *why;

    if (!print_moves(stderr)) {
        tell_wait(w);
        return;
    }
    measure_rate(w);
    why = why_queued(w);
    fputs("\r\033[K", stderr);
    if (!over) {
        fputs(state, stderr);
        if (int_of(w->job, "steps") > 0)
            fprintf(stderr, "  step %lld/%lld", (long long)step, (long long)steps);
        else { /* an eval job */
            fputs("  ", stderr);
            print_clean(stderr, text_of(w->job, "phase"));
            fprintf(stderr, "  %.1f images/s", real_of(w->job, "images_per_s"));
        }
        if (int_of(w->job, "steps") > 0)
            print_left(w, stderr);
        fputs(why ? "  " : "", stderr);
        print_clean(stderr, why ? why : "");
    }
    fflush(stderr);
    free(why);
}

/* ---- the loop ---- */

static int look(struct watch *w)
{
    json_t *job;
    int rc = call_patiently(w->ctx, "job.get", json_pack("{s:I}", "id", (json_int_t)w->id), &job);

    if (rc)
        return rc;
    json_decref(w->job);
    w->job = job;
    if (w->how == WATCH_LINES)
        rc = show_lines(w);
    else if (w->how == WATCH_SCREEN)
        rc = show_screen(w);
    else if (w->how == WATCH_STEPS)
        show_steps(w);
    if (rc == 0 && w->how <= WATCH_STEPS && strcmp(text_of(job, "state"), "paused") == 0 && strcmp(w->state, "paused") != 0)
        fprintf(stderr, "detctl: job %lld is paused; `detctl resume %lld` continues it\n", (long long)w->id, (long long)w->id);
    snprintf(w->state, sizeof w->state, "%s", text_of(job, "state"));
    return rc;
}

static void tell_outcome(const struct watch *w)
{
    FILE *out = w->how == WATCH_QUIETLY ? stderr : stdout;

    fprintf(out, "job %lld %s", (long long)w->id, w->state);
    if (*text_of(w->job, "reason")) {
        fputs(": ", out);
        print_clean(out, text_of(w->job, "reason"));
    }
    fputc('\n', out);
}

static int until_end(struct watch *w)
{
    long long id = w->id;
    bool shown = w->how == WATCH_SCREEN || w->how == WATCH_STEPS;
    int rc;

    catch_interrupt();
    rc = follow_job(w->ctx, w->id);
    while (rc == 0 && (rc = look(w)) == 0 && outcome(w->state) < 0 && !interrupted) {
        link_wait(w->ctx->link, shown ? LOOK_MS : LOOK_QUIETLY_MS);
        sleep_ms(NEWS_MS);
    }
    if (rc == CODE_INTERRUPTED || (rc == 0 && interrupted && outcome(w->state) < 0)) {
        fprintf(stderr, "\ndetctl: job %lld keeps running; `detctl watch %lld` looks again, `detctl cancel %lld` ends it\n", id, id, id);
        rc = CODE_INTERRUPTED;
    }
    return rc;
}

int watch_job(struct context *ctx, int64_t id, const char *term, enum watch_how how)
{
    struct watch w = { .ctx = ctx, .id = id, .term = term, .how = how };
    int rc = until_end(&w);

    if (rc == 0) {
        rc = outcome(w.state);
        tell_outcome(&w);
    }
    json_decref(w.job);
    return rc;
}

int watch_until_end(struct context *ctx, int64_t id, enum watch_how how, const char *term, json_t **ret_job)
{
    struct watch w = { .ctx = ctx, .id = id, .term = term, .how = how };
    int rc = until_end(&w);

    if (rc == 0)
        *ret_job = w.job;
    else
        json_decref(w.job);
    return rc;
}

int command_watch(struct context *ctx, int argc, char **argv)
{
    static const struct option options[] = { { "term", required_argument, NULL, 't' }, { 0 } };
    const char *term = "total";
    int64_t id = 0;
    int rc, o;

    while ((o = next_option(argc, argv, "", options)) != -1) {
        if (o == '?')
            return CODE_USAGE;
        term = strcmp(optarg, "all") == 0 ? NULL : optarg;
    }
    if (argc - optind > 1)
        return misuse(ctx, "one job at a time");
    if ((rc = take_id_or_newest(ctx, argv[optind], &id)))
        return rc;
    return watch_job(ctx, id, term, term && print_moves(stdout) ? WATCH_SCREEN : WATCH_LINES);
}

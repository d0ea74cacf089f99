/* SPDX-License-Identifier: Apache-2.0 */ /* client/jobs/logs.c - the log files of a job's ranks: detd tells their
 * paths, detctl opens them as the user. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/base/command.h"
#include "client/base/print.h"
#include "proto/host/memory.h"

enum { PIECE_BYTES = 64 << 10 };
enum { PREFIX_CHARS = 16, BYTES_A_CELL = 4 };
enum { POLL_MS = 250, ASK_EVERY = 8 }; /* number of polls of the files before detd is asked whether the job lives */

struct logs {
    struct context *ctx;
    int64_t id;
    int rank; /* -1: all ranks */
    json_t *list;
    FILE **file; /* one per entry of the list; NULL: not there yet */
    size_t n;
    bool prefix;
    long tail;     /* lines to begin with; -1: all */
    bool terminal; /* shows a line while it is written */
    bool growing;  /* such a line stands in the last line of the terminal */
    long *grown;   /* per file: its place in that file; 0: none was shown */
};

/* Returns -1 for the log of detd-job, which belongs to no rank. */
static int rank_of(const struct logs *l, size_t i)
{
    json_t *rank = json_object_get(json_array_get(l->list, i), "rank");

    return json_is_integer(rank) ? (int)json_integer_value(rank) : -1;
}

static int ask_paths(struct logs *l)
{
    json_t *result;
    int rc = call(l->ctx, "job.logs", json_pack("{s:I}", "id", (json_int_t)l->id), &result);

    if (rc)
        return rc;
    l->list = json_incref(json_object_get(result, "logs"));
    if (json_is_string(json_object_get(result, "supervisor")))
        json_array_append_new(l->list, json_pack("{s:n, s:O}", "rank", "path", json_object_get(result, "supervisor")));
    json_decref(result);
    l->n = json_array_size(l->list);
    l->file = calloc(l->n + 1, sizeof *l->file);
    l->grown = calloc(l->n + 1, sizeof *l->grown);
    if (!l->file || !l->grown)
        memory_out();
    l->prefix = l->rank < 0 && l->n > 1;
    return 0;
}

/* The place of the first of the last n lines, at or after `from`. */
static off_t find_tail(FILE *f, off_t from, long n)
{
    char piece[4096];
    off_t at, end;

    fseeko(f, 0, SEEK_END);
    at = end = ftello(f);
    while (at > from) {
        off_t begin = at - from > (off_t)sizeof piece ? at - (off_t)sizeof piece : from;
        size_t len = (size_t)(at - begin);

        if (fseeko(f, begin, SEEK_SET) != 0 || fread(piece, 1, len, f) != len)
            return from;
        while (len > 0)
            if (piece[--len] == '\n' && begin + (off_t)len + 1 < end && n-- <= 1)
                return begin + (off_t)len + 1;
        at = begin;
    }
    return from;
}

/* Dropped text leaves a hole at the beginning of the file. The first line behind the hole is most often incomplete. */
static void find_begin(const struct logs *l, FILE *f)
{
    off_t first = lseek(fileno(f), 0, SEEK_DATA);
    int c;

    first = first < 0 ? 0 : first;
    fseeko(f, l->tail < 0 ? first : l->tail == 0 ? 0 : find_tail(f, first, l->tail), l->tail == 0 ? SEEK_END : SEEK_SET);
    if (first > 0 && ftello(f) == first)
        while ((c = getc(f)) != EOF && c != '\n')
            ;
}

/* Opens the files that exist: a rank that has not started yet has no log. Returns CODE_REFUSED if a file may not be
 * read. */
static int open_files(struct logs *l)
{
    for (size_t i = 0; i < l->n; i++) {
        const char *path = json_string_value(json_object_get(json_array_get(l->list, i), "path"));

        if (l->file[i] || !path || (l->rank >= 0 && rank_of(l, i) != l->rank))
            continue;
        l->file[i] = open_plain(path);
        if (!l->file[i] && errno != ENOENT) {
            fprintf(stderr, "detctl: open '%s': %s\n", path, strerror(errno));
            return CODE_REFUSED;
        }
        if (l->file[i])
            find_begin(l, l->file[i]);
    }
    return 0;
}

/* A file that is shorter than the part that was read was emptied, as by logrotate's copytruncate. It is read from its
 * new beginning. */
static long place_in(FILE *f)
{
    struct stat st;

    if (fstat(fileno(f), &st) == 0 && st.st_size < ftello(f))
        rewind(f);
    return ftell(f);
}

/* Closes a file that was renamed, when its rank has opened a new one. The new one is opened next. */
static void leave_renamed(struct logs *l)
{
    struct stat now, was;

    for (size_t i = 0; i < l->n; i++) {
        const char *path = json_string_value(json_object_get(json_array_get(l->list, i), "path"));

        if (!l->file[i] || stat(path, &now) < 0 || fstat(fileno(l->file[i]), &was) < 0 ||
            (now.st_ino == was.st_ino && now.st_dev == was.st_dev))
            continue;
        fclose(l->file[i]);
        l->file[i] = NULL;
    }
}

/* Reads a line, or the next piece of a line that may be of any length. A piece ends with a whole character. */
static size_t read_piece(FILE *f, char piece[PIECE_BYTES])
{
    size_t n = 0, cut;
    int c = 0;

    while (n < PIECE_BYTES && c != '\n' && (c = getc_unlocked(f)) != EOF)
        piece[n++] = (char)c;
    for (cut = n; n == PIECE_BYTES && cut > n - 3 && (unsigned char)piece[cut - 1] >= 0x80;)
        cut--;
    if (cut < n)
        fseek(f, (long)cut - (long)n, SEEK_CUR);
    return cut;
}

static void print_prefix(const struct logs *l, size_t i)
{
    if (l->prefix && rank_of(l, i) >= 0)
        printf("rank %d: ", rank_of(l, i));
    else if (l->prefix)
        fputs("detd-job: ", stdout);
}

/* Of a progress bar, which returns to the beginning of its line again and again, the last state is shown. Returns where
 * that begins. */
static size_t last_state(const char *line, size_t len)
{
    size_t end = len;

    while (end > 0 && (line[end - 1] == '\n' || line[end - 1] == '\r'))
        end--;
    for (size_t at = end; at > 0; at--)
        if (line[at - 1] == '\r')
            return at;
    return 0;
}

static void hide_growing(struct logs *l)
{
    if (l->growing)
        fputs("\r\033[K", stdout);
    l->growing = false;
}

/* Shows a line that is still written, such as a progress bar, until other text comes. end: of the line in its file. */
static void show_growing(struct logs *l, size_t i, const char *line, size_t len, long end)
{
    size_t from = last_state(line, len);
    int columns, rows;

    if (l->growing && l->grown[i] == end)
        return;
    print_size(&columns, &rows);
    columns = columns > PREFIX_CHARS ? columns - PREFIX_CHARS : 1;
    for (line += from, len -= from; len > 0 && line[len - 1] == '\r';)
        len--;
    len = len < (size_t)columns * BYTES_A_CELL ? len : (size_t)columns * BYTES_A_CELL;
    while (len > 0 && print_width(line, len) > columns)
        len--;
    hide_growing(l);
    print_prefix(l, i);
    print_lines(stdout, line, len);
    l->growing = true;
    l->grown[i] = end;
}

/* Prints new text. With --follow an incomplete line is left for later, unless it has more than a piece. */
static void drain(struct logs *l, size_t i, bool whole_only)
{
    static char piece[PIECE_BYTES];
    long at = place_in(l->file[i]);
    char last = '\n';
    size_t len, from;

    clearerr(l->file[i]);
    while ((len = read_piece(l->file[i], piece)) > 0) {
        if (piece[len - 1] != '\n' && len < PIECE_BYTES - 3 && whole_only) {
            fseek(l->file[i], at, SEEK_SET);
            if (l->terminal)
                show_growing(l, i, piece, len, at + (long)len);
            return;
        }
        hide_growing(l);
        at += (long)len;
        from = last_state(piece, len);
        if (from > 0 && last != '\n') /* of a line that is longer than a piece */
            putchar('\n');
        if (from > 0 || last == '\n')
            print_prefix(l, i);
        print_lines(stdout, piece + from, len - from);
        last = piece[len - 1];
    }
    if (last != '\n')
        putchar('\n');
}

static void drain_all(struct logs *l, bool whole_only)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->file[i])
            drain(l, i, whole_only);
    fflush(stdout);
}

static int is_over(struct logs *l, bool *ret)
{
    json_t *job;
    int rc = call_patiently(l->ctx, "job.get", json_pack("{s:I}", "id", (json_int_t)l->id), &job);
    const char *state;

    if (rc)
        return rc;
    state = json_string_value(json_object_get(job, "state"));
    *ret = state && (strcmp(state, "completed") == 0 || strcmp(state, "failed") == 0 || strcmp(state, "cancelled") == 0);
    json_decref(job);
    return 0;
}

static int follow(struct logs *l)
{
    bool over = false;
    int rc = 0;

    catch_interrupt();
    for (int i = 0; rc == 0 && !over && !interrupted; i++) {
        rc = i % ASK_EVERY == 0 ? is_over(l, &over) : 0;
        drain_all(l, true);
        leave_renamed(l);
        if (rc == 0)
            rc = open_files(l);
        drain_all(l, true);
        if (!over)
            sleep_ms(POLL_MS);
    }
    return interrupted ? CODE_INTERRUPTED : rc;
}

static int print(struct logs *l, bool following)
{
    bool any = false;
    int rc = open_files(l);

    if (rc)
        return rc;
    l->tail = -1; /* later text is shown as a whole */
    if (following)
        rc = follow(l);
    drain_all(l, false);
    for (size_t i = 0; i < l->n; i++)
        any |= l->file[i] != NULL;
    if (!any && rc == 0) {
        if (l->rank >= 0)
            fprintf(stderr, "detctl: job %lld has no log of rank %d\n", (long long)l->id, l->rank);
        else
            fprintf(stderr, "detctl: job %lld has no logs yet\n", (long long)l->id);
        rc = CODE_REFUSED;
    }
    return rc;
}

int command_logs(struct context *ctx, int argc, char **argv)
{
    static const struct option options[] = {
        { "follow", no_argument, NULL, 'f' }, { "rank", required_argument, NULL, 'r' }, { "tail", required_argument, NULL, 't' }, { 0 }
    };
    struct logs l = { .ctx = ctx, .rank = -1, .tail = -1, .terminal = isatty(STDOUT_FILENO) };
    bool following = false;
    char *end;
    int rc, o;

    while ((o = next_option(argc, argv, "f", options)) != -1) {
        if (o == '?')
            return CODE_USAGE;
        following |= o == 'f';
        if (o == 't') {
            l.tail = strtol(optarg, &end, 10);
            if (end == optarg || *end || l.tail < 0)
                return misuse(ctx, "'%s' is not a number of lines", optarg);
        }
        if (o == 'r') {
            l.rank = (int)strtol(optarg, &end, 10);
            if (end == optarg || *end || l.rank < 0)
                return misuse(ctx, "'%s' is not a rank", optarg);
        }
    }
    if (argc - optind > 1)
        return misuse(ctx, "one job at a time");
    if ((rc = take_id_or_newest(ctx, argv[optind], &l.id)) || (rc = ask_paths(&l)))
        return rc;
    rc = print(&l, following);
    for (size_t i = 0; i < l.n; i++)
        if (l.file[i])
            fclose(l.file[i]);
    free(l.file);
    free(l.grown);
    json_decref(l.list);
    return rc;
}

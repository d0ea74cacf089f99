#include "client/base/command.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/base/checkpoint.h"
#include "client/base/link.h"
#include "client/base/print.h"
#include "proto/err.h"
#include "proto/methods.h"
#include "proto/near.h"

enum { DURATION_MAX_S = 1000000000 };

int complain(const struct err *err)
{
    if (err->code == -EINTR)
        return CODE_INTERRUPTED;
    if (err->msg[0]) {
        fputs("detctl: ", stderr);
        print_clean(stderr, err->msg);
        fputc('\n', stderr);
    }
    return err->code == -ENOTCONN || err->code == ERR_TIMEOUT ? CODE_NO_DAEMON : CODE_REFUSED;
}

int misuse(const struct context *ctx, const char *fmt, ...)
{
    va_list ap;

    fprintf(stderr, "detctl %s: ", ctx->command->name);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "; see detctl %s --help\n", ctx->command->name);
    return CODE_USAGE;
}

static int open_link(struct context *ctx, struct err *err)
{
    return ctx->link ? 0 : link_open(link_default_path(ctx->socket), LINK_ANSWER_S, &ctx->link, err);
}

static bool changes(const char *method)
{
    enum { READ, WRITE, OWNER, SUBMIT };
#define X(ident, name, access, params, help) \
    if (strcmp(method, name) == 0)           \
        return access != READ;
    METHODS(X)
#undef X
    return true;
}

static int call_with(struct context *ctx, double patience_s, const char *method, json_t *params, json_t **ret_result)
{
    struct err err = { 0 };
    int rc = open_link(ctx, &err);

    if (rc < 0) {
        json_decref(params);
        return complain(&err);
    }
    link_patience(ctx->link, patience_s);
    rc = link_call(ctx->link, method, params, ret_result, &err);
    if (rc >= 0 && strcmp(method, "job.get") == 0)
        checkpoints_look(*ret_result);
    if (rc >= 0)
        return 0;
    rc = complain(&err);
    if (link_unanswered(ctx->link) && changes(method))
        fprintf(stderr, "detctl: %s was sent, but no reply came: check its effect with detctl ls before you repeat it\n",
                strchr(method, '.') + 1);
    return rc;
}

int call(struct context *ctx, const char *method, json_t *params, json_t **ret_result)
{
    return call_with(ctx, 10, method, params, ret_result);
}

int call_patiently(struct context *ctx, const char *method, json_t *params, json_t **ret_result)
{
    return call_with(ctx, -1, method, params, ret_result);
}

int follow_job(struct context *ctx, int64_t job)
{
    struct err err = { 0 };
    int rc = open_link(ctx, &err);

    if (rc == 0)
        rc = link_subscribe(ctx->link, job, &err);
    return rc < 0 ? complain(&err) : 0;
}

int take_id(const struct context *ctx, const char *text, int64_t *ret_id)
{
    char *end;
    long long id;

    errno = 0;
    id = strtoll(text, &end, 10);
    if (errno || end == text || *end || id <= 0)
        return misuse(ctx, "'%s' is not a job id", text);
    *ret_id = id;
    return 0;
}

int take_duration(const struct context *ctx, const char *text, double *ret_s)
{
    static const struct {
        char unit;
        int seconds;
    } units[] = { { 's', 1 }, { 'm', 60 }, { 'h', 3600 }, { 'd', 86400 }, { 'w', 7 * 86400 } };
    char *end;
    double n = strtod(text, &end);

    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (text[0] >= '0' && text[0] <= '9' && end[0] == units[i].unit && !end[1] && n * units[i].seconds <= DURATION_MAX_S) {
            *ret_s = n * units[i].seconds;
            return 0;
        }
    return misuse(ctx, "'%s' is not a length of time, such as 30d, 12h, 45m, 90s or 2w", text);
}

/* ---- lists, page by page ---- */

enum { PAGE = 200 };

int call_page(struct context *ctx, const char *method, json_t *params, json_t **cursor, json_t **ret_result)
{
    int rc;

    if (*cursor)
        json_object_set_new(params, "cursor", *cursor);
    *cursor = NULL;
    rc = call(ctx, method, params, ret_result);
    if (rc == 0 && !json_is_null(json_object_get(*ret_result, "cursor")))
        *cursor = json_incref(json_object_get(*ret_result, "cursor"));
    return rc;
}

/* Removes rows that are left out from a page. */
static void sift(struct list *l, json_t *page)
{
    for (size_t i = json_array_size(page); l->leaves_out && i-- > 0;)
        if (l->leaves_out(json_array_get(page, i))) {
            json_array_remove(page, i);
            l->left_out++;
        }
}

int call_list(struct context *ctx, struct list *l, json_t **ret)
{
    json_t *all = json_array(), *result, *cursor = NULL, *page;
    int rc;

    do {
        long left = l->limit - (long)json_array_size(all);

        json_object_set_new(l->params, "limit", json_integer(left < PAGE && l->left_out == 0 ? left : PAGE));
        rc = call_page(ctx, l->method, json_deep_copy(l->params), &cursor, &result);
        if (rc)
            break;
        page = json_object_get(result, l->member);
        sift(l, page);
        json_array_extend(all, page);
        json_decref(result);
    } while (cursor && (long)json_array_size(all) < l->limit);
    json_decref(cursor);
    json_decref(l->params);
    while ((long)json_array_size(all) > l->limit)
        json_array_remove(all, json_array_size(all) - 1);
    if (rc)
        json_decref(all);
    else
        *ret = all;
    return rc;
}

int take_id_or_newest(struct context *ctx, const char *text, int64_t *ret_id)
{
    json_t *result, *first;
    int rc;

    if (text)
        return take_id(ctx, text, ret_id);
    rc = call(ctx, "job.list", json_pack("{s:i, s:b}", "limit", 1, "mine", true), &result);
    if (rc)
        return rc;
    first = json_array_get(json_object_get(result, "jobs"), 0);
    *ret_id = json_integer_value(json_object_get(first, "id"));
    if (!first) {
        fprintf(stderr, "detctl: you have no jobs yet; detctl submit FILE queues one\n");
        rc = CODE_REFUSED;
    }
    json_decref(result);
    return rc;
}

int refuse_name(const struct context *ctx, const char *word, const char *what)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";
    const size_t len = strspn(word, letters);

    if (!word[0])
        return misuse(ctx, "an empty name, '', is given");
    if (word[len] != '=' || !memchr(word, '.', len) || access(word, F_OK) == 0)
        return 0;
    return misuse(ctx, "'%.100s' is a key of a job and its value: %s", word, what);
}

FILE *open_plain(const char *path)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    FILE *f;

    if (fd < 0)
        return NULL;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        errno = EINVAL;
        return NULL;
    }
    f = fdopen(fd, "r");
    if (!f)
        close(fd);
    return f;
}

/* The most similar option; NULL: no option is similar. */
static const char *nearest_option(const char *word, const struct option *options)
{
    unsigned best_far = near_bound(word);
    const char *best = NULL;

    for (const struct option *o = options; o->name; o++) {
        unsigned far = near_distance(word, o->name);

        if (strncmp(o->name, word, strlen(word)) == 0)
            return NULL; /* it begins several options, which getopt names */
        if (far < best_far && far < strlen(o->name)) {
            best = o->name;
            best_far = far;
        }
    }
    return best;
}

/* An empty value usually comes from a shell variable that is not set. */
static int refuse_empty(const char *program, int letter, const struct option *options)
{
    const struct option *o = options;

    while (o->name && o->val != letter)
        o++;
    if (o->name)
        fprintf(stderr, "%s: the value of --%s is empty\n%s --help lists the options\n", program, o->name, program);
    else
        fprintf(stderr, "%s: the value of -%c is empty\n%s --help lists the options\n", program, letter, program);
    return '?';
}

int next_option(int argc, char **argv, const char *letters, const struct option *options)
{
    int o = getopt_long(argc, argv, letters, options, NULL);
    const char *word = o == '?' && optopt == 0 && optind > 1 ? argv[optind - 1] : "", *near = NULL;
    char name[64];

    if (o != '?' && o != -1 && optarg && !optarg[0])
        return refuse_empty(argv[0], o, options);
    if (o != '?')
        return o;
    if (strncmp(word, "--", 2) == 0) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
        near = nearest_option(name, options);
    }
    if (near)
        fprintf(stderr, "%s: did you mean --%s? ", argv[0], near);
    fprintf(stderr, "%s --help lists the options\n", argv[0]);
    return o;
}

int take_json(int argc, char **argv, bool *ret_json)
{
    static const struct option options[] = { { "json", no_argument, NULL, 'j' }, { 0 } };
    int o;

    *ret_json = false;
    while ((o = next_option(argc, argv, "", options)) != -1) {
        if (o == '?')
            return CODE_USAGE;
        *ret_json = true;
    }
    return 0;
}

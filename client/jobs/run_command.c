/* SPDX-License-Identifier: Apache-2.0 */ /* client/jobs/run_command.c - detctl run and shell: queue a command of the
 * user. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/base/command.h"
#include "client/base/print.h"
#include "client/base/user.h"
#include "client/jobs/code.h"
#include "client/jobs/program.h"
#include "client/jobs/shell.h"
#include "client/jobs/spec.h"
#include "client/jobs/submit.h"
#include "client/jobs/watch.h"
#include "proto/err.h"
#include "proto/host/memory.h"
#include "proto/utf8.h"

extern char **environ;

enum { NAME_MAX_CHARS = 64 };

/* ---- the environment that goes along ---- */

struct taken {
    json_t *env;
    bool all, none;
    char **named; /* by --env, NAME or NAME=VALUE */
    int nnamed;
};

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Goes along unless --env-none is given. */
static bool is_usual(const char *variable)
{
    return begins(variable, "PATH=") || begins(variable, "VIRTUAL_ENV=") || begins(variable, "CONDA_") || begins(variable, "PYTHONPATH=") ||
           begins(variable, "LD_LIBRARY_PATH=");
}

/* Belongs to the shell, not to the program. */
static bool is_of_shell(const char *variable)
{
    return begins(variable, "_=") || begins(variable, "PWD=") || begins(variable, "OLDPWD=") || begins(variable, "SHLVL=") ||
           begins(variable, "BASH_FUNC_");
}

static bool is_secret(const char *variable)
{
    static const char *const ends[] = { "TOKEN", "KEY", "SECRET", "PASSWORD" };
    size_t len = strcspn(variable, "=");

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (len >= strlen(ends[i]) && begins(variable + len - strlen(ends[i]), ends[i]))
            return true;
    return false;
}

static void put(struct taken *t, const char *variable)
{
    size_t len = strcspn(variable, "=");

    if (!utf8_good(variable, strlen(variable))) {
        fprintf(stderr, "detctl: note: %.*s is not UTF-8 and does not go along\n", (int)len, variable);
        return;
    }
    json_object_setn_new(t->env, variable, len, json_string(variable + len + 1));
}

/* Returns 0, or CODE_USAGE after complaining. */
static int put_named(const struct context *ctx, struct taken *t)
{
    for (int i = 0; i < t->nnamed; i++) {
        const char *name = t->named[i], *value = getenv(name);
        char *variable = NULL;

        if (strchr(name, '=')) {
            put(t, name);
            continue;
        }
        if (!value)
            return misuse(ctx, "--env %s: this variable is not set here; --env %s=VALUE gives it a value", name, name);
        if (asprintf(&variable, "%s=%s", name, value) < 0)
            memory_out();
        put(t, variable);
        free(variable);
    }
    return 0;
}

static int take_environment(const struct context *ctx, struct taken *t)
{
    bool any = false;

    for (char **v = environ; *v && !t->none; v++) {
        if (!(is_usual(*v) || (t->all && !is_of_shell(*v))))
            continue;
        if (t->all && is_secret(*v)) {
            fprintf(stderr, "%s%.*s", any ? ", " : "detctl: note: left out, as their names look like secrets: ", (int)strcspn(*v, "="), *v);
            any = true;
            continue;
        }
        put(t, *v);
    }
    if (any)
        fputs(" (--env NAME takes one along)\n", stderr);
    return put_named(ctx, t);
}

/* ---- the job ---- */

/* The first word of the command that is no interpreter and no option, without its folder. */
static json_t *name_of(char **command, int n)
{
    static const char *const interpreters[] = { "python", "bash", "sh", "env", "torchrun", "accelerate" };
    const char *word = command[0];

    for (int i = 0; i < n; i++) {
        const char *base = strrchr(command[i], '/') ? strrchr(command[i], '/') + 1 : command[i];
        bool skip = command[i][0] == '-' || !base[0];

        for (size_t k = 0; k < sizeof interpreters / sizeof *interpreters && !skip; k++)
            skip = begins(base, interpreters[k]) && !strchr(base + strlen(interpreters[k]), 'h');
        if (skip)
            continue;
        word = base;
        break;
    }
    if (!utf8_good(word, strlen(word)) || strlen(word) > NAME_MAX_CHARS)
        return json_string("program");
    return json_string(word);
}

struct wanted {
    const char *name;
    char more[6][60]; /* keys that the options stand for */
    int nmore;
    struct taken taken;
    struct queueing queueing;
    bool logs, print, shell;
    long ranks, gpus; /* -1: not given */
};

static json_t *command_json(char **command, int n)
{
    json_t *list = json_array();

    for (int i = 0; i < n; i++)
        if (json_array_append_new(list, json_string(command[i])) < 0) {
            fprintf(stderr, "detctl: argument %d of the command is not UTF-8\n", i);
            json_decref(list);
            return NULL;
        }
    return list;
}

/* Makes the object of a job file. NULL after complaining. */
static json_t *make(const struct wanted *w, char **command, int n)
{
    mode_t mask = umask(077);
    char here[PATH_MAX], octal[8];
    json_t *list = command_json(command, n), *root;

    umask(mask);
    snprintf(octal, sizeof octal, "%03o", (unsigned)mask);
    if (!list)
        return NULL;
    if (!getcwd(here, sizeof here)) {
        fprintf(stderr, "detctl: this folder: %s\n", strerror(errno));
        json_decref(list);
        return NULL;
    }
    root = json_pack("{s:o, s:{s:o, s:s, s:s}, s:{s:O}}", "name", w->name ? json_string(w->name) : name_of(command, n), "program",
                     "command", list, "directory", here, "umask", octal, "run", "env", w->taken.env);
    if (root && w->shell) /* an interactive shell ignores SIGTERM */
        json_object_update_new(json_object_get(root, "program"), json_pack("{s:b, s:s}", "terminal", 1, "stop_signal", "SIGHUP"));
    if (root && w->shell)
        json_object_set_new(json_object_get(root, "run"), "restarts", json_integer(0));
    if (!root)
        fputs("detctl: the name of this folder, or of the job, is not UTF-8\n", stderr);
    return root;
}

static int take_count(const struct context *ctx, const char *option, const char *text, long *ret)
{
    char *end;

    *ret = strtol(text, &end, 10);
    if (end == text || *end || *ret < 0 || *ret > 1000)
        return misuse(ctx, "%s: '%s' is not a number", option, text);
    return 0;
}

static void add_key(struct wanted *w, const char *key, long value)
{
    snprintf(w->more[w->nmore++], sizeof w->more[0], "%s=%ld", key, value);
}

/* Without --ranks each GPU gets a rank. A shell is one process. */
static void add_counts(struct wanted *w)
{
    if (w->ranks < 0 && w->gpus > 0 && !w->shell)
        w->ranks = w->gpus;
    if (w->ranks >= 0)
        add_key(w, "run.ranks", w->ranks);
    if (w->gpus >= 0)
        add_key(w, "program.gpus", w->gpus);
}

static int take_option(struct context *ctx, int o, struct wanted *w)
{
    if (o == 't' || o == 'a')
        return take_wish(ctx, o, optarg, w->more, &w->nmore);
    if (o == 'r')
        return take_count(ctx, "--ranks", optarg, &w->ranks);
    if (o == 'g')
        return take_count(ctx, "--gpus", optarg, &w->gpus);
    if (o == 'e')
        w->taken.named[w->taken.nnamed++] = optarg;
    w->name = o == 'N' ? optarg : w->name;
    w->taken.all |= o == 'A';
    w->taken.none |= o == 'O';
    w->logs |= o == 'l';
    w->print |= o == 'p';
    take_queueing(o, &w->queueing);
    return o == '?' ? CODE_USAGE : 0;
}

static int follow_logs(struct context *ctx, int64_t id)
{
    char number[24], *argv[] = { (char *)"detctl logs", number, (char *)"-f", NULL };
    int rc;

    snprintf(number, sizeof number, "%lld", (long long)id);
    printf("%s\n", number);
    fflush(stdout);
    optind = 0;
    rc = command_logs(ctx, 3, argv);
    return rc ? rc : watch_job(ctx, id, "total", WATCH_QUIETLY);
}

static int queue(struct context *ctx, const struct wanted *w, char **command, int n, char *const *changes, int nchanges)
{
    json_t *root = make(w, command, n), *spec = NULL;
    struct err err = { 0 };
    int64_t id = 0;
    int rc = root ? spec_change(ctx, root, "detctl run", changes, nchanges, &spec) : CODE_REFUSED;

    json_decref(root);
    if (rc == 0 && program_check(spec, &err) < 0)
        rc = complain(&err);
    if (rc == 0)
        code_record(spec);
    if (rc == 0 && w->print)
        print_json(spec);
    if (rc == 0 && !w->print)
        rc = submit_spec(ctx, json_incref(spec), &id);
    json_decref(spec);
    if (rc || w->print)
        return rc;
    if (w->shell)
        return shell_attach(ctx, id);
    return w->logs ? follow_logs(ctx, id) : submitted(ctx, id, w->queueing.wait, w->queueing.watch);
}

/* words: keys, before `--`. */
static int run(struct context *ctx, struct wanted *w, char **words, int keys, char **command, int n)
{
    char **changes = calloc((size_t)keys + sizeof w->more / sizeof *w->more + 1, sizeof *changes);
    int rc = 0;

    if (!changes)
        memory_out();
    add_counts(w);
    if (keys > 0)
        memcpy(changes, words, (size_t)keys * sizeof *changes);
    for (int i = 0; i < w->nmore; i++)
        changes[keys + i] = w->more[i];
    for (int i = 0; i < keys && rc == 0; i++)
        if (!strchr(words[i], '='))
            rc = misuse(ctx, "'%s' is not KEY=VALUE; the command comes after --", words[i]);
    if (rc == 0 && n < 1)
        rc = misuse(ctx, "no command given");
    if (rc == 0 && !(rc = user_may_submit(ctx)) && !(rc = take_environment(ctx, &w->taken)))
        rc = queue(ctx, w, command, n, changes, keys + w->nmore);
    free(changes);
    return rc;
}

/* Index of the first `--`, or argc. */
static int find_dashes(int argc, char **argv)
{
    int i = 1;

    while (i < argc && strcmp(argv[i], "--") != 0)
        i++;
    return i;
}

/* With `--` all words before it are options and keys. Without it the command begins with the first word that is no
 * option. */
int command_run(struct context *ctx, int argc, char **argv)
{
    static const struct option options[] = { QUEUEING_OPTIONS,
                                             { "ranks", required_argument, NULL, 'r' },
                                             { "gpus", required_argument, NULL, 'g' },
                                             { "name", required_argument, NULL, 'N' },
                                             { "time", required_argument, NULL, 't' },
                                             { "after", required_argument, NULL, 'a' },
                                             { "env", required_argument, NULL, 'e' },
                                             { "env-all", no_argument, NULL, 'A' },
                                             { "env-none", no_argument, NULL, 'O' },
                                             { "logs", no_argument, NULL, 'l' },
                                             { "print", no_argument, NULL, 'p' },
                                             { 0 } };
    struct wanted w = { .ranks = -1, .gpus = -1, .taken.env = json_object(), .taken.named = calloc((size_t)argc + 1, sizeof(char *)) };
    int rc = 0, o, dashes = find_dashes(argc, argv);
    bool apart = dashes < argc;

    if (!w.taken.named || !w.taken.env)
        memory_out();
    while (rc == 0 && (o = next_option(dashes, argv, apart ? "" : "+", options)) != -1)
        rc = take_option(ctx, o, &w);
    if (rc == 0 && apart)
        rc = run(ctx, &w, argv + optind, dashes - optind, argv + dashes + 1, argc - dashes - 1);
    else if (rc == 0)
        rc = run(ctx, &w, NULL, 0, argv + optind, argc - optind);
    json_decref(w.taken.env);
    free(w.taken.named);
    return rc;
}

/* Without a command it is the user's shell. */
int command_shell(struct context *ctx, int argc, char **argv)
{
    static const struct option options[] = { { "gpus", required_argument, NULL, 'g' },
                                             { "name", required_argument, NULL, 'N' },
                                             { "time", required_argument, NULL, 't' },
                                             { "env", required_argument, NULL, 'e' },
                                             { "env-all", no_argument, NULL, 'A' },
                                             { "env-none", no_argument, NULL, 'O' },
                                             { 0 } };
    char *usual[] = { getenv("SHELL") ? getenv("SHELL") : (char *)"/bin/sh", NULL };
    struct wanted w = {
        .ranks = -1, .gpus = -1, .shell = true, .taken.env = json_object(), .taken.named = calloc((size_t)argc + 1, sizeof(char *))
    };
    int rc = 0, o;

    if (!w.taken.named || !w.taken.env)
        memory_out();
    w.taken.named[w.taken.nnamed] = (char *)"TERM";
    w.taken.nnamed += getenv("TERM") != NULL;
    while (rc == 0 && (o = next_option(argc, argv, "+", options)) != -1)
        rc = take_option(ctx, o, &w);
    if (rc == 0 && optind < argc)
        rc = run(ctx, &w, NULL, 0, argv + optind, argc - optind);
    else if (rc == 0)
        rc = run(ctx, &w, NULL, 0, usual, 1);
    json_decref(w.taken.env);
    free(w.taken.named);
    return rc;
}

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
#include "client/jobs/shell.h"
#include "client/jobs/spec.h"
#include "client/jobs/submit.h"
#include "client/jobs/watch.h"
#include "proto/err.h"
#include "proto/host/limits.h"
#include "proto/host/memory.h"
#include "proto/job/jobspec.h"
#include "proto/utf8.h"

extern char **environ;

enum { NAME_MAX_CHARS = 64 };

struct wanted {
    bool shell;
    const char *name, *ranks, *gpus; /* NULL: not given */
    char **named;                    /* by --env, NAME or NAME=VALUE */
    int nnamed;
    bool all, none; /* of the environment */
    json_t *run;    /* keys of the job */
    struct queueing queueing;
    bool logs, print;
};

/* ---- the environment that goes along ---- */

/* It goes along unless --env-none is given. */
static const char *const usual[] = { "PATH=", "VIRTUAL_ENV=", "CONDA_", "PYTHONPATH=", "LD_LIBRARY_PATH=", NULL };
/* It belongs to the shell, not to the program. */
static const char *const of_shell[] = { "_=", "PWD=", "OLDPWD=", "SHLVL=", "BASH_FUNC_", NULL };

static bool begins_with_any(const char *variable, const char *const *list)
{
    while (*list && strncmp(variable, *list, strlen(*list)) != 0)
        list++;
    return *list;
}

static bool is_secret(const char *variable)
{
    static const char *const ends[] = { "TOKEN", "KEY", "SECRET", "PASSWORD" };
    size_t len = strcspn(variable, "=");

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (len >= strlen(ends[i]) && strncmp(variable + len - strlen(ends[i]), ends[i], strlen(ends[i])) == 0)
            return true;
    return false;
}

/* name: with "=VALUE" behind it, or not. */
static void put(json_t *env, const char *name, const char *value)
{
    size_t len = strcspn(name, "=");

    if (json_object_setn_new(env, name, len, json_string(value)) < 0)
        fprintf(stderr, "detctl: note: %.*s is not UTF-8 and does not go along\n", (int)len, name);
}

/* A supervisor sets these for each rank. */
static bool is_set_by_detd(const char *variable)
{
    static const char *const names[] = { "RANK",        "LOCAL_RANK",          "ROLE_RANK",       "GROUP_RANK",       "ROLE_NAME",
                                         "WORLD_SIZE",  "LOCAL_WORLD_SIZE",    "ROLE_WORLD_SIZE", "GROUP_WORLD_SIZE", "MASTER_ADDR",
                                         "MASTER_PORT", "CUDA_VISIBLE_DEVICES" };
    size_t len = strcspn(variable, "=");

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (len == strlen(names[i]) && strncmp(variable, names[i], len) == 0)
            return true;
    return false;
}

/* Returns 0, or CODE_USAGE after complaining. */
static int put_named(const struct context *ctx, const struct wanted *w, json_t *env)
{
    for (int i = 0; i < w->nnamed; i++) {
        const char *name = w->named[i], *equals = strchr(name, '='), *value = equals ? equals + 1 : getenv(name);

        if (!value)
            return misuse(ctx, "--env %s: this variable is not set here; --env %s=VALUE gives it a value", name, name);
        if (is_set_by_detd(name))
            fprintf(stderr, "detctl: note: --env %.*s has no effect: detd sets this variable\n", (int)strcspn(name, "="), name);
        put(env, name, value);
    }
    return 0;
}

static bool is_named(const struct wanted *w, const char *variable)
{
    size_t len = strcspn(variable, "=");

    for (int i = 0; i < w->nnamed; i++)
        if (strcspn(w->named[i], "=") == len && strncmp(w->named[i], variable, len) == 0)
            return true;
    return false;
}

static int take_environment(const struct context *ctx, const struct wanted *w)
{
    json_t *env = spec_group(w->run, "env");
    bool any = false;

    if (w->all && w->none)
        return misuse(ctx, "--env-all and --env-none exclude each other");
    for (char **v = environ; *v && !w->none; v++) {
        const char *equals = strchr(*v, '=');

        if (!equals || (!begins_with_any(*v, usual) && !(w->all && !begins_with_any(*v, of_shell))))
            continue;
        if (is_named(w, *v))
            continue;
        if (w->all && is_secret(*v)) {
            fprintf(stderr, "%s%.*s", any ? ", " : "detctl: note: left out, as their names look like secrets: ", (int)strcspn(*v, "="), *v);
            any = true;
        } else {
            put(env, *v, equals + 1);
        }
    }
    if (any)
        fputs(" (--env NAME takes one along)\n", stderr);
    return put_named(ctx, w, env);
}

/* ---- the job ---- */

/* With or without a version at its end. */
static bool is_interpreter(const char *word)
{
    static const char *const names[] = { "python", "bash", "sh", "env", "torchrun", "accelerate" };
    size_t len = strlen(word);

    while (len > 0 && strchr("0123456789.", word[len - 1]))
        len--;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (len == strlen(names[i]) && strncmp(word, names[i], len) == 0)
            return true;
    return false;
}

/* -c of python3 and sh, or -lc: the next word is text of a script. */
static bool is_script_option(const char *word)
{
    size_t len = strlen(word);

    return len > 1 && word[0] == '-' && word[1] != '-' && word[len - 1] == 'c';
}

/* The first word of the command that is no interpreter and no option, without its folder; else the interpreter. */
static const char *name_of(char **command)
{
    const char *word = *command;

    for (; *command && !is_script_option(*command); command++) {
        const char *slash = strrchr(*command, '/'), *base = slash ? slash + 1 : *command;

        if (!*base || **command == '-')
            continue;
        word = base;
        if (!is_interpreter(base))
            break;
    }
    return *word && utf8_good(word, strlen(word)) && strlen(word) <= NAME_MAX_CHARS ? word : "program";
}

/* Without --ranks each GPU gets a rank. A shell is one process. */
static int set_counts(const struct wanted *w, json_t *root, struct err *err)
{
    const char *ranks = w->ranks || w->shell || !w->gpus || strcmp(w->gpus, "0") == 0 ? w->ranks : w->gpus;
    char text[80];
    int rc = 0;

    snprintf(text, sizeof text, "run.ranks=%s", ranks ? ranks : "");
    if (ranks)
        rc = jobspec_override(root, text, err);
    snprintf(text, sizeof text, "program.gpus=%s", w->gpus ? w->gpus : "");
    return rc == 0 && w->gpus ? jobspec_override(root, text, err) : rc;
}

/* Makes the object of a job file, a new reference. */
static int make(const struct wanted *w, char **command, json_t **ret, struct err *err)
{
    mode_t mask = umask(077);
    json_t *list = json_array(), *program;
    char here[PATH_MAX], octal[8];

    umask(mask);
    snprintf(octal, sizeof octal, "%03o", (unsigned)mask);
    if (!getcwd(here, sizeof here))
        here[0] = '\0';
    program = json_pack("{s:o, s:s, s:s, s:o}", "command", list, "directory", here, "umask", octal, "limits", limits_now());
    if (w->shell) { /* an interactive shell ignores SIGTERM */
        json_object_update_new(program, json_pack("{s:b, s:s}", "terminal", 1, "stop_signal", "SIGHUP"));
        json_object_set_new(w->run, "restarts", json_integer(0));
    }
    *ret = json_pack("{s:s, s:o, s:O}", "name", w->name ? w->name : name_of(command), "program", program, "run", w->run);
    if (!*ret || !here[0])
        return err_set(err, ERR_INPUT, "this folder is gone, or its name or that of the job is not UTF-8");
    for (int i = 0; command[i]; i++)
        if (json_array_append_new(list, json_string(command[i])) < 0)
            return err_set(err, ERR_INPUT, "argument %d of the command is not UTF-8", i);
    return set_counts(w, *ret, err);
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
    return rc && rc != CODE_INTERRUPTED ? rc : watch_job(ctx, id, "total", WATCH_QUIETLY);
}

/* Prints the job, or queues it and follows it. Steals spec. */
static int queue(struct context *ctx, const struct wanted *w, json_t *spec)
{
    int64_t id = 0;
    int rc;

    if (w->print) {
        print_json(spec);
        json_decref(spec);
        return 0;
    }
    if (w->shell && !isatty(STDIN_FILENO)) {
        json_decref(spec);
        return misuse(ctx, "standard input is no terminal; detctl run queues a command that needs none");
    }
    rc = submit_checked(ctx, spec, &w->queueing, &id);
    if (rc)
        return rc;
    if (w->shell)
        return shell_attach(ctx, id);
    return w->logs ? follow_logs(ctx, id) : submitted(ctx, id, w->queueing.wait, w->queueing.watch);
}

/* keys: KEY=VALUE, so many. command: NULL-terminated. */
static int run(struct context *ctx, const struct wanted *w, char **keys, int nkeys, char **command)
{
    json_t *root = NULL, *spec;
    struct err err = { 0 };
    int rc;

    for (int i = 0; i < nkeys; i++)
        if (!strchr(keys[i], '='))
            return misuse(ctx, "'%s' is not KEY=VALUE; the command comes after --", keys[i]);
    if (!*command)
        return misuse(ctx, "no command given");
    if ((rc = user_may_submit(ctx)) || (rc = take_environment(ctx, w)))
        return rc;
    rc = make(w, command, &root, &err) < 0 ? complain(&err) : spec_change(ctx, root, "detctl run", keys, nkeys, &spec);
    json_decref(root);
    return rc ? rc : queue(ctx, w, spec);
}

/* ---- options ---- */

static int take_option(struct context *ctx, int o, struct wanted *w)
{
    if (o == 'e')
        w->named[w->nnamed++] = optarg;
    w->ranks = o == 'r' ? optarg : w->ranks;
    w->gpus = o == 'g' ? optarg : w->gpus;
    w->name = o == 'N' ? optarg : w->name;
    w->all |= o == 'A';
    w->none |= o == 'O';
    w->logs |= o == 'l';
    w->print |= o == 'p';
    take_queueing(o, &w->queueing);
    return o == '?' ? CODE_USAGE : take_wish(ctx, o, optarg, w->run);
}

/* With `--` all words before it are options and keys. Without it the command begins with the first word that is no
 * option. A shell needs no command. */
static int take(struct context *ctx, int argc, char **argv, const struct option *options, bool shell)
{
    char *usual_shell[] = { getenv("SHELL") ? getenv("SHELL") : (char *)"/bin/sh", NULL };
    struct wanted w = { .shell = shell, .run = json_object(), .named = calloc((size_t)argc + 1, sizeof(char *)) };
    int rc = 0, o, dashes = 1;

    if (!w.named || !w.run)
        memory_out();
    if (shell && getenv("TERM"))
        w.named[w.nnamed++] = (char *)"TERM";
    while (dashes < argc && strcmp(argv[dashes], "--") != 0)
        dashes++;
    while (rc == 0 && (o = next_option(dashes, argv, dashes < argc ? "" : "+", options)) != -1)
        rc = take_option(ctx, o, &w);
    if (rc == 0 && dashes < argc)
        rc = run(ctx, &w, argv + optind, dashes - optind, shell && dashes + 1 == argc ? usual_shell : argv + dashes + 1);
    else if (rc == 0)
        rc = run(ctx, &w, NULL, 0, shell && optind == argc ? usual_shell : argv + optind);
    json_decref(w.run);
    free(w.named);
    return rc;
}

#define JOB_OPTIONS                                                                                                               \
    { "gpus", required_argument, NULL, 'g' }, { "name", required_argument, NULL, 'N' }, { "time", required_argument, NULL, 't' }, \
        { "env", required_argument, NULL, 'e' }, { "env-all", no_argument, NULL, 'A' },                                           \
    {                                                                                                                             \
        "env-none", no_argument, NULL, 'O'                                                                                        \
    }

int command_run(struct context *ctx, int argc, char **argv)
{
    static const struct option options[] = { QUEUEING_OPTIONS,
                                             JOB_OPTIONS,
                                             { "ranks", required_argument, NULL, 'r' },
                                             { "after", required_argument, NULL, 'a' },
                                             { "logs", no_argument, NULL, 'l' },
                                             { "print", no_argument, NULL, 'p' },
                                             { 0 } };

    return take(ctx, argc, argv, options, false);
}

/* Without a command it is the user's shell. */
int command_shell(struct context *ctx, int argc, char **argv)
{
    static const struct option options[] = { JOB_OPTIONS, { 0 } };

    return take(ctx, argc, argv, options, true);
}

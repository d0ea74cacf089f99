/* SPDX-License-Identifier: Apache-2.0 */ /* client/main.c - detctl: asks detd, one command a run. */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/base/command.h"
#include "client/base/link.h"
#include "client/base/print.h"
#include "client/base/user.h"
#include "proto/near.h"
#include "proto/host/output.h"
#include "proto/host/start.h"
#include "proto/version.h"

/* The title of a group of commands if c is its first command, else "". */
static const char *begins(const struct command *c)
{
    static const char *const groups[][2] = { { "submit", "start" }, { "ls", "look" },    { "cancel", "steer" },
                                             { "loss", "results" }, { "diff", "prove" }, { "gpus", "node" } };
    static char text[16];

    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        if (strcmp(groups[i][0], c->name) == 0) {
            snprintf(text, sizeof text, "\n%s:\n", groups[i][1]);
            return text;
        }
    return "";
}

static void usage(FILE *out)
{
    fputs("usage: detctl [--socket PATH] [--utc] COMMAND ...\n", out);
    for (const struct command *c = commands; c->name; c++)
        fprintf(out, "%s  %-14s %s\n", begins(c), c->name, c->help);
    fputs("\ndetctl help COMMAND explains one with an example. Times are local, or with --utc UTC, as in logs. The socket: --socket, "
          "DETD_SOCKET, the user's own\n"
          "daemon ($XDG_RUNTIME_DIR/detd/detd.sock), or /run/detd/detd.sock.\n\nexit codes:\n",
          out);
#define X(name, code, text) fprintf(out, "  %3d  %s\n", code, text);
    EXIT_CODES(X)
#undef X
}

static void explain(const struct command *c)
{
    printf("usage: detctl %s %s\n\n%s.\n", c->name, c->args, c->help);
    if (*c->options)
        printf("\n%s", c->options);
    printf("\nexample:\n%s", c->example);
}

/* Takes the option with its value if it is argv[*i]. */
static bool take_value(int argc, char **argv, int *i, const char *name, const char **ret)
{
    const char *word = argv[*i] + strlen(name);

    if (strncmp(argv[*i], name, strlen(name)) != 0 || (*word && *word != '='))
        return false;
    *ret = *word ? word + 1 : *i + 1 < argc ? argv[++*i] : "";
    return true;
}

/* Takes --socket, --as and --utc out of argv wherever they stand before "--", so that commands need not know them. */
static void take_common(int *argc, char **argv, struct context *ctx)
{
    int kept = 1, i = 1;

    for (; i < *argc && strcmp(argv[i], "--") != 0; i++) {
        if (take_value(*argc, argv, &i, "--socket", &ctx->socket) || take_value(*argc, argv, &i, "--as", &ctx->as))
            continue;
        if (strcmp(argv[i], "--utc") == 0)
            print_times_in_utc();
        else
            argv[kept++] = argv[i];
    }
    while (i < *argc)
        argv[kept++] = argv[i++];
    argv[kept] = NULL;
    *argc = kept;
}

static bool wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

/* Other programs' words for commands. */
static const struct {
    const char *theirs, *ours;
} others[] = {
    { "train", "submit" }, { "srun", "run" },      { "start", "submit" },    { "sbatch", "submit" },  { "qsub", "submit" },
    { "list", "ls" },      { "jobs", "ls" },       { "ps", "ls" },           { "squeue", "queue" },   { "qstat", "queue" },
    { "status", "show" },  { "stop", "cancel" },   { "kill", "cancel" },     { "scancel", "cancel" }, { "qdel", "cancel" },
    { "val", "eval" },     { "validate", "eval" }, { "test", "eval" },       { "infer", "predict" },  { "detect", "predict" },
    { "delete", "rm" },    { "remove", "rm" },     { "nvidia-smi", "gpus" }, { "hold", "pause" },     { "release", "resume" },
    { "retry", "clone" },  { "repro", "clone" },   { "sinfo", "info" },      { "torchrun", "run" },   { "exec", "run" },
};

/* A command that acts on the whole node is never suggested for a mistyped word. */
static bool acts_on_the_node(const struct command *c)
{
    return strcmp(c->name, "drain") == 0 || strcmp(c->name, "undrain") == 0;
}

/* The most similar command, the first of several; NULL: no command is similar. */
static const char *nearest(const char *word)
{
    unsigned best_far = near_bound(word);
    const char *best = NULL;

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(word, others[i].theirs) == 0)
            return others[i].ours;
    for (const struct command *c = commands; c->name; c++) {
        unsigned far = near_distance(word, c->name);

        if (far < best_far && far < strlen(c->name) && !acts_on_the_node(c)) {
            best = c->name;
            best_far = far;
        }
    }
    return best;
}

static int refuse(const char *word)
{
    const char *near = nearest(word);

    fprintf(stderr, "detctl: no command '%s'%s%s%s; see detctl --help\n", word, near ? "; did you mean " : "", near ? near : "",
            near ? "?" : "");
    return CODE_USAGE;
}

/* Runs help [COMMAND]. */
static int help(const char *word)
{
    const struct command *c = word ? command_find(word) : NULL;

    if (word && !c)
        return refuse(word);
    if (c)
        explain(c);
    else
        usage(stdout);
    return CODE_DONE;
}

static int run(struct context *ctx, int argc, char **argv)
{
    const struct command *c = command_find(argv[0]);
    char name[64];
    int code;

    if (!c)
        return refuse(argv[0]);
    if (wants_help(argc, argv)) {
        explain(c);
        return CODE_DONE;
    }
    snprintf(name, sizeof name, "detctl %s", c->name);
    argv[0] = name; /* getopt puts this name in front of its messages */
    ctx->command = c;
    if (ctx->as && !strstr(c->args, "[--as "))
        return misuse(ctx, "--as is for commands that submit a job");
    if (ctx->as && (code = user_become(ctx->as)))
        return code;
    return c->run(ctx, argc, argv);
}

static int run_line(int argc, char **argv)
{
    struct context ctx = { 0 };
    int code;

    take_common(&argc, argv, &ctx);
    if ((ctx.socket && !*ctx.socket) || (ctx.as && !*ctx.as)) {
        fputs(ctx.socket && !*ctx.socket ? "detctl: --socket needs a path\n" : "detctl: --as needs the name of a user\n", stderr);
        return CODE_USAGE;
    }
    if (argc < 2) {
        usage(stderr);
        return CODE_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return help(NULL);
    if (strcmp(argv[1], "help") == 0)
        return help(argv[2]);
    if (strcmp(argv[1], "--version") == 0) {
        puts("detctl " DETD_VERSION);
        return CODE_DONE;
    }
    code = run(&ctx, argc - 1, argv + 1);
    link_close(ctx.link);
    return code;
}

int main(int argc, char **argv)
{
    int code;

    start_tool();
    setlocale(LC_CTYPE, ""); /* for UTF-8 drawing only: numbers stay as in C */
    code = run_line(argc, argv);
    if (output_end(stdout, "detctl") < 0)
        code = code ? code : CODE_REFUSED;
    return code;
}

/* SPDX-License-Identifier: Apache-2.0 */ /* client/completion.c - completion for bash: its function asks detctl for the
 * words that can stand at the cursor. */
#include <stdio.h>
#include <string.h>

#include "client/base/command.h"
#include "client/base/link.h"
#include "client/base/print.h"
#include "proto/err.h"
#include "proto/job/jobspec.h"

enum { JOBS_SHOWN = 100, OPTION_MAX = 32, PATIENCE_S = 1 };

static const char script[] =
    "# bash completion of detctl, which `detctl completion` prints\n"
    "_detctl()\n"
    "{\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]}\n"
    "    mapfile -t COMPREPLY < <(\"${COMP_WORDS[0]}\" completion -- \"${COMP_WORDS[@]:1:COMP_CWORD}\" 2>/dev/null)\n"
    "    [[ $cur = '=' ]] && cur=\n"
    "    mapfile -t COMPREPLY < <(compgen -W \"${COMPREPLY[*]}\" -- \"$cur\")\n"
    "    [[ ${COMPREPLY[0]-} = *= ]] && compopt -o nospace 2>/dev/null\n"
    "    return 0\n"
    "}\n"
    "complete -o bashdefault -o default -F _detctl detctl # names of files where detctl knows no word\n";

/* Options that take one of a few words. */
static const struct {
    const char *option, *words;
} values[] = {
    { "--state", "queued\nstarting\nrunning\nstopping\npaused\ncompleted\nfailed\ncancelled" },
    { "--split", "train\nval" },
    { "--tier", "off\nrerun\nworld" },
    { "--checkpoint", "best\nlast" },
    { "--device", "cpu\ncuda" },
};

/* Calls `each` with every option, such as --split or -n, that the text mentions, and with the text behind it. */
static void each_option(const char *text, void (*each)(void *arg, const char *option, const char *after), void *arg)
{
    char before = ' ', option[OPTION_MAX];

    for (const char *at = text; *at; before = *at++) {
        size_t len = strspn(at, "-abcdefghijklmnopqrstuvwxyz");

        if (*at != '-' || !strchr(" [\n", before) || len < 2 || len >= sizeof option || at[len - 1] == '-')
            continue;
        memcpy(option, at, len);
        option[len] = '\0';
        each(arg, option, at + len);
    }
}

static void print_option(void *arg, const char *option, const char *after)
{
    (void)arg, (void)after;
    puts(option);
}

struct asked {
    const char *option;
    bool takes;
};

static void look_for_value(void *arg, const char *option, const char *after)
{
    struct asked *a = arg;

    if (strcmp(option, a->option) == 0)
        a->takes = after[0] == ' ' && after[1] && !strchr("|]-[ ", after[1]);
}

/* Whether the word after `option` is its value: then the command's arguments have "--term NAME". */
static bool takes_value(const struct command *c, const char *option)
{
    struct asked a = { option, strcmp(option, "--socket") == 0 || strcmp(option, "-o") == 0 };

    each_option(c->args, look_for_value, &a);
    return a.takes;
}

static void print_jobs(struct context *ctx)
{
    struct err err = { 0 };
    json_t *result = NULL, *job;
    size_t i;

    if (link_open(link_default_path(ctx->socket), PATIENCE_S, &ctx->link, &err) < 0)
        return;
    link_patience(ctx->link, PATIENCE_S);
    if (link_call(ctx->link, "job.list", json_pack("{s:i}", "limit", (int)JOBS_SHOWN), &result, &err) < 0)
        return;
    json_array_foreach (json_object_get(result, "jobs"), i, job) {
        printf("%lld\n", int_of(job, "id"));
    }
    json_decref(result);
}

static void print_words(const char *words)
{
    for (; *words; words++)
        putchar(*words == '|' ? '\n' : *words);
    putchar('\n');
}

static void print_keys(void)
{
#define X(field, key, type, def, neutral, families, min, max, unit, values, help) \
    if (!job_word_is_errand(key))                                                 \
        puts(key "=");
    JOB_KEYS(X)
#undef X
}

static void print_values_of_key(const char *name)
{
#define X(field, key, type, def, neutral, families, min, max, unit, values, help) \
    if (strcmp(name, key) == 0)                                                   \
        print_words(strcmp(#type, "BOOL") == 0 ? "true|false" : values);
    JOB_KEYS(X)
#undef X
}

static bool named_first(const char *args, const char *word)
{
    return strncmp(args, word, strlen(word)) == 0 || (args[0] == '[' && strncmp(args + 1, word, strlen(word)) == 0);
}

/* Prints the words that may replace `typed` after `before`; one of the earlier words is the command. */
static void print_for(struct context *ctx, const struct command *c, const char *before, const char *typed)
{
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (strcmp(before, values[i].option) == 0) {
            puts(values[i].words);
            return;
        }
    if (strcmp(before, "--job") == 0) {
        print_jobs(ctx);
    } else if (typed[0] == '-') {
        puts("--help\n--socket\n--utc");
        each_option(c->args, print_option, NULL);
        each_option(c->options, print_option, NULL);
    } else if (before[0] == '-' && takes_value(c, before)) {
        return;
    } else if (named_first(c->args, "ID") || named_first(c->args, "A B")) {
        print_jobs(ctx);
    } else if (named_first(c->args, "on")) {
        puts("on\noff");
    } else if (named_first(c->args, "export")) {
        if (strcmp(before, "export") == 0)
            print_jobs(ctx);
        else if (strcmp(before, c->name) == 0)
            puts("export");
    } else if (strstr(c->args, "KEY=VALUE") && strcmp(before, c->name) != 0) {
        print_keys();
    }
}

/* argv: the words before the cursor, the last one as far as it is typed. bash makes three words of KEY=VALUE. */
static void complete(struct context *ctx, int argc, char **argv)
{
    const struct command *c = NULL;
    const char *typed = argc > 0 ? argv[argc - 1] : "", *before = argc > 1 ? argv[argc - 2] : "";

    for (int i = 0; i + 1 < argc; i++) {
        if (strcmp(argv[i], "--socket") == 0)
            ctx->socket = argv[++i];
        else if (!c && argv[i][0] != '-' && !(c = command_find(argv[i])))
            return;
    }
    if (argc > 1 && strcmp(typed, "=") == 0)
        print_values_of_key(before);
    else if (argc > 2 && strcmp(before, "=") == 0)
        print_values_of_key(argv[argc - 3]);
    else if (c)
        print_for(ctx, c, before, typed);
    else if (strcmp(before, "--socket") != 0)
        for (puts("--help\n--version\n--socket\n--utc"), c = commands; c->name; c++)
            puts(c->name);
}

int command_completion(struct context *ctx, int argc, char **argv)
{
    if (argc == 1)
        return fputs(script, stdout) < 0 ? CODE_REFUSED : CODE_DONE;
    if (strcmp(argv[1], "--") != 0)
        return misuse(ctx, "'%s' is not expected", argv[1]);
    complete(ctx, argc - 2, argv + 2);
    return CODE_DONE;
}

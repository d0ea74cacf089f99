/* SPDX-License-Identifier: Apache-2.0 */ /* client/base/command.h - what detctl's commands share: exit codes, the row of a command, and calling detd with errors told to the user. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "client/base/interrupt.h"

struct err;
struct link;

#define EXIT_CODES(X)                                                \
    X(DONE, 0, "done")                                               \
    X(REFUSED, 1, "refused: bad input, not allowed, not possible")   \
    X(USAGE, 2, "wrong use of detctl")                               \
    X(NO_DAEMON, 3, "no detd answers at the socket")                 \
    X(JOB_FAILED, 4, "the job that was waited for failed")           \
    X(JOB_CANCELLED, 5, "the job that was waited for was cancelled") \
    X(DIFFERS, 6, "of diff and verify: the runs differ")             \
    X(INTERRUPTED, 130, "interrupted; the job goes on")
#define X(name, code, text) CODE_##name = code,
enum exit_code { EXIT_CODES(X) };
#undef X

struct context {
    const char *socket; /* from --socket, or NULL */
    struct link *link;  /* opened by the first call */
    const struct command *command;
};

/* One row of the table in commands.c. Functions get argv[0] = "detctl NAME" and return an exit code. */
struct command {
    const char *name, *args, *help;
    const char *options; /* lines for --help, "" where there are none */
    const char *example;
    int (*run)(struct context *ctx, int argc, char **argv);
};
extern const struct command commands[]; /* ends with a NULL name */
/* The command called `name`, or NULL. */
const struct command *command_find(const char *name);

int command_submit(struct context *ctx, int argc, char **argv);        /* submit.c */
int command_check(struct context *ctx, int argc, char **argv);         /* check.c */
int command_ls(struct context *ctx, int argc, char **argv);            /* jobs.c */
int command_show(struct context *ctx, int argc, char **argv);          /* jobs.c */
int command_queue(struct context *ctx, int argc, char **argv);         /* queue.c */
int command_wait(struct context *ctx, int argc, char **argv);          /* queue.c */
int command_why(struct context *ctx, int argc, char **argv);           /* jobs.c */
int command_events(struct context *ctx, int argc, char **argv);        /* jobs.c */
int command_usage(struct context *ctx, int argc, char **argv);         /* jobs.c */
int command_control(struct context *ctx, int argc, char **argv);       /* control.c: cancel, pause, resume, checkpoint, rm */
int command_extend(struct context *ctx, int argc, char **argv);        /* extend.c */
int command_clone(struct context *ctx, int argc, char **argv);         /* extend.c */
int command_compare(struct context *ctx, int argc, char **argv);       /* compare.c */
int command_note(struct context *ctx, int argc, char **argv);          /* label.c */
int command_tag(struct context *ctx, int argc, char **argv);           /* label.c */
int command_priority(struct context *ctx, int argc, char **argv);      /* control.c */
int command_deterministic(struct context *ctx, int argc, char **argv); /* control.c */
int command_prune(struct context *ctx, int argc, char **argv);         /* prune.c */
int command_watch(struct context *ctx, int argc, char **argv);         /* watch.c */
int command_loss(struct context *ctx, int argc, char **argv);          /* loss.c */
int command_eval(struct context *ctx, int argc, char **argv);          /* eval.c */
int command_logs(struct context *ctx, int argc, char **argv);          /* logs.c */
int command_verify(struct context *ctx, int argc, char **argv);        /* verify.c */
int command_evidence(struct context *ctx, int argc, char **argv);      /* evidence.c */
int command_export(struct context *ctx, int argc, char **argv);        /* export.c */
int command_gpus(struct context *ctx, int argc, char **argv);          /* gpus.c */
int command_info(struct context *ctx, int argc, char **argv);          /* node.c */
int command_drain(struct context *ctx, int argc, char **argv);         /* node.c */
int command_doctor(struct context *ctx, int argc, char **argv);        /* doctor.c */
int command_undrain(struct context *ctx, int argc, char **argv);       /* node.c */
int command_diff(struct context *ctx, int argc, char **argv);          /* diff.c */
int command_predict(struct context *ctx, int argc, char **argv);       /* predict.c */
int command_layers(struct context *ctx, int argc, char **argv);        /* look.c */
int command_sample(struct context *ctx, int argc, char **argv);        /* look.c */
int command_anchors(struct context *ctx, int argc, char **argv);       /* look.c */
int command_completion(struct context *ctx, int argc, char **argv);    /* completion.c */

/* Prints "detctl: message" on stderr, nothing where the message is empty, and returns the exit code that belongs to err->code. */
int complain(const struct err *err);
/* Prints "detctl NAME: text; see detctl NAME --help" on stderr and returns CODE_USAGE. */
int misuse(const struct context *ctx, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Calls a method; params are stolen. 0 with *ret_result to be dropped by the caller, or an exit code after complaining. */
int call(struct context *ctx, const char *method, json_t *params, json_t **ret_result);
/* Like call(), and waits for a detd that is away as long as it takes, saying so on stderr. */
int call_patiently(struct context *ctx, const char *method, json_t *params, json_t **ret_result);
/* call(), asking for the page after the one that *cursor is of (NULL: for the first); *cursor is the new page's then, NULL: it is the last one. */
int call_page(struct context *ctx, const char *method, json_t *params, json_t **cursor, json_t **ret_result);
/* A list that a method tells page by page. */
struct list {
    const char *method, *member;
    json_t *params; /* of every page; owned */
    long limit;
    bool (*leaves_out)(const json_t *row); /* NULL: nothing is left out */
    long left_out;
};
/* *ret: an array of at most `limit` objects, to be dropped by the caller. 0 or an exit code after complaining. */
int call_list(struct context *ctx, struct list *l, json_t **ret);
/* Follows the job as link_subscribe() does, for link_wait() on ctx->link. 0 or an exit code after complaining. */
int follow_job(struct context *ctx, int64_t job);
/* A job id. 0, or CODE_USAGE after complaining. */
int take_id(const struct context *ctx, const char *text, int64_t *ret_id);
/* The id in `text`, or that of the caller's newest job where text is NULL. 0 or an exit code after complaining. */
int take_id_or_newest(struct context *ctx, const char *text, int64_t *ret_id);

/* Says that something was asked of a job, and when it is to be expected: what does not run does nothing now. */
void tell_asked(int64_t id, const char *what, const char *state);

/* Opens for reading what lies in a job's folder, where its user puts what he likes: neither a link nor what is no file is opened or waited for. NULL with errno. */
FILE *open_plain(const char *path);

struct option;
/* getopt_long(), which names the nearest of the options where it complains of an unknown one. */
int next_option(int argc, char **argv, const char *letters, const struct option *options);
/* Refuses what stands in the place of a file, folder or picture and names none: "", and KEY=VALUE, where no file is called so. what: the end of the sentence, as
 * "the job file comes first". 0, or CODE_USAGE after complaining. */
int refuse_name(const struct context *ctx, const char *word, const char *what);
/* The options of a command that has --json alone; words begin at optind. 0, or CODE_USAGE after getopt has complained. */
int take_json(int argc, char **argv, bool *ret_json);
/* A time such as 30d, 12h, 45m, 90s or 2w, in seconds. 0, or CODE_USAGE after complaining. */
int take_duration(const struct context *ctx, const char *text, double *ret_s);

/* SPDX-License-Identifier: Apache-2.0 */ /* client/base/command.h - shared by detctl's commands: exit codes, the row of
 * a command, and calls of detd that show errors to the user. */
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
    X(INTERRUPTED, 130, "interrupted; the job keeps running")
#define X(name, code, text) CODE_##name = code,
enum exit_code { EXIT_CODES(X) };
#undef X

struct context {
    const char *socket; /* from --socket, or NULL */
    const char *as;     /* from --as, or NULL */
    struct link *link;  /* opened by the first call */
    const struct command *command;
};

/* One row of the table in commands.c. Functions get argv[0] = "detctl NAME" and return an exit code. */
struct command {
    const char *name, *args, *help;
    const char *options; /* lines for --help, or "" */
    const char *example;
    int (*run)(struct context *ctx, int argc, char **argv);
};
extern const struct command commands[]; /* ends with a NULL name */
/* The command called `name`, or NULL. */
const struct command *command_find(const char *name);

int command_submit(struct context *ctx, int argc, char **argv);        /* submit.c */
int command_run(struct context *ctx, int argc, char **argv);           /* run_command.c */
int command_shell(struct context *ctx, int argc, char **argv);         /* run_command.c */
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

/* Prints "detctl: message" on stderr, or nothing if the message is empty. Returns the exit code for err->code. */
int complain(const struct err *err);
/* Prints "detctl NAME: text; see detctl NAME --help" on stderr and returns CODE_USAGE. */
int misuse(const struct context *ctx, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Calls a method; steals params. Returns 0 with *ret_result, which the caller drops, or an exit code after
 * complaining. */
int call(struct context *ctx, const char *method, json_t *params, json_t **ret_result);
/* Like call(), but waits for an absent detd, however long, and says so on stderr. */
int call_patiently(struct context *ctx, const char *method, json_t *params, json_t **ret_result);
/* Like call(), for the page after the one whose cursor is *cursor (NULL: the first page). Sets *cursor to the cursor of
 * the new page; NULL if it is the last page. */
int call_page(struct context *ctx, const char *method, json_t *params, json_t **cursor, json_t **ret_result);
/* A list that a method returns page by page. */
struct list {
    const char *method, *member;
    json_t *params; /* of every page; owned */
    long limit;
    bool (*leaves_out)(const json_t *row); /* NULL: keeps all rows */
    long left_out;                         /* number of rows that leaves_out() refused */
};
/* *ret: an array of at most `limit` objects, which the caller drops. 0, or an exit code after complaining. */
int call_list(struct context *ctx, struct list *l, json_t **ret);
/* Follows the job by link_subscribe(), so that link_wait() on ctx->link returns on its changes. 0, or an exit code
 * after complaining. */
int follow_job(struct context *ctx, int64_t job);
/* Parses a job id. 0, or CODE_USAGE after complaining. */
int take_id(const struct context *ctx, const char *text, int64_t *ret_id);
/* The id in `text`, or that of the caller's newest job if text is NULL. 0, or an exit code after complaining. */
int take_id_or_newest(struct context *ctx, const char *text, int64_t *ret_id);

/* Says that a request was sent to a job, and when the job will carry it out: a job that does not run does nothing
 * now. */
void tell_asked(int64_t id, const char *what, const char *state);

/* Opens a file in a job's folder for reading. The job's user may have put anything there, so a link, or a thing that is
 * not a plain file, is neither opened nor waited for. NULL with errno. */
FILE *open_plain(const char *path);

struct option;
/* getopt_long(), but the complaint about an unknown option names the nearest known one. */
int next_option(int argc, char **argv, const char *letters, const struct option *options);
/* Refuses a word in the place of a file, folder or picture that cannot be its name: "", and KEY=VALUE unless a file has
 * that name. what: the end of the sentence, such as "the job file comes first". 0, or CODE_USAGE after complaining. */
int refuse_name(const struct context *ctx, const char *word, const char *what);
/* Parses the options of a command with only --json; words begin at optind. 0, or CODE_USAGE after getopt has
 * complained. */
int take_json(int argc, char **argv, bool *ret_json);
/* Parses a time such as 30d, 12h, 45m, 90s or 2w into seconds. 0, or CODE_USAGE after complaining. */
int take_duration(const struct context *ctx, const char *text, double *ret_s);

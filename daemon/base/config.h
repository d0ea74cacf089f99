/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/base/config.h - options and the configuration file. */
#pragma once
#include <stdbool.h>
#include <stdio.h>

struct err;

enum { CONFIG_PATH_MAX = 4000, CONFIG_SOCKET_MAX = 107 };

/* Times to keep things, in days; 0: for ever. */
struct config_keep {
    int jobs, points, logs, events;
};

struct config {
    struct config_keep keep;
    char state[CONFIG_PATH_MAX + 1];     /* absolute */
    char socket[CONFIG_SOCKET_MAX + 1];  /* absolute */
    char gpu_locks[CONFIG_PATH_MAX + 1]; /* absolute: folder of the system daemon's */
    char launch[CONFIG_SOCKET_MAX + 1];  /* absolute; "": no detd-launch */
    bool private;                        /* --state or --socket was given, or not root: serves one user */
    bool everyone_reads;                 /* system daemon: every user may read; false: owner and admins */
    int slots;                           /* CPU slots; 0: affinity and cgroup decide */
    int log_max_mib;                     /* of each log of a job */
    int report_max_mib;                  /* of a job's reports in the store */
    int user_stored_mib;                 /* share of a user of the database */
    int gpu_deadline_s;                  /* for an answer of the GPU driver */
    int leave_deadline_s;                /* for the checkpoint of a job that is sent away */
    int tier;                            /* of new jobs until deterministic.set changes it */
    /* for users other than admins; a private daemon's user is an admin */
    int user_queued, user_running, user_gpus; /* maximum for each; 0: no limit */
    int user_priority;                        /* the highest that they may give */
    int time_limit_max_s;                     /* 0: no limit */
    bool fair_share;                          /* see shares.h */
    bool jobs_mount;                          /* the folder of the jobs must be a mount point */
};

enum config_action { CONFIG_RUN, CONFIG_HELP, CONFIG_VERSION, CONFIG_PROBE, CONFIG_WATCH };

/* Reads argv and the file it names. Errors name option or file, line and key. */
int config_read(int argc, char **argv, struct config *ret, enum config_action *ret_action, struct err *err);
/* Parses a configuration text; path is for messages. */
int config_parse(const char *text, const char *path, struct config *cfg, struct err *err);
void config_help(FILE *out);

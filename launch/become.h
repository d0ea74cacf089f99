/* SPDX-License-Identifier: Apache-2.0 */ /* launch/become.h - the child that becomes the submitter and executes
 * detd-job. */
#pragma once
#include <sys/types.h>

#include "proto/launch.h"

struct passwd;

/* The child may use and close the descriptors. */
struct become {
    const struct launch_ask *ask; /* checked */
    int program;                  /* detd-job */
    const char *path;             /* its path */
    int scope;                    /* -1: no scope */
    int jobs;                     /* the folder of the jobs' folders */
    int lock, spec, trouble;      /* trouble: a file for the reason if it cannot begin */
    int begun;                    /* closed when detd-job is executed */
    const int *gpu_locks;
    int ngpu_locks;
};

/* Lists the user's present groups, at most `room`. *ret_first is the first group of the process: the group of the
 * submission if it is still one of them, otherwise the user's main group. Returns their number; -1: there are more. */
int become_groups(const struct passwd *user, gid_t submitted, gid_t *ret, int room, gid_t *ret_first);
/* To be called in the child, after fork(). On failure exits with SUP_EXIT_REFUSED, or with SUP_EXIT_UNREACHABLE if the
 * owner of the folder must fix it. */
void become(const struct become *b) __attribute__((noreturn));

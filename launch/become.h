/* SPDX-License-Identifier: Apache-2.0 */ /* launch/become.h - the child that becomes the submitter and detd-job. */
#pragma once
#include <sys/types.h>

#include "proto/launch.h"

struct passwd;

/* Descriptors are the child's to use. */
struct become {
    const struct launch_ask *ask; /* checked */
    const char *program;          /* detd-job */
    int scope;                    /* -1: there is none */
    int folder;                   /* of the job, the user's */
    int lock, spec, trouble;      /* trouble: a file for the reason where it cannot begin */
    const int *gpu_locks;
    int ngpu_locks;
};

/* The groups that he is in today, `room` at most, and as the first that with which he submitted if it is one of them still, else his own. -1: there are more. */
int become_groups(const struct passwd *user, gid_t submitted, gid_t *ret, int room, gid_t *ret_first);
/* In the child, after fork(). Leaves with SUP_EXIT_REFUSED where it fails, SUP_EXIT_UNREACHABLE where it is the folder's owner who sees to that. */
void become(const struct become *b) __attribute__((noreturn));

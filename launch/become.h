/* launch/become.h - the child that becomes the submitter and detd-job. */
#pragma once
#include "proto/launch.h"

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

/* In the child, after fork(). Leaves with SUP_EXIT_REFUSED where it fails, SUP_EXIT_UNREACHABLE where it is the folder's owner who sees to that. */
void become(const struct become *b) __attribute__((noreturn));

/* SPDX-License-Identifier: Apache-2.0 */ /* launch/place.h - folders, opened by root where detd, or a job's user, may have put anything. */
#pragma once
#include <sys/types.h>

#include "proto/launch.h"

struct err;

/* The job's folder, <state>/jobs/<job>, the user's, made where there is none. detd: whose `jobs` has to be. A descriptor, or an error. */
int place_open(const char *state, uid_t detd, const struct launch_ticket *t, struct err *err);
/* The file of the job's lock, <state>/held/<job>/lock, detd's. A descriptor, or -1. */
int place_lock(const char *state, uid_t detd, const struct launch_ticket *t);
/* The path of the program beside this one. Both, and the folder that they are in, have to be root's, and nobody else may write there. */
int place_program(const char *name, char *ret, size_t size, struct err *err);

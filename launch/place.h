/* SPDX-License-Identifier: Apache-2.0 */ /* launch/place.h - folders in places that detd or a job's user can change, opened safely by
 * root. */
#pragma once
#include <sys/types.h>

#include "proto/launch.h"

struct err;

/* Opens the job's folder, <state>/jobs/<job>, which belongs to the user; makes it if it is missing. detd: the required
 * owner of `jobs`. Returns a descriptor, or an error. */
int place_open(const char *state, uid_t detd, const struct launch_ticket *t, struct err *err);
/* Opens the file of the job's lock, <state>/held/<job>/lock, which belongs to detd. Returns a descriptor, or -1. */
int place_lock(const char *state, uid_t detd, const struct launch_ticket *t);
/* The path of the program beside this one. Both, and their folder, must belong to root and be writable only by root. */
int place_program(const char *name, char *ret, size_t size, struct err *err);

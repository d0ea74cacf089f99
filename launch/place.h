/* SPDX-License-Identifier: Apache-2.0 */ /* launch/place.h - folders in places that detd can change, and programs,
 * opened safely by root. */
#pragma once
#include <sys/types.h>

#include "proto/launch.h"

struct err;

/* Makes the job's folder, <state>/jobs/<job>, and gives it to the user. Does not look at a folder that exists: the
 * child must, once it is the user. detd: the required owner of `jobs`. Returns a descriptor of `jobs`, or an error. */
int place_make(const char *state, uid_t detd, const struct launch_ticket *t, struct err *err);
/* Opens the file of the job's lock, <state>/held/<job>/lock, which belongs to detd. Returns a descriptor, or -1. */
int place_lock(const char *state, uid_t detd, const struct launch_ticket *t);
/* The path of the program beside this one. */
int place_beside(const char *name, char *ret, size_t size, struct err *err);
/* Opens the program at that path, which begins with a slash and contains no link, for fexecve(). It and each folder
 * above it must belong to root and be writable by root alone; a folder may be writable by others if it is sticky.
 * Returns a descriptor, or an error. */
int place_program(const char *path, struct err *err);

/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/socket/door.h - decides whether one more connection is accepted, and
 * which connection is closed for it. Pure: no I/O. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/base/bounds.h"

struct err;

struct door_guest {
    uid_t uid;
    bool admin;
    uint64_t idle_since; /* of any clock; 0: it waits for an answer, or listens to notifications */
};

enum { DOOR_ENTER = -1 };

/* The limits are BOUND_CONNECTIONS. At a limit, the connection that has been idle longest must be closed: of the same
 * user, or of all users without admin rights; for an admin, of all users. Returns its index in guests; DOOR_ENTER if
 * there is room; or ERR_STATE with a sentence: too many, and all are in use. */
int door_ask(const struct door_guest *guests, int n, const struct door_guest *newcomer, struct err *err);

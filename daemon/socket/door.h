/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/socket/door.h - decides whether one more connection is accepted, which connection is
 * closed for it, and which share of a room a user may take. Pure: no I/O. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct err;

enum { DOOR_MAX = 512, DOOR_ADMINS = 32, DOOR_USER_MAX = 128 };

struct door_guest {
    uid_t uid;
    bool admin;
    uint64_t idle_since; /* of any clock; 0: it waits for an answer, or listens to notifications */
};

enum { DOOR_ENTER = -1 };

/* Limits: a user without admin rights has at most DOOR_USER_MAX connections, all such users together DOOR_MAX -
 * DOOR_ADMINS, and all users DOOR_MAX. At a limit, the connection that has been idle longest must be closed: of the
 * same user, or of all users without admin rights; for an admin, of all users. Returns its index in guests; DOOR_ENTER
 * if there is room; or ERR_STATE with a sentence: too many, and all are in use. */
int door_ask(const struct door_guest *guests, int n, const struct door_guest *newcomer, struct err *err);

/* The bytes in a room that all users share, including those that want to come in. */
struct door_load {
    size_t all, guests, user; /* guests: of all users without admin rights; user: of the user in question */
};

/* A user without admin rights may have a quarter of the room, all such users together three quarters. */
bool door_fits(const struct door_load *load, bool admin, size_t room);

/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/base/bounds.h - the bounds of what users may take of detd. Each
 * bound that users share is a row here: how much there is, how much of it one user may have, and how much is reserved
 * for admins. Pure. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct err;

enum { BOUND_CONNECTIONS_MOST = 512 };

/* ident; the total (0: no bound of all users together); share of a user without admin rights; reserve for
 * admins; per second; the name of the counted things. Per second > 0: a rate. A user may have the share at once, then
 * so many more per second; root and the daemon's user have no bound. */
#define BOUNDS(X)                                                                                                     \
    X(CONNECTIONS, BOUND_CONNECTIONS_MOST, 128, 32, 0, "connections")                                                 \
    X(LONG_LINES, 72 << 20, 18 << 20, 18 << 20, 0, "bytes of requests that arrive in pieces, over 64 KiB each")       \
    X(LARGE_REQUESTS, 72 << 20, 18 << 20, 18 << 20, 0, "bytes of large requests that wait to be parsed")              \
    X(LIVE_JOBS, 10000, 2500, 500, 0, "jobs that have not ended")                                                     \
    X(DATABASE, 0, 16LL << 30, 0, 0, "bytes in the database (user_stored); `detctl rm` and `detctl prune` make room") \
    X(QUEUED_ROWS, 40000, 5000, 5000, 0, "rows of reports on their way to the database")                              \
    X(CONNECTS, 0, 50, 0, 50, "new connections")                                                                      \
    X(EVENTS, 0, 1000, 0, 5, "changes of jobs")                                                                       \
    X(LABELS, 0, 1000, 0, 5, "changes of notes and tags")                                                             \
    X(JOURNAL, 0, 200, 0, 5, "lines in the journal")

#define X(ident, most, share, reserve, per_s, what) BOUND_##ident,
enum bound_id { BOUNDS(X) BOUND_COUNT };
#undef X

struct bound {
    int64_t most, share, reserve, per_s;
    const char *what;
};

extern const struct bound bounds[BOUND_COUNT];

/* Amounts in use, including the amount of the request. all: of all users; guests: of all users without admin rights;
 * user: of the requesting user. */
struct bound_load {
    int64_t all, guests, user;
};

/* Returns 0 if this fits, or ERR_STATE with a sentence. */
int bound_check(enum bound_id id, const struct bound_load *load, bool admin, struct err *err);
/* The same with a share of the user's that is set elsewhere. */
int bound_check_share(enum bound_id id, int64_t share, const struct bound_load *load, bool admin, struct err *err);

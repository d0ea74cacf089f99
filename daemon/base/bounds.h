/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/base/bounds.h - the bounds of what users may take of detd. Each bound that users share is a row
 * here: how much there is, how much of it one user may have, and how much is reserved for admins. Pure. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct err;

enum { BOUND_CONNECTIONS_MOST = 512 };

/* ident; what there is in all (0: no bound of all users together); share of a user without admin rights; reserve for
 * admins; what it counts. */
#define BOUNDS(X)                                                                                            \
    X(CONNECTIONS, BOUND_CONNECTIONS_MOST, 128, 32, "connections")                                           \
    X(LONG_LINES, 72 << 20, 18 << 20, 18 << 20, "bytes of requests that arrive in pieces, over 64 KiB each") \
    X(LARGE_REQUESTS, 72 << 20, 18 << 20, 18 << 20, "bytes of large requests that wait to be parsed")        \
    X(LIVE_JOBS, 10000, 2500, 500, "jobs that have not ended")                                               \
    X(QUEUED_ROWS, 40000, 5000, 5000, "rows of reports on their way to the database")

#define X(ident, most, share, reserve, what) BOUND_##ident,
enum bound_id { BOUNDS(X) BOUND_COUNT };
#undef X

struct bound {
    int64_t most, share, reserve;
    const char *what;
};

extern const struct bound bounds[BOUND_COUNT];

/* What is taken, including what is asked for now. guests: by all users without admin rights; user: by the user who
 * asks. */
struct bound_load {
    int64_t all, guests, user;
};

/* Returns 0 if this fits, or ERR_STATE with a sentence. */
int bound_check(enum bound_id id, const struct bound_load *load, bool admin, struct err *err);

/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/base/user_share.h - what each user has taken of the bounds that detd
 * counts as it goes (bounds.h). For the loop only. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/base/bounds.h"

struct user_share {
    uid_t uid;
    int64_t rows; /* BOUND_QUEUED_ROWS */
    struct user_share_rate {
        double at, taken; /* of the monotonic clock; the rest of earlier ones */
    } rates[BOUND_COUNT];
    int64_t stored; /* BOUND_DATABASE: about the bytes of the user's jobs */
    long unsaid;    /* lines that the journal did not get since the last one */
    int coming;     /* BOUND_LIVE_JOBS: submissions that are neither stored nor refused yet */
};

/* All zero in the beginning. */
struct user_shares {
    struct user_share **all;
    size_t cap;
    int count;
};

/* The user's share, made at the first call. It lives until user_shares_free(). NULL: out of memory. */
struct user_share *user_shares_of(struct user_shares *s, uid_t uid);
/* Takes one of a rate. False: the user must wait. */
bool user_share_take(struct user_share *s, enum bound_id id, double now);
void user_shares_free(struct user_shares *s);

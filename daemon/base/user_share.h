/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/base/user_share.h - what each user has taken of the bounds that detd counts as it goes (bounds.h).
 * For the loop only. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct user_share {
    uid_t uid;
    int64_t rows; /* BOUND_QUEUED_ROWS */
    int coming;   /* BOUND_LIVE_JOBS: submissions that are neither stored nor refused yet */
};

/* All zero in the beginning. */
struct user_shares {
    struct user_share **all;
    size_t cap;
    int count;
};

/* The user's share, made at the first call. It lives until user_shares_free(). NULL: out of memory. */
struct user_share *user_shares_of(struct user_shares *s, uid_t uid);
void user_shares_free(struct user_shares *s);

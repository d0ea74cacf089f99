/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/status.h - what detd shows of a running job: a line a second,
 * sent while it changes. */
#pragma once
#include <stdint.h>

#include "supervisor/ranks/ranks.h"

struct attempt;
struct link;
struct speech;

enum { STATUS_RATE_LOOKS = 10 }; /* seconds over which images/s are averaged */

struct status {
    char last[16 << 10]; /* line sent last */
    int quiet;           /* lines since then that were the same */
    struct status_rate {
        uint64_t images[STATUS_RATE_LOOKS];
        double time_s[STATUS_RATE_LOOKS];
        int looks;
    } rate;
};

struct status_view {
    const struct attempt *attempt;
    int number;     /* of the attempt */
    double now_s;   /* on a clock that only goes forward */
    double seconds; /* since this process took the job */
    struct ranks_usage usage;
    const struct speech *speech; /* of a program; NULL: a model */
    const char *trouble;         /* what keeps the job from going on; "": nothing */
};

/* An attempt begins: its images are counted anew. */
void status_begin(struct status *s);
/* detd is another one: the next line is sent even if it is the same. */
void status_forget(struct status *s);
void status_send(struct status *s, const struct status_view *v, struct link *link);

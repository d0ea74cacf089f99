/* SPDX-License-Identifier: Apache-2.0 */ /* worker/eval/metrics.h - scores by name, in the store's form. */
#pragma once
#include <stdbool.h>

#include "proto/record.h"

struct err;

struct metric {
    char name[RECORD_MAX_NAME + 1];
    double value; /* NAN: there is nothing to score, for example AP of large objects if all are small */
};

/* All zero: empty. */
struct metrics {
    struct metric *row; /* [n], freed by the owner */
    int n;
    size_t room;
};

/* Is a smaller value better, as for errors of depth and motion? */
bool metric_is_error(const char *name);
/* Appends a copy; a name that is too long is cut. */
int metrics_add(struct metrics *m, const char *name, double value, struct err *err);

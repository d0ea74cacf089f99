/* SPDX-License-Identifier: Apache-2.0 */ /* worker/eval/metrics.h - scores by name, as the store keeps them. */
#pragma once
#include <stdbool.h>

#include "proto/record.h"

struct err;

struct metric {
    char name[RECORD_MAX_NAME + 1];
    double value; /* NAN: there is nothing to score, as AP of large objects where all are small */
};

/* All zero: empty. */
struct metrics {
    struct metric *row; /* [n], freed by the owner */
    int n;
    size_t room;
};

/* Whether a smaller value is the better one, as of errors of depth and motion. */
bool metric_is_error(const char *name);
/* Appends a copy; a name that is too long is cut. */
int metrics_add(struct metrics *m, const char *name, double value, struct err *err);

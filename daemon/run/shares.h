/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/run/shares.h - the slots that were granted to each user in the last
 * seven days: among jobs of equal priority, the user who was granted less goes first (fair_share of detd.conf). Days
 * are those for which detd has run: no wall clock counts. The store keeps the sums by hours. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct err;
struct jobs;
struct store;

struct shares {
    struct store *store; /* borrowed */
    struct share *all;
    int count;
    double at; /* seconds that detd has run, at the last tick */
};

/* Loads the slot time that earlier daemons granted. running: seconds that detd has run on this database. */
int shares_open(struct shares *s, struct store *store, double running, struct err *err);
void shares_close(struct shares *s);
/* Once a second: counts the slots that jobs hold. */
void shares_tick(struct shares *s, const struct jobs *jobs, double running);
/* Slot seconds of the last seven days: of GPUs, or of CPU slots. */
double shares_granted(const struct shares *s, uint32_t uid, bool cuda);

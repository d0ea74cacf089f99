/* SPDX-License-Identifier: Apache-2.0 */ /* worker/core/stress.h - forces by a seed (job key errand.stress) events that
 * are otherwise left to chance: the contents of memory before it is written and its place, the picture that is ready
 * first, the rank that arrives first. No result may depend on any of them, so a run under stress gives the bits of a
 * run without. A run that reads unwritten memory, or adds in the order of arrival, does not. Callers pass NULL if there
 * is no stress. Source: specs determinism section 10.1. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct device;
struct err;

/* Memory and pictures differ by rank; the order in which ranks arrive is common to all. */
struct stress {
    uint64_t seed;
    int rank, ranks;
};

enum { STRESS_SHIFT = 2 << 20, STRESS_GAP = 4096 };         /* bytes, exclusive upper bounds */
enum { STRESS_LOADER_US = 5000, STRESS_ARRIVE_US = 20000 }; /* longest sleep of a thread */

/* ---- memory: n counts the pieces of one owner ---- */

/* Bytes before a chunk, and after a block; multiples of 256. */
size_t stress_shift(const struct stress *s, uint64_t n);
size_t stress_gap(const struct stress *s, uint64_t n);
/* Queues the filling of device memory, with zeros, ones, signalling NaNs (of fp32 and bf16) or noise. */
int stress_fill(const struct stress *s, struct device *dev, void *ptr, size_t bytes, uint64_t n, struct err *err);

/* ---- order ---- */

/* The numbers [0, n) in the order of round `key`. */
void stress_order(const struct stress *s, uint64_t key, int n, int *ret_order);
/* The same for threads that take piece after piece and may only wait for pieces that other threads hold: numbers stay
 * in their `group` of neighbours. */
void stress_turns(const struct stress *s, uint64_t key, int n, int group, int *ret_turn);
/* Sleeps before piece n is ready: mostly not at all, else at most STRESS_LOADER_US. */
void stress_pause(const struct stress *s, uint64_t n);
/* How long this rank sleeps before it enters a collective, so that ranks come in a drawn order: 0 for all ranks mostly,
 * at most STRESS_ARRIVE_US. */
uint64_t stress_late_us(const struct stress *s, int channel, uint32_t number);
/* Sleeps for stress_late_us(). */
void stress_arrive(const struct stress *s, int channel, uint32_t number);

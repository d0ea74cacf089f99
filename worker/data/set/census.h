/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/set/census.h - the contents of a split, reported once: its
 * objects by class, and the number of pictures without an object. Pure. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dataset;

enum { CENSUS_TEXT = 3000, CENSUS_NAME = 40 };

/* "12 images without an object to train on are left out; objects by class: circle 400, square 0", in buf; left_out 0:
 * the second part alone. Crowds do not count as objects. For frames: "179 targets with 2 sources each, of 181 frames,
 * 960 x 540; 0 with measured depth". Classes that do not fit are counted at the end; names come from files, and are
 * cut. Returns buf. */
char *census_text(const struct dataset *d, int left_out, char *buf, size_t size);
/* A job key that limits the objects of an image, as "val.max_det". */
struct census_limit {
    const char *key;
    int64_t objects;
    const char *surplus; /* the rest of them, as "count as missed"; */
    const char *higher;  /* a limit that is high enough, as "count all" */
};
/* Have images more objects than the limit? If so, buf tells how many images, and the one with most. A crowd does not
 * count as an object. */
bool census_crowded(const struct dataset *d, const struct census_limit *limit, char *buf, size_t size);
/* For a validation split: does every frame lack a neighbour, so that there is no loss? If so, buf tells it, and the
 * effect on checkpoint.best, which is `best`. Not for a set that was read from an index. */
bool census_lossless(const struct dataset *d, const char *best, char *buf, size_t size);
/* A name from a file, cut, and without characters that a terminal or a log would take for more than text. Returns
 * buf. */
char *census_name(const char *name, char buf[CENSUS_NAME]);

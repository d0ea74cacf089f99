/* worker/train/splits.h - the data of a job: checked once in its life, then decoded and sent to the device while others are computed. */
#pragma once
#include <stdint.h>

#include "worker/core/canvas.h"

struct course;
struct dataset;
struct err;
struct feed;
struct loader;
struct machine;

struct split {
    struct dataset *set;   /* NULL: the job has no such split */
    struct loader *loader; /* NULL, and no feed: before it begins, or where no step is left */
    struct feed *feed;
};

/* Reads the index of each split that the job has; where there is none yet rank 0 checks the split, says what it found and writes the index. All ranks
 * open alike. Closed with split_close(), also after a failure; machine and what it borrows outlive them. */
int splits_open(const struct machine *m, struct split *ret_train, struct split *ret_val, struct err *err);
/* Decoding begins: of training at step `first`, of validation for inputs of that canvas. */
int splits_begin(const struct machine *m, const struct course *course, int64_t first, struct canvas canvas, struct split *train,
                 struct split *val, struct err *err);
void split_close(struct split *s);

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/pass.h - a pass of a model over pictures: a batch goes in;
 * its losses and its results, in the pictures' own pixels, come out. Validation and predict share it. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "worker/models/model.h"

struct batch;
struct err;
struct pass;

struct pass_options {
    struct model *model;
    struct tape *tape;
    int images; /* of a batch, at most */
    bool losses, results;
    bool views; /* with results: also the poses of sources (model.h) */
};

/* Model and tape stay the caller's and outlive the pass. Caller closes. */
int pass_open(const struct pass_options *opt, struct pass **ret, struct err *err);
void pass_close(struct pass *p);
/* Runs a shard of pictures, in evaluation mode. Earlier outputs are gone. */
int pass_run(struct pass *p, const struct batch *b, struct err *err);
/* If losses are wanted: [2 * model->nterms], numerator and denominator of each term over the images of the batch. A
 * TERM_MEAN term has the sum of the images' quotients, over their number. left_out: [images], true for images with
 * losses that do not count; NULL: all count. May be called once after each pass_run(). */
void pass_losses(struct pass *p, const bool *left_out, double *ret);
/* If results are wanted: the result of image i of the batch, a letterboxed picture of w x h pixels; *ret calls it
 * `index`. For `least` see model.h. */
int pass_result(struct pass *p, int i, int32_t index, int w, int h, double least, struct result *ret, struct err *err);

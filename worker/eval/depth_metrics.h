/* SPDX-License-Identifier: Apache-2.0 */ /* worker/eval/depth_metrics.h - how far the depth of one picture is from the truth: the seven numbers of the field. Pure.
 * Source: Eigen et al. 2014, arXiv:1406.2283; the crops as monodepth2 has them; specs featdepth section 7. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct err;
struct result_map;

enum { DEPTH_SCORES = 7 };
/* "abs_rel", "sq_rel", "rmse", "rmse_log", "a1", "a2", "a3": |g - p| / g and (g - p)^2 / g on the mean, roots of the mean of (g - p)^2 and of
 * (ln g - ln p)^2, parts of the pixels whose greater ratio of both is below 1.25, 1.25^2, 1.25^3. */
extern const char *const depth_score_name[DEPTH_SCORES];

/* Which part of a picture is looked at: all; what Garg et al. 2016 take; what Eigen et al. take. */
enum depth_crop { DEPTH_CROP_NONE, DEPTH_CROP_GARG, DEPTH_CROP_EIGEN };

struct depth_rule {
    enum depth_crop crop;
    double least, most; /* metres: truths that are not between are left out, predictions are cut to it */
    double factor;      /* metres of a unit of the network; NAN: of each picture the median of the truths over that of the predictions */
};

/* Rows from .. to - 1, likewise columns. */
struct depth_window {
    int top, bottom, left, right;
};
struct depth_window depth_crop_of(enum depth_crop crop, int w, int h);

struct depth_score {
    double value[DEPTH_SCORES];
    double ratio;   /* median of the truths over median of the predictions, whatever the factor is */
    int64_t pixels; /* that were looked at; 0: nothing else says anything */
};

/* truth: [h][w] metres, as large as the prediction; what is not above 0 is unknown. ERR_NONFINITE where a prediction is not a number above 0; -ENOMEM. */
int depth_score(const struct depth_rule *rule, const struct result_map *prediction, const float *truth, struct depth_score *ret,
                struct err *err);
/* Part of the pixels, 0 .. 1, that are not farther than 1.05 times `nearest`, the nearest depth that the network can say: there it cannot tell them apart. */
double depth_saturated(const struct result_map *depth, double nearest);
/* The middle of n values, n > 0, of two middles the mean. Values are finite and not negative; they stay as they are. -ENOMEM. */
int depth_median(const float *value, int64_t n, double *ret, struct err *err);
/* The value of place k, 0 .. n - 1, in ascending order; likewise. */
int depth_place(const float *value, int64_t n, int64_t k, double *ret, struct err *err);

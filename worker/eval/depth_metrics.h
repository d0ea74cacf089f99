/* SPDX-License-Identifier: Apache-2.0 */ /* worker/eval/depth_metrics.h - distance of the depth of one picture from the
 * truth: the seven usual numbers. Pure. Source: Eigen et al. 2014, arXiv:1406.2283; the crops as in monodepth2; specs
 * featdepth section 7. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct err;
struct result_map;

enum { DEPTH_SCORES = 7 };
/* "abs_rel", "sq_rel", "rmse", "rmse_log", "a1", "a2", "a3": means of |g - p| / g and (g - p)^2 / g, roots of the means
 * of (g - p)^2 and (ln g - ln p)^2, and shares of pixels with a greater ratio of both below 1.25, 1.25^2, 1.25^3. */
extern const char *const depth_score_name[DEPTH_SCORES];

/* The part of a picture that counts: all; the crop of Garg et al. 2016; the crop of Eigen et al. */
enum depth_crop { DEPTH_CROP_NONE, DEPTH_CROP_GARG, DEPTH_CROP_EIGEN };

struct depth_rule {
    enum depth_crop crop;
    double least, most; /* metres: truths outside are left out, predictions are cut to them */
    /* metres per unit of the network; NAN: per picture the median of the truths over that of the predictions */
    double factor;
};

/* Rows from .. to - 1; the same for columns. */
struct depth_window {
    int top, bottom, left, right;
};
struct depth_window depth_crop_of(enum depth_crop crop, int w, int h);

struct depth_score {
    double value[DEPTH_SCORES];
    double ratio;   /* median of the truths over median of the predictions, for any factor */
    int64_t pixels; /* compared pixels; 0: all else is undefined */
};

/* truth: [h][w] metres, as large as the prediction; a value not above 0 is unknown. ERR_NONFINITE if a prediction is
 * not a number above 0; -ENOMEM. */
int depth_score(const struct depth_rule *rule, const struct result_map *prediction, const float *truth, struct depth_score *ret,
                struct err *err);
/* Share of the pixels, 0 .. 1, that are not farther than 1.05 times `nearest`, the nearest depth that the network can
 * give: it cannot tell their depths apart. */
double depth_saturated(const struct result_map *depth, double nearest);
/* The median of n values, n > 0; of two middle values the mean. Values must be finite and not negative; they stay
 * unchanged. -ENOMEM. */
int depth_median(const float *value, int64_t n, double *ret, struct err *err);
/* The value at place k, 0 .. n - 1, in ascending order; the same rules. */
int depth_place(const float *value, int64_t n, int64_t k, double *ret, struct err *err);

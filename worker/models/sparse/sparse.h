/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/sparse/sparse.h - Sparse R-CNN (Sun et al. 2021,
 * arXiv:2011.12450) with a feature pyramid. Source: specs sparse_rcnn. */
#pragma once
#include "worker/models/model.h"
#include "worker/ops/candidate.h"

struct err;
struct jobspec;
struct sparse_network;

/* Groups of parameters: the body has a learning rate of its own. */
enum { SPARSE_GROUP_REST, SPARSE_GROUP_BODY, SPARSE_GROUPS };

/* The network of spec->model_preset for `classes` classes. Weights are not initialised. Errors name the key. */
int sparse_new(const struct jobspec *spec, int classes, struct device *dev, struct model **ret_model, struct err *err);
const struct sparse_network *sparse_network_of(const struct model *m);
int sparse_classes(const struct model *m);
/* The largest logarithm of the growth of a side in a stage; *ret_floor: it limits shrinking, too. */
double sparse_clamp(const struct model *m, bool *ret_floor);
/* The best `most` of all pairs of proposal and class, by descending score; equal scores by ascending slot, which is
 * proposal * classes + class. logits: [proposals][stride]; box: [proposals][4]. A pair whose score is NaN is left out.
 * Returns their number; *ret has room for `most`. */
int sparse_best(const float *logits, int stride, const float *box, int proposals, int classes, int most, struct candidate *ret);

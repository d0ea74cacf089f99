/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/rcnn/load.h - weights of Faster and Mask R-CNN from and to files in the names of torchvision and detectron2. */
#pragma once
#include <stddef.h>

#include "worker/models/rcnn/names.h"

struct err;
struct jobspec;
struct model;
struct model_classes;
struct st_array;

/* model.init, a .safetensors file in any of the spellings of names.h: the backbone whole, and each other part whole or not at all. Columns that depend on
 * the class count are put in the model's order; of another count they are left out, as is said in m->loaded with what else was missing or had no place. A
 * file whose background is first and which has a row for each id up to the largest of the job's categories has them by id, as torchvision's programs do.
 * A file whose backbone is of another kind than the job's is refused, heads of another flavor are told.
 * Errors name file and array; a wrong file is ERR_DATA. */
int rcnn_load(struct model *m, const struct jobspec *spec, struct model_classes classes, struct err *err);
/* What files say of themselves, in metadata by the names of the keys. */
#define RCNN_TRAIT_FLAVOR   "model.flavor"
#define RCNN_TRAIT_BACKBONE "model.backbone"
#define RCNN_TRAIT_POOL     "model.mask_pool" /* where it is not RCNN_USUAL_POOL */

/* model_family.export_as(): torchvision's, then detectron2's names, and the order of columns that goes with them: torchvision's have the row
 * of a category's id, where all ids are 1 .. 4095, as its programs label them; rows of no category are silent. */
enum { RCNN_DIALECT_TV, RCNN_DIALECT_D2 };
extern const char *const rcnn_dialects[];
int rcnn_export_as(struct model *m, int dialect, struct model_classes classes, struct st_array **ret_arrays, size_t *ret_n,
                   struct err *err);
/* model_family.export_told(): colours, strides, anchors and RoIAlign. */
void rcnn_export_told(const struct model *m, int dialect, char *ret, size_t size);

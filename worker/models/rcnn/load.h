/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/rcnn/load.h - weights of Faster and Mask R-CNN from and to
 * files in the names of torchvision and detectron2. */
#pragma once
#include <stddef.h>

#include "worker/models/rcnn/names.h"

struct err;
struct jobspec;
struct model;
struct model_classes;
struct st_array;

/* model.init, a .safetensors file in any of the spellings of names.h. The backbone must be whole; each other part must
 * be whole or missing. Columns that depend on the class count are put into the model's order. With another count they
 * are left out, and m->loaded tells this along with other missing or unused arrays. A file with the background first
 * and a row for each id up to the largest of the job's categories has the rows by id, as torchvision's programs do. A
 * file with another kind of backbone than the job's is refused; heads of another flavor are mentioned. Errors name file
 * and array; a wrong file is ERR_DATA. */
int rcnn_load(struct model *m, const struct jobspec *spec, struct model_classes classes, struct err *err);
/* Metadata of files of weights, by the names of the keys; see also names.h. */
#define RCNN_TRAIT_FLAVOR "model.flavor"
#define RCNN_TRAIT_POOL   "model.mask_pool" /* if it is not RCNN_USUAL_POOL */

/* model_family.export_as(): torchvision's names, then detectron2's, each with its order of columns. torchvision's
 * columns use a category's id as its row, if all ids are 1 .. 4095, as its programs label them; rows of no category are
 * silent. */
enum { RCNN_DIALECT_TV, RCNN_DIALECT_D2 };
extern const char *const rcnn_dialects[];
int rcnn_export_as(struct model *m, int dialect, struct model_classes classes, struct st_array **ret_arrays, size_t *ret_n,
                   struct err *err);
/* model_family.export_told(): colours, strides, anchors and RoIAlign. */
void rcnn_export_told(const struct model *m, int dialect, char *ret, size_t size);

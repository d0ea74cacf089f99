/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/sparse/load.h - weights of Sparse R-CNN from and to files in
 * the names of its reference, which is an extension of detectron2, and of mmdetection. */
#pragma once
#include <stddef.h>

struct err;
struct jobspec;
struct model;
struct model_classes;
struct st_array;

/* model.init, a .safetensors file in any of the spellings of rcnn/names.h; see arrays_load(). Proposals of another
 * number, class scores of another number of classes, and stages that the file lacks begin anew; m->loaded tells this.
 * Other sizes than the job's are an error, which names the key. Specs sparse_rcnn section 13.3. */
int sparse_load(struct model *m, const struct jobspec *spec, struct model_classes classes, struct err *err);
/* Metadata of files of weights, by the names of the keys. */
#define SPARSE_TRAIT_HEADS "model.heads"
#define SPARSE_TRAIT_CLAMP "model.delta_clamp" /* if it is not SPARSE_USUAL_CLAMP */
#define SPARSE_TRAIT_FLOOR "model.delta_floor" /* if it is true */
#define SPARSE_USUAL_CLAMP 8.740336742730447   /* ln(100000 / 16), the reference's */
#define SPARSE_MM_CLAMP    4.135166556742356   /* ln(1000 / 16), mmdetection's, which limits shrinking too */

/* model_family.export_as(), .export_told(): colours, strides and clamp. */
enum { SPARSE_DIALECT_D2, SPARSE_DIALECT_MM };
extern const char *const sparse_dialects[];
int sparse_export_as(struct model *m, int dialect, struct model_classes classes, struct st_array **ret_arrays, size_t *ret_n,
                     struct err *err);
void sparse_export_told(const struct model *m, int dialect, char *ret, size_t size);

#include "worker/train/split_options.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <string.h>

#include "proto/job/jobspec.h"
#include "worker/data/sample/frames.h"
#include "worker/models/registry.h"

/* Returns false if the format is not one of the label formats. */
static bool labels_split(const struct jobspec *spec, bool val, const struct check_options *check, struct labels_options *ret)
{
    static const char *const forms[] = { [LABELS_VOC] = "voc", [LABELS_DARKNET] = "darknet", [LABELS_YOLO] = "yolo" };
    const char *format = val ? spec->data_val_format : spec->data_train_format;

    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(format, forms[i]) == 0) {
            *ret = (struct labels_options){ .form = (enum labels_form)i,
                                            .annotations = check->annotations,
                                            .images = check->images,
                                            .names = spec->data_names,
                                            .val = val && isnan(spec->data_val_fraction),
                                            .masks = check->masks,
                                            .upright = check->upright,
                                            .corners = strcmp(spec->data_voc_boxes, "corners") == 0,
                                            .difficult = strcmp(spec->data_voc_difficult, "object") == 0 };
            return true;
        }
    return false;
}

void split_options(const struct model_registry *models, const struct jobspec *spec, bool val, const struct dataset *train, int threads,
                   struct split_options *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->check = (struct check_options){ .annotations = val ? spec->data_val_annotations : spec->data_train_annotations,
                                         .images = val ? spec->data_val_images : spec->data_train_images,
                                         .on_bad = strcmp(spec->data_on_bad, "skip") == 0 ? BAD_SKIP : BAD_ERROR,
                                         .threads = threads,
                                         .masks = model_masks(models, spec),
                                         .upright = model_upright(models, spec) };
    if (!isnan(spec->data_val_fraction)) {
        ret->check.fraction = spec->data_val_fraction;
        ret->check.of_fraction = val;
    }
    if (frames_split(spec, val, &ret->frames))
        ret->check.frames = &ret->frames;
    else if (labels_split(spec, val, &ret->check, &ret->labels))
        ret->check.labels = &ret->labels;
    ret->labels.train = train;
}

bool split_limit(const struct jobspec *spec, bool val, struct census_limit *ret)
{
    if (val)
        *ret = (struct census_limit){ "val.max_det", spec->val_max_det, "count as missed", "count all" };
    else
        *ret = (struct census_limit){ "model.proposals", spec->model_proposals, "are not learned", "learn all" };
    return val || strcmp(spec->family->name, "sparse") == 0;
}

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/coco/coco.h - reads COCO detection JSON. A record that the
 * network cannot use is an error that names file, line or id. An odd record that it can use stays and is told as a note
 * (problems.h). */
#pragma once
#include "worker/data/set/dataset.h"

struct err;
struct problems;

struct coco_options {
    const char *annotations, *images;
    enum bad_policy on_bad;
    /* segmentations are kept (mask.h): an object that is not a crowd must then have one with a part inside its image,
     * or it is a bad record */
    bool masks;
    bool upright;    /* sizes that are not stated are those of pictures turned by their EXIF orientation */
    bool unlabelled; /* "annotations" may be missing, as in the list of a test set */
};
/* annotations: the JSON file. images: the folder that file_name is relative to (only touched for images whose size is
 * not stated). Bad and doubtful records are put into *problems (caller zeroes it). Under BAD_ERROR a bad one fails the
 * call, after all were examined; under BAD_SKIP the bad box or image is left out. A doubtful one stays: an odd or
 * repeated annotation id, an impossible area or size, and, without masks, a broken segmentation. Broken JSON, missing
 * keys and repeated image or category ids always fail: no label could be trusted. Caller frees with dataset_free().
 * ERR_DATA, -errno or -ENOMEM. */
int coco_read(const struct coco_options *opt, struct problems *problems, struct dataset **ret, struct err *err);

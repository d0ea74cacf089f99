/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/labels/labels.h - reads data sets with a label file for
 * each picture: Pascal VOC's XML, darknet's lists, folders with a data.yaml as in ultralytics' programs. Strict, like
 * coco.h; boxes must meet the same rules (box_rule.h). Images count from 1 in the order
 *   voc      of the list; of a folder of XML files, of the bytes of their names
 *   darknet  of the list
 *   yolo     of the list; of a folder, with its folders, of the bytes of their paths; several named lists or folders
 *            follow each other
 * and classes from 1, as in most COCO files, in the order of their names in the file that lists them; in voc without
 * such a file, in the order of the bytes of their names. Sources: the VOC devkit, specs yolov3 sections 5.1 and 5.7. */
#pragma once
#include "worker/data/set/dataset.h"

struct err;
struct problems;

enum labels_form { LABELS_VOC, LABELS_DARKNET, LABELS_YOLO };

struct labels_options {
    enum labels_form form;
    /* voc: a list of ImageSets, or a folder of XML files. darknet: a .data file, or a list. yolo: data.yaml, list,
     * folder */
    const char *annotations;
    const char *images;          /* NULL: the form's own, see labels_voc.c, labels_darknet.c and labels_yolo.c */
    const char *names;           /* a file with the names of the classes; NULL: the form's own */
    const struct dataset *train; /* classes are this set's, found by their names; NULL: its own */
    bool val;                    /* the split of a .data or data.yaml to read */
    bool masks;                  /* polygons of labels are wanted as masks (mask.h); VOC's XML has no polygons */
    bool upright;                /* pictures are turned by their EXIF orientation */
    /* voc: xmin .. ymax are plain corners; else the devkit's: pixels counted from 1, the last one is inside */
    bool corners;
    bool difficult; /* voc: objects marked difficult are like any other; else they are crowds */
};

/* Records that break a rule are put into *problems (caller zeroes it) and left out: a box, or a picture with labels
 * that cannot be read. Broken lists, .data files, data.yaml and names fail the call. Caller frees with dataset_free().
 * ERR_DATA, -errno or -ENOMEM. */
int labels_read(const struct labels_options *opt, struct problems *problems, struct dataset **ret, struct err *err);

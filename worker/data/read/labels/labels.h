/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/labels/labels.h - reads data sets whose boxes stand in a file for each picture: Pascal VOC's XML, darknet's lists, folders with a data.yaml as
 * ultralytics' programs have them. Strict, as coco.h is; boxes are held to the same rules (box_rule.h). Images count from 1 in the order
 *   voc      of the list; of a folder of XML files, of the bytes of their names
 *   darknet  of the list
 *   yolo     of the list; of a folder, with those in it, of the bytes of their paths; one after the other where several are named
 * and classes from 1, as in most COCO files, in the order of their names in the file that lists them; of voc without one, of the bytes of these names. Sources:
 * the VOC devkit, specs yolov3 sections 5.1 and 5.7. */
#pragma once
#include "worker/data/set/dataset.h"

struct err;
struct problems;

enum labels_form { LABELS_VOC, LABELS_DARKNET, LABELS_YOLO };

struct labels_options {
    enum labels_form form;
    const char *
        annotations; /* voc: a list of ImageSets, or a folder of XML files. darknet: a .data file, or a list. yolo: data.yaml, a list or a folder */
    const char *images;          /* NULL: as the form says, see labels_voc.c, labels_darknet.c and labels_yolo.c */
    const char *names;           /* a file with the names of the classes; NULL: as the form has them */
    const struct dataset *train; /* classes are this set's, found by their names; NULL: its own */
    bool val;                    /* which split of a .data or data.yaml */
    bool masks;                  /* polygons of labels are wanted as masks (mask.h); VOC's XML has none */
    bool upright;                /* pictures are turned as their EXIF orientation says */
    bool corners;   /* voc: xmin .. ymax are corners as they stand; else the devkit's: pixels counted from 1, the last one is inside */
    bool difficult; /* voc: objects that say so are like any other; else they are crowds */
};

/* Records that break a rule are put into *problems (caller zeroes it) and left out: a box, or a picture whose labels cannot be read. Lists, .data files,
 * data.yaml and names that are broken fail the call. Caller frees with dataset_free(). ERR_DATA, -errno or -ENOMEM. */
int labels_read(const struct labels_options *opt, struct problems *problems, struct dataset **ret, struct err *err);

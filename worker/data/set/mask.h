/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/set/mask.h - the segmentations of a data set's boxes, as in its
 * file: polygons, or run lengths. Kept only if they are asked for (coco_options.masks, check_options.masks);
 * dataset.masks is NULL otherwise. Once made they never change, so any number of threads may read them. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dataset;

enum {
    MASK_MAX_POLYGONS = 1 << 16, /* of a box */
    MASK_MAX_POINTS = 1 << 20,   /* of a box, all its polygons together */
    MASK_MAX_RUNS = 1 << 28,     /* of a box */
};

enum mask_kind {
    MASK_NONE,     /* not stated: only crowds may lack a mask, and under BAD_KEEP any object */
    MASK_POLYGONS, /* at least one, each of at least three points */
    MASK_RUNS,     /* at least one run; they fill the picture */
};

/* The mask of one box; borrowed from the data set. */
struct mask {
    enum mask_kind kind;
    int n; /* polygons, or runs */
    /* MASK_POLYGONS: polygon k has points xy[first[k]] .. xy[first[k + 1] - 1]. Pixels of the stored picture, the
     * origin at the outer corner of the top left one; finite, but they may lie outside the picture. Not closed: the
     * last point joins the first. */
    const int64_t *first;
    const double (*xy)[2];
    /* MASK_RUNS: lengths of runs of 0 and 1, alternating, zeros first (any may be 0 long), down the columns of the
     * picture, left to right: pixel (x, y) has number x * h + y. Their sum is w * h of the box's image. */
    const uint32_t *run;
};

/* Segmentation of box number `box` of dataset.boxes. MASK_NONE also if d->masks is NULL. */
struct mask dataset_mask(const struct dataset *d, int64_t box);
/* Has it a part inside a w x h picture? A polygon with bounds that meet it, or a run of ones. */
bool mask_inside(const struct mask *m, int w, int h);

/* ---- for makers of data sets ---- */

/* Place of a segmentation in the stores below. */
struct mask_ref {
    int64_t at; /* first polygon, or first run */
    int32_t n;
    int32_t kind; /* enum mask_kind */
};

/* Boxes own the parts that their ref names; parts that no ref names are garbage, which costs memory only. */
struct masks {
    struct mask_ref *ref; /* [boxes of the data set] */
    size_t refs_cap;
    int64_t *polygon; /* [npolygons + 1]: first point of each, and the end of the last; NULL before the first */
    int64_t npolygons;
    size_t polygons_cap;
    double (*xy)[2];
    int64_t npoints;
    size_t points_cap;
    uint32_t *run;
    int64_t nruns;
    size_t runs_cap;
};

/* NULL: out of memory. */
struct masks *masks_new(void);
/* NULL is ignored. */
void masks_free(struct masks *m);
/* Add to the end of the stores: a point, the end of the polygon formed by the points since the last end, a run. False:
 * out of memory. */
bool masks_add_point(struct masks *m, double x, double y);
bool masks_end_polygon(struct masks *m);
bool masks_add_run(struct masks *m, uint32_t run);
/* Room for refs of so many boxes, zeroed where new. False: out of memory. */
bool masks_reserve(struct masks *m, int64_t boxes);
/* Gives back memory behind the last of each; refs: how many are in use. */
void masks_trim(struct masks *m, int64_t refs);
/* Marks the amount in the stores; masks_rewind() goes back to it and drops everything added since. */
struct masks_mark {
    int64_t npolygons, npoints, nruns;
};
struct masks_mark masks_mark(const struct masks *m);
void masks_rewind(struct masks *m, struct masks_mark mark);
/* The view of a ref. */
struct mask masks_view(const struct masks *m, const struct mask_ref *ref);

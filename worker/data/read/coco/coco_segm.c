#include "worker/data/read/coco/coco_segm.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "worker/data/set/box_rule.h"
#include "worker/data/image/image.h"
#include "worker/data/text/json_scan.h"
#include "worker/mask/rle.h"

/* A polygon in reading. before: the last x. */
struct ring {
    int64_t count; /* coordinates */
    double before;
    const char *why;
};

static void add_coordinate(struct json_scan *s, struct masks *keep, struct ring *r)
{
    struct json_num n = { 0 };

    if (!scan_finite(s, &n) || !(fabs(n.real) <= BOX_COORDINATE_MAX))
        r->why = "segmentation: a polygon holds an impossible number";
    else if (r->count >= 2 * (int64_t)MASK_MAX_POINTS)
        r->why = "segmentation: a polygon has more points than any object needs";
    else if (r->count % 2 && !masks_add_point(keep, r->before, n.real))
        scan_no_memory(s);
    r->before = n.real;
}

/* The flaw of a polygon, or NULL. *ret_alone: leaves out this polygon only, as detectron2 does (specs rcnn, section
 * 1.1, rule 4). */
static const char *read_polygon(struct json_scan *s, struct masks *keep, bool *ret_alone)
{
    struct masks_mark before = keep ? masks_mark(keep) : (struct masks_mark){ 0 };
    struct ring r = { 0 };
    bool numbers = true;

    *ret_alone = false;
    if (scan_peek(s) != JSON_ARRAY) {
        scan_skip(s);
        return "segmentation: a polygon is not a list inside the list";
    }
    scan_array(s);
    for (; scan_element(s); r.count++) {
        numbers = scan_peek(s) == JSON_NUMBER && numbers;
        if (keep && numbers && !r.why)
            add_coordinate(s, keep, &r);
        else
            scan_skip(s); /* also checks their syntax */
    }
    if (!numbers)
        return "segmentation: a polygon holds something that is not a number";
    *ret_alone = r.count % 2 || r.count < 6; /* even if its numbers are bad */
    if (r.why && !*ret_alone)
        return r.why;
    if (*ret_alone && keep)
        masks_rewind(keep, before);
    else if (keep && !masks_end_polygon(keep))
        scan_no_memory(s);
    if (r.count % 2)
        return "segmentation: a polygon has an odd number of coordinates";
    return r.count < 6 ? "segmentation: a polygon has fewer than three points" : NULL;
}

static const char *read_polygons(struct json_scan *s, struct masks *keep, struct coco_segm *ret)
{
    struct masks_mark before = keep ? masks_mark(keep) : (struct masks_mark){ 0 };
    const char *why, *bad = NULL;
    int64_t n = 0; /* number of good polygons */
    bool alone;

    scan_array(s);
    while (scan_element(s)) {
        why = read_polygon(s, bad ? NULL : keep, &alone);
        n += !why;
        if (why && alone)
            ret->left_out = ret->left_out ? ret->left_out : why;
        else if (!bad)
            bad = why;
        if (!bad && keep && (n > MASK_MAX_POLYGONS || keep->npoints - before.npoints > MASK_MAX_POINTS))
            bad = "segmentation: more polygons or points than any object needs";
    }
    if (!bad && n == 0)
        bad = ret->left_out;
    if (bad && keep)
        masks_rewind(keep, before);
    else if (keep && n > 0)
        ret->mask = (struct mask_ref){ before.npolygons, (int32_t)n, MASK_POLYGONS };
    return bad;
}

struct runs {
    int64_t sum, count;
    const char *why;
    struct masks *keep; /* NULL: not kept */
};

static void add_run(struct json_scan *s, struct runs *r, int64_t run)
{
    if (run < 0)
        r->why = "segmentation: a run is negative";
    else if (run > IMAGE_MAX_PIXELS || r->sum > IMAGE_MAX_PIXELS)
        r->why = "segmentation: runs pass any image";
    else if (r->keep && r->count >= MASK_MAX_RUNS)
        r->why = "segmentation: more runs than any object needs";
    else if (r->keep && !masks_add_run(r->keep, (uint32_t)run))
        scan_no_memory(s);
    r->count++;
    r->sum += r->why ? 0 : run;
}

static void number_runs(struct json_scan *s, struct runs *r)
{
    struct json_num n;

    scan_array(s);
    while (scan_element(s)) {
        if (scan_peek(s) != JSON_NUMBER) {
            scan_skip(s);
            r->why = "segmentation: a run is not a number";
        } else if (!scan_finite(s, &n) || !n.is_integer) {
            r->why = "segmentation: a run is not an integer";
        } else if (!r->why) {
            add_run(s, r, n.integer);
        }
    }
}

/* The compressed form. From the fourth run on, each is stored as the difference to the run two before. */
static void text_runs(struct json_scan *s, const char *p, size_t len, struct runs *r)
{
    int64_t before[2] = { 0, 0 }, v;
    const char *end = p + len;

    for (int64_t n = 0; p < end && !r->why; n++) {
        if (!rle_text_number(&p, end, &v)) {
            r->why = "segmentation: the run string is malformed";
            return;
        }
        if (n > 2)
            v += before[n & 1];
        before[n & 1] = v;
        add_run(s, r, v);
    }
}

static bool read_size(struct json_scan *s, int64_t size[2])
{
    struct json_num num;
    int n = 0;
    bool ok = true;

    if (scan_peek(s) != JSON_ARRAY) {
        scan_skip(s);
        return false;
    }
    scan_array(s);
    for (; scan_element(s); n++) {
        if (scan_finite(s, &num) && num.is_integer && n < 2)
            size[n] = num.integer;
        else
            ok = false;
    }
    return ok && n == 2 && size[0] > 0 && size[0] <= IMAGE_MAX_SIDE && size[1] > 0 && size[1] <= IMAGE_MAX_SIDE;
}

static void read_counts(struct json_scan *s, char **text, size_t *cap, struct runs *r)
{
    size_t len;

    if (scan_peek(s) == JSON_ARRAY) {
        number_runs(s, r);
    } else if (scan_peek(s) != JSON_STRING) {
        scan_skip(s);
        r->why = "segmentation: counts are neither a list nor a string";
    } else if (scan_text(s, text, cap, &len)) {
        text_runs(s, *text, len, r);
    }
}

static const char *rle_flaw(const struct runs *r, bool has_both, const int64_t size[2])
{
    if (!has_both)
        return "segmentation: run lengths need a size of two positive integers, and counts";
    if (r->why)
        return r->why;
    return r->sum != size[0] * size[1] ? "segmentation: the runs do not fill its size" : NULL;
}

static const char *read_rle(struct json_scan *s, char **text, size_t *cap, struct masks *keep, struct coco_segm *ret)
{
    struct masks_mark before = keep ? masks_mark(keep) : (struct masks_mark){ 0 };
    struct runs r = { .keep = keep };
    int64_t size[2] = { 0, 0 };
    bool has_size = false, has_counts = false;
    const char *flaw;

    scan_object(s);
    while (scan_member(s)) {
        if (scan_key_is(s, "size")) {
            has_size = read_size(s, size);
        } else if (scan_key_is(s, "counts") && !has_counts) {
            has_counts = true;
            read_counts(s, text, cap, &r);
        } else {
            scan_skip(s);
        }
    }
    flaw = rle_flaw(&r, has_size && has_counts, size);
    if (flaw && keep)
        masks_rewind(keep, before);
    if (flaw)
        return flaw;
    ret->rle_h = (int)size[0];
    ret->rle_w = (int)size[1];
    if (keep)
        ret->mask = (struct mask_ref){ before.nruns, (int32_t)r.count, MASK_RUNS };
    return NULL;
}

const char *coco_segm_read(struct json_scan *s, char **text, size_t *cap, struct masks *keep, struct coco_segm *ret)
{
    *ret = (struct coco_segm){ 0 };
    switch (scan_peek(s)) {
    case JSON_ARRAY:
        return read_polygons(s, keep, ret);
    case JSON_OBJECT:
        return read_rle(s, text, cap, keep, ret);
    case JSON_NULL:
        scan_skip(s);
        return NULL;
    default:
        scan_skip(s);
        return "segmentation is neither a list nor an object";
    }
}

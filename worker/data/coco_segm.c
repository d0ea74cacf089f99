#include "worker/data/coco_segm.h"

#include <stdbool.h>
#include <stdint.h>

#include "worker/data/image.h"
#include "worker/data/json_scan.h"

static const char *check_polygon(struct json_scan *s)
{
    bool numbers = true;
    int64_t count = 0;

    if (scan_peek(s) != JSON_ARRAY) {
        scan_skip(s);
        return "segmentation: a polygon is not a list inside the list";
    }
    scan_array(s);
    for (; scan_element(s); count++) {
        numbers = scan_peek(s) == JSON_NUMBER && numbers;
        scan_skip(s); /* checks their shape too; their values are the masks' business */
    }
    if (!numbers)
        return "segmentation: a polygon holds something that is not a number";
    if (count % 2)
        return "segmentation: a polygon has an odd number of coordinates";
    return count < 6 ? "segmentation: a polygon has fewer than three points" : NULL;
}

static const char *check_polygons(struct json_scan *s)
{
    const char *why = NULL, *first = NULL;

    scan_array(s);
    while (scan_element(s)) {
        why = check_polygon(s);
        if (!first)
            first = why;
    }
    return first;
}

struct runs {
    int64_t sum;
    const char *why;
};

static void add_run(struct runs *r, int64_t run)
{
    if (run < 0)
        r->why = "segmentation: a run is negative";
    else if (run > IMAGE_MAX_PIXELS || r->sum > IMAGE_MAX_PIXELS)
        r->why = "segmentation: runs pass any image";
    else
        r->sum += run;
}

static void number_runs(struct json_scan *s, struct runs *r)
{
    struct json_num n;

    scan_array(s);
    while (scan_element(s)) {
        if (scan_peek(s) != JSON_NUMBER) {
            scan_skip(s);
            r->why = "segmentation: a run is not a number";
        } else if (scan_number(s, &n)) {
            if (!n.is_integer)
                r->why = "segmentation: a run is not an integer";
            else if (!r->why)
                add_run(r, n.integer);
        }
    }
}

/* The compressed form: 6 bits a character from '0', 5 of them value, low first, the sixth says that more follow; from the
 * fourth run on each is the difference to the run two before. Source: the COCO API's description of its RLE strings. */
static void text_runs(const char *p, size_t len, struct runs *r)
{
    int64_t before[2] = { 0, 0 }, v;
    const char *end = p + len;

    for (int64_t n = 0; p < end && !r->why; n++) {
        int shift = 0, c;

        v = 0;
        do {
            if (p == end || *p < 48 || *p > 111 || shift > 30) {
                r->why = "segmentation: the run string is malformed";
                return;
            }
            c = *p++ - 48;
            v |= (int64_t)(c & 31) << shift;
            shift += 5;
        } while (c & 32);
        if (c & 16)
            v -= (int64_t)1 << shift;
        if (n > 2)
            v += before[n & 1];
        before[n & 1] = v;
        add_run(r, v);
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
        if (scan_peek(s) != JSON_NUMBER) {
            scan_skip(s);
            ok = false;
        } else if (scan_number(s, &num) && num.is_integer && n < 2) {
            size[n] = num.integer;
        } else {
            ok = false;
        }
    }
    return ok && n == 2 && size[0] > 0 && size[0] <= IMAGE_MAX_SIDE && size[1] > 0 && size[1] <= IMAGE_MAX_SIDE;
}

static const char *check_rle(struct json_scan *s, char **text, size_t *cap, int *ret_w, int *ret_h)
{
    struct runs r = { 0 };
    int64_t size[2] = { 0, 0 };
    bool has_size = false, has_counts = false;
    size_t len;

    scan_object(s);
    while (scan_member(s)) {
        if (scan_key_is(s, "size")) {
            has_size = read_size(s, size);
        } else if (scan_key_is(s, "counts") && !has_counts) {
            has_counts = true;
            if (scan_peek(s) == JSON_ARRAY)
                number_runs(s, &r);
            else if (scan_peek(s) != JSON_STRING) {
                scan_skip(s);
                r.why = "segmentation: counts are neither a list nor a string";
            } else if (scan_text(s, text, cap, &len))
                text_runs(*text, len, &r);
        } else {
            scan_skip(s);
        }
    }
    if (!has_size || !has_counts)
        return "segmentation: run lengths need a size of two positive integers, and counts";
    if (r.why)
        return r.why;
    if (r.sum != size[0] * size[1])
        return "segmentation: the runs do not fill its size";
    *ret_h = (int)size[0];
    *ret_w = (int)size[1];
    return NULL;
}

const char *coco_segm_check(struct json_scan *s, char **text, size_t *cap, int *ret_w, int *ret_h)
{
    switch (scan_peek(s)) {
    case JSON_ARRAY:
        return check_polygons(s);
    case JSON_OBJECT:
        return check_rle(s, text, cap, ret_w, ret_h);
    case JSON_NULL:
        scan_skip(s);
        return NULL;
    default:
        scan_skip(s);
        return "segmentation is neither a list nor an object";
    }
}

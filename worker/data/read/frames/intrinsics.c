#include "worker/data/read/frames/intrinsics.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/grow.h"
#include "proto/near.h"
#include "worker/data/image/image.h"
#include "worker/data/text/json_scan.h"

/* All keys; the first four are a camera's, in the order of its numbers. */
static const char *const keys[] = {
    "fx",
    "fy",
    "cx",
    "cy",
    "width",
    "height",
    "units",
    "right",
    "per_frame",
    "baseline_m",
    "nominal_baseline",
    "frame_pattern",
    "depth_pattern",
    "depth_unit_m",
    "depth_invalid",
    "distortion",
};

enum { WIDEST = 46 }; /* largest ratio of a picture's side to its focal length: a field of view of 175 degrees */

int intrinsics_check(const char *where, const double k[4], int w, int h, struct err *err)
{
    for (int i = 0; i < 4; i++)
        if (!isfinite(k[i]))
            return err_set(err, ERR_DATA, "%s: %s is missing or no number", where, keys[i]);
    for (int i = 0; i < 2; i++)
        if (!(k[i] >= 1e-3 && k[i] <= 1e9))
            return err_set(err, ERR_DATA, "%s: %s is %g pixels, no focal length", where, keys[i], k[i]);
    for (int i = 0; i < 2; i++) {
        const int side = i ? h : w;

        if (k[i] * WIDEST < side)
            return err_set(err, ERR_DATA,
                           "%s: %s is %g pixels of %d, too few for lines to stay straight; a fraction? then \"units\" is \"fraction\"",
                           where, keys[i], k[i], side);
    }
    if (!(k[2] >= 0 && k[2] <= w && k[3] >= 0 && k[3] <= h))
        return err_set(err, ERR_DATA, "%s: the principal point %g, %g lies outside the picture of %d x %d", where, k[2], k[3], w, h);
    return 0;
}

bool intrinsics_same(const double a[4], const double b[4], int w, int h)
{
    const double most = 0.1;

    return fabs(a[0] / b[0] - 1) * w <= most && fabs(a[1] / b[1] - 1) * h <= most && fabs(a[2] - b[2]) <= most && fabs(a[3] - b[3]) <= most;
}

/* Fails on a repeated key, since either value may be meant, and on a misspelt key. *seen: bits of the keys met in this
 * object. */
static bool is_wrong(struct json_scan *s, unsigned *seen)
{
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (scan_key_is(s, keys[i])) {
            if (*seen & 1u << i)
                return !scan_fail(s, "\"%s\" stands here a second time", keys[i]);
            *seen |= 1u << i;
            return false;
        }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (near_misspelt(s->key, keys[i]))
            return !scan_fail(s, "\"%s\" is no key; did you mean \"%s\"?", s->key, keys[i]);
    return false;
}

/* Reads a member of a camera. Returns false if the member belongs to something else. */
static bool camera_member(struct json_scan *s, struct intrinsics_camera *c)
{
    struct json_num n;

    for (int i = 0; i < 4; i++)
        if (scan_key_is(s, keys[i])) {
            if (scan_number(s, &n)) {
                c->k[i] = n.real;
                c->there = true;
            }
            return true;
        }
    return false;
}

static const struct intrinsics_camera no_camera = { { NAN, NAN, NAN, NAN }, false };

static void camera_object(struct json_scan *s, struct intrinsics_camera *c)
{
    unsigned seen = 0;

    *c = no_camera;
    c->there = true;
    scan_object(s);
    while (scan_member(s))
        if (!is_wrong(s, &seen) && !camera_member(s, c))
            scan_skip(s);
}

static void frames_object(struct json_scan *s, struct intrinsics *k)
{
    struct intrinsics_frame *f;
    size_t room = 0;

    scan_object(s);
    while (scan_member(s)) {
        if (strlen(s->key) + 1 >= sizeof s->key || k->nframes == INTRINSICS_MAX_FRAMES) {
            scan_fail(s, "per_frame: the name of a frame is too long, or there are too many");
            return;
        }
        if (!GROW(k->frame, room, k->nframes + 1) || !(k->frame[k->nframes].name = strdup(s->key))) {
            scan_no_memory(s);
            return;
        }
        f = &k->frame[k->nframes++];
        camera_object(s, &f->camera);
    }
}

static void side(struct json_scan *s, int *ret)
{
    struct json_num n;

    if (!scan_number(s, &n))
        return;
    if (!n.is_integer || n.integer < 1 || n.integer > IMAGE_MAX_SIDE)
        scan_fail(s, "\"%s\" must be a whole number from 1 to %d", s->key, IMAGE_MAX_SIDE);
    else
        *ret = (int)n.integer;
}

static void above_zero(struct json_scan *s, double *ret)
{
    char key[32];
    struct json_num n;

    snprintf(key, sizeof key, "%.31s", s->key);
    if (!scan_number(s, &n))
        return;
    if (!(n.real > 0))
        scan_fail(s, "\"%s\" must be above 0, is %g", key, n.real);
    *ret = n.real;
}

static void text(struct json_scan *s, char *buf, size_t size)
{
    size_t len;

    if (scan_string(s, buf, size, &len) && strlen(buf) != len)
        scan_fail(s, "a NUL inside a string");
}

static void units(struct json_scan *s, bool *ret_fraction)
{
    char word[16] = "";

    text(s, word, sizeof word);
    if (scan_failed(s))
        return;
    *ret_fraction = strcmp(word, "fraction") == 0;
    if (!*ret_fraction && strcmp(word, "pixels") != 0)
        scan_fail(s, "units must be \"pixels\" or \"fraction\", are \"%s\"", word);
}

static void zero(struct json_scan *s)
{
    struct json_num n = { 0 };

    if (scan_number(s, &n) && n.real != 0)
        scan_fail(s, "depth_invalid must be 0, is %g", n.real);
}

static void member(struct json_scan *s, struct intrinsics *k, bool *fraction)
{
    if (camera_member(s, &k->left))
        return;
    if (scan_key_is(s, "width"))
        side(s, &k->w);
    else if (scan_key_is(s, "height"))
        side(s, &k->h);
    else if (scan_key_is(s, "units"))
        units(s, fraction);
    else if (scan_key_is(s, "right"))
        camera_object(s, &k->right);
    else if (scan_key_is(s, "per_frame"))
        frames_object(s, k);
    else if (scan_key_is(s, "baseline_m"))
        above_zero(s, &k->baseline_m);
    else if (scan_key_is(s, "nominal_baseline"))
        above_zero(s, &k->nominal_baseline);
    else if (scan_key_is(s, "frame_pattern"))
        text(s, k->frame_pattern, sizeof k->frame_pattern);
    else if (scan_key_is(s, "depth_pattern"))
        text(s, k->depth_pattern, sizeof k->depth_pattern);
    else if (scan_key_is(s, "depth_unit_m"))
        above_zero(s, &k->depth_unit_m);
    else if (scan_key_is(s, "depth_invalid"))
        zero(s);
    else if (scan_key_is(s, "distortion") && scan_peek(s) != JSON_NULL)
        scan_fail(s, "distortion must be null: frames have to be undistorted");
    else
        scan_skip(s);
}

static int by_name(const void *a, const void *b)
{
    const struct intrinsics_frame *x = a, *y = b;

    return strcmp(x->name, y->name);
}

static int finish_camera(const struct intrinsics *k, const char *where, bool fraction, struct intrinsics_camera *c, struct err *err)
{
    for (int i = 0; i < 4 && fraction; i++)
        c->k[i] *= i % 2 ? k->h : k->w;
    return intrinsics_check(where, c->k, k->w, k->h, err);
}

static int finish(const char *name, struct intrinsics *k, bool fraction, struct err *err)
{
    char where[512];
    int rc = 0;

    if (!k->w || !k->h)
        return err_set(err, ERR_DATA, "%s: \"%s\" is missing", name, k->w ? "height" : "width");
    if (!k->left.there && !k->nframes)
        return err_set(err, ERR_DATA, "%s: no camera: \"fx\", \"fy\", \"cx\", \"cy\" are missing", name);
    if (k->left.there)
        rc = finish_camera(k, name, fraction, &k->left, err);
    if (rc == 0 && k->right.there) {
        snprintf(where, sizeof where, "%s: right", name);
        rc = finish_camera(k, where, fraction, &k->right, err);
    }
    if (k->nframes)
        qsort(k->frame, (size_t)k->nframes, sizeof *k->frame, by_name);
    for (int i = 0; i < k->nframes && rc == 0; i++) {
        snprintf(where, sizeof where, "%s: frame '%.100s'", name, k->frame[i].name);
        if (i > 0 && strcmp(k->frame[i].name, k->frame[i - 1].name) == 0)
            return err_set(err, ERR_DATA, "%s is there twice", where);
        rc = finish_camera(k, where, fraction, &k->frame[i].camera, err);
    }
    if (rc == 0 && k->frame_pattern[0])
        rc = pattern_check(name, k->frame_pattern, err);
    return rc == 0 && k->depth_pattern[0] ? pattern_check(name, k->depth_pattern, err) : rc;
}

int intrinsics_parse(const char *name, const char *bytes, size_t len, struct intrinsics *ret, struct err *err)
{
    struct intrinsics k = { .left = no_camera, .right = no_camera, .baseline_m = NAN, .nominal_baseline = NAN, .depth_unit_m = NAN };
    unsigned seen = 0;
    bool fraction = false;
    struct json_scan s;
    int rc;

    scan_open(&s, name, bytes, len);
    scan_object(&s);
    while (scan_member(&s))
        if (!is_wrong(&s, &seen))
            member(&s, &k, &fraction);
    scan_finish(&s);
    rc = scan_failed(&s) ? err_set(err, s.err.code, "%s", s.err.msg) : finish(name, &k, fraction, err);
    if (rc < 0)
        intrinsics_clear(&k);
    else
        *ret = k;
    return rc;
}

void intrinsics_clear(struct intrinsics *k)
{
    for (int i = 0; i < k->nframes; i++)
        free(k->frame[i].name);
    free(k->frame);
    k->frame = NULL;
    k->nframes = 0;
}

const struct intrinsics_camera *intrinsics_of(const struct intrinsics *k, const char *frame)
{
    const struct intrinsics_frame key = { .name = (char *)frame };
    const struct intrinsics_frame *f = k->nframes ? bsearch(&key, k->frame, (size_t)k->nframes, sizeof key, by_name) : NULL;

    return f ? &f->camera : k->left.there ? &k->left : NULL;
}

/* ---- names of files ---- */

bool path_stays(const char *path)
{
    for (const char *part = path;; part++) {
        size_t n = strcspn(part, "/");

        if (n == 0 || (n == 1 && part[0] == '.') || (n == 2 && part[0] == '.' && part[1] == '.'))
            return false;
        part += n;
        if (!*part)
            return true;
    }
}

/* "%d" or "%0Nd" at p. Returns its length and the least number of digits; 0: neither. */
static int conversion(const char *p, int *ret_digits)
{
    const char *at = p + 1;
    int digits = 0;

    if (*at == '0') {
        while (*at >= '0' && *at <= '9' && at - p < 4)
            digits = digits * 10 + (*at++ - '0');
        if (digits < 1)
            return 0;
    }
    *ret_digits = digits;
    return *at == 'd' && digits <= 18 ? (int)(at + 1 - p) : 0;
}

int pattern_check(const char *where, const char *pattern, struct err *err)
{
    const char *at = strchr(pattern, '%');
    int digits, n = at ? conversion(at, &digits) : 0;

    if (!n || strchr(at + n, '%'))
        return err_set(err, ERR_DATA, "%s: the pattern '%.100s' needs one %%d or %%06d, and no other '%%'", where, pattern);
    return path_stays(pattern) ? 0 : err_set(err, ERR_DATA, "%s: the pattern '%.100s' leaves its folder", where, pattern);
}

bool pattern_make(const char *pattern, long long number, char *ret, size_t size)
{
    const char *at = strchr(pattern, '%');
    int digits = 0, n = at ? conversion(at, &digits) : 0, len;

    if (!n || number < 0)
        return false;
    len = snprintf(ret, size, "%.*s%0*lld%s", (int)(at - pattern), pattern, digits, number, at + n);
    return len > 0 && (size_t)len < size;
}

/* SPDX-License-Identifier: Apache-2.0 */ /* KITTI's raw data: specs featdepth sections 4.1 and 4.6. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/data/read/frames/frames.h"
#include "worker/data/image/image.h"
#include "worker/data/image/image_names.h"
#include "worker/data/read/frames/intrinsics.h"
#include "worker/data/text/text_lines.h"
#include "worker/data/read/frames/views_make.h"

enum { MAX_DATES = 4096, CALIB_MAX_BYTES = 1 << 20, SIDES = 2 };

static const double nominal_baseline = 0.015; /* in FeatDepth's units; the cameras stand 0.54 m apart, 36 times that */
static const int64_t most_number = 9999999999;

/* A day's calibration of the left (02) and the right (03) colour camera. */
struct date {
    char *name;
    int w[SIDES], h[SIDES];
    double camera[SIDES][4];
    int laser[SIDES]; /* -1: not needed */
};

struct kitti {
    const struct frames_options *opt;
    struct views_maker *m;
    struct date *date;
    int n, last;
    struct image_names names; /* of the folder listed last */
};

static void kitti_close(void *of)
{
    struct kitti *s = of;

    for (int i = 0; i < s->n; i++)
        free(s->date[i].name);
    free(s->date);
    image_names_free(&s->names);
    free(s);
}

static int kitti_open(const struct frames_options *opt, struct views_maker *m, void **ret_of, struct err *err)
{
    struct kitti *s = calloc(1, sizeof *s);

    if (!s)
        return err_set(err, -ENOMEM, "%s: no memory", opt->folder);
    s->opt = opt;
    s->m = m;
    *ret_of = s;
    return 0;
}

/* ---- calibration ---- */

/* Reads the n numbers after "key:" at the start of a line. text ends with NUL. */
static int numbers_of(const char *path, const char *text, const char *key, int n, double *ret, struct err *err)
{
    size_t len = strlen(key);
    const char *at = text;
    bool there;
    char *end;

    while (at && (strncmp(at, key, len) != 0 || at[len] != ':')) {
        at = strchr(at, '\n');
        at = at ? at + 1 : NULL;
    }
    if (!at)
        return err_set(err, ERR_DATA, "%s: \"%s:\" is missing", path, key);
    at += len + 1;
    for (int i = 0; i < n; i++, at = end) {
        at += strspn(at, " \t\r");
        there = *at != '\n';
        if (there)
            ret[i] = strtod(at, &end);
        if (!there || end == at || !isfinite(ret[i]))
            return err_set(err, ERR_DATA, "%s: \"%s:\" needs %d numbers", path, key, n);
    }
    return 0;
}

/* Reads a calibration file as text and adds it to the set's files. The caller frees *ret_text. */
static int calibration(struct kitti *s, const char *date, const char *name, char path[DATASET_MAX_PATH], char **ret_text, struct err *err)
{
    struct whole_file f = { 0 };
    size_t mark;
    int n = snprintf(path, DATASET_MAX_PATH, "%s/%s/%s", s->opt->folder, date, name), rc;

    if (n < 0 || n >= DATASET_MAX_PATH)
        return err_set(err, ERR_DATA, "%.200s...: path too long", s->opt->folder);
    rc = whole_file_read(&f, path, CALIB_MAX_BYTES, err);
    if (rc >= 0)
        rc = views_make_file(s->m, path + strlen(s->opt->folder) + 1, &f, err);
    if (rc >= 0) {
        *ret_text = calloc(1, f.size + 1);
        rc = *ret_text ? 0 : err_set(err, -ENOMEM, "%s: no memory", path);
    }
    mark = rc >= 0 ? text_mark(f.bytes, f.size) : 0;
    if (rc >= 0)
        memcpy(*ret_text, f.bytes + mark, f.size - mark);
    free(f.bytes);
    return rc;
}

/* Makes a 4 x 4 matrix of [R | t]; its last row is 0 0 0 1. */
static void widen(const double r[9], const double t[3], double ret[16])
{
    memset(ret, 0, 16 * sizeof *ret);
    ret[15] = 1;
    for (int i = 0; i < 3; i++) {
        memcpy(ret + i * 4, r + i * 3, 3 * sizeof *r);
        ret[i * 4 + 3] = t ? t[i] : 0;
    }
}

/* Product of a [rows][4] and a [4][4] matrix. */
static void multiply(const double *a, int rows, const double b[16], double *ret)
{
    for (int i = 0; i < rows; i++)
        for (int k = 0; k < 4; k++) {
            double sum = 0;

            for (int j = 0; j < 4; j++)
                sum += a[i * 4 + j] * b[j * 4 + k];
            ret[i * 4 + k] = sum;
        }
}

/* Computes P_rect * R_rect_00 * [R | t] of the laser. */
static int read_lasers(struct kitti *s, struct date *d, const char *cam_path, const char *cam, double p[SIDES][12], struct err *err)
{
    char path[DATASET_MAX_PATH], *text = NULL;
    double rect[9], r[9], t[3], wide_rect[16], wide[16], rectified[16], whole[12];
    int rc = numbers_of(cam_path, cam, "R_rect_00", 9, rect, err);

    if (rc >= 0)
        rc = calibration(s, d->name, "calib_velo_to_cam.txt", path, &text, err);
    if (rc >= 0)
        rc = numbers_of(path, text, "R", 9, r, err);
    if (rc >= 0)
        rc = numbers_of(path, text, "T", 3, t, err);
    free(text);
    if (rc < 0)
        return rc;
    widen(rect, NULL, wide_rect);
    widen(r, t, wide);
    multiply(wide_rect, 4, wide, rectified);
    for (int side = 0; side < SIDES && rc >= 0; side++) {
        multiply(p[side], 3, rectified, whole);
        rc = d->laser[side] = views_make_laser(s->m, whole, err);
    }
    return rc;
}

static int read_side(const char *path, const char *text, int side, struct date *d, double p[12], struct err *err)
{
    char key[16], where[DATASET_MAX_PATH + 32];
    double size[2];
    int rc;

    snprintf(key, sizeof key, "S_rect_0%d", 2 + side);
    rc = numbers_of(path, text, key, 2, size, err);
    if (rc >= 0 && !(size[0] >= 1 && size[0] <= IMAGE_MAX_SIDE && size[1] >= 1 && size[1] <= IMAGE_MAX_SIDE))
        rc = err_set(err, ERR_DATA, "%s: \"%s:\" is no size of pictures", path, key);
    if (rc < 0)
        return rc;
    d->w[side] = (int)size[0];
    d->h[side] = (int)size[1];
    snprintf(key, sizeof key, "P_rect_0%d", 2 + side);
    rc = numbers_of(path, text, key, 12, p, err);
    if (rc < 0)
        return rc;
    memcpy(d->camera[side], (double[4]){ p[0], p[5], p[2], p[6] }, sizeof d->camera[side]);
    snprintf(where, sizeof where, "%s: %s", path, key);
    return intrinsics_check(where, d->camera[side], d->w[side], d->h[side], err);
}

static int read_date(struct kitti *s, struct date *d, struct err *err)
{
    char path[DATASET_MAX_PATH], *text = NULL;
    double p[SIDES][12];
    int rc = calibration(s, d->name, "calib_cam_to_cam.txt", path, &text, err);

    for (int side = 0; side < SIDES && rc >= 0; side++) {
        d->laser[side] = -1;
        rc = read_side(path, text, side, d, p[side], err);
    }
    if (rc >= 0 && s->opt->truth)
        rc = read_lasers(s, d, path, text, p, err);
    free(text);
    return rc;
}

/* The day of "date/drive", read at its first use. */
static int date_of(struct kitti *s, const char *folder, struct date **ret, struct err *err)
{
    size_t len = strcspn(folder, "/");
    struct date *d;

    for (int i = 0; i < s->n; i++) {
        d = &s->date[(s->last + i) % s->n];
        if (strlen(d->name) == len && memcmp(d->name, folder, len) == 0) {
            s->last = (s->last + i) % s->n;
            *ret = d;
            return 0;
        }
    }
    d = s->n < MAX_DATES ? realloc(s->date, (size_t)(s->n + 1) * sizeof *d) : NULL;
    if (!d)
        return err_set(err, -ENOMEM, "%s: no memory, or over %d dates", s->opt->list, MAX_DATES);
    s->date = d;
    d = &s->date[s->n];
    *d = (struct date){ .name = strndup(folder, len) };
    if (!d->name)
        return err_set(err, -ENOMEM, "%s: no memory", s->opt->list);
    s->last = s->n++;
    *ret = d;
    return read_date(s, d, err);
}

/* ---- lines ---- */

static bool put_path(char buf[DATASET_MAX_PATH], const char *folder, int side, const char *file, const char *ending)
{
    int n = snprintf(buf, DATASET_MAX_PATH, "%s/image_0%d/data/%s%s", folder, 2 + side, file, ending);

    if (n > 0 && n < DATASET_MAX_PATH)
        return true;
    buf[0] = '\0';
    return false;
}

/* Looks for a frame with an unusual ending. */
static void find_frame(struct kitti *s, const char *folder, int side, const char *name, char buf[DATASET_MAX_PATH])
{
    char path[DATASET_MAX_PATH];
    int n = snprintf(path, sizeof path, "%s/%s/image_0%d/data", s->opt->folder, folder, 2 + side);
    struct err ignored;
    size_t at;

    if (n > 0 && (size_t)n < sizeof path && image_names_list(&s->names, path, &ignored) >= 0 && image_names_find(&s->names, name, &at) > 0)
        put_path(buf, folder, side, s->names.file[at], "");
}

/* JPEG as FeatDepth converts them, or PNG as KITTI has them; otherwise any picture of that name. */
static void put_frame(struct kitti *s, const char *folder, int side, int64_t number, char buf[DATASET_MAX_PATH])
{
    static const char *const endings[] = { ".jpg", ".png" };
    char name[24];

    snprintf(name, sizeof name, "%010lld", (long long)number);
    for (int i = 0; i < 2; i++)
        if (put_path(buf, folder, side, name, endings[i]) && views_file_there(s->opt, buf))
            return;
    find_frame(s, folder, side, name, buf);
}

static int bad_line(const struct kitti *s, const struct split_line *line, const char *why, struct err *err)
{
    err_set(err, ERR_DATA, "%s, line %lld: '%.100s': %s", s->opt->list, (long long)line->number, line->word[0], why);
    return 1;
}

static void put_files(struct kitti *s, const struct date *d, const char *folder, int side, int64_t number, struct frame_spot *spot)
{
    const struct frames_options *o = s->opt;

    put_frame(s, folder, side, number, spot->file);
    for (int k = 0; k < o->nsources; k++) {
        int64_t at = number + o->source[k];

        if (o->source[k] == VIEWS_STEREO) {
            put_frame(s, folder, 1 - side, number, spot->source[k]);
            spot->stereo = side ? nominal_baseline : -nominal_baseline;
        } else if (at >= 0) {
            put_frame(s, folder, side, at, spot->source[k]);
        }
    }
    spot->laser = d->laser[side];
    if (snprintf(spot->depth, sizeof spot->depth, "%s/velodyne_points/data/%010lld.bin", folder, (long long)number) >= DATASET_MAX_PATH)
        spot->depth[0] = '\0';
}

static int kitti_find(void *of, const struct split_line *line, struct frame_spot *spot, struct err *err)
{
    struct kitti *s = of;
    const char *folder = line->word[0], *slash = strchr(folder, '/');
    int64_t number = line->n > 1 ? split_number(line->word[1], most_number) : 0;
    int side = strcmp(line->word[2], "r") == 0, rc;
    struct date *d = NULL;

    if (!path_stays(folder) || !slash || strchr(slash + 1, '/'))
        return bad_line(s, line, "a line begins with date/drive", err);
    if (number < 0)
        return bad_line(s, line, "no number of a frame behind it", err);
    if (line->n > 2 && !side && strcmp(line->word[2], "l") != 0)
        return bad_line(s, line, "neither l nor r at the end", err);
    rc = date_of(s, folder, &d, err);
    if (rc < 0)
        return rc;
    memcpy(spot->camera, d->camera[side], sizeof spot->camera);
    spot->number = number;
    spot->w = d->w[side];
    spot->h = d->h[side];
    put_files(s, d, folder, side, number, spot);
    return 0;
}

static double kitti_unit(const void *of)
{
    (void)of;
    return 1;
}

const struct frames_layout frames_kitti = { kitti_open, kitti_find, kitti_unit, kitti_close };

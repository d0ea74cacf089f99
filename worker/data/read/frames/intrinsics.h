/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/frames/intrinsics.h - intrinsics.json: the camera of a
 * sequence of frames, and the places of its files. Bounded. Source: specs featdepth section 4.5. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct err;

enum { INTRINSICS_MAX_BYTES = 64 << 20, INTRINSICS_MAX_FRAMES = 1 << 20, INTRINSICS_PATTERN = 256, INTRINSICS_NAME = 256 };

struct intrinsics_camera {
    double k[4]; /* fx, fy, cx, cy in pixels of the frames */
    bool there;
};

struct intrinsics {
    int w, h;
    struct intrinsics_camera left, right; /* right: of the other camera, if it is given */
    double baseline_m, nominal_baseline;  /* NAN: not given */
    char frame_pattern[INTRINSICS_PATTERN], depth_pattern[INTRINSICS_PATTERN];
    double depth_unit_m; /* NAN: not given */
    /* Cameras that belong to single frames, ascending by name. */
    struct intrinsics_frame {
        char *name;
        struct intrinsics_camera camera;
    } * frame;
    int nframes;
};

/* From memory; messages call it `name`. ERR_DATA or -ENOMEM: *ret then holds nothing. Else free it with
 * intrinsics_clear(). Refused: no width or height, no camera, fx or fy that is not above 0, a principal point outside
 * the picture, distortion, units that are neither "pixels" nor "fraction" of width and height, one of these keys twice
 * in one object. */
int intrinsics_parse(const char *name, const char *bytes, size_t len, struct intrinsics *ret, struct err *err);
void intrinsics_clear(struct intrinsics *k);
/* The camera of a frame by its name without ending, or of all frames; NULL: no camera is given for it. */
const struct intrinsics_camera *intrinsics_of(const struct intrinsics *k, const char *frame);
/* Are two cameras of w x h pictures the same? The pixel that one gives for a ray must be within a tenth of a pixel of
 * the other's. */
bool intrinsics_same(const double a[4], const double b[4], int w, int h);
/* ERR_DATA with a sentence about `where`: the camera is impossible for w x h pictures. */
int intrinsics_check(const char *where, const double k[4], int w, int h, struct err *err);

/* A pattern of file names: one "%d" or "%0Nd" (N: 1 to 18), no other '%', a path that stays in its folder. ERR_DATA
 * with a sentence about `where`. */
int pattern_check(const char *where, const char *pattern, struct err *err);
/* The file of a number in ret; false: it does not fit, or the number is negative. */
bool pattern_make(const char *pattern, long long number, char *ret, size_t size);
/* Is a path of a list or a file relative, without an empty part, "." or ".."? */
bool path_stays(const char *path);

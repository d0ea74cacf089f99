/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/data/read/frames/frames_set.h - for tests of data sets of
 * frames: trees on disk, and how they are read. */
#pragma once
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/err.h"
#include "tests/stand/harness.h"
#include "worker/data/read/check.h"
#include "worker/data/set/dataset.h"
#include "worker/data/read/frames/depth_truth.h"
#include "worker/data/read/frames/frames.h"
#include "worker/data/image/image.h"
#include "worker/data/set/problems.h"

enum { FRAME_W = 41, FRAME_H = 30 };

struct tree {
    char dir[TEMP_MAX];
    struct frames_options frames;
    struct check_options opt;
    struct problems problems;
    struct err err;
    char list[TEMP_MAX + 16];
};

/* Folders on the way to a file are made. */
__attribute__((unused)) static char *tree_path(const struct tree *t, const char *file, char path[256])
{
    snprintf(path, 256, "%s/%s", t->dir, file);
    for (char *at = path + strlen(t->dir) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(path, 0755);
        *at = '/';
    }
    return path;
}

__attribute__((unused)) static void tree_text(const struct tree *t, const char *file, const char *text)
{
    char path[256];
    FILE *f = fopen(tree_path(t, file, path), "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* The pictures of tests/golden/make_frames_samples.py, of any size. */
__attribute__((unused)) static void tree_frame(const struct tree *t, const char *file, int i, int w, int h)
{
    uint8_t *rgb = malloc((size_t)w * (size_t)h * 3);
    char path[256];
    struct err err;

    for (int k = 0; k < w * h * 3; k++)
        rgb[k] = (uint8_t)(k * (i * 2 + 3) + i * 50 + (k >> 4) * 7);
    assert_int_equal(image_write_png(tree_path(t, file, path), rgb, w, h, &err), 0);
    free(rgb);
}

/* Pixel k of depth map i is i * 1000 + k, but every seventh is unknown. */
__attribute__((unused)) static void tree_depth(const struct tree *t, const char *file, int i, int w, int h)
{
    uint16_t *grey = malloc((size_t)w * (size_t)h * sizeof *grey);
    char path[256];
    struct err err;

    for (int k = 0; k < w * h; k++)
        grey[k] = (uint16_t)(k % 7 == 0 ? 0 : i * 1000 + k);
    assert_int_equal(image_write_png16(tree_path(t, file, path), grey, w, h, NULL, 0, &err), 0);
    free(grey);
}

/* Without files; neighbours -1 and 1, with measured depth. */
__attribute__((unused)) static void tree_new(struct tree *t)
{
    memset(t, 0, sizeof *t);
    assert_non_null(mkdtemp(temp_path(t->dir, sizeof t->dir, "detd-frames-XXXXXX")));
    snprintf(t->list, sizeof t->list, "%s/list.txt", t->dir);
    t->frames = (struct frames_options){
        .list = t->list, .folder = t->dir, .nsources = 2, .source = { -1, 1 }, .truth = true, .depth_unit_m = NAN
    };
    t->opt = (struct check_options){ .annotations = t->list, .images = t->dir, .on_bad = BAD_ERROR, .threads = 2, .frames = &t->frames };
}

__attribute__((unused)) static void tree_free(struct tree *t)
{
    char command[TEMP_MAX + 16];

    snprintf(command, sizeof command, "rm -rf '%s'", t->dir);
    assert_int_equal(system(command), 0);
}

static const char camera_json[] = "{\"fx\": 30.5, \"fy\": 31, \"cx\": 19.25, \"cy\": 14, \"width\": 41, \"height\": 30, "
                                  "\"frame_pattern\": \"f/%03d.png\", \"depth_pattern\": \"d/%d.png\", \"depth_unit_m\": 0.001}";

/* A single sequence of n frames, the even ones with depth. */
__attribute__((unused)) static void tree_single(struct tree *t, int n)
{
    char file[32];

    tree_new(t);
    tree_text(t, "intrinsics.json", camera_json);
    for (int i = 0; i < n; i++) {
        snprintf(file, sizeof file, "f/%03d.png", i);
        tree_frame(t, file, i, FRAME_W, FRAME_H);
        snprintf(file, sizeof file, "d/%d.png", i);
        if (i % 2 == 0)
            tree_depth(t, file, i, FRAME_W, FRAME_H);
    }
}

/* check_split() with such a list. Problems are those of this call. */
__attribute__((unused)) static int tree_check(struct tree *t, const char *list, struct dataset **ret)
{
    t->problems = (struct problems){ 0 };
    t->err = (struct err){ 0 };
    if (list)
        tree_text(t, "list.txt", list);
    return check_split(&t->opt, &t->problems, ret, &t->err);
}

__attribute__((unused)) static struct dataset *tree_read(struct tree *t, const char *list)
{
    struct dataset *d = NULL;

    if (tree_check(t, list, &d) != 0)
        fail_msg("%s", t->err.msg);
    return d;
}

/* The same fails and says so. */
__attribute__((unused)) static void tree_refuses(struct tree *t, const char *list, const char *why)
{
    struct dataset *d = NULL;
    int rc = tree_check(t, list, &d);

    if (rc >= 0 || !strstr(t->err.msg, why))
        fail_msg("'%s': wanted '%s', got %d, '%s'", list ? list : "", why, rc, rc < 0 ? t->err.msg : "");
}

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/frames/frames_single.c - the layout of one sequence in a
 * folder, and files that other layouts share. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/data/read/frames/depth_truth.h"
#include "worker/data/read/frames/frames.h"
#include "worker/data/read/frames/intrinsics.h"
#include "worker/data/read/frames/poses.h"
#include "worker/data/set/problems.h"
#include "worker/data/read/frames/views_make.h"

struct single {
    const struct frames_options *opt;
    struct intrinsics k;
    const char *frames, *depth; /* patterns; depth may be NULL: no depth */
};

static const char intrinsics_file[] = "intrinsics.json";

static const int64_t most_number = 999999999999;

static void single_close(void *of)
{
    struct single *s = of;

    intrinsics_clear(&s->k);
    free(s);
}

/* Takes the patterns from the job, otherwise from the file. */
static int single_patterns(struct single *s, struct views_maker *m, struct err *err)
{
    const struct frames_options *o = s->opt;

    s->frames = o->frame_pattern ? o->frame_pattern : s->k.frame_pattern;
    s->depth = o->depth_pattern ? o->depth_pattern : s->k.depth_pattern[0] ? s->k.depth_pattern : NULL;
    if (!*s->frames)
        return err_set(err, ERR_DATA, "%s/%s: neither \"frame_pattern\" is there nor data.frame_pattern in the job", o->folder,
                       intrinsics_file);
    if (o->frame_pattern && pattern_check("data.frame_pattern", s->frames, err) < 0)
        return err->code;
    if (o->depth_pattern && pattern_check("data.depth_pattern", s->depth, err) < 0)
        return err->code;
    if (s->depth && o->truth && isnan(isnan(o->depth_unit_m) ? s->k.depth_unit_m : o->depth_unit_m))
        return err_set(err, ERR_DATA, "%s/%s: neither \"depth_unit_m\" is there nor data.depth_unit_m in the job", o->folder,
                       intrinsics_file);
    if (s->depth && o->truth)
        views_make_pattern(m, s->depth);
    for (int k = 0; k < o->nsources; k++)
        if (o->source[k] == VIEWS_STEREO)
            return err_set(err, ERR_DATA, "data.stereo: %s holds one sequence of one camera; it needs sequences/ or KITTI's raw data",
                           o->folder);
    return 0;
}

static int single_open(const struct frames_options *opt, struct views_maker *m, void **ret_of, struct err *err)
{
    struct single *s = calloc(1, sizeof *s);
    int rc;

    if (!s)
        return err_set(err, -ENOMEM, "%s: no memory", opt->folder);
    s->opt = opt;
    rc = frames_intrinsics(opt, m, intrinsics_file, &s->k, err);
    if (rc >= 0)
        rc = single_patterns(s, m, err);
    if (rc >= 0)
        rc = frames_poses(opt, m, POSES_FILE, err);
    if (rc < 0)
        single_close(s);
    else
        *ret_of = s;
    return rc;
}

/* The files of the sources of frame `number`, taken by camera c. A source by another camera counts as missing if
 * targets may stay alone. Otherwise returns 1, and err names it. */
static int single_sources(const struct single *s, const struct split_line *line, int64_t number, const struct intrinsics_camera *c,
                          struct frame_spot *spot, struct err *err)
{
    for (int k = 0; k < s->opt->nsources; k++) {
        const struct intrinsics_camera *other;
        int64_t source = number + s->opt->source[k];
        char name[32];

        if (!pattern_make(s->frames, source, spot->source[k], sizeof spot->source[k])) {
            spot->source[k][0] = '\0';
            continue;
        }
        snprintf(name, sizeof name, "%lld", (long long)source);
        other = intrinsics_of(&s->k, name);
        if (!other || intrinsics_same(other->k, c->k, s->k.w, s->k.h))
            continue;
        if (s->opt->missing == FRAMES_ALONE) {
            spot->source[k][0] = '\0';
        } else if (views_file_there(s->opt, spot->source[k])) {
            err_set(err, ERR_DATA, "%s, line %lld: by %s frame %s is another camera's than frame %lld; they are compared as one camera's",
                    s->opt->list, (long long)line->number, intrinsics_file, name, (long long)number);
            return 1;
        }
    }
    return 0;
}

static int single_find(void *of, const struct split_line *line, struct frame_spot *spot, struct err *err)
{
    struct single *s = of;
    int64_t number = line->n == 1 ? split_number(line->word[0], most_number) : -1;
    char name[32];
    const struct intrinsics_camera *c;

    if (number < 0) {
        err_set(err, ERR_DATA, "%s, line %lld: '%.80s%s' is not the number of a frame", s->opt->list, (long long)line->number,
                line->word[0], line->n > 1 ? " ..." : "");
        return 1;
    }
    snprintf(name, sizeof name, "%lld", (long long)number);
    c = intrinsics_of(&s->k, name);
    if (!c) {
        err_set(err, ERR_DATA, "%s, line %lld: %s has no camera of frame %s", s->opt->list, (long long)line->number, intrinsics_file, name);
        return 1;
    }
    memcpy(spot->camera, c->k, sizeof spot->camera);
    spot->number = number;
    spot->w = s->k.w;
    spot->h = s->k.h;
    if (!pattern_make(s->frames, number, spot->file, sizeof spot->file))
        spot->file[0] = '\0';
    if (s->depth && !pattern_make(s->depth, number, spot->depth, sizeof spot->depth))
        spot->depth[0] = '\0';
    return single_sources(s, line, number, c, spot, err);
}

static double single_unit(const void *of)
{
    const struct single *s = of;

    return isnan(s->opt->depth_unit_m) ? s->k.depth_unit_m : s->opt->depth_unit_m;
}

const struct frames_layout frames_single = { single_open, single_find, single_unit, single_close };

int frames_intrinsics(const struct frames_options *opt, struct views_maker *m, const char *file, struct intrinsics *ret, struct err *err)
{
    struct whole_file f = { 0 };
    char path[DATASET_MAX_PATH];
    int n = snprintf(path, sizeof path, "%s/%s", opt->folder, file), rc;

    if (n < 0 || (size_t)n >= sizeof path)
        return err_set(err, ERR_DATA, "%.200s...: path too long", opt->folder);
    rc = whole_file_read(&f, path, INTRINSICS_MAX_BYTES, err);
    if (rc >= 0)
        rc = views_make_file(m, file, &f, err);
    if (rc >= 0)
        rc = intrinsics_parse(path, (const char *)f.bytes, f.size, ret, err);
    free(f.bytes);
    return rc;
}

int frames_poses(const struct frames_options *opt, struct views_maker *m, const char *file, struct err *err)
{
    struct whole_file f = { 0 };
    struct poses poses = { 0 };
    char path[DATASET_MAX_PATH];
    int n = snprintf(path, sizeof path, "%s/%s", opt->folder, file), rc;

    if (!opt->truth || n < 0 || (size_t)n >= sizeof path || !views_file_there(opt, file))
        return 0;
    rc = whole_file_read(&f, path, POSES_MAX_BYTES, err);
    if (rc >= 0)
        rc = poses_parse(path, (const char *)f.bytes, f.size, &poses, err);
    if (rc >= 0 && poses.n == 0)
        rc = err_set(err, ERR_DATA, "%s: 0 poses, the file is empty", path);
    if (rc >= 0)
        rc = views_make_file(m, file, &f, err);
    poses_free(&poses);
    free(f.bytes);
    return rc;
}

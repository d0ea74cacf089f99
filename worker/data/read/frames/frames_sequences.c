/* SPDX-License-Identifier: Apache-2.0 */ /* The layout of several sequences: specs featdepth section 4.5. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "proto/err.h"
#include "proto/grow.h"
#include "worker/data/read/frames/frames.h"
#include "worker/data/image/image_names.h"
#include "worker/data/read/frames/intrinsics.h"
#include "worker/data/read/frames/poses.h"
#include "worker/data/set/problems.h"
#include "worker/data/read/frames/views_make.h"

enum { MAX_SEQUENCES = 1 << 16, MAX_FRAMES = 1 << 20 };

/* A frame's name without its ending, and the ending with its dot. */
struct frame_name {
    char *name;
    const char *ending; /* behind the name's NUL */
};

struct sequence {
    char *name;
    struct intrinsics k;
    struct frame_name *frame; /* in natural order */
    int n;
    struct image_names right, depth; /* of the other camera; measured depth */
};

struct sequences {
    const struct frames_options *opt;
    struct views_maker *m;
    struct sequence *sequence;
    int n, last;
    size_t room;
};

static void sequences_close(void *of)
{
    struct sequences *s = of;

    for (int i = 0; i < s->n; i++) {
        struct sequence *q = &s->sequence[i];

        for (int k = 0; k < q->n; k++)
            free(q->frame[k].name);
        free(q->frame);
        free(q->name);
        intrinsics_clear(&q->k);
        image_names_free(&q->right);
        image_names_free(&q->depth);
    }
    free(s->sequence);
    free(s);
}

static int sequences_open(const struct frames_options *opt, struct views_maker *m, void **ret_of, struct err *err)
{
    struct sequences *s = calloc(1, sizeof *s);

    if (!s)
        return err_set(err, -ENOMEM, "%s: no memory", opt->folder);
    s->opt = opt;
    s->m = m;
    *ret_of = s;
    return 0;
}

/* ---- the frames of a sequence ---- */

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Natural order: runs of digits by value, the rest by bytes. Names equal in that order are compared by bytes alone. */
static int natural(const char *x, const char *y)
{
    const char *a = x, *b = y;

    while (*a && *b) {
        if (digit(*a) && digit(*b)) {
            size_t na, nb;
            int diff;

            a += strspn(a, "0");
            b += strspn(b, "0");
            na = strspn(a, "0123456789");
            nb = strspn(b, "0123456789");
            diff = na != nb ? (na < nb ? -1 : 1) : strncmp(a, b, na);
            if (diff)
                return diff;
            a += na;
            b += nb;
        } else if (*a++ != *b++) {
            return (unsigned char)a[-1] < (unsigned char)b[-1] ? -1 : 1;
        }
    }
    return *a || *b ? (*a ? 1 : -1) : strcmp(x, y);
}

static int by_name(const void *a, const void *b)
{
    return natural(((const struct frame_name *)a)->name, ((const struct frame_name *)b)->name);
}

static int no_frames(const struct sequence *q, struct err *err)
{
    return err_set(err, -ENOMEM, "%s: no memory for its frames, or over %d of them", q->name, MAX_FRAMES);
}

/* Splits a file's name into name and ending. */
static bool split_name(const char *file, struct frame_name *ret)
{
    size_t n = strlen(file) + 2, base = (size_t)(image_name_ending(file) - file);
    char *name = calloc(1, n);

    if (!name)
        return false;
    memcpy(name, file, base);
    memcpy(name + base + 1, file + base, n - base - 2);
    ret->name = name;
    ret->ending = name + base + 1;
    return true;
}

/* Fails if two files have the same frame name: it would be open which one counts. */
static int no_doubles(const struct image_names *names, struct err *err)
{
    for (size_t i = 1; i < names->n; i++) {
        const char *a = names->file[i - 1], *b = names->file[i], *ending = image_name_ending(b);

        if (image_name_ending(a) - a == ending - b && strncmp(a, b, (size_t)(ending - b)) == 0)
            return err_set(err, ERR_DATA, "%s: frame '%.*s' is there as %s and as %s", names->folder, (int)(ending - b), b,
                           image_name_ending(a), ending);
    }
    return 0;
}

/* Lists a folder of the sequence. A missing folder counts as empty, unless `must`. */
static int list_folder(const struct sequences *s, const struct sequence *q, const char *folder, bool must, struct image_names *names,
                       struct err *err)
{
    char path[DATASET_MAX_PATH];
    int rc, n = snprintf(path, sizeof path, "%s/sequences/%s/%s", s->opt->folder, q->name, folder);

    if (n < 0 || (size_t)n >= sizeof path)
        return err_set(err, ERR_DATA, "%.200s...: path too long", path);
    rc = image_names_list(names, path, err);
    return rc == -ENOENT && !must ? 0 : rc;
}

static int list_frames(const struct sequences *s, struct sequence *q, struct err *err)
{
    struct image_names names = { 0 };
    int rc = list_folder(s, q, "frames", true, &names, err);

    if (rc >= 0)
        rc = no_doubles(&names, err);
    if (rc >= 0 && names.n > MAX_FRAMES)
        rc = no_frames(q, err);
    if (rc >= 0)
        q->frame = calloc(names.n + 1, sizeof *q->frame);
    if (rc >= 0 && !q->frame)
        rc = no_frames(q, err);
    for (size_t i = 0; rc >= 0 && i < names.n; i++, q->n++)
        if (!split_name(names.file[i], &q->frame[i]))
            rc = no_frames(q, err);
    if (rc >= 0 && q->n)
        qsort(q->frame, (size_t)q->n, sizeof *q->frame, by_name);
    if (rc >= 0 && names.others)
        problems_note(views_make_problems(s->m), "%s: files that are no pictures by their names are no frames: %zu, as '%s'", names.folder,
                      names.others, names.other);
    image_names_free(&names);
    return rc;
}

static int list_folders(const struct sequences *s, struct sequence *q, struct err *err)
{
    int rc = list_frames(s, q, err);

    if (rc >= 0)
        rc = list_folder(s, q, "frames_right", false, &q->right, err);
    if (rc >= 0)
        rc = no_doubles(&q->right, err);
    return rc < 0 ? rc : list_folder(s, q, "depth", false, &q->depth, err);
}

static int read_sequence(struct sequences *s, struct sequence *q, struct err *err)
{
    char file[DATASET_MAX_PATH], poses[DATASET_MAX_PATH];
    int n = snprintf(file, sizeof file, "sequences/%s/intrinsics.json", q->name);
    int rc = n > 0 && (size_t)n < sizeof file ? frames_intrinsics(s->opt, s->m, file, &q->k, err)
                                              : err_set(err, ERR_DATA, "%.200s...: path too long", q->name);

    for (int k = 0; k < s->opt->nsources && rc >= 0; k++)
        if (s->opt->source[k] == VIEWS_STEREO && isnan(q->k.nominal_baseline) && isnan(q->k.baseline_m))
            return err_set(err, ERR_DATA, "%s/%s: data.stereo needs \"nominal_baseline\" or \"baseline_m\"", s->opt->folder, file);
    snprintf(poses, sizeof poses, "sequences/%s/%s", q->name, POSES_FILE);
    if (rc >= 0)
        rc = frames_poses(s->opt, s->m, poses, err);
    return rc < 0 ? rc : list_folders(s, q, err);
}

/* Returns 0, 1 if the name cannot be a sequence's, or an error. */
static int sequence_of(struct sequences *s, const struct split_line *line, struct sequence **ret, struct err *err)
{
    const char *name = line->word[0];
    struct sequence *q;

    if (!path_stays(name) || strchr(name, '/')) {
        err_set(err, ERR_DATA, "%s, line %lld: '%.100s' is no name of a sequence", s->opt->list, (long long)line->number, name);
        return 1;
    }
    for (int i = 0; i < s->n; i++) {
        q = &s->sequence[(s->last + i) % s->n]; /* lines of one sequence usually follow each other */
        if (strcmp(q->name, name) == 0) {
            s->last = (s->last + i) % s->n;
            *ret = q;
            return 0;
        }
    }
    if (s->n >= MAX_SEQUENCES || !GROW(s->sequence, s->room, s->n + 1))
        return err_set(err, -ENOMEM, "%s: no memory, or over %d sequences", s->opt->list, MAX_SEQUENCES);
    q = &s->sequence[s->n];
    *q = (struct sequence){ .name = strdup(name) };
    if (!q->name)
        return err_set(err, -ENOMEM, "%s: no memory", s->opt->list);
    s->last = s->n++;
    *ret = q;
    return read_sequence(s, q, err);
}

/* ---- lines ---- */

static int place_of(const struct sequence *q, const char *name)
{
    const struct frame_name key = { (char *)name, NULL };
    const struct frame_name *f = q->n ? bsearch(&key, q->frame, (size_t)q->n, sizeof key, by_name) : NULL;

    return f ? (int)(f - q->frame) : -1;
}

static void put_path(char buf[DATASET_MAX_PATH], const struct sequence *q, const char *folder, const char *name, const char *ending)
{
    int n = snprintf(buf, DATASET_MAX_PATH, "sequences/%s/%s/%s%s", q->name, folder, name, ending);

    if (n < 0 || n >= DATASET_MAX_PATH)
        buf[0] = '\0';
}

/* The file of a frame by one camera. The other camera's file may have another ending. */
static void put_frame(const struct sequence *q, int place, bool right, char buf[DATASET_MAX_PATH])
{
    const struct frame_name *f = &q->frame[place];
    size_t at;

    if (right && image_names_find(&q->right, f->name, &at) > 0)
        put_path(buf, q, "frames_right", q->right.file[at], "");
    else
        put_path(buf, q, right ? "frames_right" : "frames", f->name, f->ending);
}

/* Measured depth is a PNG file. Pictures of other kinds beside it are ignored. */
static void put_depth(const struct sequence *q, const char *name, char buf[DATASET_MAX_PATH])
{
    size_t at, n = image_names_find(&q->depth, name, &at);

    for (size_t i = at; i < at + n; i++)
        if (strcasecmp(image_name_ending(q->depth.file[i]), ".png") == 0)
            put_path(buf, q, "depth", q->depth.file[i], "");
}

static int bad_line(const struct sequences *s, const struct split_line *line, const char *why, struct err *err)
{
    err_set(err, ERR_DATA, "%s, line %lld: '%.100s %.100s': %s", s->opt->list, (long long)line->number, line->word[0], line->word[1], why);
    return 1;
}

/* NULL: intrinsics.json names no camera for the frame. */
static const struct intrinsics_camera *camera_of(const struct sequence *q, int place, bool right)
{
    return right && q->k.right.there ? &q->k.right : intrinsics_of(&q->k, q->frame[place].name);
}

/* The sources of a frame. A source by another camera counts as missing if targets may stay alone. Otherwise returns 1,
 * and err names it. */
static int put_sources(const struct sequences *s, const struct sequence *q, const struct split_line *line, int place, bool right,
                       struct frame_spot *spot, struct err *err)
{
    for (int k = 0; k < s->opt->nsources; k++) {
        bool stereo = s->opt->source[k] == VIEWS_STEREO, side = stereo ? !right : right;
        int at = stereo ? place : place + s->opt->source[k];
        const struct intrinsics_camera *c;

        if (at < 0 || at >= q->n)
            continue;
        put_frame(q, at, side, spot->source[k]);
        c = camera_of(q, at, side);
        if (!c || intrinsics_same(c->k, spot->camera, q->k.w, q->k.h))
            continue;
        if (s->opt->missing == FRAMES_ALONE)
            spot->source[k][0] = '\0';
        else
            return bad_line(s, line,
                            stereo ? "intrinsics.json has another camera on the right; with data.stereo both have to be one, rectified"
                                   : "intrinsics.json has another camera of a frame that it is compared with",
                            err);
    }
    return 0;
}

static void put_files(const struct sequences *s, const struct sequence *q, int place, bool right, struct frame_spot *spot)
{
    const struct frames_options *o = s->opt;

    put_frame(q, place, right, spot->file);
    if (!right) /* depth is measured for the left camera only */
        put_depth(q, q->frame[place].name, spot->depth);
    spot->stereo = 0;
    for (int k = 0; k < o->nsources; k++)
        if (o->source[k] == VIEWS_STEREO)
            spot->stereo = (right ? 1 : -1) * (isnan(q->k.nominal_baseline) ? q->k.baseline_m : q->k.nominal_baseline);
}

static int sequences_find(void *of, const struct split_line *line, struct frame_spot *spot, struct err *err)
{
    struct sequences *s = of;
    const char *side = line->word[2];
    bool right = strcmp(side, "r") == 0;
    const struct intrinsics_camera *c;
    struct sequence *q = NULL;
    int rc, place;

    if (line->n < 2 || (line->n > 2 && !right && strcmp(side, "l") != 0))
        return bad_line(s, line, "a line is: sequence, frame, and perhaps l or r", err);
    rc = sequence_of(s, line, &q, err);
    if (rc != 0)
        return rc;
    place = place_of(q, line->word[1]);
    if (place < 0)
        return bad_line(s, line, "the sequence has no such frame", err);
    c = camera_of(q, place, right);
    if (!c)
        return bad_line(s, line, "intrinsics.json has no camera of it", err);
    memcpy(spot->camera, c->k, sizeof spot->camera);
    spot->number = place;
    spot->w = q->k.w;
    spot->h = q->k.h;
    put_files(s, q, place, right, spot);
    return put_sources(s, q, line, place, right, spot, err);
}

/* Most sensors write millimetres, but this layout defines 1/256 m, as in KITTI's depth maps. */
static double sequences_unit(const void *of)
{
    const struct sequences *s = of;

    return isnan(s->opt->depth_unit_m) ? 1.0 / 256 : s->opt->depth_unit_m;
}

const struct frames_layout frames_sequences = { sequences_open, sequences_find, sequences_unit, sequences_close };

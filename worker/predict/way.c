#include "worker/predict/way.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/err.h"
#include "proto/grow.h"
#include "proto/job/jobspec.h"
#include "worker/data/set/dataset.h"
#include "worker/data/read/frames/intrinsics.h"
#include "worker/data/sample/frames.h"
#include "worker/data/text/whole_file.h"
#include "worker/eval/depth/trajectory.h"

enum { MAX_FRAMES = 1 << 24 };
static const char intrinsics_file[] = "intrinsics.json";

struct frame {
    char *path; /* path with the folder */
    double camera[4];
    bool lost; /* it cannot be read */
};

struct way {
    char folder[DATASET_MAX_PATH];
    struct intrinsics k;
    int nsources, source[FRAMES_MAX_SOURCES], next; /* next: index of the source that is the following frame */
    long long *number;                              /* [there]: numbers of all frames in the folder, ascending */
    size_t there, room;
    int n;
    long long gap;
    struct frame *frame;           /* [n] */
    char **path;                   /* [n], the paths in frame */
    double (*motion)[RESULT_POSE]; /* [n] */
    struct {                       /* way_set() */
        struct dataset set;
        struct dataset_image image[2];
        struct view view;
        struct views views;
        int64_t offset[3];
    } one;
};

static int no_memory(struct err *err)
{
    return err_set(err, ERR_DEVICE, "out of memory: frames of a folder");
}

bool way_is(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

void way_close(struct way *w)
{
    if (!w)
        return;
    for (int i = 0; w->frame && i < w->n; i++)
        free(w->frame[i].path);
    free(w->frame);
    free(w->path);
    free(w->motion);
    free(w->number);
    intrinsics_clear(&w->k);
    free(w);
}

/* ---- the frames of the folder ---- */

static int find_source(struct way *w, const struct jobspec *spec, struct err *err)
{
    w->nsources = frames_sources(spec, w->source);
    w->next = -1;
    for (int k = 0; k < w->nsources; k++)
        if (w->source[k] > FRAMES_STEREO && (w->next < 0 || w->source[k] < w->source[w->next]))
            w->next = k;
    return w->next >= 0
               ? 0
               : err_set(err, ERR_INPUT, "the job's data.sources has no frame behind its target: its network sees no motion to it");
}

static int read_camera(struct way *w, struct err *err)
{
    struct whole_file f = { 0 };
    char path[DATASET_MAX_PATH + 32];
    int rc;

    snprintf(path, sizeof path, "%s/%s", w->folder, intrinsics_file);
    rc = whole_file_read(&f, path, INTRINSICS_MAX_BYTES, err);
    if (rc == -ENOENT)
        rc = err_set(err, ERR_INPUT, "'%s' is not there: no folder of frames; pictures are given by their names, or as '%s/*.jpg'", path,
                     w->folder);
    if (rc >= 0)
        rc = intrinsics_parse(path, (const char *)f.bytes, f.size, &w->k, err);
    free(f.bytes);
    return rc;
}

/* The number in a file's name, or -1. prefix: bytes before it in the pattern's name. */
static long long number_of(const char *pattern, const char *file, size_t folder, size_t prefix)
{
    char made[DATASET_MAX_PATH], *end;
    long long number;

    if (strncmp(file, pattern + folder, prefix) != 0 || file[prefix] < '0' || file[prefix] > '9')
        return -1;
    errno = 0;
    number = strtoll(file + prefix, &end, 10);
    return !errno && pattern_make(pattern, number, made, sizeof made) && strcmp(made + folder, file) == 0 ? number : -1;
}

static int add_number(struct way *w, long long number)
{
    if (w->there == MAX_FRAMES || !GROW(w->number, w->room, w->there + 1))
        return -ENOMEM;
    w->number[w->there++] = number;
    return 0;
}

static int compare(const void *a, const void *b)
{
    long long x = *(const long long *)a, y = *(const long long *)b;

    return (x > y) - (x < y);
}

static int list_frames(struct way *w, const char *pattern, struct err *err)
{
    const char *slash = strrchr(pattern, '/'), *percent = strchr(pattern, '%');
    size_t folder = slash ? (size_t)(slash + 1 - pattern) : 0;
    char path[2 * DATASET_MAX_PATH];
    DIR *dir;
    int rc = 0;

    if (slash && percent < slash)
        return err_set(err, ERR_UNSUPPORTED, "%s: frames of '%s' are in many folders; predict takes those of one", w->folder, pattern);
    snprintf(path, sizeof path, "%s/%.*s", w->folder, (int)folder, pattern);
    dir = opendir(path);
    if (!dir)
        return err_sys(err, "open '%s'", path);
    for (struct dirent *e; rc == 0 && (e = readdir(dir));) {
        long long number = number_of(pattern, e->d_name, folder, (size_t)(percent - pattern) - folder);

        if (number >= 0)
            rc = add_number(w, number);
    }
    closedir(dir);
    if (rc == 0 && w->there == 0)
        return err_set(err, ERR_DATA, "%s: no frame '%s'", w->folder, pattern);
    if (rc == 0)
        qsort(w->number, w->there, sizeof *w->number, compare);
    return rc < 0 ? no_memory(err) : 0;
}

static bool is_there(const struct way *w, long long number)
{
    return bsearch(&number, w->number, w->there, sizeof number, compare) != NULL;
}

static int add_frame(struct way *w, const char *pattern, long long number, struct err *err)
{
    struct frame *f = &w->frame[w->n];
    char file[DATASET_MAX_PATH], path[2 * DATASET_MAX_PATH], name[32];
    const struct intrinsics_camera *c;

    snprintf(name, sizeof name, "%lld", number);
    c = intrinsics_of(&w->k, name);
    if (!c)
        return err_set(err, ERR_DATA, "%s/%s has no camera of frame %s", w->folder, intrinsics_file, name);
    if (!pattern_make(pattern, number, file, sizeof file) || strlen(w->folder) + strlen(file) + 2 > DATASET_MAX_PATH)
        return err_set(err, ERR_DATA, "%.200s...: path too long", w->folder);
    snprintf(path, sizeof path, "%s/%s", w->folder, file);
    memcpy(f->camera, c->k, sizeof f->camera);
    f->path = strdup(path);
    if (!f->path)
        return no_memory(err);
    w->path[w->n++] = f->path;
    return 0;
}

/* Takes frames from the first one on, in steps of the network's distance. Frames between are left out. */
static int take_frames(struct way *w, const char *pattern, struct err *err)
{
    long long number = w->number[0];
    int rc = 0;

    w->frame = calloc(w->there, sizeof *w->frame);
    w->path = calloc(w->there, sizeof *w->path);
    w->motion = calloc(w->there, sizeof *w->motion);
    if (!w->frame || !w->path || !w->motion)
        return no_memory(err);
    for (; rc >= 0 && is_there(w, number); number += w->source[w->next])
        rc = add_frame(w, pattern, number, err);
    w->gap = number < w->number[w->there - 1] ? number : -1;
    return rc;
}

int way_open(const char *folder, const struct jobspec *spec, struct way **ret, struct err *err)
{
    struct way *w = calloc(1, sizeof *w);
    const char *pattern;
    int rc = w ? find_source(w, spec, err) : no_memory(err);

    if (rc >= 0 && strlen(folder) >= sizeof w->folder)
        rc = err_set(err, ERR_DATA, "%.200s...: the path is too long", folder);
    if (rc >= 0) {
        memcpy(w->folder, folder, strlen(folder) + 1);
        for (size_t n = strlen(folder); n > 1 && w->folder[n - 1] == '/'; n--)
            w->folder[n - 1] = '\0';
        rc = read_camera(w, err);
    }
    if (rc >= 0) {
        pattern = spec->data_frame_pattern ? spec->data_frame_pattern : w->k.frame_pattern;
        rc = *pattern ? list_frames(w, pattern, err)
                      : err_set(err, ERR_DATA, "%s/%s: neither \"frame_pattern\" is there nor data.frame_pattern in the job", w->folder,
                                intrinsics_file);
        if (rc >= 0)
            rc = take_frames(w, pattern, err);
    }
    if (rc < 0)
        way_close(w);
    else
        *ret = w;
    return rc;
}

char *const *way_frames(const struct way *w, int *ret_n)
{
    *ret_n = w->n;
    return w->path;
}

long long way_gap(const struct way *w)
{
    return w->gap;
}

void way_size(const struct way *w, int *ret_w, int *ret_h)
{
    *ret_w = w->k.w;
    *ret_h = w->k.h;
}

/* ---- frames that cannot be read ---- */

void way_lose(struct way *w, int i)
{
    w->frame[i].lost = true;
}

bool way_lost(const struct way *w, int i)
{
    return w->frame[i].lost;
}

/* True if there is motion from frame i to the following one. */
static bool goes_on(const struct way *w, int i)
{
    return i + 1 < w->n && !w->frame[i + 1].lost;
}

int way_length(const struct way *w, int *ret_first)
{
    int first = 0, last;

    while (first < w->n && w->frame[first].lost)
        first++;
    *ret_first = first;
    if (first == w->n)
        return 0;
    for (last = first; goes_on(w, last);)
        last++;
    return last + 1 - first;
}

/* ---- the network's input and output ---- */

const struct dataset *way_set(struct way *w, int i)
{
    size_t folder = strlen(w->folder) + 1;
    bool last = !goes_on(w, i);

    for (int k = 0; k < 2; k++)
        w->one.image[k] = (struct dataset_image){ .id = k, .file = w->path[i + (k && !last)] + folder, .w = w->k.w, .h = w->k.h };
    w->one.view = (struct view){ .depth = -1, .laser = -1 };
    memcpy(w->one.view.camera, w->frame[i].camera, sizeof w->one.view.camera);
    w->one.view.source[w->next] = last ? 0 : 1;
    w->one.views = (struct views){ .n = 1, .view = &w->one.view, .nsources = w->nsources };
    memcpy(w->one.views.source, w->source, sizeof w->source);
    w->one.set = (struct dataset){
        .source = w->folder, .folder = w->folder, .nimages = 2, .images = w->one.image, .offset = w->one.offset, .views = &w->one.views
    };
    return &w->one.set;
}

struct depth_lens way_lens(const struct way *w, int i)
{
    const double *c = w->frame[i].camera;

    return (struct depth_lens){ c[0], c[1], c[2], c[3] };
}

int way_add(struct way *w, int i, const struct result *r, const double **ret_motion, struct err *err)
{
    *ret_motion = NULL;
    if (!goes_on(w, i))
        return 0;
    if (r->nviews <= w->next)
        return err_set(err, ERR_STATE, "%s: the network says nothing of motion", w->path[i]);
    for (int k = 0; k < RESULT_POSE; k++)
        w->motion[i][k] = (double)r->views[w->next].pose[k];
    *ret_motion = w->motion[i];
    return 0;
}

int way_write(const struct way *w, double factor, const char *tum, const char *kitti, struct err *err)
{
    int first, n = way_length(w, &first), step = w->source[w->next], rc;
    const struct trajectory_frames frames = { w->number[0] + (long long)first * step, step, (size_t)n };
    double(*pose)[RESULT_POSE];

    assert(n > 0);
    pose = calloc((size_t)n, sizeof *pose);
    rc = pose ? 0 : no_memory(err);
    if (rc >= 0) {
        trajectory_of((const double(*)[RESULT_POSE])(w->motion + first), (size_t)n - 1, factor, pose);
        rc = trajectory_write(tum, TRAJECTORY_TUM, (const double(*)[RESULT_POSE])pose, frames, err);
    }
    if (rc >= 0)
        rc = trajectory_write(kitti, TRAJECTORY_KITTI, (const double(*)[RESULT_POSE])pose, frames, err);
    free(pose);
    return rc;
}

#include "worker/data/read/frames/views_make.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/err.h"
#include "proto/grow.h"
#include "worker/data/set/problems.h"

/* Images are numbered in the order of arrival, and sorted at the end. */
struct made_image {
    struct dataset_image image;
    int64_t line; /* line of the list that names it as a target; 0: it is only a neighbour */
    int32_t target;
};

struct views_maker {
    const struct frames_options *opt;
    struct problems *problems;
    struct views *v;
    struct made_image *image;
    int nimages;
    size_t images_room, of_room, views_room, files_room, lasers_room;
    int32_t *slot; /* [slots]: image + 1, by the hash of its file; 0: free */
    uint32_t slots;
    int32_t *of; /* [views]: the image of each target */
};

static int no_memory(const struct views_maker *m, struct err *err)
{
    return err_set(err, -ENOMEM, "%s: no memory", m->opt->list);
}

struct views_maker *views_maker_new(const struct frames_options *opt, struct problems *problems, struct err *err)
{
    struct views_maker *m = calloc(1, sizeof *m);

    if (m)
        m->v = calloc(1, sizeof *m->v);
    if (!m || !m->v) {
        free(m);
        err_set(err, -ENOMEM, "%s: no memory", opt->list);
        return NULL;
    }
    m->opt = opt;
    m->problems = problems;
    m->v->nsources = opt->nsources;
    m->v->keeps_alone = opt->missing == FRAMES_ALONE;
    memcpy(m->v->source, opt->source, sizeof opt->source);
    return m;
}

void views_maker_free(struct views_maker *m)
{
    if (!m)
        return;
    for (int i = 0; i < m->nimages; i++)
        free(m->image[i].image.file);
    free(m->image);
    free(m->slot);
    free(m->of);
    views_free(m->v);
    free(m);
}

struct problems *views_make_problems(struct views_maker *m)
{
    return m->problems;
}

int views_make_file(struct views_maker *m, const char *file, const struct whole_file *bytes, struct err *err)
{
    struct views *v = m->v;
    struct views_file *f;

    if (v->nfiles == VIEWS_MAX_FILES || !GROW(v->files, m->files_room, v->nfiles + 1))
        return no_memory(m, err);
    f = &v->files[v->nfiles];
    *f = (struct views_file){ .file = strdup(file) };
    if (!f->file)
        return no_memory(m, err);
    if (bytes) {
        f->size_bytes = (int64_t)bytes->size;
        f->mtime_ns = bytes->mtime_ns;
        f->hash = hash_bytes(bytes->bytes, bytes->size, 0);
    }
    v->nfiles++;
    return 0;
}

void views_make_pattern(struct views_maker *m, const char *depth_pattern)
{
    snprintf(m->v->depth_pattern, sizeof m->v->depth_pattern, "%s", depth_pattern);
}

int views_make_laser(struct views_maker *m, const double p[12], struct err *err)
{
    struct views *v = m->v;

    if (v->nlasers == VIEWS_MAX_LASERS || !GROW(v->lasers, m->lasers_room, v->nlasers + 1))
        return no_memory(m, err);
    memcpy(v->lasers[v->nlasers].p, p, sizeof v->lasers->p);
    return v->nlasers++;
}

bool views_file_there(const struct frames_options *opt, const char *file)
{
    char path[DATASET_MAX_PATH];
    struct stat st;
    int n = snprintf(path, sizeof path, "%s/%s", opt->folder, file);

    return n > 0 && (size_t)n < sizeof path && stat(path, &st) == 0;
}

/* ---- images by their files ---- */

static int32_t *slot_of(struct views_maker *m, const char *file)
{
    struct hash128 h = hash_bytes(file, strlen(file), 0);
    uint32_t at = (uint32_t)h.lane[0] & (m->slots - 1);

    while (m->slot[at] && strcmp(m->image[m->slot[at] - 1].image.file, file) != 0)
        at = (at + 1) & (m->slots - 1);
    return &m->slot[at];
}

static bool more_slots(struct views_maker *m)
{
    uint32_t slots = m->slots ? m->slots * 2 : 256;
    int32_t *old = m->slot, *slot = calloc(slots, sizeof *slot);

    if (!slot)
        return false;
    m->slot = slot;
    m->slots = slots;
    for (int i = 0; i < m->nimages; i++)
        *slot_of(m, m->image[i].image.file) = i + 1;
    free(old);
    return true;
}

/* The image of a file, added at its first use. -1: the file does not exist. -ENOMEM. */
static int image_of(struct views_maker *m, const char *file, const struct frame_spot *spot, struct err *err)
{
    struct made_image *im;
    int32_t *slot;

    if (!*file)
        return -1;
    if ((uint32_t)m->nimages >= m->slots / 2 && !more_slots(m))
        return no_memory(m, err);
    slot = slot_of(m, file);
    if (*slot)
        return *slot - 1;
    if (!views_file_there(m->opt, file))
        return -1;
    if (m->nimages == DATASET_MAX_IMAGES || !GROW(m->image, m->images_room, m->nimages + 1))
        return no_memory(m, err);
    im = &m->image[m->nimages];
    *im = (struct made_image){ .image = { .file = strdup(file), .w = spot->w, .h = spot->h } };
    if (!im->image.file)
        return no_memory(m, err);
    *slot = ++m->nimages;
    return m->nimages - 1;
}

/* ---- targets ---- */

/* Fills in the sources of a target. Returns the number of missing ones, or -ENOMEM. */
static int find_sources(struct views_maker *m, const struct frame_spot *spot, int target, struct view *view, struct err *err)
{
    int missing = 0;

    for (int k = 0; k < m->opt->nsources; k++) {
        int image = image_of(m, spot->source[k], spot, err);

        if (image == -ENOMEM)
            return image;
        missing += image < 0;
        view->source[k] = image < 0 ? target : image;
    }
    return missing;
}

static int add_view(struct views_maker *m, const struct split_line *line, int target, const struct view *view, struct err *err)
{
    struct views *v = m->v;

    if (!GROW(m->of, m->of_room, v->n + 1) || !GROW(v->view, m->views_room, v->n + 1))
        return no_memory(m, err);
    m->image[target].line = line->number;
    m->image[target].target = v->n;
    m->of[v->n] = target;
    v->view[v->n++] = *view;
    return 0;
}

static bool stereo_missing(const struct views_maker *m, const struct view *view, int target)
{
    for (int k = 0; k < m->opt->nsources; k++)
        if (m->opt->source[k] == VIEWS_STEREO && view->source[k] == target)
            return true;
    return false;
}

/* The file is read later together with the pictures, see check_split(). */
static int find_depth(struct views_maker *m, const struct frame_spot *spot, struct view *view, struct err *err)
{
    view->depth = -1;
    view->laser = spot->laser;
    if (!m->opt->truth || !spot->depth[0] || !views_file_there(m->opt, spot->depth))
        return 0;
    view->depth = m->v->nfiles;
    return views_make_file(m, spot->depth, NULL, err);
}

int views_make_target(struct views_maker *m, const struct split_line *line, const struct frame_spot *spot, struct problems *problems,
                      struct err *err)
{
    struct view view = { .number = spot->number, .stereo = spot->stereo };
    const char *list = m->opt->list;
    int target = image_of(m, spot->file, spot, err), missing;

    if (target == -ENOMEM)
        return target;
    if (target < 0) {
        problems_add(problems, "%s, line %lld: frame %s is not there", list, (long long)line->number, spot->file);
        return 0;
    }
    if (m->image[target].line) {
        problems_note(problems, "%s, line %lld: frame %s is that of line %lld; it counts once", list, (long long)line->number, spot->file,
                      (long long)m->image[target].line);
        return 0;
    }
    memcpy(view.camera, spot->camera, sizeof view.camera);
    missing = find_sources(m, spot, target, &view, err);
    if (missing < 0)
        return missing;
    if (missing && m->opt->missing != FRAMES_ALONE && stereo_missing(m, &view, target)) {
        problems_add(problems, "%s, line %lld: frame %s has no picture of the other camera", list, (long long)line->number, spot->file);
        return 0;
    }
    m->v->repeated += missing > 0 && m->opt->missing == FRAMES_REPEAT;
    m->v->dropped += missing > 0 && m->opt->missing == FRAMES_DROP;
    if (missing && m->opt->missing == FRAMES_DROP)
        return 0;
    if (find_depth(m, spot, &view, err) < 0)
        return err->code;
    return add_view(m, line, target, &view, err);
}

/* ---- the end ---- */

/* Orders the images that targets need: targets first, the others in the order of arrival. ret_place [nimages]; -1: not
 * needed. */
static int put_in_order(const struct views_maker *m, int32_t *ret_place)
{
    struct views *v = m->v;
    int n = v->n;

    for (int i = 0; i < m->nimages; i++)
        ret_place[i] = m->image[i].line ? m->image[i].target : -1;
    for (int t = 0; t < v->n; t++)
        for (int k = 0; k < v->nsources; k++)
            if (ret_place[v->view[t].source[k]] < 0)
                ret_place[v->view[t].source[k]] = -2;
    for (int i = 0; i < m->nimages; i++)
        if (ret_place[i] == -2)
            ret_place[i] = n++;
    for (int t = 0; t < v->n; t++)
        for (int k = 0; k < v->nsources; k++)
            v->view[t].source[k] = ret_place[v->view[t].source[k]];
    return n;
}

static void move_images(struct views_maker *m, const int32_t *place, struct dataset *d)
{
    for (int i = 0; i < m->nimages; i++) {
        if (place[i] < 0)
            continue;
        d->images[place[i]] = m->image[i].image;
        d->images[place[i]].id = place[i];
        m->image[i].image.file = NULL;
    }
}

int views_make_finish(struct views_maker *m, const struct whole_file *list, double depth_unit_m, struct dataset **ret, struct err *err)
{
    struct dataset *d = calloc(1, sizeof *d);
    int32_t *place = malloc(((size_t)m->nimages + 1) * sizeof *place);
    int n = place ? put_in_order(m, place) : 0;
    bool good = d && place;

    if (good) {
        *d = (struct dataset){ .source = strdup(m->opt->list),
                               .folder = strdup(m->opt->folder),
                               .classes = calloc(1, sizeof *d->classes),
                               .images = calloc((size_t)n + 1, sizeof *d->images),
                               .offset = calloc((size_t)n + 1, sizeof *d->offset),
                               .boxes = calloc(1, sizeof *d->boxes),
                               .source_hash = hash_bytes(list->bytes, list->size, 0),
                               .source_bytes = (int64_t)list->size,
                               .source_mtime_ns = list->mtime_ns };
        good = d->source && d->folder && d->classes && d->images && d->offset && d->boxes;
    }
    if (good) {
        move_images(m, place, d);
        d->nimages = n;
        m->v->depth_unit_m = depth_unit_m;
        d->views = m->v;
        m->v = NULL;
        *ret = d;
    } else {
        dataset_free(d);
    }
    free(place);
    return good ? 0 : no_memory(m, err);
}

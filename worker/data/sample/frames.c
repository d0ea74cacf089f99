#include "worker/data/sample/frames.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/core/philox.h"
#include "worker/data/set/dataset.h"
#include "worker/data/make/jitter.h"
#include "worker/data/make/pictures.h"
#include "worker/data/make/resize.h"

/* clang-format off */
#define PICTURES(name) { name, DTYPE_U8, BATCH_IMAGES, true, 3 }
#define SOURCE(n) PICTURES("source" #n), PICTURES("seen" #n)
#define CAMERAS { "camera", DTYPE_F32, BATCH_IMAGES, false, 4 }, { "stereo", DTYPE_F32, BATCH_IMAGES, false, 1 }
/* clang-format on */

static const struct batch_form forms[FRAMES_MAX_SOURCES + 1] = {
    { .narrays = 4, .array = { PICTURES("picture"), PICTURES("seen"), CAMERAS } },
    { .narrays = 6, .array = { PICTURES("picture"), PICTURES("seen"), SOURCE(0), CAMERAS } },
    { .narrays = 8, .array = { PICTURES("picture"), PICTURES("seen"), SOURCE(0), SOURCE(1), CAMERAS } },
    { .narrays = 10, .array = { PICTURES("picture"), PICTURES("seen"), SOURCE(0), SOURCE(1), SOURCE(2), CAMERAS } },
};

const struct batch_form *frames_form(int nsources)
{
    return &forms[nsources];
}

int frames_sources(const struct jobspec *spec, int ret[FRAMES_MAX_SOURCES])
{
    const struct jobspec_list *l = &spec->data_sources;
    bool none = l->n == 1 && l->v[0] == 0;
    int n = 0;

    if (job_preset_depth(spec->preset) == JOB_DEPTH_AUTOENCODER)
        return 0;
    for (int i = 0; i < l->n && !none && n < FRAMES_MAX_SOURCES; i++)
        ret[n++] = (int)l->v[i] * (int)spec->data_stride;
    if (spec->data_stereo && n < FRAMES_MAX_SOURCES)
        ret[n++] = FRAMES_STEREO;
    return n;
}

/* ---- the task ---- */

struct frames {
    struct task base;
    const struct dataset *d;
    struct frames_task_options opt;
    struct pictures *pictures;
};

/* Numbers that a sample draws: two decisions, four amounts, three for the order. */
enum { DRAW_FLIP, DRAW_JITTER, DRAW_AMOUNT, DRAW_ORDER = DRAW_AMOUNT + JITTER_OPS, DRAWS = 12 /* DRAW_ORDER + 3, whole blocks of four */ };

struct chance {
    bool flip, coloured;
    struct jitter jitter;
};

static struct chance draw_chance(const struct frames_task_options *o, struct draw draw)
{
    const struct philox_key key = { .seed = o->seed, .step = (uint32_t)draw.epoch, .op = philox_op("data.frames") };
    uint64_t first = (uint64_t)draw.sample * DRAWS;
    struct chance c = { .flip = philox_uniform(&key, first + DRAW_FLIP) < o->flip,
                        .coloured = philox_uniform(&key, first + DRAW_JITTER) < o->jitter_prob };

    for (int k = 0; k < JITTER_OPS; k++) {
        float middle = k == JITTER_HUE ? 0.0f : 1.0f, lo = middle - o->jitter[k], hi = middle + o->jitter[k];

        lo = k != JITTER_HUE && lo < 0.0f ? 0.0f : lo;
        c.jitter.amount[k] = lo + philox_uniform(&key, first + DRAW_AMOUNT + (uint64_t)k) * (hi - lo);
        c.jitter.order[k] = (enum jitter_op)k;
    }
    for (int k = JITTER_OPS - 1; k > 0; k--) {
        uint32_t other = philox_below(&key, first + DRAW_ORDER + (uint64_t)(JITTER_OPS - 1 - k), (uint32_t)k + 1);
        enum jitter_op was = c.jitter.order[k];

        c.jitter.order[k] = c.jitter.order[other];
        c.jitter.order[other] = was;
    }
    return c;
}

static void mirror(const uint8_t *rgb, int w, int h, uint8_t *out)
{
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            memcpy(out + ((size_t)y * (size_t)w + (size_t)x) * 3, rgb + ((size_t)y * (size_t)w + (size_t)(w - 1 - x)) * 3, 3);
}

/* Makes one frame, plain and with the colours that networks see. It is mirrored before it is resized: the other order
 * may change single bytes. */
static int make_picture(struct frames *f, struct hand *hand, int image, const struct chance *c, struct canvas canvas, uint8_t *picture,
                        uint8_t *seen, struct err *err)
{
    const struct dataset_image *im = &f->d->images[image];
    const struct resizing z = { .rule = RESIZE_LANCZOS, .h = im->h, .w = im->w, .to = canvas };
    size_t scratch = (resize_scratch(&z) + 63) / 64 * 64, bytes = (size_t)im->w * (size_t)im->h * 3;
    size_t pixels = (size_t)canvas.h * (size_t)canvas.w;
    const uint8_t *rgb;
    uint8_t *memory = NULL;
    int rc = pictures_get(f->pictures, hand->decoder, image, &rgb, err);

    if (rc >= 0 && !(memory = hand_memory(hand, scratch + (c->flip ? bytes : 0), err)))
        rc = err->code;
    if (rc < 0)
        return rc;
    if (c->flip) {
        mirror(rgb, im->w, im->h, memory + scratch);
        rgb = memory + scratch;
    }
    resize(&z, rgb, picture, (size_t)canvas.w * 3, memory);
    memcpy(seen, picture, pixels * 3);
    if (c->coloured)
        jitter(&c->jitter, seen, pixels);
    return 0;
}

/* The camera for the canvas, after resizing and mirroring of the stored frame. */
static void put_camera(const struct frames *f, int image, bool flip, struct canvas canvas, float camera[4], float *stereo)
{
    const struct dataset_image *im = &f->d->images[image];
    double across = (double)canvas.w / im->w, down = (double)canvas.h / im->h;
    const struct view nobody = { .camera = { im->w, im->h, im->w / 2.0, im->h / 2.0 } };
    const struct view *view = f->d->views ? &f->d->views->view[image] : &nobody;
    double cx = view->camera[2] * across;

    camera[0] = (float)(view->camera[0] * across);
    camera[1] = (float)(view->camera[1] * down);
    camera[2] = (float)(flip ? canvas.w - cx : cx);
    camera[3] = (float)(view->camera[3] * down);
    *stereo = (float)(flip ? -view->stereo : view->stereo);
}

static struct canvas canvas_of(const struct task *t, int64_t step, const struct draw *draw, int n)
{
    (void)step, (void)draw, (void)n;
    return ((const struct frames *)t)->opt.canvas;
}

static int make(struct task *t, struct hand *hand, int64_t step, struct draw draw, struct canvas canvas, const struct sample *ret,
                struct err *err)
{
    struct frames *f = (struct frames *)t;
    const struct frames_task_options *o = &f->opt;
    const struct views *v = f->d->views;
    const struct chance none = { .flip = false }, c = o->train ? draw_chance(o, draw) : none;
    size_t bytes = (size_t)canvas.h * (size_t)canvas.w * 3;
    int camera = 2 + 2 * o->nsources, rc;

    (void)step;
    rc = make_picture(f, hand, draw.sample, &c, canvas, ret->array[0], ret->array[1], err);
    for (int k = 0; k < o->nsources && rc >= 0; k++) {
        uint8_t *picture = ret->array[2 + 2 * k], *seen = ret->array[3 + 2 * k];

        if (v)
            rc = make_picture(f, hand, v->view[draw.sample].source[k], &c, canvas, picture, seen, err);
        else
            memset(picture, 0, bytes), memset(seen, 0, bytes);
    }
    if (rc >= 0)
        put_camera(f, draw.sample, c.flip, canvas, ret->array[camera], ret->array[camera + 1]);
    return rc;
}

static void frames_free(struct task *t)
{
    pictures_free(((struct frames *)t)->pictures);
    free(t);
}

static const struct task_ops ops = { canvas_of, make, frames_free };

int frames_open(const struct dataset *d, const struct frames_task_options *opt, struct task **ret_task, struct err *err)
{
    struct frames *f;

    if (opt->canvas.w < 1 || opt->canvas.h < 1 || opt->nsources < 0 || opt->nsources > FRAMES_MAX_SOURCES)
        return err_set(err, ERR_INPUT, "samples: canvas %d x %d, %d sources", opt->canvas.w, opt->canvas.h, opt->nsources);
    if (d->views ? d->views->nsources != opt->nsources : opt->train)
        return err_set(err, ERR_INPUT, "%s: targets with %d sources, %d are wanted", d->source, d->views ? d->views->nsources : 0,
                       opt->nsources);
    f = calloc(1, sizeof *f);
    if (f)
        f->pictures = pictures_new(d, opt->cache_bytes);
    if (!f || !f->pictures) {
        free(f);
        return err_set(err, -ENOMEM, "no memory for the samples of %s", d->source);
    }
    f->d = d;
    f->opt = *opt;
    /* targets are the first images, so a sample's number is that of its image */
    f->base = (struct task){ .ops = &ops,
                             .form = frames_form(opt->nsources),
                             .seed = opt->seed,
                             .samples = dataset_targets(d),
                             .source = d->source,
                             .largest = opt->canvas };
    *ret_task = &f->base;
    return 0;
}

/* ---- of a job ---- */

static int open_for_job(const struct dataset *d, const struct task_options *opt, struct task **ret_task, struct err *err)
{
    const struct jobspec *s = opt->spec;
    int source[FRAMES_MAX_SOURCES];
    struct frames_task_options o = { .train = opt->train,
                                     .seed = (uint64_t)s->train_seed,
                                     .nsources = frames_sources(s, source),
                                     .canvas = opt->canvas,
                                     .flip = (float)s->data_augment_flip,
                                     .jitter_prob = (float)s->data_augment_color_jitter_prob,
                                     .cache_bytes = opt->cache_bytes };

    for (int k = 0; k < JITTER_OPS; k++)
        o.jitter[k] = (float)s->data_augment_color_jitter.v[k];
    return frames_open(d, &o, ret_task, err);
}

static int count(const struct dataset *d, const struct jobspec *spec)
{
    (void)spec;
    return dataset_targets(d);
}

const struct task_kind task_frames = { "frames", &forms[FRAMES_MAX_SOURCES], open_for_job, count };

bool frames_split(const struct jobspec *spec, bool val, struct frames_options *ret)
{
    const char *format = val ? spec->data_val_format : spec->data_train_format;

    if (strcmp(spec->family->name, "depth") != 0)
        return false;
    *ret = (struct frames_options){ .list = val ? spec->data_val_annotations : spec->data_train_annotations,
                                    .folder = val ? spec->data_val_images : spec->data_train_images,
                                    .split = val ? "val" : "train",
                                    .kitti = strcmp(format, "kitti") == 0,
                                    .missing = val                                                   ? FRAMES_ALONE
                                               : strcmp(spec->data_missing_neighbour, "repeat") == 0 ? FRAMES_REPEAT
                                                                                                     : FRAMES_DROP,
                                    .truth = val,
                                    .frame_pattern = spec->data_frame_pattern,
                                    .depth_pattern = spec->data_depth_pattern,
                                    .depth_unit_m = spec->data_depth_unit_m };
    ret->nsources = frames_sources(spec, ret->source);
    return true;
}

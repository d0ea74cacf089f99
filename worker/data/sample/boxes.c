#include "worker/data/sample/boxes.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdlib.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/data/make/pictures.h"

enum { IMAGE, CLASS, BOX, ARRAYS };
enum { TRUTH, LISTS };

static const struct batch_form form = {
    .narrays = ARRAYS,
    .nlists = LISTS,
    .array = { [IMAGE] = { "image", DTYPE_F32, BATCH_IMAGES, true, 3 },
               [CLASS] = { "truth.class", DTYPE_I32, TRUTH, false, 1 },
               [BOX] = { "truth.box", DTYPE_F32, TRUTH, false, 4 } },
    .list = { [TRUTH] = { "truth", BATCH_IMAGES } },
};

struct boxes {
    struct task base;
    const struct dataset *d;
    struct boxes_options opt;
    struct pictures *pictures;
};

static struct canvas canvas_of(const struct task *t, int64_t step, const struct draw *draw, int n)
{
    const struct boxes_options *o = &((const struct boxes *)t)->opt;

    (void)draw, (void)n;
    return o->train ? scales_canvas(&o->scales, o->seed, step, o->steps) : o->scales.nominal;
}

static int make(struct task *t, struct hand *hand, int64_t step, struct draw draw, struct canvas canvas, const struct sample *ret,
                struct err *err)
{
    struct boxes *b = (struct boxes *)t;
    const struct boxes_options *o = &b->opt;
    const struct dataset_image *im = &b->d->images[draw.sample];
    const int64_t *offset = &b->d->offset[draw.sample];
    struct placement p;
    const uint8_t *rgb;
    float *scratch;
    int rc = pictures_get(b->pictures, hand->decoder, draw.sample, &rgb, err);

    (void)step;
    if (rc < 0)
        return rc;
    scratch = hand_memory(hand, render_scratch(im->w, canvas) * sizeof *scratch, err);
    if (!scratch)
        return -ENOMEM;
    p = o->train ? place_random(&o->augment, o->seed, draw.epoch, draw.sample, im->w, im->h, canvas)
                 : place_letterbox(im->w, im->h, canvas);
    render(&p, rgb, im->w, im->h, ret->array[IMAGE], scratch);
    *ret->length[TRUTH] =
        place_boxes(&p, b->d->boxes + offset[0], (int)(offset[1] - offset[0]), im->w, im->h, ret->array[CLASS], ret->array[BOX]);
    return 0;
}

static void boxes_free(struct task *t)
{
    pictures_free(((struct boxes *)t)->pictures);
    free(t);
}

static const struct task_ops ops = { canvas_of, make, boxes_free };

static int check(const struct boxes_options *o, struct err *err)
{
    const struct scales *z = &o->scales;

    if (z->nominal.w < 1 || z->nominal.h < 1)
        return err_set(err, ERR_INPUT, "samples: canvas %d x %d", z->nominal.w, z->nominal.h);
    if (o->train && (z->min < 1 || z->min > z->max || z->grain < 1 || (z->min < z->max && (z->apart < 1 || (z->max - z->min) % z->apart))))
        return err_set(err, ERR_INPUT, "samples: sizes %d .. %d, %d apart", z->min, z->max, z->apart);
    return 0;
}

int boxes_open(const struct dataset *d, const struct boxes_options *opt, struct task **ret_task, struct err *err)
{
    struct boxes *b;

    if (check(opt, err) < 0)
        return err->code;
    b = calloc(1, sizeof *b);
    if (b)
        b->pictures = pictures_new(d, opt->cache_bytes);
    if (!b || !b->pictures) {
        free(b);
        return err_set(err, -ENOMEM, "no memory for the samples of %s", d->source);
    }
    b->d = d;
    b->opt = *opt;
    b->base = (struct task){ .ops = &ops,
                             .form = &form,
                             .seed = opt->seed,
                             .samples = d->nimages,
                             .source = d->source,
                             .largest = opt->train ? scales_largest(&opt->scales) : opt->scales.nominal,
                             .room = { [TRUTH] = d->max_boxes > 0 ? d->max_boxes : 1 } };
    *ret_task = &b->base;
    return 0;
}

/* ---- of a job ---- */

static struct scales scales_of(const struct jobspec *s, struct canvas canvas, int grain)
{
    bool multi = s->data_augment_multiscale;
    int side = canvas_long_side(canvas);
    struct scales z = { canvas, multi && s->data_augment_size_min > 0 ? (int)s->data_augment_size_min : side,
                        multi && s->data_augment_size_max > 0 ? (int)s->data_augment_size_max : side, JOB_SIZE_GRAIN, grain };

    while (z.apart % grain)
        z.apart += JOB_SIZE_GRAIN;
    return z;
}

static int open_for_job(const struct dataset *d, const struct task_options *opt, struct task **ret_task, struct err *err)
{
    const struct jobspec *s = opt->spec;
    const struct boxes_options o = {
        .train = opt->train,
        .seed = (uint64_t)s->train_seed,
        .steps = s->train_steps,
        .scales = scales_of(s, opt->canvas, opt->grain),
        .augment = { (float)s->data_augment_flip, (float)s->data_augment_vflip, (float)s->data_augment_jitter, (float)s->data_augment_scale,
                     (float)s->data_augment_hue, (float)s->data_augment_saturation, (float)s->data_augment_exposure },
        .cache_bytes = opt->cache_bytes,
    };

    return boxes_open(d, &o, ret_task, err);
}

const struct task_kind task_boxes = { "boxes", &form, open_for_job, NULL };

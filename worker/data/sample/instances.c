#include "worker/data/sample/instances.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/core/philox.h"
#include "worker/data/set/dataset.h"
#include "worker/data/make/crop.h"
#include "worker/data/make/mask_resize.h"
#include "worker/data/make/pictures.h"
#include "worker/mask/rle.h"

enum { IMAGE, SIZE, CLASS, BOX, XY, LENGTH, ARRAYS };
enum { TRUTH, POLYGON, POINT, RUN, LISTS };

static const struct batch_form form = {
    .narrays = ARRAYS,
    .nlists = LISTS,
    .array = { [IMAGE] = { "image", DTYPE_U8, BATCH_IMAGES, true, 3 },
               [SIZE] = { "size", DTYPE_I32, BATCH_IMAGES, false, 2 },
               [CLASS] = { "truth.class", DTYPE_I32, TRUTH, false, 1 },
               [BOX] = { "truth.box", DTYPE_F32, TRUTH, false, 4 },
               [XY] = { "point.xy", DTYPE_F64, POINT, false, 2 },
               [LENGTH] = { "run.length", DTYPE_I32, RUN, false, 1 } },
    .list = { [TRUTH] = { "truth", BATCH_IMAGES },
              [POLYGON] = { "polygon", TRUTH },
              [POINT] = { "point", POLYGON },
              [RUN] = { "run", TRUTH } },
};

struct instances {
    struct task base;
    const struct dataset *d;
    struct instances_options opt;
    struct pictures *pictures;
    int32_t *image; /* images to train; NULL: all */
    uint8_t *group; /* NULL: no groups */
};

/* ---- sizes ---- */

/* The size for a shard of a step. The last size of the list is for validation. */
static int shorter_side(const struct instances_options *o, int64_t step, int shard)
{
    const struct philox_key key = { .seed = o->seed, .step = (uint32_t)(step - 1), .op = philox_op("data.size"), .shard = (uint16_t)shard };

    return o->train ? o->size[philox_below(&key, 0, (uint32_t)o->nsizes)] : o->size[o->nsizes - 1];
}

static bool mirrored(const struct instances_options *o, int64_t epoch, int32_t image)
{
    const struct philox_key key = { .seed = o->seed, .step = (uint32_t)epoch, .op = philox_op("data.flip") };

    return o->train && philox_uniform(&key, (uint64_t)image) < o->flip;
}

static int round_up(int side, int grain)
{
    return (side + grain - 1) / grain * grain;
}

static void grow(struct canvas *c, struct canvas picture, int grain)
{
    int h = round_up(picture.h, grain), w = round_up(picture.w, grain);

    c->h = h > c->h ? h : c->h;
    c->w = w > c->w ? w : c->w;
}

static struct canvas target(const struct instances *t, int32_t image, int shorter)
{
    const struct dataset_image *im = &t->d->images[image];

    return resize_target(t->opt.rule, im->h, im->w, shorter, t->opt.longest);
}

/* How a sample shows its picture. */
struct shown {
    bool cropped;
    struct crop crop;
    struct resizing z; /* of the picture, or of the part of it */
};

static struct shown shown_of(const struct instances *t, int64_t step, struct draw draw, int32_t image)
{
    const struct dataset_image *im = &t->d->images[image];
    const struct instances_options *o = &t->opt;
    const bool flip = mirrored(o, draw.epoch, image);
    struct shown v = { .z = { o->rule, im->h, im->w, { 0, 0 }, flip } };

    v.cropped = o->train && crop_draw(o->crop, o->seed, draw.epoch, image, im->h, im->w, flip, &v.crop);
    if (v.cropped)
        v.z = (struct resizing){ o->rule, v.crop.window.h, v.crop.window.w, { 0, 0 }, false };
    v.z.to = resize_target(o->rule, v.z.h, v.z.w, shorter_side(o, step, draw.shard), o->longest);
    return v;
}

static struct canvas canvas_of(const struct task *task, int64_t step, const struct draw *draw, int n)
{
    const struct instances *t = (const struct instances *)task;
    struct canvas c = { 0, 0 };

    for (int i = 0; i < n && draw; i++)
        grow(&c, shown_of(t, step, draw[i], task_image(task, draw[i].sample)).z.to, t->opt.grain);
    return c;
}

/* Only a picture that replaces an unreadable one can be larger than the canvas. */
static struct canvas fitting(struct canvas picture, struct canvas canvas)
{
    double y = (double)canvas.h / picture.h, x = (double)canvas.w / picture.w, less = x < y ? x : y;

    if (less >= 1)
        return picture;
    picture = (struct canvas){ (int)(picture.h * less), (int)(picture.w * less) };
    return (struct canvas){ picture.h < 1 ? 1 : picture.h, picture.w < 1 ? 1 : picture.w };
}

/* ---- objects ---- */

/* The rows of a sample so far. */
struct rows {
    const struct sample *to;
    int64_t n[LISTS];
};

static bool has_room(const struct rows *r, int list, int64_t more)
{
    return r->n[list] + more <= r->to->room[list];
}

/* detectron2's rule: in doubles, mirrored after scaling. Returns false if nothing of the box is left. */
static bool place_box_d2(const struct resizing *z, const struct dataset_box *b, float ret[4])
{
    double sx = (double)z->to.w / z->w, sy = (double)z->to.h / z->h, x1 = b->x * sx, x2 = (b->x + b->w) * sx, y1 = b->y * sy,
           y2 = (b->y + b->h) * sy;

    if (z->flip) {
        double left = z->to.w - x2;

        x2 = z->to.w - x1;
        x1 = left;
    }
    ret[0] = (float)fmax(x1, 0);
    ret[1] = (float)fmax(y1, 0);
    ret[2] = (float)fmin(x2, z->to.w);
    ret[3] = (float)fmin(y2, z->to.h);
    return ret[2] - ret[0] > 1e-5f && ret[3] - ret[1] > 1e-5f;
}

/* torchvision's rule: in float32, mirrored before scaling. */
static bool place_box_tv(const struct resizing *z, const struct dataset_box *b, float ret[4])
{
    float sx = (float)z->to.w / (float)z->w, sy = (float)z->to.h / (float)z->h, w = (float)z->w, h = (float)z->h;
    float x1 = (float)b->x, y1 = (float)b->y, x2 = x1 + (float)b->w, y2 = y1 + (float)b->h;

    x2 = x2 > w ? w : x2;
    y2 = y2 > h ? h : y2;
    ret[0] = (z->flip ? w - x2 : x1) * sx;
    ret[1] = y1 * sy;
    ret[2] = (z->flip ? w - x1 : x2) * sx;
    ret[3] = y2 * sy;
    return ret[2] > ret[0] && ret[3] > ret[1];
}

static void place_points(const struct mask *m, int k, const struct resizing *z, double *ret)
{
    double sx = (double)z->to.w / z->w, sy = (double)z->to.h / z->h;

    for (int64_t i = m->first[k]; i < m->first[k + 1]; i++) {
        double x = m->xy[i][0] * sx;

        *ret++ = z->flip ? z->to.w - x : x;
        *ret++ = m->xy[i][1] * sy;
    }
}

static void add_polygons(struct rows *r, const struct mask *m, const struct resizing *z)
{
    for (int k = 0; k < m->n; k++) {
        int64_t points = m->first[k + 1] - m->first[k];

        if (has_room(r, POLYGON, 1))
            r->to->length[POINT][r->n[POLYGON]] = (int32_t)points;
        if (has_room(r, POINT, points))
            place_points(m, k, z, (double *)r->to->array[XY] + 2 * r->n[POINT]);
        r->n[POLYGON]++;
        r->n[POINT] += points;
    }
}

/* Returns 1 if nothing of the mask is left, 0, or an error. */
static int add_runs(struct rows *r, const int32_t *run, int64_t n, const struct resizing *z, struct hand *hand, struct err *err)
{
    int64_t room = r->to->room[RUN] > r->n[RUN] ? r->to->room[RUN] - r->n[RUN] : 0, count;
    void *scratch = hand_memory(hand, mask_resize_scratch(mask_column_parts(run, n, z->h), z), err);

    if (!scratch)
        return -ENOMEM;
    count = mask_resize(run, n, z, scratch, (int32_t *)r->to->array[LENGTH] + r->n[RUN], room);
    if (count == 1 && z->rule == RESIZE_D2)
        return 1;
    r->n[RUN] += count;
    return 0;
}

static int add_drawn(struct rows *r, const struct mask *m, const struct resizing *z, struct hand *hand, struct err *err)
{
    struct rle drawn = { 0 };
    int rc = rle_from_polygons(&drawn, z->h, z->w, m->xy, m->first, m->n, err);

    if (rc >= 0)
        rc = add_runs(r, drawn.run, (int64_t)drawn.n, z, hand, err);
    rle_free(&drawn);
    return rc;
}

static int add_mask(struct rows *r, const struct mask *m, const struct resizing *z, struct hand *hand, struct err *err)
{
    if (m->kind == MASK_RUNS) /* signed and unsigned lengths below 2^31 have the same bits */
        return add_runs(r, (const int32_t *)m->run, m->n, z, hand, err);
    if (m->kind == MASK_POLYGONS && z->rule == RESIZE_TV)
        return add_drawn(r, m, z, hand, err);
    if (m->kind == MASK_POLYGONS)
        add_polygons(r, m, z);
    return 0;
}

static int add_object(struct rows *r, const struct dataset *d, int64_t k, const struct shown *v, struct hand *hand, struct err *err)
{
    const struct dataset_box *b = &d->boxes[k];
    const struct resizing *z = &v->z;
    const int64_t polygons = r->n[POLYGON], runs = r->n[RUN], at = r->n[TRUTH];
    const struct mask m = dataset_mask(d, k);
    struct dataset_box part;
    float box[4];
    int rc = 0;

    if (v->cropped && !crop_box(&v->crop, b, &part))
        return 0;
    b = v->cropped ? &part : b;
    if (!(z->rule == RESIZE_TV ? place_box_tv : place_box_d2)(z, b, box))
        return 0;
    rc = add_mask(r, &m, z, hand, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    r->n[TRUTH]++;
    if (at >= r->to->room[TRUTH])
        return 0;
    ((int32_t *)r->to->array[CLASS])[at] = b->cls;
    memcpy((float *)r->to->array[BOX] + 4 * at, box, sizeof box);
    r->to->length[POLYGON][at] = (int32_t)(r->n[POLYGON] - polygons);
    r->to->length[RUN][at] = (int32_t)(r->n[RUN] - runs);
    return 0;
}

static int add_objects(const struct instances *t, int32_t image, const struct shown *v, struct hand *hand, const struct sample *ret,
                       struct err *err)
{
    struct rows r = { .to = ret };
    int rc = 0;

    for (int64_t k = t->d->offset[image]; k < t->d->offset[image + 1] && rc == 0; k++)
        if (!t->d->boxes[k].crowd)
            rc = add_object(&r, t->d, k, v, hand, err);
    *ret->length[TRUTH] = (int32_t)r.n[TRUTH];
    return rc;
}

/* ---- a sample ---- */

enum { APART = 64 /* bytes: resize() wants aligned memory */ };

/* Returns the memory for a sample's resizings, behind the picture that is to be cut if there is one; *ret_part is then
 * the part. NULL: no memory. */
static uint8_t *cut_out(const struct shown *v, const uint8_t *rgb, struct hand *hand, const uint8_t **ret_part, struct err *err)
{
    const size_t picture = v->cropped ? (crop_bytes(&v->crop) + APART - 1) / APART * APART : 0, last = resize_scratch(&v->z);
    const size_t first = v->cropped ? resize_scratch(&v->crop.scaled) : 0;
    uint8_t *memory = hand_memory(hand, picture + (first > last ? first : last), err);

    *ret_part = v->cropped ? memory : rgb;
    if (!memory || !v->cropped)
        return memory;
    resize(&v->crop.scaled, rgb, memory, (size_t)v->crop.scaled.to.w * 3, memory + picture);
    crop_cut(&v->crop, memory);
    return memory + picture;
}

static int draw_picture(const struct shown *v, const uint8_t *rgb, struct canvas canvas, struct hand *hand, uint8_t *out, struct err *err)
{
    const struct resizing *z = &v->z;
    size_t pitch = (size_t)canvas.w * 3, row = (size_t)z->to.w * 3;
    void *scratch = cut_out(v, rgb, hand, &rgb, err);

    if (!scratch)
        return -ENOMEM;
    resize(z, rgb, out, pitch, scratch);
    for (int y = 0; y < z->to.h; y++)
        memset(out + (size_t)y * pitch + row, 0, pitch - row);
    memset(out + (size_t)z->to.h * pitch, 0, (size_t)(canvas.h - z->to.h) * pitch);
    return 0;
}

static int make(struct task *task, struct hand *hand, int64_t step, struct draw draw, struct canvas canvas, const struct sample *ret,
                struct err *err)
{
    struct instances *t = (struct instances *)task;
    int32_t image = task_image(task, draw.sample);
    struct shown v = shown_of(t, step, draw, image);
    const uint8_t *rgb;
    int rc = pictures_get(t->pictures, hand->decoder, image, &rgb, err);

    if (rc < 0)
        return rc;
    v.z.to = fitting(v.z.to, canvas);
    ((int32_t *)ret->array[SIZE])[0] = v.z.to.h;
    ((int32_t *)ret->array[SIZE])[1] = v.z.to.w;
    rc = draw_picture(&v, rgb, canvas, hand, ret->array[IMAGE], err);
    return rc < 0 ? rc : add_objects(t, image, &v, hand, ret, err);
}

static void instances_free(struct task *task)
{
    struct instances *t = (struct instances *)task;

    pictures_free(t->pictures);
    free(t->image);
    free(t->group);
    free(t);
}

static const struct task_ops ops = { canvas_of, make, instances_free };

/* ---- the pictures to train, and their rows ---- */

/* True if training takes the picture. d2: it needs an object that is no crowd. tv: it needs an object, also a crowd,
 * longer than a pixel both ways. keep_empty: every picture. */
static bool instances_trains(const struct instances_options *opt, const struct dataset *d, int image)
{
    bool found = opt->keep_empty;

    for (int64_t k = d->offset[image]; k < d->offset[image + 1] && !found; k++)
        found = opt->rule == RESIZE_TV ? d->boxes[k].w > 1 && d->boxes[k].h > 1 : !d->boxes[k].crowd;
    return found;
}

int instances_group(enum resize_rule rule, int h, int w)
{
    /* 2^(k/3 - 1) */
    static const double step[] = { 0.5, 0.6299605249474366, 0.7937005259840998, 1, 1.2599210498948732, 1.5874010519681994, 2 };
    double ratio = (double)h / w;
    int n = 0;

    if (rule == RESIZE_D2)
        return w > h ? 0 : 1;
    while (n < (int)(sizeof step / sizeof *step) && step[n] <= ratio)
        n++;
    return n;
}

/* Without a list of pictures all are taken. */
static int choose_pictures(struct instances *t, struct err *err)
{
    const struct dataset *d = t->d;
    int32_t n = 0;

    t->base.samples = d->nimages;
    if (!t->opt.train)
        return 0;
    t->image = malloc(((size_t)d->nimages + 1) * sizeof *t->image);
    t->group = malloc((size_t)d->nimages + 1);
    if (!t->image || !t->group)
        return err_set(err, -ENOMEM, "no memory for the samples of %s", d->source);
    for (int i = 0; i < d->nimages; i++)
        if (instances_trains(&t->opt, d, i)) {
            t->group[n] = (uint8_t)instances_group(t->opt.rule, d->images[i].h, d->images[i].w);
            t->image[n++] = i;
        }
    if (n == 0 && d->nimages > 0)
        return err_set(err, ERR_DATA, "%s: no image has an object to train on", d->source);
    t->base.samples = n;
    t->base.image = t->image;
    t->base.group = t->opt.groups ? t->group : NULL;
    return 0;
}

/* An upper bound of the parts that a mask's columns have: an edge meets each column once, and its ends and the rounding
 * to a finer grid add some. */
static int64_t most_parts(const struct mask *m, int w)
{
    double meets = 0;

    for (int k = 0; k < m->n; k++)
        for (int64_t i = m->first[k]; i < m->first[k + 1]; i++) {
            int64_t next = i + 1 < m->first[k + 1] ? i + 1 : m->first[k];

            meets += fmin(fabs(m->xy[next][0] - m->xy[i][0]), w) + 2;
        }
    return (int64_t)meets;
}

/* The most rows of each list that a picture can have. */
static void count_rows(const struct instances *t, int image, int64_t rows[LISTS])
{
    const struct dataset *d = t->d;
    int w = d->images[image].w, widest = 1;

    memset(rows, 0, LISTS * sizeof *rows);
    for (int i = 0; i < t->opt.nsizes; i++) {
        int to = target(t, image, t->opt.size[i]).w;

        widest = to > widest ? to : widest;
    }
    for (int64_t k = d->offset[image]; k < d->offset[image + 1]; k++) {
        const struct mask m = dataset_mask(d, k);

        if (d->boxes[k].crowd)
            continue;
        rows[TRUTH]++;
        if (m.kind == MASK_RUNS) {
            rows[RUN] += mask_resized_most(mask_column_parts((const int32_t *)m.run, m.n, d->images[image].h), w, widest);
        } else if (m.kind == MASK_POLYGONS && t->opt.rule == RESIZE_TV) {
            rows[RUN] += mask_resized_most(most_parts(&m, w), w, widest);
        } else if (m.kind == MASK_POLYGONS) {
            rows[POLYGON] += m.n;
            rows[POINT] += m.first[m.n] - m.first[0];
        }
    }
}

static int measure(struct instances *t, struct err *err)
{
    int64_t rows[LISTS];

    t->base.largest = (struct canvas){ t->opt.grain, t->opt.grain };
    for (int k = 0; t->opt.train && t->opt.crop > 0 && k < t->opt.nsizes; k++) {
        grow(&t->base.largest, resize_target(t->opt.rule, CROP_MOST, CROP_LEAST, t->opt.size[k], t->opt.longest), t->opt.grain);
        grow(&t->base.largest, resize_target(t->opt.rule, CROP_LEAST, CROP_MOST, t->opt.size[k], t->opt.longest), t->opt.grain);
    }
    for (int l = 0; l < LISTS; l++)
        t->base.room[l] = 1;
    for (int i = 0; i < t->base.samples; i++) {
        int32_t image = task_image(&t->base, i);

        for (int k = 0; k < t->opt.nsizes; k++)
            grow(&t->base.largest, target(t, image, t->opt.size[k]), t->opt.grain);
        count_rows(t, image, rows);
        for (int l = 0; l < LISTS; l++) {
            if (rows[l] > INT_MAX / 2)
                return err_set(err, ERR_DATA, "%s: image %lld: its masks may need %lld rows of '%s', more than there can be", t->d->source,
                               (long long)t->d->images[image].id, (long long)rows[l], form.list[l].name);
            t->base.room[l] = rows[l] > t->base.room[l] ? (int)rows[l] : t->base.room[l];
        }
    }
    return 0;
}

/* ---- open ---- */

static int check(const struct dataset *d, const struct instances_options *o, struct err *err)
{
    if (o->crop > 0 && (o->rule != RESIZE_D2 || d->masks))
        return err_set(err, ERR_INPUT, "samples: parts of pictures cannot be cut out with masks, nor with the rules of torchvision");
    if (o->nsizes < 1 || o->nsizes > INSTANCES_MAX_SIZES || o->longest < 1 || o->grain < 1)
        return err_set(err, ERR_INPUT, "samples: %d sizes, longest %d, grain %d", o->nsizes, o->longest, o->grain);
    for (int i = 0; i < o->nsizes; i++)
        if (o->size[i] < 1 || o->size[i] > o->longest)
            return err_set(err, ERR_INPUT, "samples: size %d, longest %d", o->size[i], o->longest);
    return 0;
}

int instances_open(const struct dataset *d, const struct instances_options *opt, struct task **ret_task, struct err *err)
{
    struct instances *t;
    int rc = check(d, opt, err);

    if (rc < 0)
        return rc;
    t = calloc(1, sizeof *t);
    if (!t)
        return err_set(err, -ENOMEM, "no memory for the samples of %s", d->source);
    t->d = d;
    t->opt = *opt;
    t->base = (struct task){ .ops = &ops, .form = &form, .seed = opt->seed, .source = d->source };
    t->pictures = pictures_new(d, opt->cache_bytes);
    rc = t->pictures ? choose_pictures(t, err) : err_set(err, -ENOMEM, "no memory for the samples of %s", d->source);
    if (rc == 0)
        rc = measure(t, err);
    if (rc < 0)
        instances_free(&t->base);
    else
        *ret_task = &t->base;
    return rc;
}

/* ---- of a job ---- */

static struct instances_options options(const struct jobspec *s, bool train)
{
    struct instances_options o = { .train = train,
                                   .seed = (uint64_t)s->train_seed,
                                   .rule = strcmp(s->model_flavor, "tv") == 0 ? RESIZE_TV : RESIZE_D2,
                                   .nsizes = s->model_min_size.n,
                                   .longest = (int)s->model_max_size,
                                   .grain = (int)s->model_size_divisible,
                                   .flip = (float)s->data_augment_flip,
                                   .crop = (float)s->data_augment_crop,
                                   .groups = s->data_aspect_groups,
                                   .keep_empty = s->data_keep_empty };

    for (int i = 0; i < o.nsizes && i < INSTANCES_MAX_SIZES; i++)
        o.size[i] = (int)s->model_min_size.v[i];
    return o;
}

static int open_for_job(const struct dataset *d, const struct task_options *opt, struct task **ret_task, struct err *err)
{
    struct instances_options o = options(opt->spec, opt->train);

    o.grain = opt->grain;
    o.cache_bytes = opt->cache_bytes;
    return instances_open(d, &o, ret_task, err);
}

static int count(const struct dataset *d, const struct jobspec *spec)
{
    const struct instances_options o = options(spec, true);
    int n = 0;

    for (int i = 0; i < d->nimages; i++)
        n += instances_trains(&o, d, i);
    return n;
}

const struct task_kind task_instances = { "instances", &form, open_for_job, count };

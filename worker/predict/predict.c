#include "worker/predict/predict.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/jobspec.h"
#include "worker/core/arena.h"
#include "worker/core/safetensors.h"
#include "worker/layers/tape.h"
#include "worker/data/batch.h"
#include "worker/data/image.h"
#include "worker/data/whole_file.h"
#include "worker/backend/devices.h"
#include "worker/eval/draw.h"
#include "worker/eval/results_file.h"
#include "worker/models/registry.h"
#include "worker/models/weights.h"
#include "worker/mask/rle.h"
#include "worker/predict/depth.h"
#include "worker/predict/input.h"
#include "worker/predict/outputs.h"
#include "worker/predict/way.h"
#include "worker/models/pass.h"
#include "worker/checkpoint/ckpt.h"

enum { PATH_BYTES = 4096 + 64, SMALL_SIDE = 320 };

struct class_list {
    int n;
    int64_t *id;
    const char **name;
    json_t *root;
};

struct predictor {
    const struct predict_options *opt;
    FILE *out;
    struct jobspec *spec;
    struct device *dev;
    struct model *model;
    struct arena *arena;
    struct tape *tape;
    struct decoder *decoder;
    struct class_list classes;
    struct outputs *outputs;
    struct input *input;
    struct pass *pass;
    struct detection *dets;     /* of all images */
    struct results_mask *masks; /* theirs, where the model finds masks */
    bool masked;                /* it does, also where no picture can be read */
    bool deep;                  /* it says depth */
    struct way *way;            /* a folder of frames was given; NULL: pictures */
    struct rle scratch;
    size_t ndets, room;
};

/* ---- which checkpoint ---- */

/* -1: none yet */
static int newest(const char *dir, int64_t *ret_step, struct err *err)
{
    DIR *d = opendir(dir);
    int64_t best = -1;

    if (!d && errno != ENOENT)
        return err_sys(err, "open '%s'", dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        char *end;
        long long n;

        if (strncmp(e->d_name, "step-", 5) != 0)
            continue;
        n = strtoll(e->d_name + 5, &end, 10);
        if (*end == '\0' && n > best)
            best = n;
    }
    if (d)
        closedir(d);
    *ret_step = best;
    return 0;
}

/* The newest checkpoint remembers which step had the lowest validation loss. */
static int64_t best_of(const char *dir, int64_t last)
{
    struct ckpt *c;
    struct err ignored;
    const struct st_array *a;
    int64_t best = last, step;

    if (ckpt_open(dir, last, NULL, &c, &ignored) < 0)
        return last;
    a = safetensors_find(c->state, "best_step");
    if (a && a->dtype == ST_I64 && st_count(a) == 1) {
        memcpy(&step, a->data, sizeof step);
        if (step > 0)
            best = step;
    }
    ckpt_close(c);
    return best;
}

static bool there(const char *dir, int64_t step)
{
    char path[PATH_BYTES];

    return snprintf(path, sizeof path, "%s/step-%lld", dir, (long long)step) < (int)sizeof path && access(path, F_OK) == 0;
}

static int choose(const struct predict_options *opt, const char *dir, int64_t *ret_step, struct err *err)
{
    int64_t last = -1;
    char *end;
    int rc = newest(dir, &last, err);

    if (rc < 0)
        return rc;
    if (last < 0)
        return err_set(err, ERR_NOTFOUND, "'%s' holds no checkpoint yet", dir);
    if (strcmp(opt->checkpoint, "last") == 0) {
        *ret_step = last;
    } else if (strcmp(opt->checkpoint, "best") == 0) {
        *ret_step = best_of(dir, last);
    } else {
        *ret_step = strtoll(opt->checkpoint, &end, 10);
        if (*opt->checkpoint == '\0' || *end)
            return err_set(err, ERR_INPUT, "--checkpoint must be a step, best or last, is '%s'", opt->checkpoint);
        if (!there(dir, *ret_step))
            return err_set(err, ERR_NOTFOUND, "'%s' holds no checkpoint of step %s; the newest is that of step %lld", dir, opt->checkpoint,
                           (long long)last);
    }
    return 0;
}

/* ---- opening ---- */

/* none: a network that knows no classes has an empty list */
static int read_classes(const char *text, bool none, struct class_list *c, struct err *err)
{
    json_t *item;
    size_t i;

    c->root = text ? json_loads(text, 0, NULL) : NULL;
    if (!json_is_array(c->root) || (json_array_size(c->root) == 0 && !none) || json_array_size(c->root) > JOB_MAX_BYTES)
        return err_set(err, ERR_CORRUPT, "model.safetensors names no classes");
    c->n = (int)json_array_size(c->root);
    c->id = calloc((size_t)c->n + 1, sizeof *c->id);
    c->name = calloc((size_t)c->n + 1, sizeof *c->name);
    if (!c->id || !c->name)
        return err_set(err, ERR_DEVICE, "out of memory");
    json_array_foreach (c->root, i, item) {
        c->id[i] = json_integer_value(json_object_get(item, "id"));
        c->name[i] = json_string_value(json_object_get(item, "name"));
        if (!c->name[i])
            return err_set(err, ERR_CORRUPT, "model.safetensors: class %zu has no name", i);
    }
    return 0;
}

static int read_spec(struct predictor *p, struct err *err)
{
    char path[PATH_BYTES];
    json_t *root;
    int rc;

    snprintf(path, sizeof path, "%s/spec.json", p->opt->job_dir);
    rc = jobspec_read(path, &root, err);
    if (rc < 0)
        return rc;
    rc = jobspec_parse_for(p->opt->models->presets, root, true, &p->spec, err);
    json_decref(root);
    if (rc >= 0) /* the checkpoint has the weights */
        jobspec_forget_inits(p->spec);
    return rc;
}

static int load_model(struct predictor *p, const char *dir, int64_t step, struct err *err)
{
    struct ckpt *c;
    int rc = ckpt_open(dir, step, NULL, &c, err);

    if (rc < 0)
        return rc;
    rc = read_classes(safetensors_meta(c->model, "classes"), p->deep, &p->classes, err);
    if (rc >= 0)
        rc = model_open(p->opt->models, p->spec, (struct model_classes){ p->classes.n, p->classes.id }, p->dev, &p->model, err);
    if (rc >= 0)
        rc = weights_import(p->model, c->model, err);
    ckpt_close(c);
    fprintf(p->out, "checkpoint of step %lld\n", (long long)step);
    return rc;
}

/* The job, a device and the model of the checkpoint. */
static int trained_open(struct predictor *p, struct err *err)
{
    struct device_options dev = { .isa = "auto" };
    const struct device_ops *ops = NULL;
    char dir[PATH_BYTES];
    int64_t step = 0;
    int rc;

    snprintf(dir, sizeof dir, "%s/checkpoints", p->opt->job_dir);
    rc = choose(p->opt, dir, &step, err); /* before the job file: a job that never ran has neither, and this says so */
    if (rc >= 0)
        rc = read_spec(p, err);
    if (rc >= 0) {
        p->masked = model_masks(p->opt->models, p->spec);
        p->deep = strcmp(p->spec->family->name, "depth") == 0;
    }
    if (rc >= 0)
        rc = device_backend("cpu", "auto", &ops, err); /* GPUs are granted to jobs, and this is none */
    if (rc >= 0)
        rc = ops->open(0, &dev, &p->dev, err);
    if (rc >= 0)
        rc = load_model(p, dir, step, err);
    return rc;
}

/* Of a folder its frames, in *images. */
static int find_frames(struct predictor *p, char *const **images, int *nimages, struct err *err)
{
    int rc;

    if (!p->deep || !way_is((*images)[0]))
        return 0;
    if (*nimages > 1)
        return err_set(err, ERR_INPUT, "'%.200s' is a folder of frames: give it alone", (*images)[0]);
    rc = way_open((*images)[0], p->spec, &p->way, err);
    if (rc >= 0)
        *images = way_frames(p->way, nimages);
    return rc;
}

static int predictor_open(struct predictor *p, char *const **images, int *nimages, struct err *err)
{
    int rc = trained_open(p, err);

    if (rc < 0)
        return rc;
    p->arena = arena_new(p->dev, (size_t)64 << 20);
    p->tape = p->arena ? tape_new(p->dev, p->arena, p->model->nparams) : NULL;
    p->decoder = decoder_new();
    if (!p->tape || !p->decoder)
        return err_set(err, ERR_DEVICE, "out of memory");
    rc = input_open(p->model, p->spec, &p->input, err);
    if (rc >= 0)
        rc = p->model->ops->result ? 0 : err_set(err, ERR_UNSUPPORTED, "%s finds nothing in pictures", p->spec->model_preset);
    if (rc >= 0)
        rc = find_frames(p, images, nimages, err);
    if (rc >= 0)
        rc = pass_open(&(struct pass_options){ p->model, p->tape, 1, .results = true, .views = p->way != NULL }, &p->pass, err);
    return rc < 0 ? rc : outputs_open(p->opt->out_dir, *images, *nimages, &p->outputs, err);
}

static void predictor_close(struct predictor *p)
{
    for (size_t i = 0; p->masked && i < p->ndets; i++)
        free(p->masks[i].counts);
    free(p->masks);
    free(p->dets);
    rle_free(&p->scratch);
    pass_close(p->pass);
    input_close(p->input);
    free(p->classes.id);
    free(p->classes.name);
    json_decref(p->classes.root);
    outputs_close(p->outputs);
    way_close(p->way);
    decoder_free(p->decoder);
    tape_free(p->tape);
    arena_free(p->arena);
    model_free(p->model);
    if (p->dev)
        p->dev->ops->close(p->dev);
    jobspec_free(p->spec);
}

/* ---- an image ---- */

static bool make_room(struct predictor *p, size_t n)
{
    size_t room = (p->ndets + n) * 2;
    struct results_mask *more_masks;
    struct detection *more;

    if (p->ndets + n <= p->room)
        return true;
    more = realloc(p->dets, room * sizeof *more);
    if (!more)
        return false;
    p->dets = more;
    if (p->masked) {
        more_masks = realloc(p->masks, room * sizeof *more_masks);
        if (!more_masks)
            return false;
        p->masks = more_masks;
    }
    p->room = room;
    return true;
}

/* Of one image of w x h pixels, behind those of the images before. */
static int collect(struct predictor *p, const struct result *r, int w, int h, struct err *err)
{
    int rc = 0;

    assert((r->kind == RESULT_MASKS) == p->masked);
    if (!make_room(p, (size_t)r->n))
        return err_set(err, ERR_DEVICE, "out of memory");
    for (int i = 0; i < r->n && rc >= 0; i++) {
        p->dets[p->ndets] = r->boxes[i];
        if (p->masked)
            rc = results_mask_make(&r->masks[i], w, h, &p->scratch, &p->masks[p->ndets], err);
        p->ndets += rc >= 0;
    }
    return rc;
}

/* Small pictures are enlarged, so that letters can be read. */
static int write_drawn(struct predictor *p, const char *path, const struct image *img, const struct result *found, struct err *err)
{
    int side = img->w > img->h ? img->w : img->h, factor = (SMALL_SIDE + side - 1) / side, rc;
    struct picture small = { (uint8_t *)img->rgb, img->w, img->h }, big;
    struct detection *scaled = malloc(((size_t)found->n + 1) * sizeof *scaled);

    factor = factor > DRAW_MAX_FACTOR ? DRAW_MAX_FACTOR : factor;
    rc = scaled ? draw_enlarge(&small, factor, &big, err) : err_set(err, ERR_DEVICE, "out of memory");
    if (rc < 0) {
        free(scaled);
        return rc;
    }
    for (int i = 0; i < found->n; i++) {
        scaled[i] = found->boxes[i];
        for (int k = 0; k < 4; k++)
            scaled[i].box[k] *= factor;
    }
    if (found->kind == RESULT_MASKS)
        draw_masks(&big, found->masks, found->n, factor);
    rc = draw_detections(&big, scaled, (size_t)found->n, p->classes.name, p->classes.n, err);
    if (rc >= 0)
        rc = image_write_png(path, big.rgb, big.w, big.h, err);
    free(big.rgb);
    free(scaled);
    return rc;
}

static int look(struct predictor *p, const char *path, int index, const struct image *img, struct result *ret, struct err *err)
{
    struct batch batch;
    int rc =
        p->way ? input_make_of(p->input, way_set(p->way, index), &batch, err) : input_make(p->input, path, img->w, img->h, &batch, err);

    if (rc >= 0)
        rc = pass_run(p->pass, &batch, err);
    if (rc >= 0)
        rc = pass_result(p->pass, 0, index, img->w, img->h, p->opt->conf, ret, err);
    if (rc >= 0 && (ret->kind == RESULT_DEPTH) != p->deep)
        rc = err_set(err, ERR_UNSUPPORTED, "models of the family %s: only boxes, masks and depth can be drawn", p->model->family->name);
    return rc;
}

static int write_found(struct predictor *p, const char *path, const struct image *img, const struct result *found, struct err *err)
{
    const char *drawn;
    int rc = outputs_picture(p->outputs, path, "", &drawn, err);

    if (rc >= 0)
        rc = write_drawn(p, drawn, img, found, err);
    if (rc >= 0)
        rc = collect(p, found, img->w, img->h, err);
    if (rc >= 0)
        fprintf(p->out, "%s: %d objects -> %s\n", path, found->n, drawn);
    return rc;
}

static int write_depth(struct predictor *p, const char *path, const struct result *found, struct err *err)
{
    char colours[PATH_BYTES * 2];
    const char *numbers;
    int rc = outputs_picture(p->outputs, path, "", &numbers, err);

    if (rc >= 0) {
        snprintf(colours, sizeof colours, "%s", numbers);
        rc = outputs_picture(p->outputs, path, "_depth", &numbers, err);
    }
    if (rc >= 0)
        rc = predict_write_depth(found, p->spec, numbers, colours, err);
    if (rc >= 0)
        fprintf(p->out, "%s: depth -> %s, in colours -> %s\n", path, numbers, colours);
    return rc;
}

/* *ret_bad: the picture itself is at fault. */
static int predict_image(struct predictor *p, const char *path, int index, bool *ret_bad, struct err *err)
{
    struct result found;
    struct image img;
    int rc = image_read(p->decoder, path, &img, err);

    if (rc >= 0 && model_upright(p->opt->models, p->spec))
        rc = image_upright(p->decoder, path, &img, err);
    *ret_bad = rc < 0 && file_at_fault(rc);
    if (rc < 0)
        return rc;
    rc = look(p, path, index, &img, &found, err);
    if (rc < 0)
        return rc;
    return p->deep ? write_depth(p, path, &found, err) : write_found(p, path, &img, &found, err);
}

/* ---- a folder of frames ---- */

/* The next frame, as this one's camera would see it. */
static int write_next(struct predictor *p, char *const *frames, int i, const struct result *found, const double *motion, struct err *err)
{
    const struct depth_lens lens = way_lens(p->way, i);
    const char *path;
    struct image next;
    int rc = image_read(p->decoder, frames[i + 1], &next, err);

    if (rc >= 0 && (next.w != found->depth.w || next.h != found->depth.h))
        rc = err_set(err, ERR_DATA, "%s is %d x %d pixels, the frame before it %d x %d", frames[i + 1], next.w, next.h, found->depth.w,
                     found->depth.h);
    if (rc >= 0)
        rc = outputs_picture(p->outputs, frames[i], "_next", &path, err);
    if (rc >= 0)
        rc = predict_write_view(found, &lens, motion, next.rgb, path, err);
    if (rc >= 0)
        fprintf(p->out, "%s: as %s shows it -> %s\n", frames[i], frames[i + 1], path);
    return rc;
}

static int predict_frame(struct predictor *p, char *const *frames, int i, struct err *err)
{
    const double *motion = NULL;
    struct result found;
    struct image img;
    int rc = image_read(p->decoder, frames[i], &img, err);

    if (rc >= 0)
        rc = look(p, frames[i], i, &img, &found, err);
    if (rc >= 0)
        rc = write_depth(p, frames[i], &found, err);
    if (rc >= 0)
        rc = way_add(p->way, i, &found, &motion, err);
    return rc >= 0 && motion ? write_next(p, frames, i, &found, motion, err) : rc;
}

/* A way has no gaps: a frame that cannot be read ends it. */
static int predict_way(struct predictor *p, char *const *frames, int n, struct err *err)
{
    double factor = isnan(p->spec->val_depth_factor) ? 1 : p->spec->val_depth_factor;
    const char *tum = NULL, *kitti = NULL;
    int rc = outputs_results(p->outputs, OUTPUTS_TUM, &tum, err);

    if (rc >= 0)
        rc = outputs_results(p->outputs, OUTPUTS_KITTI, &kitti, err);
    for (int i = 0; i < n && rc >= 0; i++)
        rc = predict_frame(p, frames, i, err);
    if (rc >= 0)
        rc = outputs_results(p->outputs, OUTPUTS_TUM, &tum, err);
    if (rc >= 0)
        rc = outputs_results(p->outputs, OUTPUTS_KITTI, &kitti, err);
    if (rc >= 0)
        rc = way_write(p->way, factor, tum, kitti, err);
    if (rc >= 0 && way_gap(p->way) >= 0)
        fprintf(p->out, "frame %lld is not there: what comes after it is left out\n", way_gap(p->way));
    if (rc >= 0)
        fprintf(p->out, "the way of %d frames -> %s, %s\n", n, tum, kitti);
    return rc;
}

/* ---- all of it ---- */

static int write_file(struct predictor *p, enum outputs_file file, const struct results_images *of, struct err *err)
{
    const char *path;
    int rc = outputs_results(p->outputs, file, &path, err);

    if (rc >= 0 && file == OUTPUTS_MASKS)
        rc = results_write_masks(path, p->dets, p->masks, p->ndets, of, p->classes.id, p->classes.n, err);
    else if (rc >= 0)
        rc = results_write(path, p->dets, p->ndets, of, p->classes.id, p->classes.n, err);
    if (rc >= 0)
        fprintf(p->out, "%zu %s -> %s\n", p->ndets, file == OUTPUTS_MASKS ? "masks" : "detections", path);
    return rc;
}

static int write_results(struct predictor *p, char *const *images, int nimages, struct err *err)
{
    int64_t *ids = calloc((unsigned)nimages, sizeof *ids);
    struct results_images of = { ids, (const char *const *)images, nimages };
    int rc = ids ? 0 : err_set(err, ERR_DEVICE, "out of memory");

    for (int i = 0; i < nimages && rc >= 0; i++)
        ids[i] = i + 1;
    if (rc >= 0)
        rc = write_file(p, OUTPUTS_BOXES, &of, err);
    if (rc >= 0 && p->masked)
        rc = write_file(p, OUTPUTS_MASKS, &of, err);
    free(ids);
    return rc;
}

static int predict_images(struct predictor *p, char *const *images, int nimages, struct err *err)
{
    int nbad = 0, rc = 0;

    for (int i = 0; i < nimages && rc >= 0; i++) {
        bool bad;

        rc = predict_image(p, images[i], i, &bad, err);
        if (bad) {
            fprintf(p->out, "%s\n", err->msg);
            nbad++;
            rc = 0;
        }
    }
    if (rc >= 0 && !p->deep)
        rc = write_results(p, images, nimages, err);
    if (rc >= 0 && nbad > 0)
        return err_set(err, ERR_DATA, "%d of %d images could not be read", nbad, nimages);
    return rc;
}

int predict_run(const struct predict_options *opt, char *const *images, int nimages, FILE *out, struct err *err)
{
    struct predictor p = { .opt = opt, .out = out };
    int rc = predictor_open(&p, &images, &nimages, err);

    if (rc >= 0)
        rc = p.way ? predict_way(&p, images, nimages, err) : predict_images(&p, images, nimages, err);
    predictor_close(&p);
    return rc;
}

/* ---- weights for other programs ---- */

/* -1: the family knows none of that name; err lists those it knows. */
static int dialect_of(const struct model_family *f, const char *name, struct err *err)
{
    char known[160] = "";
    size_t used = 0;

    for (int i = 0; f->dialects && f->dialects[i]; i++) {
        if (strcmp(f->dialects[i], name) == 0)
            return i;
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", f->dialects[i]);
        used = used < sizeof known ? used : sizeof known - 1;
    }
    err_set(err, ERR_INPUT, "models of the family %s cannot be written in the names of '%.60s'; known: %s", f->name, name,
            *known ? known : "none");
    return -1;
}

static void tell_export(const struct predictor *p, int dialect, const char *path, size_t n)
{
    char text[512];

    fprintf(p->out, "%zu arrays -> %s\n", n, path);
    if (!p->model->family->export_told)
        return;
    p->model->family->export_told(p->model, dialect, text, sizeof text);
    fprintf(p->out, "%s\n", text);
}

int predict_export(const struct predict_options *opt, const char *dialect, const char *path, FILE *out, struct err *err)
{
    struct predictor p = { .opt = opt, .out = out };
    struct st_array *arrays = NULL;
    size_t n = 0;
    int which = 0, rc = trained_open(&p, err);

    if (rc >= 0) {
        which = dialect_of(p.model->family, dialect, err);
        rc = which < 0 ? err->code
                       : p.model->family->export_as(p.model, which, (struct model_classes){ p.classes.n, p.classes.id }, &arrays, &n, err);
    }
    if (rc >= 0)
        rc = safetensors_write(path, arrays, n, p.model->traits, (size_t)p.model->ntraits, err);
    if (rc >= 0)
        tell_export(&p, which, path, n);
    weights_named_free(arrays, n);
    predictor_close(&p);
    return rc;
}

#include "worker/predict/predict.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/job/data_format.h"
#include "proto/err.h"
#include "proto/grow.h"
#include "proto/job/jobspec.h"
#include "worker/core/arena.h"
#include "worker/data/make/batch.h"
#include "worker/data/read/check.h"
#include "worker/data/image/image.h"
#include "worker/data/text/whole_file.h"
#include "worker/eval/draw.h"
#include "worker/eval/results_file.h"
#include "worker/layers/tape.h"
#include "worker/mask/rle.h"
#include "worker/models/pass.h"
#include "worker/models/registry.h"
#include "worker/predict/asked.h"
#include "worker/predict/depth.h"
#include "worker/predict/input.h"
#include "worker/predict/network.h"
#include "worker/predict/outputs.h"
#include "worker/predict/way.h"
#include "worker/train/split_options.h"

enum { PATH_BYTES = 4096 + 64, SMALL_SIDE = 320 };

struct predictor {
    const struct predict_options *opt;
    FILE *out;
    struct network net;
    struct arena *arena;
    struct tape *tape;
    struct decoder *decoder;
    struct asked *asked;
    double written; /* lowest score in results; NAN: the job's */
    struct outputs *outputs;
    struct input *input;
    struct pass *pass;
    struct detection *dets;     /* of all pictures */
    struct results_mask *masks; /* masks of dets, if the model predicts masks */
    struct way *way;            /* for a folder of frames; NULL: pictures */
    struct rle scratch;
    size_t ndets, room, masks_room;
};

/* ---- opening ---- */

/* Takes the split as the job read it: records that it left out are left out here, too. */
static int ask_split(struct predictor *p, struct err *err)
{
    const struct jobspec *s = p->net.spec;
    bool val = strcmp(p->opt->split, "val") == 0;
    struct split_options opt;
    struct dataset *set = NULL;
    char path[PATH_BYTES];
    int rc;

    split_options(p->opt->models, s, val, NULL, 1, &opt);
    if (!opt.check.annotations)
        return err_set(err, ERR_INPUT, "the job has no data.val");
    snprintf(path, sizeof path, "%s/index.%s", p->opt->job_dir, p->opt->split);
    rc = index_load(path, &opt.check, &set, err);
    if (rc >= 0)
        rc = asked_of_set(set, &p->net, &p->asked, err);
    dataset_free(set);
    return rc;
}

/* Takes the set in place of the validation split. The job's keys about its own sets apply only to a set of the same
 * format. Bad records are left out. */
static int ask_set(struct predictor *p, struct err *err)
{
    static const char *const forms[] = { "coco", "voc", "darknet", "yolo" };
    const struct predict_options *o = p->opt;
    struct jobspec s = *p->net.spec;
    bool val = s.data_val_annotations != NULL, known = false;
    const char *like = val ? s.data_val_format : s.data_train_format, *format = o->format ? o->format : data_format(o->on, like);
    const char *images = strcmp(format, like) != 0 ? NULL : s.data_val_images ? s.data_val_images : s.data_train_images;
    struct split_options opt;

    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        known = known || strcmp(format, forms[i]) == 0;
    if (!known)
        return err_set(err, ERR_INPUT, "--format is coco, voc, darknet or yolo, not '%.60s'", format);
    s.data_val_format = (char *)format;
    s.data_val_annotations = (char *)o->on;
    s.data_val_images = (char *)(o->images ? o->images : images);
    s.data_val_fraction = NAN;
    if (strcmp(format, like) != 0)
        s.data_names = NULL;
    if (!s.data_val_images && strcmp(format, "coco") == 0)
        return err_set(err, ERR_INPUT, "--images DIR is needed: the job names no folder of pictures");
    split_options(o->models, &s, true, NULL, 1, &opt);
    return asked_of_file(&opt.check, &p->net, p->out, &p->asked, err);
}

/* Picture i is frame i. */
static int ask_way(struct predictor *p, struct err *err)
{
    int n, w, h, rc;
    char *const *frames = way_frames(p->way, &n);

    way_size(p->way, &w, &h);
    rc = asked_of_files(frames, n, &p->net, &p->asked, err);
    for (int i = 0; i < n && rc >= 0; i++) {
        p->asked->picture[i].w = w;
        p->asked->picture[i].h = h;
    }
    return rc;
}

static int ask(struct predictor *p, char *const *args, int nargs, struct err *err)
{
    const struct predict_options *o = p->opt;
    const struct jobspec *s = p->net.spec;
    int rc;

    if (p->net.deep && (o->on || o->no_pictures))
        return err_set(err, ERR_INPUT,
                       "a depth network is not evaluated with --on: give pictures, a folder of frames, or the job's --split");
    if (o->on)
        return ask_set(p, err);
    if (o->split)
        return ask_split(p, err);
    if (!p->net.deep || !way_is(args[0]))
        return asked_by_name(args, nargs, o->list, o->out_dir, &p->net, &p->asked, err);
    if (nargs > 1)
        return err_set(err, ERR_INPUT, "'%.200s' is a folder of frames: give it alone", args[0]);
    rc = way_open(args[0], s, &p->way, err);
    return rc < 0 ? rc : ask_way(p, err);
}

static int predictor_open(struct predictor *p, char *const *args, int nargs, struct err *err)
{
    const struct predict_options *o = p->opt;
    int rc = network_open(&p->net, o->models, o->job_dir, o->checkpoint, p->out, err);
    struct model *m = p->net.model;

    if (rc < 0)
        return rc;
    p->arena = arena_new(p->net.dev, (size_t)64 << 20);
    p->tape = p->arena ? tape_new(p->net.dev, p->arena, m->nparams) : NULL;
    p->decoder = decoder_new();
    if (!p->tape || !p->decoder)
        return err_set(err, ERR_DEVICE, "out of memory");
    rc = input_open(m, p->net.spec, &p->input, err);
    if (rc >= 0)
        rc = m->ops->result ? 0 : err_set(err, ERR_UNSUPPORTED, "%s finds nothing in pictures", p->net.spec->model_preset);
    if (rc >= 0)
        rc = ask(p, args, nargs, err);
    if (rc < 0)
        return rc;
    p->written = !isnan(o->results_conf) ? o->results_conf : p->asked->of_set ? p->net.spec->val_conf : o->conf;
    rc = pass_open(&(struct pass_options){ m, p->tape, 1, .results = true, .views = p->way != NULL }, &p->pass, err);
    return rc < 0 ? rc : outputs_open(o->out_dir, p->asked, &p->outputs, err);
}

static void predictor_close(struct predictor *p)
{
    for (size_t i = 0; p->net.masked && i < p->ndets; i++)
        free(p->masks[i].counts);
    free(p->masks);
    free(p->dets);
    rle_free(&p->scratch);
    pass_close(p->pass);
    input_close(p->input);
    outputs_close(p->outputs);
    asked_free(p->asked);
    way_close(p->way);
    decoder_free(p->decoder);
    tape_free(p->tape);
    arena_free(p->arena);
    network_close(&p->net);
}

/* ---- an image ---- */

static bool make_room(struct predictor *p, size_t n)
{
    return GROW(p->dets, p->room, p->ndets + n) && (!p->net.masked || GROW(p->masks, p->masks_room, p->ndets + n));
}

/* Collects the results of one image of w x h pixels, behind those of earlier images. */
static int collect(struct predictor *p, const struct result *r, int w, int h, struct err *err)
{
    int rc = 0;

    assert((r->kind == RESULT_MASKS) == p->net.masked);
    if (!make_room(p, (size_t)r->n))
        return err_set(err, ERR_DEVICE, "out of memory");
    for (int i = 0; i < r->n && rc >= 0; i++) {
        if (r->boxes[i].score < p->written || p->asked->category[r->boxes[i].cls] == ASKED_NONE)
            continue;
        p->dets[p->ndets] = r->boxes[i];
        if (p->net.masked)
            rc = results_mask_make(&r->masks[i], w, h, &p->scratch, &p->masks[p->ndets], err);
        p->ndets += rc >= 0;
    }
    return rc;
}

/* The number of results to draw. The best results come first. */
static int drawn_of(const struct predictor *p, const struct result *found)
{
    int n = 0;

    while (n < found->n && found->boxes[n].score >= p->opt->conf)
        n++;
    return n;
}

static int write_drawn(struct predictor *p, const char *path, const struct image *img, const struct result *found, int n, struct err *err)
{
    int side = img->w > img->h ? img->w : img->h, factor = p->opt->enlarge ? (SMALL_SIDE + side - 1) / side : 1, rc;
    struct picture small = { (uint8_t *)img->rgb, img->w, img->h }, big;
    struct detection *scaled = malloc(((size_t)n + 1) * sizeof *scaled);

    factor = factor > DRAW_MAX_FACTOR ? DRAW_MAX_FACTOR : factor;
    rc = scaled ? draw_enlarge(&small, factor, &big, err) : err_set(err, ERR_DEVICE, "out of memory");
    if (rc < 0) {
        free(scaled);
        return rc;
    }
    for (int i = 0; i < n; i++) {
        scaled[i] = found->boxes[i];
        for (int k = 0; k < 4; k++)
            scaled[i].box[k] *= factor;
    }
    if (found->kind == RESULT_MASKS)
        draw_masks(&big, found->masks, n, factor);
    rc = draw_detections(&big, scaled, (size_t)n, p->net.classes.name, p->net.classes.n, err);
    if (rc >= 0)
        rc = image_write_png(path, big.rgb, big.w, big.h, err);
    free(big.rgb);
    free(scaled);
    return rc;
}

static int look(struct predictor *p, int index, const struct image *img, struct result *ret, struct err *err)
{
    const char *path = p->asked->picture[index].path;
    double least = p->opt->no_pictures || !(p->written >= p->opt->conf) ? p->written : p->opt->conf;
    struct batch batch;
    int rc = p->way ? input_make_of(p->input, way_set(p->way, index), &batch, err)
                    : input_make(p->input, path, img->w, img->h, p->asked->upright, &batch, err);

    if (rc >= 0)
        rc = pass_run(p->pass, &batch, err);
    if (rc >= 0)
        rc = pass_result(p->pass, 0, index, img->w, img->h, least, ret, err);
    if (rc >= 0 && (ret->kind == RESULT_DEPTH) != p->net.deep)
        rc = err_set(err, ERR_UNSUPPORTED, "models of the family %s: only boxes, masks and depth can be drawn", p->net.model->family->name);
    return rc;
}

static int write_found(struct predictor *p, int index, const struct image *img, const struct result *found, struct err *err)
{
    const struct asked_picture *a = &p->asked->picture[index];
    int n = drawn_of(p, found), rc = collect(p, found, img->w, img->h, err);
    const char *drawn;

    if (p->opt->no_pictures)
        return rc;
    if (rc >= 0)
        rc = outputs_picture(p->outputs, a->place, "", &drawn, err);
    if (rc >= 0)
        rc = write_drawn(p, drawn, img, found, n, err);
    if (rc >= 0 && !p->opt->quiet)
        fprintf(p->out, "%s: %d object%s -> %s\n", a->name, n, n == 1 ? "" : "s", drawn);
    return rc;
}

/* Begins the frame's line; the caller ends it. */
static int write_depth(struct predictor *p, int index, const struct result *found, struct err *err)
{
    const struct asked_picture *a = &p->asked->picture[index];
    char colours[PATH_BYTES * 2];
    const char *numbers;
    int rc = outputs_picture(p->outputs, a->place, "", &numbers, err);

    if (rc >= 0) {
        snprintf(colours, sizeof colours, "%s", numbers);
        rc = outputs_picture(p->outputs, a->place, "_depth", &numbers, err);
    }
    if (rc >= 0)
        rc = predict_write_depth(found, p->net.spec, numbers, colours, err);
    if (rc >= 0 && !p->opt->quiet)
        fprintf(p->out, "%s: depth -> %s, in colours -> %s", a->name, numbers, colours);
    return rc;
}

/* Fails if the picture has another size than stated: the annotations or the camera are then those of another
 * picture. */
static int check_size(const struct predictor *p, const struct asked_picture *a, const struct image *img, struct err *err)
{
    if (a->w == 0 || (a->w == img->w && a->h == img->h))
        return 0;
    return err_set(err, ERR_DATA, "%s is %d x %d pixels, but %s %d x %d", a->path, img->w, img->h,
                   p->net.deep ? "intrinsics.json says" : "the annotations say", a->w, a->h);
}

/* Removes outputs of an earlier predict for a picture that cannot be read now: they would look new. */
static void forget(struct predictor *p, int index)
{
    const char *place = p->asked->picture[index].place;

    outputs_forget(p->outputs, place, "");
    if (p->net.deep) {
        outputs_forget(p->outputs, place, "_depth");
        outputs_forget(p->outputs, place, "_next");
    }
}

/* Reads a picture. A fault of its file is reported and counted in *nbad; *ret_bad is then true and the call returns 0.
 * *ret is borrowed until the next call. */
static int read_picture(struct predictor *p, int index, struct image *ret, bool *ret_bad, int *nbad, struct err *err)
{
    const struct asked_picture *a = &p->asked->picture[index];
    int rc = a->folder ? err_set(err, ERR_DATA, "%s: no picture is in this folder or below it", a->path)
                       : image_read(p->decoder, a->path, ret, err);

    if (rc >= 0 && p->asked->upright)
        rc = image_upright(p->decoder, a->path, ret, err);
    if (rc >= 0)
        rc = check_size(p, a, ret, err);
    *ret_bad = rc < 0 && file_at_fault(rc);
    if (!*ret_bad)
        return rc;
    fprintf(p->out, "%s\n", err->msg);
    ++*nbad;
    if (!p->opt->no_pictures)
        forget(p, index);
    return 0;
}

static void end_line(struct predictor *p)
{
    if (!p->opt->quiet)
        fputc('\n', p->out);
}

static int predict_image(struct predictor *p, int index, int *nbad, struct err *err)
{
    struct result found;
    struct image img;
    bool bad;
    int rc = read_picture(p, index, &img, &bad, nbad, err);

    if (rc < 0 || bad)
        return rc;
    rc = look(p, index, &img, &found, err);
    if (rc < 0)
        return rc;
    if (!p->net.deep)
        return write_found(p, index, &img, &found, err);
    outputs_forget(p->outputs, p->asked->picture[index].place, "_next"); /* an earlier run may have had the next frame */
    rc = write_depth(p, index, &found, err);
    if (rc >= 0)
        end_line(p);
    return rc;
}

/* ---- a folder of frames ---- */

/* The next frame, warped to the camera of this one. */
static int write_next(struct predictor *p, int i, const struct result *found, const double *motion, const struct image *next,
                      struct err *err)
{
    const struct depth_lens lens = way_lens(p->way, i);
    const struct asked_picture *frame = &p->asked->picture[i];
    const char *path;
    int rc = outputs_picture(p->outputs, frame->place, "_next", &path, err);

    if (rc >= 0)
        rc = predict_write_view(found, &lens, motion, next->rgb, path, err);
    if (rc >= 0 && !p->opt->quiet)
        fprintf(p->out, ", as %s shows it -> %s", frame[1].name, path);
    return rc;
}

/* next: the following frame, if it can be read. */
static int predict_frame(struct predictor *p, int i, const struct image *next, struct err *err)
{
    const struct image size = { .w = p->asked->picture[i].w, .h = p->asked->picture[i].h };
    const double *motion = NULL;
    struct result found;
    int rc = look(p, i, &size, &found, err);

    if (rc >= 0)
        rc = write_depth(p, i, &found, err);
    if (rc >= 0)
        rc = way_add(p->way, i, &found, &motion, err);
    if (rc >= 0 && motion)
        rc = write_next(p, i, &found, motion, next, err);
    if (rc >= 0)
        end_line(p);
    if (motion)
        return rc;
    outputs_forget(p->outputs, p->asked->picture[i].place, "_next");
    return rc;
}

/* Predicts all frames that can be read. Each frame is read before the one before it is predicted, since the network
 * compares the two. */
static int predict_frames(struct predictor *p, int *nbad, struct err *err)
{
    int n = p->asked->n, rc = 0;
    struct image img;

    for (int i = 0; i <= n && rc >= 0; i++) {
        bool bad = false;

        if (i < n)
            rc = read_picture(p, i, &img, &bad, nbad, err);
        if (bad)
            way_lose(p->way, i);
        if (rc >= 0 && i > 0 && !way_lost(p->way, i - 1))
            rc = predict_frame(p, i - 1, &img, err);
    }
    return rc;
}

static void tell_way(struct predictor *p, int first, int n, const char *tum, const char *kitti)
{
    const struct asked_picture *frame = &p->asked->picture[first];
    const char *from = first > 0 ? " from " : "", *name = first > 0 ? frame->name : "", *on = first > 0 ? " on" : "";

    if (first + n < p->asked->n)
        fprintf(p->out, "%s cannot be read: the way ends before it\n", frame[n].name);
    fprintf(p->out, "the way of %d frame%s%s%s%s -> %s, %s\n", n, n == 1 ? "" : "s", from, name, on, tum, kitti);
}

/* Writes the trajectory. It has no gaps: it ends before a frame that cannot be read. Without a trajectory the file of
 * an earlier predict is removed. */
static int write_way(struct predictor *p, struct err *err)
{
    double factor = isnan(p->net.spec->val_depth_factor) ? 1 : p->net.spec->val_depth_factor;
    int first, n = way_length(p->way, &first), rc;
    const char *tum, *kitti;

    if (way_gap(p->way) >= 0)
        fprintf(p->out, "frame %lld is missing: the frames after it are left out\n", way_gap(p->way));
    rc = outputs_results(p->outputs, OUTPUTS_TUM, &tum, err);
    if (rc >= 0)
        rc = outputs_results(p->outputs, OUTPUTS_KITTI, &kitti, err);
    if (rc >= 0 && n == 0) {
        unlink(tum);
        unlink(kitti);
        return 0;
    }
    if (rc >= 0)
        rc = way_write(p->way, factor, tum, kitti, err);
    if (rc >= 0)
        tell_way(p, first, n, tum, kitti);
    return rc;
}

static int predict_way(struct predictor *p, struct err *err)
{
    const char *path;
    int nbad = 0, rc = outputs_results(p->outputs, OUTPUTS_TUM, &path, err);

    if (rc >= 0)
        rc = outputs_results(p->outputs, OUTPUTS_KITTI, &path, err);
    if (rc >= 0)
        rc = predict_frames(p, &nbad, err);
    if (rc >= 0)
        rc = write_way(p, err);
    if (rc >= 0 && nbad > 0)
        return err_set(err, ERR_DATA, "%d of %d frames could not be read", nbad, p->asked->n);
    return rc;
}

/* ---- all of it ---- */

static int write_file(struct predictor *p, enum outputs_file file, const struct results_images *of, struct err *err)
{
    const int64_t *categories = p->asked->category;
    const char *path;
    int n = p->net.classes.n, rc = outputs_results(p->outputs, file, &path, err);

    if (rc >= 0 && file == OUTPUTS_MASKS)
        rc = results_write_masks(path, p->dets, p->masks, p->ndets, of, categories, n, err);
    else if (rc >= 0)
        rc = results_write(path, p->dets, p->ndets, of, categories, n, err);
    if (rc >= 0)
        fprintf(p->out, "%zu %s of score %g and more -> %s\n", p->ndets, file == OUTPUTS_MASKS ? "masks" : "detections", p->written, path);
    return rc;
}

static int write_results(struct predictor *p, struct err *err)
{
    int n = p->asked->n;
    int64_t *ids = calloc((size_t)n + 1, sizeof *ids);
    const char **names = calloc((size_t)n + 1, sizeof *names);
    struct results_images of = { ids, names, n };
    int rc = ids && names ? 0 : err_set(err, ERR_DEVICE, "out of memory");

    for (int i = 0; i < n && rc >= 0; i++) {
        ids[i] = p->asked->picture[i].id;
        names[i] = p->asked->picture[i].name;
    }
    if (rc >= 0)
        rc = write_file(p, OUTPUTS_BOXES, &of, err);
    if (rc >= 0 && p->net.masked)
        rc = write_file(p, OUTPUTS_MASKS, &of, err);
    free(ids);
    free(names);
    return rc;
}

static int predict_images(struct predictor *p, struct err *err)
{
    int nbad = 0, rc = 0;

    for (int i = 0; i < p->asked->n && rc >= 0; i++)
        rc = predict_image(p, i, &nbad, err);
    if (rc >= 0 && !p->net.deep)
        rc = write_results(p, err);
    if (rc >= 0 && nbad > 0)
        return err_set(err, ERR_DATA, "%d of %d images could not be read", nbad, p->asked->n);
    return rc;
}

int predict_run(const struct predict_options *opt, char *const *args, int nargs, FILE *out, struct err *err)
{
    struct predictor p = { .opt = opt, .out = out };
    int rc = predictor_open(&p, args, nargs, err);

    if (rc >= 0)
        rc = p.way ? predict_way(&p, err) : predict_images(&p, err);
    predictor_close(&p);
    return rc;
}

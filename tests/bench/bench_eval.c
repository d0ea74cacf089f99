/* SPDX-License-Identifier: Apache-2.0 */ /* tests/bench/bench_eval.c
 * uses: proto worker/eval worker/mask worker/core
 * The COCO evaluation of boxes and masks over many pictures: the wall clock time of a validation from the model's boxes
 * and bits to scores.
 * Usage: bench_eval [images=5000] [out=FOLDER]: objects and detections are drawn from a fixed seed; with `out` they are
 * written there as COCO's files gt.json, boxes.json and masks.json, for the peer. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/err.h"
#include "tests/bench/bench.h"
#include "tests/unit/worker/mask/rle_pairs.h"
#include "worker/eval/boxes/coco_eval.h"
#include "worker/eval/results_file.h"
#include "worker/mask/rle.h"

enum { W = 640, H = 480, CLASSES = 80, TRUTHS = 7, DETS = 36, POINTS = 24, CROWDS = 50 }; /* one object in CROWDS is a crowd */

struct outline {
    double xy[POINTS][2];
};

struct world {
    int images;
    struct truth *truths;    /* [images * TRUTHS] */
    struct outline *outline; /* of the truths */
    int64_t *class_id, *image_id;
    const char **class_name, **image_name;
    /* A single picture's, and those of all pictures. */
    struct detection dets[DETS], *all_dets;
    struct result_mask masks[DETS];
    uint8_t *bits[DETS];
    struct results_mask *all_masks;
    struct rle rle;
};

static uint64_t random_state = 88172645463325252;

static double uniform(double lo, double hi)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return lo + (hi - lo) * (double)(random_state >> 11) * 0x1p-53;
}

static int below(int n)
{
    return (int)uniform(0, n);
}

static void fail(const char *what, const struct err *err)
{
    fprintf(stderr, "bench_eval: %s: %s\n", what, err->msg);
    exit(1);
}

/* A blob around a middle, to hundredths of a pixel, as annotations are. */
static void draw_blob(struct outline *o, double x, double y, double rx, double ry)
{
    for (int i = 0; i < POINTS; i++) {
        double r = uniform(.85, 1.1), angle = 6.283185307179586 * i / POINTS;

        o->xy[i][0] = round(100 * fmin(fmax(x + r * rx * cos(angle), 0), W)) / 100;
        o->xy[i][1] = round(100 * fmin(fmax(y + r * ry * sin(angle), 0), H)) / 100;
    }
}

static void rasterise(struct rle *m, const struct outline *o)
{
    const int64_t first[2] = { 0, POINTS };
    struct err err;

    if (rle_from_polygons(m, H, W, o->xy, first, 1, &err) < 0)
        fail("polygons", &err);
}

static int read_truth(void *of, size_t k, struct rle *ret, struct err *err)
{
    const struct world *w = of;
    const int64_t first[2] = { 0, POINTS };

    return rle_from_polygons(ret, H, W, w->outline[k].xy, first, 1, err);
}

static void draw_truths(struct world *w)
{
    for (int i = 0; i < w->images; i++) {
        int home = below(CLASSES);

        for (int k = 0; k < TRUTHS; k++) {
            struct truth *t = &w->truths[i * TRUTHS + k];
            double size = exp(uniform(log(8), log(110)));
            int tight[4];

            draw_blob(&w->outline[i * TRUTHS + k], uniform(0, W), uniform(0, H), size, size * uniform(.6, 1.6));
            rasterise(&w->rle, &w->outline[i * TRUTHS + k]);
            rle_bounds(&w->rle, tight);
            *t = (struct truth){ i,
                                 (home + below(3)) % CLASSES, /* a picture has few classes */
                                 below(CROWDS) == 0,
                                 false,
                                 (double)rle_area(&w->rle),
                                 { tight[0], tight[1], tight[2], tight[3] } };
        }
    }
}

/* Most are near an object, and of its class; scores come in steps, so that there are ties. */
static void draw_dets(struct world *w, int image)
{
    for (int k = 0; k < DETS; k++) {
        const struct truth *t = &w->truths[image * TRUTHS + below(TRUTHS)];
        double off = below(3) ? uniform(0, .25) : uniform(.2, 1.5), rx = fmax(t->box[2] / 2, 2), ry = fmax(t->box[3] / 2, 2);
        struct outline o;
        int tight[4];

        draw_blob(&o, t->box[0] + rx + rx * uniform(-off, off), t->box[1] + ry + ry * uniform(-off, off),
                  rx * uniform(1 - off / 2, 1 + off / 2), ry * uniform(1 - off / 2, 1 + off / 2));
        rasterise(&w->rle, &o);
        rle_bounds(&w->rle, tight);
        w->dets[k] = (struct detection){ image,
                                         below(5) ? t->cls : (t->cls + 1) % CLASSES,
                                         k,
                                         (float)(round(1000 * fmin(fmax(1 - off + uniform(-.3, .3), .05), 1)) / 1000),
                                         { tight[0], tight[1], tight[2], tight[3] } };
        w->masks[k] = (struct result_mask){ tight[0], tight[1], tight[2], tight[3], w->bits[k] };
        rle_to_crop(&w->rle, tight[0], tight[1], tight[2], tight[3], w->bits[k]);
    }
}

static void keep_dets(struct world *w, int image)
{
    struct err err;

    for (int k = 0; k < DETS; k++) {
        size_t at = (size_t)image * DETS + (size_t)k;

        w->all_dets[at] = w->dets[k];
        if (results_mask_make(&w->masks[k], W, H, &w->rle, &w->all_masks[at], &err) < 0)
            fail("masks", &err);
    }
}

static void put_truth(FILE *f, const struct world *w, int k)
{
    const struct truth *t = &w->truths[k];

    fprintf(f, "%s\n{\"id\":%d,\"image_id\":%d,\"category_id\":%d,\"iscrowd\":%d,\"area\":%.17g,\"bbox\":[%g,%g,%g,%g],\"segmentation\":[[",
            k ? "," : "", k + 1, t->image + 1, t->cls + 1, t->crowd, t->area, t->box[0], t->box[1], t->box[2], t->box[3]);
    for (int i = 0; i < POINTS; i++)
        fprintf(f, "%s%.2f,%.2f", i ? "," : "", w->outline[k].xy[i][0], w->outline[k].xy[i][1]);
    fprintf(f, "]]}");
}

static void write_truths(const char *path, const struct world *w)
{
    FILE *f = fopen(path, "w");

    if (!f) {
        perror(path);
        exit(1);
    }
    fprintf(f, "{\"images\":[");
    for (int i = 0; i < w->images; i++)
        fprintf(f, "%s\n{\"id\":%d,\"file_name\":\"%d.jpg\",\"width\":%d,\"height\":%d}", i ? "," : "", i + 1, i + 1, W, H);
    fprintf(f, "],\"categories\":[");
    for (int c = 0; c < CLASSES; c++)
        fprintf(f, "%s{\"id\":%d,\"name\":\"c%d\"}", c ? "," : "", c + 1, c + 1);
    fprintf(f, "],\"annotations\":[");
    for (int k = 0; k < w->images * TRUTHS; k++)
        put_truth(f, w, k);
    fprintf(f, "]}\n");
    fclose(f);
}

static void write_files(const char *folder, const struct world *w)
{
    const struct results_images images = { w->image_id, w->image_name, w->images };
    size_t n = (size_t)w->images * DETS;
    char path[4096];
    struct err err;
    int rc;

    snprintf(path, sizeof path, "%s/gt.json", folder);
    write_truths(path, w);
    snprintf(path, sizeof path, "%s/boxes.json", folder);
    rc = results_write(path, w->all_dets, n, &images, w->class_id, CLASSES, &err);
    snprintf(path, sizeof path, "%s/masks.json", folder);
    if (rc >= 0)
        rc = results_write_masks(path, w->all_dets, w->all_masks, n, &images, w->class_id, CLASSES, &err);
    if (rc < 0)
        fail("results", &err);
}

static void world_new(struct world *w, int images)
{
    size_t n = (size_t)images * TRUTHS, ndets = (size_t)images * DETS;

    w->images = images;
    w->truths = calloc(n, sizeof *w->truths);
    w->outline = calloc(n, sizeof *w->outline);
    w->class_id = calloc(CLASSES, sizeof *w->class_id);
    w->class_name = calloc(CLASSES, sizeof *w->class_name);
    w->image_id = calloc((size_t)images, sizeof *w->image_id);
    w->image_name = calloc((size_t)images, sizeof *w->image_name);
    w->all_dets = calloc(ndets, sizeof *w->all_dets);
    w->all_masks = calloc(ndets, sizeof *w->all_masks);
    for (int k = 0; k < DETS; k++)
        w->bits[k] = malloc(H * (W + 7) / 8);
    for (int c = 0; c < CLASSES; c++) {
        w->class_id[c] = c + 1;
        w->class_name[c] = "class";
    }
    for (int i = 0; i < images; i++) {
        w->image_id[i] = i + 1;
        w->image_name[i] = "picture";
    }
}

static double score(const struct evaluator *e, double *seconds, struct err *err)
{
    struct metrics m = { 0 };
    size_t bytes;
    const void *mine = e->ops->pack(e, &bytes);
    void *all = malloc(bytes + 1);
    double began = bench_now(), ap;

    memcpy(all, mine, bytes);
    if (e->ops->score(e, all, bytes, &m, err) < 0)
        fail("scores", err);
    *seconds += bench_now() - began;
    ap = m.row[0].value;
    free(m.row);
    free(all);
    return ap;
}

int main(int argc, char **argv)
{
    const struct evaluator_ops *const list[2] = { &coco_boxes, &coco_segm };
    const char *out = bench_word(argc, argv, "out", NULL), *const names[2] = { "boxes", "masks" };
    static struct world w;
    const struct eval_masks masks = { &w, read_truth };
    struct eval_split split;
    struct evaluator *e[2];
    double seconds[2] = { 0 };
    struct err err;

    world_new(&w, bench_count(argc, argv, "images", 5000));
    draw_truths(&w);
    split = (struct eval_split){ .nimages = w.images,
                                 .nclasses = CLASSES,
                                 .class_id = w.class_id,
                                 .class_name = w.class_name,
                                 .truths = w.truths,
                                 .ntruths = (size_t)w.images * TRUTHS,
                                 .masks = &masks };
    for (int k = 0; k < 2; k++)
        if (list[k]->open(&split, &e[k], &err) < 0)
            fail(names[k], &err);
    for (int i = 0; i < w.images; i++) {
        const struct result r = { .kind = RESULT_MASKS, .image = i, .n = DETS, .boxes = w.dets, .masks = w.masks };

        draw_dets(&w, i);
        for (int k = 0; k < 2; k++) {
            double began = bench_now();

            if (e[k]->ops->add(e[k], &r, &err) < 0)
                fail(names[k], &err);
            seconds[k] += bench_now() - began;
        }
        if (out)
            keep_dets(&w, i);
    }
    for (int k = 0; k < 2; k++) {
        double ap = score(e[k], &seconds[k], &err);

        printf("eval kind=%s images=%d seconds=%.4f ap=%.9f\n", names[k], w.images, seconds[k], ap);
        e[k]->ops->close(e[k]);
    }
    if (out)
        write_files(out, &w);
    return 0;
}

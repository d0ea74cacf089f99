/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_rcnn_layers.c
 * uses: proto worker/layers worker/comm worker/core cpu cuda
 * A small two-stage detector on the tape: gradients equal the slopes of its losses, in training and per image, also for
 * shards without objects. */
#include "tests/device/tape_net.h"

#include <math.h>

#include "worker/layers/rcnn.h"

enum { C = 5, LEVELS = 2, SHARDS = 2, IMAGES = 2, ALL = SHARDS * IMAGES, CLASSES = 3, TRUTH = 3, RPN = 4, BOX = 2, HEADS = RPN + BOX + 1 };

/* Sizes of features: a quarter of the canvas. */
static const int height[SHARDS] = { 16, 12 }, width[SHARDS] = { 12, 16 };
static const int32_t size[IMAGES][2] = { { 48, 48 }, { 44, 40 } }, offset[2][IMAGES + 1] = { { 0, 2, 3 }, { 0, 0, 0 } },
                     cls[TRUTH] = { 0, 2, 1 };
static const float truth[TRUTH][4] = { { 4, 5, 25, 30 }, { 20, 10, 43, 44 }, { 8, 8, 24, 39 } };
static const int32_t polygon[TRUTH + 1] = { 0, 1, 2, 3 }, point[TRUTH + 1] = { 0, 3, 6, 10 };
static const double xy[10][2] = { { 4, 5 },   { 25, 5 }, { 10, 30 }, { 20, 10 }, { 43, 20 },
                                  { 22, 44 }, { 8, 8 },  { 24, 10 }, { 20, 39 }, { 9, 30 } };

struct detector {
    struct net net;
    struct param *w[HEADS]; /* logits and deltas of both levels; classes, boxes, masks */
    struct rpn_head rpn;
    struct rpn_selection sel;
    struct rcnn_head head;
    struct rcnn_images images[SHARDS];
    struct rcnn_truth truth[SHARDS];
    struct rcnn_outlines outlines[SHARDS];
    struct philox_key key[4][ALL];
    double *rpn_terms[ALL], *box_terms[ALL], *mask_terms[ALL];
};

static void open_detector_of(struct detector *d, int device, bool empty, int mask_side)
{
    const int channels[HEADS] = { 3, 3, 12, 12, CLASSES + 1, 4 * CLASSES, CLASSES };
    const float side[LEVELS] = { 16, 32 };
    const double ratio[3] = { 0.5, 1, 2 };
    struct device *dev;

    memset(d, 0, sizeof *d);
    net_open_on(&d->net, device, 0, SHARDS, IMAGES, height, width, C);
    dev = d->net.dev;
    for (int i = 0; i < HEADS; i++)
        d->w[i] = net_param(&d->net, PARAM_CONV, channels[i], 1, C, true);
    d->rpn = (struct rpn_head){ .nlevels = LEVELS,
                                .nratios = 3,
                                .stride = { 4, 8 },
                                .pos_iou = 0.7f,
                                .neg_iou = 0.3f,
                                .low_quality = true,
                                .batch = 32,
                                .max_positive = 16,
                                .beta = 0.2f };
    rpn_set_anchors(&d->rpn, side, ratio, false);
    d->sel = (struct rpn_selection){ .pre = 50, .post = 40, .nms = 0.7f };
    d->head = (struct rcnn_head){ .classes = CLASSES,
                                  .append_truth = true,
                                  .fg_iou = 0.5f,
                                  .batch = 20,
                                  .max_foreground = 6,
                                  .max_masks = 4,
                                  .weights = { 10, 10, 5, 5 },
                                  .beta = 0.2f,
                                  .mask_side = mask_side };
    for (int s = 0; s < SHARDS; s++) {
        const int32_t *to = offset[empty ? 1 : 0];

        d->images[s] = (struct rcnn_images){ IMAGES, { 4 * height[s], 4 * width[s] }, put(dev, size, sizeof size) };
        d->truth[s] =
            (struct rcnn_truth){ put(dev, to, sizeof offset[0]), put(dev, cls, sizeof cls), put(dev, truth, sizeof truth), to[IMAGES] };
        d->outlines[s] =
            (struct rcnn_outlines){ put(dev, polygon, sizeof polygon), put(dev, point, sizeof point), put(dev, xy, sizeof xy), NULL, NULL };
    }
    for (int i = 0; i < ALL; i++) {
        for (int k = 0; k < 4; k++)
            d->key[k][i] = (struct philox_key){ .seed = 9, .op = (uint16_t)k, .shard = (uint16_t)i };
        d->rpn_terms[i] = put(dev, NULL, RPN_TERMS * sizeof(double));
        d->box_terms[i] = put(dev, NULL, RCNN_BOX_TERMS * sizeof(double));
        d->mask_terms[i] = put(dev, NULL, RCNN_MASK_TERMS * sizeof(double));
    }
}

static void open_detector(struct detector *d, int device, bool empty)
{
    open_detector_of(d, device, empty, 28);
}

static void second_stage(struct detector *d, struct value *x, const struct rpn_proposals *proposals)
{
    const struct rcnn_samples *samples = layer_rcnn_sample(d->net.tape, &d->head, d->images, d->truth, proposals, d->key[2], d->key[3]);
    struct conv one = { .stride = 1 };
    struct roi_align roi = {
        .nlevels = 1, .scale = { 0.25f }, .first_level = 2, .canonical_level = 2, .canonical_side = 224, .pool = 1, .aligned = true
    };
    struct roi_rows rows[SHARDS];
    struct tape *t = d->net.tape;
    struct value *box, *mask;

    NET_OK(&d->net, tape_status(t, &d->net.err));
    for (int s = 0; s < SHARDS; s++)
        rows[s] = rcnn_rows(&samples[s], IMAGES);
    box = layer_roi_align(t, &x, &roi, rows);
    layer_rcnn_box_loss(t, layer_conv(t, box, &one, d->w[RPN], NULL), layer_conv(t, box, &one, d->w[RPN + 1], NULL), &d->head, d->images,
                        d->truth, samples, 0.5f, d->box_terms);
    for (int s = 0; s < SHARDS; s++)
        rows[s] = rcnn_mask_rows(&samples[s], IMAGES);
    roi.pool = d->head.mask_side;
    mask = layer_roi_align(t, &x, &roi, rows);
    layer_rcnn_mask_loss(t, layer_conv(t, mask, &one, d->w[RPN + BOX], NULL), &d->head, d->images, d->outlines, samples, 0.5f,
                         d->mask_terms);
}

static void forward(struct detector *d, bool train)
{
    struct conv step = { .stride = 1 };
    struct value *x, *logits[LEVELS], *deltas[LEVELS];
    const struct rpn_samples *samples;
    const struct rpn_proposals *proposals;
    struct tape *t = d->net.tape;

    if (train) {
        x = net_begin(&d->net);
    } else {
        tape_begin(t, TAPE_EVAL, SHARDS, NULL);
        x = tape_input(t, d->net.image);
    }
    for (int l = 0; l < LEVELS; l++) {
        step.stride = 1 << l;
        logits[l] = layer_conv(t, x, &step, d->w[l], NULL);
        deltas[l] = layer_conv(t, x, &step, d->w[LEVELS + l], NULL);
    }
    samples = layer_rpn_sample(t, logits, &d->rpn, d->images, d->truth, d->key[0], d->key[1]);
    proposals = layer_rpn_propose(t, logits, deltas, &d->rpn, &d->sel, d->images);
    layer_rpn_loss(t, logits, deltas, &d->rpn, d->images, d->truth, samples, proposals, 0.5f, d->rpn_terms);
    second_stage(d, x, proposals);
    NET_OK(&d->net, tape_status(t, &d->net.err));
}

/* Term t of all rows, for the loss that head `head` belongs to. */
static double loss_of(struct detector *d, int head, int rows)
{
    double *const *terms = head < RPN ? d->rpn_terms : head < RPN + BOX ? d->box_terms : d->mask_terms, sum = 0, got[2];

    for (int i = 0; i < rows; i++) {
        get(d->net.dev, got, terms[i], sizeof got);
        sum += got[0] + (head < RPN + BOX ? got[1] : 0); /* cls and box stand first */
        assert_true(isfinite(sum));
    }
    return sum;
}

/* The loss where one weight is a little more. */
static double moved(struct detector *d, int head, size_t i, float by)
{
    struct param *p = d->w[head];
    float w;

    get(d->net.dev, &w, p->data + i, sizeof w);
    w += by;
    NET_OK(&d->net, d->net.dev->ops->upload(d->net.dev, p->data + i, &w, sizeof w, &d->net.err));
    p->version++;
    forward(d, true);
    return loss_of(d, head, SHARDS);
}

/* Checks the heads from `first` on. */
static void check_slopes(int device, int mask_side, int first)
{
    float *g[HEADS][SHARDS];
    struct detector d;

    open_detector_of(&d, device, false, mask_side);
    forward(&d, true);
    net_back(&d.net);
    for (int h = first; h < HEADS; h++)
        for (int s = 0; s < SHARDS; s++)
            g[h][s] = net_grad(&d.net, d.w[h], s);
    for (int h = first; h < HEADS; h++) {
        double some = 0;

        for (size_t i = 1; i < d.w[h]->count; i += device == 0 ? 4 : d.w[h]->count) { /* fewer on slow devices */
            const float eps = 1.0f / 1024;
            double up = moved(&d, h, i, eps), down = moved(&d, h, i, -2 * eps), sum = (double)g[h][0][i] + (double)g[h][1][i];

            moved(&d, h, i, eps); /* back */
            near(sum, 0.5 * (up - down) / 2 / (double)eps, 2e-3, "slope", i);
        }
        for (size_t i = 0; i < d.w[h]->count; i++)
            some += fabs((double)g[h][0][i]) + fabs((double)g[h][1][i]);
        assert_true(some > 1e-3);
        for (int s = 0; s < SHARDS; s++)
            free(g[h][s]);
    }
    net_free(&d.net);
}

static void gradients_are_slopes(void **state)
{
    (void)state;
    for (int device = 0; device < devices.n; device++)
        check_slopes(device, 28, 0);
}

static void slopes_of_other_masks(void **state)
{
    (void)state;
    for (int device = 0; device < devices.n; device++) {
        check_slopes(device, 9, RPN + BOX);
        check_slopes(device, ROI_MAX_POOL, RPN + BOX);
    }
}

/* Images without boxes: everything is finite, heads that saw no foreground have a gradient of 0. */
static void nothing_to_see(void **state)
{
    (void)state;
    for (int device = 0; device < devices.n; device++) {
        struct detector d;

        open_detector(&d, device, true);
        forward(&d, true);
        net_back(&d.net);
        for (int h = 0; h < HEADS; h++) {
            bool none = (h >= LEVELS && h < RPN) || h > RPN; /* boxes and masks */

            assert_true(isfinite(loss_of(&d, h, SHARDS)));
            for (int s = 0; s < SHARDS; s++) {
                float *g = net_grad(&d.net, d.w[h], s), most = 0;

                for (size_t i = 0; i < d.w[h]->count; i++) {
                    assert_true(isfinite(g[i]));
                    most = fmaxf(most, fabsf(g[i]));
                }
                assert_true(none ? most == 0 : most > 0);
                free(g);
            }
        }
        net_free(&d.net);
    }
}

/* With the normaliser batch * images, and with all regions drawn, the losses of a shard are the means of its images'
 * losses. */
static void losses_of_images(void **state)
{
    (void)state;
    for (int device = 0; device < devices.n; device++) {
        double shards[HEADS], rows[2];
        struct detector d;

        open_detector(&d, device, false);
        forward(&d, true);
        for (int h = 0; h < HEADS; h++)
            shards[h] = loss_of(&d, h, SHARDS);
        forward(&d, false);
        near(loss_of(&d, 0, ALL) / IMAGES, shards[0], 1e-6, "RPN", 0);
        get(d.net.dev, rows, d.mask_terms[0], sizeof rows);
        assert_true(rows[RCNN_MASK_ROWS] > 0);
        assert_true(isfinite(loss_of(&d, RPN, ALL)) && isfinite(loss_of(&d, RPN + BOX, ALL)));
        net_free(&d.net);
    }
}

/* Diverged weights: the loss of the same step is NaN. */
static void diverged(void **state)
{
    (void)state;
    for (int device = 0; device < devices.n; device++) {
        struct detector d;
        float w = INFINITY;
        double got[2];

        open_detector(&d, device, false);
        NET_OK(&d.net, d.net.dev->ops->upload(d.net.dev, d.w[LEVELS]->data, &w, sizeof w, &d.net.err));
        d.w[LEVELS]->version++;
        forward(&d, true);
        get(d.net.dev, got, d.rpn_terms[0], sizeof got);
        assert_true(isnan(got[RPN_BOX]));
        net_free(&d.net);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_slopes),
        cmocka_unit_test(slopes_of_other_masks),
        cmocka_unit_test(nothing_to_see),
        cmocka_unit_test(losses_of_images),
        cmocka_unit_test(diverged),
    };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}

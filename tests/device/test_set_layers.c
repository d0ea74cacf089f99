/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_set_layers.c
 * uses: proto worker/layers worker/comm worker/core cpu cuda
 * Two stages of detection as a set on the tape: gradients of the first boxes and of weights equal the slopes of the
 * losses. */
#include "tests/device/tape_net.h"

#include <math.h>

#include "worker/layers/sparse.h"

enum { P = 3, D = 8, K = 2, S = 2, SHARDS = 2, HEADS = 2 + 2 * S, ALL = 3 };

static const int32_t size[2][2] = { { 48, 64 }, { 40, 50 } }, offset[3] = { 0, 2, 3 }, cls[3] = { 0, 1, 1 };
static const float truth[3][4] = { { 4, 5, 25, 30 }, { 30, 10, 63, 44 }, { 8, 8, 24, 39 } };
static const int images_of[SHARDS] = { 2, 1 };

struct detector {
    struct net net;
    struct param *w[HEADS]; /* boxes, features, then logits and deltas of each stage */
    struct set_head head;
    struct rcnn_images images[SHARDS];
    struct rcnn_truth truth[SHARDS];
    double *terms[S][ALL];
};

static void open_detector(struct detector *d, int device)
{
    const float boxes[P][4] = { { 0.25f, 0.3f, 0.4f, 0.5f }, { 0.7f, 0.6f, 0.5f, 0.6f }, { 0.5f, 0.5f, 0.9f, 0.8f } };
    const int side[SHARDS] = { 1, 1 };
    struct device *dev;

    memset(d, 0, sizeof *d);
    net_open_on(&d->net, device, 0, SHARDS, 1, side, side, 1);
    dev = d->net.dev;
    d->w[0] = net_param(&d->net, PARAM_CONV, P, 1, 4, true);
    d->w[1] = net_param(&d->net, PARAM_CONV, P, 1, D, true);
    for (int i = 2; i < HEADS; i++)
        d->w[i] = net_param(&d->net, PARAM_CONV, i % 2 ? 4 : K, 1, D, true);
    NET_OK(&d->net, dev->ops->upload(dev, d->w[0]->data, boxes, sizeof boxes, &d->net.err));
    d->head = (struct set_head){ K, P, S, 8.74f, false, 0.25f, 2, 2, 5, 2, NULL };
    for (int s = 0; s < SHARDS; s++) {
        d->images[s] = (struct rcnn_images){ images_of[s], { 64, 64 }, put(dev, size, sizeof size) };
        d->truth[s] = (struct rcnn_truth){ put(dev, offset, sizeof offset), put(dev, cls, sizeof cls), put(dev, truth, sizeof truth),
                                           offset[images_of[s]] };
    }
    for (int i = 0; i < S * ALL; i++)
        d->terms[i / ALL][i % ALL] = put(dev, NULL, SET_TERMS * sizeof(double));
}

static void forward(struct detector *d, enum tape_mode mode)
{
    const struct conv one = { .stride = 1 };
    struct tape *t = d->net.tape;
    const struct set_start *start;
    const struct set_match *match;
    struct value *logits[S], *deltas[S];
    float *const *box[S + 1];

    tape_begin(t, mode, SHARDS, &d->net.hooks);
    start = layer_set_start(t, &d->head, d->w[0], d->w[1], d->images);
    NET_OK(&d->net, tape_status(t, &d->net.err));
    assert_true((start->dbox != NULL) == (mode == TAPE_TRAIN));
    box[0] = start->box;
    for (int i = 0; i < S; i++) {
        logits[i] = layer_conv(t, start->q, &one, d->w[2 + 2 * i], NULL);
        deltas[i] = layer_conv(t, start->q, &one, d->w[3 + 2 * i], NULL);
        box[i + 1] = layer_set_decode(t, &d->head, box[i], deltas[i]);
    }
    match = layer_set_match(t, &d->head, logits, box + 1, d->images, d->truth);
    for (int i = 0; i < S; i++) {
        const struct set_stage stage = { i, logits[i], deltas[i], box[i], box[i + 1], i == 0 ? start->dbox : NULL };

        layer_set_loss(t, &d->head, &stage, match, d->images, d->truth, 0.5f, d->terms[i]);
    }
    NET_OK(&d->net, tape_status(t, &d->net.err));
}

static double loss_of(struct detector *d, int stage, int rows)
{
    double sum = 0, got[SET_TERMS];

    for (int i = 0; i < rows; i++) {
        get(d->net.dev, got, d->terms[stage][i], sizeof got);
        sum += 2 * got[SET_CLS] + 5 * got[SET_L1] + 2 * got[SET_GIOU];
    }
    return sum;
}

/* Half of the losses, one number of head h having moved. */
static double moved(struct detector *d, int h, size_t i, float by)
{
    struct param *p = d->w[h];
    float was, w;
    double loss;

    get(d->net.dev, &was, p->data + i, sizeof was);
    w = was + by;
    NET_OK(&d->net, d->net.dev->ops->upload(d->net.dev, p->data + i, &w, sizeof w, &d->net.err));
    p->version++;
    forward(d, TAPE_TRAIN);
    /* a gradient of the first boxes comes from stage 0 alone: later stages see boxes without a way back */
    loss = 0.5 * (loss_of(d, 0, SHARDS) + (h == 0 ? 0 : loss_of(d, 1, SHARDS)));
    NET_OK(&d->net, d->net.dev->ops->upload(d->net.dev, p->data + i, &was, sizeof was, &d->net.err));
    p->version++;
    return loss;
}

static void gradients_are_slopes(void **state)
{
    /* the others also move the base of stage 1, to which no gradient goes */
    static const int checked[] = { 0, 2, 4, 5 };

    (void)state;
    for (int device = 0; device < devices.n; device++)
        for (size_t k = 0; k < sizeof checked / sizeof *checked; k++) {
            int h = checked[k];
            float *g[SHARDS], some = 0;
            struct detector d;

            open_detector(&d, device);
            forward(&d, TAPE_TRAIN);
            net_back(&d.net);
            for (int s = 0; s < SHARDS; s++)
                g[s] = net_grad(&d.net, d.w[h], s);
            for (size_t i = 0; i < d.w[h]->count; i += device == 0 ? 1 : 5) { /* fewer on slow devices */
                const float eps = h == 0 ? 1.0f / 4096 : 1.0f / 512;

                near((double)g[0][i] + (double)g[1][i], (moved(&d, h, i, eps) - moved(&d, h, i, -eps)) / 2 / (double)eps, 5e-3, "slope", i);
                some += fabsf(g[0][i]) + fabsf(g[1][i]);
            }
            assert_true(some > 1e-2f);
            for (int s = 0; s < SHARDS; s++)
                free(g[s]);
            net_free(&d.net);
        }
}

/* Evaluation: a row of terms for each image, with the same sums. A frozen parameter gets no gradient, the others do. */
static void evaluation_and_frozen(void **state)
{
    (void)state;
    for (int run = 0; run < 2 * devices.n; run++) {
        int frozen = run % 2;
        struct detector d;
        double train[S];
        float *g;

        open_detector(&d, run / 2);
        d.w[frozen]->trainable = false;
        d.net.grad[frozen][0] = d.net.grad[frozen][1] = NULL; /* must not be asked for */
        forward(&d, TAPE_TRAIN);
        for (int i = 0; i < S; i++)
            train[i] = loss_of(&d, i, SHARDS);
        net_back(&d.net);
        assert_true(d.net.ready[frozen] == 0 && d.net.ready[!frozen] == 1);
        g = net_grad(&d.net, d.w[!frozen], 0);
        assert_true(g[0] != 0);
        free(g);
        forward(&d, TAPE_EVAL);
        for (int i = 0; i < S; i++)
            near(loss_of(&d, i, ALL), train[i], 1e-12, "losses of images", (size_t)i);
        net_free(&d.net);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(gradients_are_slopes), cmocka_unit_test(evaluation_and_frozen) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}

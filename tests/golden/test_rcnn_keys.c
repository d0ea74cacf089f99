/* SPDX-License-Identifier: Apache-2.0 */ /* tests/golden/test_rcnn_keys.c
 * uses: proto worker/models worker/layers worker/data worker/eval worker/mask worker/comm worker/core cpu
 * The effects of a job's keys and of its shards on the networks of rcnn_net.h, and the random numbers of a step. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/golden/rcnn_net.h"
#include "worker/ops/families.h"

const struct device_ops *cpu_backend_avx512(void);
const struct device_ops *cpu_backend_avx2(void);
const struct device_ops *cpu_backend_generic(void);

/* Places in a row of raw: worker/models/rcnn/rcnn.c. */
enum {
    OF_BOXES = RPN_TERMS,
    OF_MASKS = OF_BOXES + RCNN_BOX_TERMS,
    TERMS = OF_MASKS + RCNN_MASK_TERMS,
    BOX_ROWS = OF_BOXES + RCNN_ROWS,
    FOREGROUND = OF_BOXES + RCNN_FOREGROUND,
    MASK_ROWS = OF_MASKS + RCNN_MASK_ROWS
};

static struct tape_hooks hooks = { .grad_dest = grad_dest, .grad_ready = grad_ready };

static void opened_as(struct net *n, bool tv, const char *const *keys)
{
    const struct device_ops *cpu = __builtin_cpu_supports("x86-64-v4")   ? cpu_backend_avx512()
                                   : __builtin_cpu_supports("x86-64-v3") ? cpu_backend_avx2()
                                                                         : cpu_backend_generic();

    more_keys = keys ? keys : no_keys;
    net_open(n, cpu, &plain_scene, "mask_rcnn_r18_fpn", tv);
    more_keys = no_keys;
    hooks.arg = n;
}

static void opened(struct net *n, const char *const *keys)
{
    opened_as(n, false, keys);
}

/* Runs a step of so many shards, including the batch's. rows: places for the terms of each of these, in validation of
 * each image. */
static void forward(struct net *n, enum tape_mode mode, int shards_of_step, double *const *rows)
{
    const struct model_want want = {
        .raw = rows, .results = mode == TAPE_EVAL, .images_of_step = IMAGES, .shards_of_step = shards_of_step
    };
    struct err err = { 0 };

    assert_int_equal(n->model->raw_terms, TERMS);
    n->batch.step = mode == TAPE_TRAIN ? 8 : 0;
    n->dev->ops->set_tier(n->dev, TIER_WORLD);
    tape_begin(n->tape, mode, n->batch.nshards, mode == TAPE_TRAIN ? &hooks : NULL);
    if (n->model->ops->forward(n->model, n->tape, &n->batch, &want, &err) < 0)
        fail_msg("%s", err.msg);
}

/* ---- shards ---- */

static void step(struct net *n, int shards_of_step)
{
    struct err err = { 0 };

    forward(n, TAPE_TRAIN, shards_of_step, n->raw);
    if (tape_backward(n->tape, n->model->params, n->model->nparams, &err) < 0)
        fail_msg("%s", err.msg);
}

/* A shard's losses are its own means. Its gradient is divided by the number of shards of the step. */
static void gradients_are_means_over_shards(void **state)
{
    float *alone[MAX_PARAMS];
    double losses[TERMS];
    struct net n;

    (void)state;
    opened(&n, NULL);
    step(&n, 1);
    memcpy(losses, n.raw[0], sizeof losses);
    for (int i = 0; i < n.model->nparams; i++) {
        size_t bytes = n.model->params[i]->count * sizeof(float);

        alone[i] = malloc(bytes);
        memcpy(alone[i], n.grad[i], bytes);
    }
    step(&n, 2);
    assert_memory_equal(losses, n.raw[0], sizeof losses);
    for (int i = 0; i < n.model->nparams; i++) {
        const struct param *p = n.model->params[i];
        bool some = false;

        for (size_t e = 0; e < p->count && param_trainable(p); e++) {
            some = some || alone[i][e] != 0;
            if (!(fabsf(2 * n.grad[i][e] - alone[i][e]) <= 1e-30f)) /* but for numbers with few bits */
                fail_msg("%s[%zu]: %g of two shards, %g of one", p->name, e, (double)n.grad[i][e], (double)alone[i][e]);
        }
        assert_true(some || !param_trainable(p));
        free(alone[i]);
    }
    net_close(&n);
}

/* ---- how many ---- */

/* There are 60 proposals an image; its 3 or 2 boxes are candidates, too. */
static const struct {
    const char *keys[3];
    int term;
    double train, val[IMAGES];
} counts[] = {
    { { NULL }, BOX_ROWS, 2 * 60 + NBOXES, { 63, 62 } },
    { { "model.rpn_pre_nms=1", NULL }, BOX_ROWS, 2 * RCNN_LEVELS + NBOXES, { 63, 62 } },
    { { "model.rpn_pre_nms_val=1", NULL }, BOX_ROWS, 2 * 60 + NBOXES, { RCNN_LEVELS + 3, RCNN_LEVELS + 2 } },
    { { "model.rpn_post_nms=10", NULL }, BOX_ROWS, 2 * 10 + NBOXES, { 63, 62 } },
    { { "model.rpn_post_nms_val=10", NULL }, BOX_ROWS, 2 * 60 + NBOXES, { 13, 12 } },
    { { "model.rpn_batch=16", NULL }, RPN_SAMPLED, 2 * 16, { 16, 16 } },
    { { "model.rpn_batch=16", "model.rpn_positive=0.0625", NULL }, RPN_POSITIVE, 2, { 1, 1 } },
    { { "model.roi_batch=8", NULL }, BOX_ROWS, 2 * 8, { 8, 8 } },
    { { "model.roi_batch=8", "model.roi_positive=0.125", NULL }, FOREGROUND, 2, { 1, 1 } },
    { { "model.mask_rois=1", NULL }, MASK_ROWS, 2, { 1, 1 } },
};

static void check_counts(size_t i, bool tv)
{
    const char *const *key = counts[i].keys, *what = !key[0] ? "no key" : key[1] ? key[1] : key[0];
    int term = counts[i].term;
    struct net n;

    opened_as(&n, tv, counts[i].keys);
    forward(&n, TAPE_TRAIN, 1, n.raw);
    if (n.raw[0][term] != counts[i].train)
        fail_msg("%s, tv %d: %g in training, should be %g", what, tv, n.raw[0][term], counts[i].train);
    forward(&n, TAPE_EVAL, 1, n.raw);
    for (int k = 0; k < IMAGES; k++)
        if (n.raw[k][term] != counts[i].val[k])
            fail_msg("%s, tv %d: %g of image %d in validation, should be %g", what, tv, n.raw[k][term], k, counts[i].val[k]);
    net_close(&n);
}

static void keys_count_what_is_drawn(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int tv = 0; tv < 2; tv++)
            check_counts(i, tv);
}

/* ---- how close ---- */

static double rows_with(const char *nms)
{
    const char *const keys[] = { nms, "model.rpn_post_nms=700", "model.roi_batch=1000", NULL };
    double ret;
    struct net n;

    opened(&n, keys);
    forward(&n, TAPE_TRAIN, 1, n.raw);
    ret = n.raw[0][BOX_ROWS];
    net_close(&n);
    return ret;
}

static void the_key_suppresses_proposals(void **state)
{
    double loose = rows_with("model.rpn_nms=0.7"), strict = rows_with("model.rpn_nms=0.5");

    (void)state;
    if (!(strict < loose))
        fail_msg("%g and %g rows", strict, loose);
}

static struct result found(struct net *n, double least)
{
    const struct model_picture picture = { .index = 0, .w = 128, .h = 96 };
    struct err err = { 0 };
    struct result r;

    assert_int_equal(n->model->ops->result(n->model, 0, 0, &picture, least, &r, &err), 0);
    assert_true(r.n > 0);
    return r;
}

static double score(const struct result *r, int i)
{
    return r->boxes[i].score;
}

/* Returns the number of detections in the first image, and their best and last scores. */
static int found_with(const char *nms, const char *conf, const char *most, double *ret_best, double *ret_last)
{
    const char *const keys[] = { nms, conf, most, NULL };
    struct result r;
    struct net n;

    opened(&n, keys);
    forward(&n, TAPE_EVAL, 1, n.raw);
    r = found(&n, NAN);
    *ret_best = score(&r, 0);
    *ret_last = score(&r, r.n - 1);
    net_close(&n);
    return r.n;
}

static void keys_choose_what_is_found(void **state)
{
    double best, last, middle;
    int all = found_with("val.nms=0.7", "val.conf=0.1", "val.max_det=1000", &best, &last);
    char conf[48];

    (void)state;
    middle = (best + last) / 2;
    snprintf(conf, sizeof conf, "val.conf=%.17g", middle);
    assert_true(all > 7);
    assert_int_equal(found_with("val.nms=0.7", "val.conf=0.1", "val.max_det=7", &best, &last), 7);
    assert_true(found_with("val.nms=0.3", "val.conf=0.1", "val.max_det=1000", &best, &last) < all);
    assert_true(found_with("val.nms=0.7", conf, "val.max_det=1000", &best, &last) < all);
    assert_true(last > middle - 1e-6);
}

/* A request may set the confidence of detections, below the job's value or above. */
static void asked_for_surer_ones(void **state)
{
    double best, last, least[3], seen[3];
    char conf[48];
    const char *const keys[] = { "val.nms=0.7", conf, "val.max_det=1000", NULL };
    struct net n;

    (void)state;
    found_with("val.nms=0.7", "val.conf=0.1", "val.max_det=1000", &best, &last);
    for (int i = 0; i < 3; i++)
        least[i] = last + (i + 1) * (best - last) / 4;
    snprintf(conf, sizeof conf, "val.conf=%.17g", least[1]);
    opened(&n, keys);
    forward(&n, TAPE_EVAL, 1, n.raw);
    for (int i = 0; i < 3; i++) {
        struct result r = found(&n, i == 1 ? NAN : least[i]);

        seen[i] = score(&r, r.n - 1);
        assert_true(seen[i] > least[i] - 1e-6);
    }
    assert_true(seen[0] < least[1] && seen[1] < least[2]);
    net_close(&n);
}

/* ---- the network ---- */

static void normalisations_have_the_jobs_eps(void **state)
{
    static const char *const keys[] = { "model.bn_eps=0.25", NULL };
    struct net n;

    (void)state;
    opened(&n, keys);
    assert_true(n.model->nnorms > 0);
    for (int i = 0; i < n.model->nnorms; i++)
        assert_true(n.model->norms[i].eps == 0.25f);
    net_close(&n);
}

static void check_frozen(const struct net *n, const struct net_conv *c, bool frozen)
{
    const struct norm *norm = &n->model->norms[c->norm];

    if (c->w->trainable == frozen || norm->frozen != frozen || norm->gamma->trainable == frozen || norm->sync == frozen)
        fail_msg("%s is not as frozen as it should be", c->w->name);
}

/* The stem, then stage after stage; a frozen normalisation shares no statistics. */
static void stages_freeze_from_the_first(void **state)
{
    (void)state;
    for (int at = 0; at <= 5; at++) {
        char key[32];
        const char *const keys[] = { key, "model.freeze_bn=false", "model.sync_bn=true", NULL };
        const struct rcnn_network *net;
        struct net n;

        snprintf(key, sizeof key, "model.freeze_at=%d", at);
        opened(&n, keys);
        net = rcnn_network_of(n.model);
        check_frozen(&n, &net->front.body.stem, at >= 1);
        for (int stage = 0; stage < RESNET_STAGES; stage++)
            for (int b = 0; b < net->front.body.nblocks[stage]; b++) {
                check_frozen(&n, &net->front.body.block[stage][b].conv[1], at >= stage + 2);
                if (net->front.body.block[stage][b].shortcut.w)
                    check_frozen(&n, &net->front.body.block[stage][b].shortcut, at >= stage + 2);
            }
        assert_true(net->front.lateral[0].w->trainable && net->rpn.w->trainable && net->fc1.w->trainable);
        net_close(&n);
    }
}

/* The number nearest to 64, 128, 256 and 512 times the width, at least 8. */
static void channels_are_multiples_of_eight(void **state)
{
    static const struct {
        const char *key;
        int channels[RESNET_STAGES];
    } rows[] = {
        { "model.width=0.1875", { 16, 24, 48, 96 } },
        { "model.width=0.15", { 8, 16, 40, 80 } },
        { "model.width=0.02", { 8, 8, 8, 8 } },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *const keys[] = { rows[i].key, NULL };
        const struct rcnn_network *net;
        struct net n;

        opened(&n, keys);
        net = rcnn_network_of(n.model);
        assert_int_equal(net->front.body.stem.w->k, rows[i].channels[0]);
        for (int stage = 0; stage < RESNET_STAGES; stage++)
            assert_int_equal(net->front.body.block[stage][0].conv[0].w->k, rows[i].channels[stage]);
        net_close(&n);
    }
}

/* ---- draws: the device's own, and the numbers they were given ---- */

enum { SHARDS = 2, DRAWS = 4 };

static struct {
    const struct rpn_ops *rpn;
    const struct rcnn_ops *rcnn;
    struct philox_key key[DRAWS][SHARDS * IMAGES];
    int draws;
} seen;

static int rpn_seen(struct device *dev, const struct rpn_head *head, const struct rcnn_images *images, const struct rcnn_truth *truth,
                    const struct tensor *const *shape, const struct philox_key *positive, const struct philox_key *negative,
                    struct rpn_samples *ret, int nshards, struct err *err)
{
    memcpy(seen.key[0], positive, sizeof seen.key[0]);
    memcpy(seen.key[1], negative, sizeof seen.key[1]);
    seen.draws += 2;
    return seen.rpn->sample(dev, head, images, truth, shape, positive, negative, ret, nshards, err);
}

static int rcnn_seen(struct device *dev, const struct rcnn_head *head, const struct rcnn_images *images, const struct rcnn_truth *truth,
                     const struct rpn_proposals *proposals, const struct philox_key *foreground, const struct philox_key *background,
                     struct rcnn_samples *ret, int nshards, struct err *err)
{
    memcpy(seen.key[2], foreground, sizeof seen.key[2]);
    memcpy(seen.key[3], background, sizeof seen.key[3]);
    seen.draws += 2;
    return seen.rcnn->sample(dev, head, images, truth, proposals, foreground, background, ret, nshards, err);
}

/* Each of the four keys has a purpose of its own. In training the key of an image depends on its step, its shard and
 * its place there, in validation on its place in the data. */
static void check_keys(const struct net *n, enum tape_mode mode)
{
    static const char *const purpose[DRAWS] = { "rpn.pos", "rpn.neg", "rcnn.fg", "rcnn.bg" };

    assert_int_equal(seen.draws, DRAWS);
    for (int d = 0; d < DRAWS; d++)
        for (int i = 0; i < SHARDS * IMAGES; i++) {
            const struct philox_key *k = &seen.key[d][i];
            const struct shard_batch *s = &n->batch.shard[i / IMAGES];
            bool train = mode == TAPE_TRAIN;

            if (k->seed != n->batch.seed || k->op != philox_op(purpose[d]) ||
                k->step != (uint32_t)(train ? n->batch.step - 1 : s->index[i % IMAGES]) ||
                (train ? k->shard != s->shard || k->substream != i % IMAGES : k->shard != UINT16_MAX || k->substream != 0))
                fail_msg("%s of image %d draws by the numbers of another", purpose[d], i);
        }
}

/* The batch twice, as two shards of a job, with pictures side by side. */
static void put_shards(struct net *n, struct shard_batch shards[SHARDS])
{
    static const int32_t place[SHARDS][IMAGES] = { { 31, 7 }, { 12, 90 } };
    int image = batch_array_of(n->batch.form, "image");
    size_t bytes = (size_t)(IMAGES * n->scene->h * n->scene->w * 3);
    uint8_t *pictures = put(n, NULL, SHARDS * bytes);

    for (int s = 0; s < SHARDS; s++) {
        shards[s] = n->shard;
        shards[s].shard = 4 + s;
        shards[s].index = place[s];
        shards[s].array[image] = memcpy(pictures + (size_t)s * bytes, n->shard.array[image], bytes);
    }
    n->batch.shard = shards;
    n->batch.nshards = SHARDS;
}

static void draws_are_of_purpose_and_place(void **state)
{
    double row[SHARDS * IMAGES][TERMS], *rows[SHARDS * IMAGES] = { row[0], row[1], row[2], row[3] };
    struct shard_batch shards[SHARDS];
    struct families on;
    struct rpn_ops rpn;
    struct rcnn_ops rcnn;
    struct net n;

    (void)state;
    opened(&n, NULL);
    on = *n.dev->on;
    rpn = *on.rpn;
    rcnn = *on.rcnn;
    seen.rpn = on.rpn;
    seen.rcnn = on.rcnn;
    rpn.sample = rpn_seen;
    rcnn.sample = rcnn_seen;
    on.rpn = &rpn;
    on.rcnn = &rcnn;
    n.dev->on = &on;
    put_shards(&n, shards);
    for (int mode = 0; mode < 2; mode++) {
        seen.draws = 0;
        forward(&n, mode ? TAPE_EVAL : TAPE_TRAIN, SHARDS, rows);
        check_keys(&n, mode ? TAPE_EVAL : TAPE_TRAIN);
    }
    net_close(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_means_over_shards),
        cmocka_unit_test(keys_count_what_is_drawn),
        cmocka_unit_test(the_key_suppresses_proposals),
        cmocka_unit_test(keys_choose_what_is_found),
        cmocka_unit_test(asked_for_surer_ones),
        cmocka_unit_test(normalisations_have_the_jobs_eps),
        cmocka_unit_test(stages_freeze_from_the_first),
        cmocka_unit_test(channels_are_multiples_of_eight),
        cmocka_unit_test(draws_are_of_purpose_and_place),
    };

    return cmocka_run_group_tests_name("rcnn_keys", tests, NULL, NULL);
}

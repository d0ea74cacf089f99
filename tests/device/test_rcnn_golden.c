/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_rcnn_golden.c - two-stage detectors between their convolutions against torchvision with its draws frozen, and the same as flavor d2 has
 * it; tests/golden/make_rcnn.py stored both. uses: proto worker/core worker/layers cpu cuda */
#include "tests/device/rcnn_cases.h"

#include <math.h>

#include "worker/core/safetensors.h"
#include "worker/kernels/rcnn.h"

/* As in make_rcnn.py. */
enum {
    LEVELS = 5,
    IMAGES = 2,
    K = 3,
    PRE = 60,
    POST = 80,
    RPN_BATCH = 64,
    BATCH = 48,
    MOST = 20,
    SEED = 20,
    ALL_TRUTH = 6,
    MAX_RUNS = 8192
};
static const struct canvas canvas = { 64, 96 };
static const int32_t size[IMAGES][2] = { { 64, 96 }, { 56, 88 } }, offset[IMAGES + 1] = { 0, 4, 6 }, cls[ALL_TRUTH] = { 0, 2, 1, 2, 1, 0 };
static const int grid[LEVELS][2] = { { 16, 24 }, { 8, 12 }, { 4, 6 }, { 2, 3 }, { 1, 2 } };
static const float truth[ALL_TRUTH][4] = { { 4.5f, 6.25f, 30, 40.5f }, { 20, 10, 90, 60 },    { 50.25f, 3, 60, 12 },
                                           { 70, 40, 82.5f, 62 },      { 10, 10, 41.5f, 33 }, { 3, 2, 87, 55 } };

static float golden_number(uint32_t of, uint32_t i)
{
    uint32_t n = (of * 100000 + i) * 2654435761u + 1;

    n ^= n >> 15;
    n *= 2246822519u;
    n ^= n >> 13;
    return (float)(((n >> 8) / 16777216.0 - 0.5) * 4);
}

/* n of them, dense, in device memory, as a tensor of [n / (h w c), h, w, c]. */
static struct tensor put_numbers(struct device *dev, uint32_t of, float scale, int n, int h, int w, int c)
{
    struct tensor t = tensor_f32(NULL, n, h, w, c);
    float *x = malloc((tensor_count(&t) + 1) * sizeof *x);

    assert_non_null(x);
    for (size_t i = 0; i < tensor_count(&t); i++)
        x[i] = golden_number(of, (uint32_t)i) * scale;
    put_tensor(dev, &t, x, 0);
    free(x);
    return t;
}

static const float *golden(const char *flavor, const char *name, int number, size_t *ret_count)
{
    static struct safetensors *file[2];
    const struct st_array *a = NULL;
    char key[64];
    struct err err;

    if (!file[0] && (safetensors_open("tests/golden/rcnn.safetensors", &file[0], &err) < 0 ||
                     safetensors_open("tests/golden/rcnn_masks.safetensors", &file[1], &err) < 0))
        fail_msg("%s", err.msg);
    snprintf(key, sizeof key, number < 0 ? "%s.%s" : "%s.%s.%d", flavor, name, number);
    for (int i = 0; i < 2 && !a; i++)
        a = safetensors_find(file[i], key);
    if (!a)
        fail_msg("no %s", key);
    *ret_count = st_count(a);
    return (const float *)a->data;
}

static void compare(const char *flavor, const char *name, int number, const float *got, size_t count, double scale, double tol)
{
    size_t n;
    const float *want = golden(flavor, name, number, &n);

    assert_int_equal(n, count);
    for (size_t i = 0; i < n; i++)
        near((double)got[i] * scale, (double)want[i] * scale, tol, name, i);
}

struct golden {
    bool tv;
    const char *flavor;
    struct rpn_head rpn;
    struct rpn_selection sel;
    struct rcnn_head rcnn;
    struct philox_key key[4][IMAGES];
};

static struct golden golden_of(bool tv)
{
    const float side[LEVELS] = { 8, 16, 32, 64, 128 };
    const double ratio[3] = { 0.5, 1, 2 };
    struct golden g = { .tv = tv, .flavor = tv ? "tv" : "d2" };

    g.rpn = (struct rpn_head){ .nlevels = LEVELS,
                               .nratios = 3,
                               .stride = { 4, 8, 16, 32, 64 },
                               .infer_stride = tv,
                               .pos_iou = 0.7f,
                               .neg_iou = 0.3f,
                               .low_quality = true,
                               .batch = RPN_BATCH,
                               .max_positive = RPN_BATCH / 2,
                               .beta = tv ? 1.0f / 9 : 0,
                               .count_sampled = tv };
    rpn_set_anchors(&g.rpn, side, ratio, tv);
    g.sel = (struct rpn_selection){ .pre = PRE, .post = POST, .nms = 0.7f, .min_side = tv ? 1e-3f : 0, .keep_min = tv, .sigmoid = tv };
    g.rcnn = (struct rcnn_head){ .classes = K,
                                 .background_first = tv,
                                 .append_truth = true,
                                 .fg_iou = 0.5f,
                                 .batch = BATCH,
                                 .max_foreground = BATCH / 4,
                                 .max_masks = BATCH / 4,
                                 .weights = { 10, 10, 5, 5 },
                                 .beta = tv ? 1.0f / 9 : 0,
                                 .masks = tv ? RCNN_MASKS_OF_BITMAPS : RCNN_MASKS_OF_OUTLINES,
                                 .mask_side = 28 };
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < IMAGES; i++)
            g.key[k][i] = (struct philox_key){ .seed = SEED, .op = (uint16_t)k, .shard = (uint16_t)i };
    return g;
}

/* ---- RPN ---- */

static struct rcnn_images put_images(struct device *dev)
{
    return (struct rcnn_images){ IMAGES, canvas, put(dev, size, sizeof size) };
}

static struct rcnn_truth put_truth(struct device *dev)
{
    return (struct rcnn_truth){ put(dev, offset, sizeof offset), put(dev, cls, sizeof cls), put(dev, truth, sizeof truth), ALL_TRUTH };
}

/* Logits and deltas of all levels, and room for their gradients. */
struct levels {
    struct tensor z[LEVELS], d[LEVELS], dz[LEVELS], dd[LEVELS];
    const struct tensor *pz[LEVELS], *pd[LEVELS];
    struct tensor *pdz[LEVELS], *pdd[LEVELS];
};

static void put_levels(struct device *dev, struct levels *s)
{
    for (int l = 0; l < LEVELS; l++) {
        s->z[l] = put_numbers(dev, (uint32_t)l, 1, IMAGES, grid[l][0], grid[l][1], 3);
        s->d[l] = put_numbers(dev, 10 + (uint32_t)l, 0.25f, IMAGES, grid[l][0], grid[l][1], 12);
        s->dz[l] = s->z[l];
        s->dd[l] = s->d[l];
        put_tensor(dev, &s->dz[l], NULL, 1);
        put_tensor(dev, &s->dd[l], NULL, 0);
        s->pz[l] = &s->z[l];
        s->pd[l] = &s->d[l];
        s->pdz[l] = &s->dz[l];
        s->pdd[l] = &s->dd[l];
    }
}

static void check_gradients(struct device *dev, const struct golden *g, const struct levels *s)
{
    float dz[8000], *dd = malloc(32000 * sizeof *dd), where[2 * 4 * IMAGES * RPN_BATCH];
    size_t nz = 0, nd = 0, found = 0, want;

    for (int l = 0; l < LEVELS; l++) {
        get_tensor(dev, dz + nz, &s->dz[l]);
        get_tensor(dev, dd + nd, &s->dd[l]);
        nz += tensor_count(&s->dz[l]);
        nd += tensor_count(&s->dd[l]);
    }
    compare(g->flavor, "dlogits", -1, dz, nz, 100, 1e-6);
    golden(g->flavor, "ddeltas", -1, &want);
    for (size_t i = 0; i < nd; i++)
        if (dd[i] != 0) {
            assert_true(found < want / 2);
            where[found] = (float)i;
            where[want / 2 + found++] = dd[i];
        }
    assert_int_equal(found, want / 2);
    compare(g->flavor, "ddeltas", -1, where, want, 1, 1e-6);
    free(dd);
}

static void check_rpn(struct device *dev, const struct golden *g)
{
    struct rcnn_images images = put_images(dev);
    struct rcnn_truth boxes = put_truth(dev);
    struct rpn_samples samples = { put(dev, NULL, IMAGES * RPN_BATCH * 4), put(dev, NULL, IMAGES * RPN_BATCH * 4), put(dev, NULL, 16) };
    double *terms = put(dev, NULL, RPN_TERMS * 8), got[RPN_TERMS];
    struct rpn_proposals proposals;
    int32_t anchor[RPN_BATCH], matched[RPN_BATCH], count[IMAGES][2], at[IMAGES + 1];
    float values[RPN_BATCH * 4], loss[2];
    struct levels s;

    put_levels(dev, &s);
    put_proposals(dev, &proposals, IMAGES, IMAGES * POST);
    CALL(dev->on->rpn->sample(dev, &g->rpn, &images, &boxes, s.pz, g->key[0], g->key[1], &samples, 1, err));
    CALL(dev->on->rpn->propose(dev, &g->rpn, &g->sel, &images, s.pz, s.pd, &proposals, 1, err));
    CALL(dev->on->rpn->loss(dev, &g->rpn, &images, &boxes, s.pdz, s.pdd, 1, &terms, false, s.pz, s.pd, &samples, NULL, 1, err));
    get(dev, count, samples.count, sizeof count);
    get(dev, at, proposals.offset, sizeof at);
    for (int i = 0; i < IMAGES; i++) {
        float box[POST * 4], score[POST];
        size_t n = (size_t)(at[i + 1] - at[i]);

        get(dev, anchor, samples.anchor + i * RPN_BATCH, sizeof anchor);
        get(dev, matched, samples.truth + i * RPN_BATCH, sizeof matched);
        for (int k = 0; k < RPN_BATCH; k++)
            values[k] = (float)anchor[k];
        compare(g->flavor, "anchor", i, values, (size_t)count[i][0], 1, 0);
        for (int k = 0; k < count[i][1]; k++)
            memcpy(values + 4 * k, truth[matched[k]], 16);
        compare(g->flavor, "matched", i, values, (size_t)count[i][1] * 4, 1, 0);
        get(dev, box, proposals.box + at[i] * 4, n * 16);
        get(dev, score, proposals.score + at[i], n * 4);
        compare(g->flavor, "proposal", i, box, n * 4, 1, 1e-5);
        compare(g->flavor, "score", i, score, n, 1, 1e-6);
    }
    get(dev, got, terms, sizeof got);
    loss[0] = (float)got[RPN_CLS];
    loss[1] = (float)got[RPN_BOX];
    compare(g->flavor, "rpn_loss", -1, loss, 2, 1, 1e-6);
    check_gradients(dev, g, &s);
}

/* ---- RoI heads ---- */

static int bitmap_bit(int image, int t, int y, int x)
{
    const float *b = truth[offset[image] + t];

    return x >= (int)b[0] && x < (int)b[2] && y >= (int)b[1] && y < (int)b[3] && (x / 3 * 7 + y / 4 * 3 + t) % 5 < 3;
}

/* All masks as runs. */
static int fill_runs(int32_t *run, int32_t *length)
{
    int n = 0;

    for (int i = 0; i < IMAGES; i++)
        for (int t = 0; t < offset[i + 1] - offset[i]; t++) {
            int value = 0, since = 0, pixels = size[i][0] * size[i][1];

            run[offset[i] + t] = n;
            for (int p = 0; p < pixels; p++)
                if (bitmap_bit(i, t, p % size[i][0], p / size[i][0]) != value) {
                    length[n++] = p - since;
                    since = p;
                    value = !value;
                }
            length[n++] = pixels - since;
        }
    run[ALL_TRUTH] = n;
    assert_true(n <= MAX_RUNS);
    return n;
}

/* Runs, or (polygons) one polygon each. */
static struct rcnn_outlines put_outlines(struct device *dev, bool polygons)
{
    static const double shape[8][2] = { { 0, 0 }, { .5, .2 }, { 1, .1 }, { .8, .5 }, { 1, 1 }, { .3, .9 }, { 0, .75 }, { .25, .5 } };
    int32_t polygon[ALL_TRUTH + 1], point[ALL_TRUTH + 1], run[ALL_TRUTH + 1];
    static int32_t length[MAX_RUNS];
    double xy[ALL_TRUTH * 8][2];

    for (int t = 0; t <= ALL_TRUTH; t++) {
        polygon[t] = t;
        point[t] = 8 * t;
        for (int k = 0; k < 8 && t < ALL_TRUTH; k++)
            for (int d = 0; d < 2; d++)
                xy[8 * t + k][d] = (double)truth[t][d] + ((double)truth[t][2 + d] - (double)truth[t][d]) * shape[k][d];
    }
    fill_runs(run, length);
    return (struct rcnn_outlines){ polygons ? put(dev, polygon, sizeof polygon) : NULL, put(dev, point, sizeof point),
                                   put(dev, xy, sizeof xy), polygons ? NULL : put(dev, run, sizeof run), put(dev, length, sizeof length) };
}

static int put_golden_proposals(struct device *dev, const struct golden *g, struct rpn_proposals *ret)
{
    float *box = calloc(IMAGES * POST * 4, sizeof *box);
    int32_t at[IMAGES + 1] = { 0 }, image[IMAGES * POST] = { 0 };

    for (int i = 0; i < IMAGES; i++) {
        size_t n;
        const float *b = golden(g->flavor, "proposal", i, &n);

        memcpy(box + at[i] * 4, b, n * sizeof *box);
        at[i + 1] = at[i] + (int)n / 4;
        for (int k = at[i]; k < at[i + 1]; k++)
            image[k] = i;
    }
    *ret = (struct rpn_proposals){ .box = put(dev, box, IMAGES * POST * 16),
                                   .image = put(dev, image, sizeof image),
                                   .offset = put(dev, at, sizeof at),
                                   .cap = IMAGES * POST };
    free(box);
    return at[IMAGES];
}

static void check_regions(struct device *dev, const struct golden *g, const struct rcnn_samples *s, int32_t *ret_offset)
{
    float *box = malloc((size_t)s->cap * 16), label[IMAGES * BATCH], of[IMAGES * BATCH];
    int32_t got[IMAGES * BATCH], row[IMAGES * BATCH];

    get(dev, ret_offset, s->offset, (IMAGES + 1) * 4);
    get(dev, box, s->box, (size_t)s->cap * 16);
    get(dev, got, s->label, sizeof got);
    get(dev, row, s->truth, sizeof row);
    for (int i = 0; i < IMAGES; i++) {
        size_t from = (size_t)ret_offset[i], n = (size_t)ret_offset[i + 1] - from, all;
        const float *want = golden(g->flavor, "of", i, &all);

        assert_int_equal(n, all);
        for (size_t k = 0; k < n; k++) {
            label[k] = got[from + k] == K ? 0 : (float)got[from + k] + 1;
            of[k] = row[from + k] < 0 ? want[k] : (float)(row[from + k] - offset[i]); /* of the background it is nobody's business */
        }
        compare(g->flavor, "region", i, box + from * 4, n * 4, 1, 0);
        compare(g->flavor, "label", i, label, n, 1, 0);
        compare(g->flavor, "of", i, of, n, 1, 0);
    }
    free(box);
}

static void check_box_loss(struct device *dev, const struct golden *g, const struct rcnn_images *images, const struct rcnn_truth *boxes,
                           const struct rcnn_samples *s, int rows)
{
    int columns = rcnn_box_columns(&g->rcnn);
    struct tensor z = put_numbers(dev, 30, 1.5f, s->cap, 1, 1, K + 1), d = put_numbers(dev, 31, 1, s->cap, 1, 1, columns), dz = z, dd = d;
    double *terms = put(dev, NULL, RCNN_BOX_TERMS * 8), got[RCNN_BOX_TERMS];
    float loss[2], *grad = malloc((size_t)(s->cap * columns) * 4 + 4);

    put_tensor(dev, &dz, NULL, 0);
    put_tensor(dev, &dd, NULL, 1);
    CALL(dev->on->rcnn->box_loss(dev, &g->rcnn, images, boxes, &dz, &dd, 1, &terms, false, &z, &d, s, 1, err));
    get(dev, got, terms, sizeof got);
    loss[0] = (float)got[RCNN_CLS];
    loss[1] = (float)got[RCNN_BOX];
    compare(g->flavor, "box_loss", -1, loss, 2, 1, 2e-6);
    get_tensor(dev, grad, &dz);
    compare(g->flavor, "box_dlogits", -1, grad, (size_t)(rows * (K + 1)), 100, 1e-6);
    get_tensor(dev, grad, &dd);
    compare(g->flavor, "box_ddeltas", -1, grad, (size_t)(rows * columns), 100, 1e-5);
    free(grad);
}

/* shown: targets that are in the file. */
static void check_masks(struct device *dev, const struct golden *g, const struct rcnn_images *images, const struct rcnn_samples *s,
                        int shown)
{
    struct rcnn_outlines outlines = put_outlines(dev, !g->tv);
    int channels = rcnn_mask_channels(&g->rcnn), side = g->rcnn.mask_side;
    size_t cells = (size_t)(side * side), bytes = (size_t)s->mask_cap * cells * sizeof(float);
    struct tensor z = put_numbers(dev, 32, 1, s->mask_cap, side, side, channels), dz = z;
    float *target = put(dev, NULL, bytes), *got = malloc(bytes), loss;
    float *grad = malloc(tensor_count(&z) * 4), sums[2 * IMAGES * BATCH];
    double *terms = put(dev, NULL, RCNN_MASK_TERMS * 8), term[RCNN_MASK_TERMS];
    size_t count;

    put_tensor(dev, &dz, NULL, 1);
    CALL(dev->on->rcnn->mask_targets(dev, &g->rcnn, images, &outlines, &target, s, 1, err));
    CALL(dev->on->rcnn->mask_loss(dev, &g->rcnn, images, &dz, 1, &terms, false, &z, (const float *const[]){ target }, s, 1, err));
    get(dev, term, terms, sizeof term);
    get(dev, got, target, bytes);
    get_tensor(dev, grad, &dz);
    loss = (float)term[RCNN_MASK];
    compare(g->flavor, "mask_loss", -1, &loss, 1, 1, 2e-6);
    compare(g->flavor, "targets", -1, got, (size_t)shown * cells, 1, 2e-5);
    golden(g->flavor, "mask_sums", -1, &count);
    count /= 2;
    assert_true(term[RCNN_MASK_ROWS] == (double)count);
    for (size_t r = 0; r < count; r++) {
        double sum = 0, slope = 0;

        for (size_t i = 0; i < cells; i++)
            sum += (double)got[r * cells + i];
        for (size_t i = 0; i < cells * (size_t)channels; i++)
            slope += fabs((double)grad[r * cells * (size_t)channels + i]);
        sums[r] = (float)sum;
        sums[count + r] = (float)(slope * 100);
    }
    compare(g->flavor, "mask_sums", -1, sums, 2 * count, 1, 2e-5);
    free(got);
    free(grad);
}

/* Flavor d2 cuts what is sampled of a bitmap at 1/2. */
static void check_bitmaps(struct device *dev, const struct golden *g, const struct rcnn_images *images, const struct rcnn_samples *s)
{
    struct rcnn_outlines outlines = put_outlines(dev, false);
    size_t cells = (size_t)rcnn_mask_cells(&g->rcnn), n, ones = 0;
    float *target = put(dev, NULL, (size_t)s->mask_cap * cells * sizeof(float)), got[3 * RCNN_MAX_MASK_CELLS];
    const float *want = golden(g->flavor, "bitmaps", -1, &n);

    CALL(dev->on->rcnn->mask_targets(dev, &g->rcnn, images, &outlines, &target, s, 1, err));
    get(dev, got, target, 3 * cells * sizeof *got);
    assert_int_equal(n, 3 * cells);
    for (size_t i = 0; i < n; i++) {
        ones += got[i] == 1;
        if (fabsf(want[i] - 0.5f) > 1e-4f)
            assert_true(got[i] == (want[i] > 0.5f ? 1.0f : 0.0f));
    }
    assert_true(ones > n / 10 && ones < n * 9 / 10);
}

/* Of fewer cells, and of more than bits of a word. */
static void check_other_masks(struct device *dev, const struct golden *g, const struct rcnn_images *images, const struct rcnn_samples *s)
{
    static const struct {
        int side;
        const char *name[2];
    } others[] = { { 10, { "d2_10", "tv_10" } }, { 56, { "d2_56", "tv_56" } } };

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct golden other = *g;

        other.rcnn.mask_side = others[i].side;
        other.flavor = others[i].name[g->tv];
        check_masks(dev, &other, images, s, 2);
        if (!g->tv)
            check_bitmaps(dev, &other, images, s);
    }
}

static void check_found(struct device *dev, const struct golden *g, const struct rcnn_images *images, const struct rpn_proposals *proposals)
{
    struct rcnn_detection_options opt = { .score = 0.3f, .nms = 0.5f, .min_side = g->tv ? 0.01f : 0, .max = MOST };
    struct tensor z = put_numbers(dev, 40, 1.5f, proposals->cap, 1, 1, K + 1);
    struct tensor d = put_numbers(dev, 41, 0.5f, proposals->cap, 1, 1, rcnn_box_columns(&g->rcnn));

    for (int i = 0; i < IMAGES; i++) {
        struct candidate found[MOST];
        float got[MOST * 6];
        int n;

        CALL(rcnn_detect(dev, &g->rcnn, &opt, images, &z, &d, proposals, i, found, &n, err));
        for (int k = 0; k < n; k++) {
            memcpy(got + 6 * k, &found[k], 20); /* x1 y1 x2 y2 score */
            got[6 * k + 5] = (float)found[k].cls;
        }
        assert_true(n > 3);
        compare(g->flavor, "found", i, got, (size_t)n * 6, 1, 1e-5);
    }
}

static void check_heads(struct device *dev, const struct golden *g)
{
    const int cap = IMAGES * BATCH, masks = IMAGES * BATCH / 4;
    struct rcnn_images images = put_images(dev);
    struct rcnn_truth boxes = put_truth(dev);
    struct rcnn_samples s = { cap,
                              masks,
                              put(dev, NULL, (size_t)cap * 16),
                              put(dev, NULL, (size_t)cap * 4),
                              put(dev, NULL, (size_t)cap * 4),
                              put(dev, NULL, (size_t)cap * 4),
                              put(dev, NULL, (IMAGES + 1) * 4),
                              put(dev, NULL, (size_t)masks * 16),
                              put(dev, NULL, (size_t)masks * 4),
                              put(dev, NULL, (size_t)masks * 4),
                              put(dev, NULL, (size_t)masks * 4),
                              put(dev, NULL, (IMAGES + 1) * 4) };
    struct rpn_proposals proposals;
    int32_t at[IMAGES + 1];

    put_golden_proposals(dev, g, &proposals);
    CALL(dev->on->rcnn->sample(dev, &g->rcnn, &images, &boxes, &proposals, g->key[2], g->key[3], &s, 1, err));
    check_regions(dev, g, &s, at);
    check_box_loss(dev, g, &images, &boxes, &s, at[IMAGES]);
    check_masks(dev, g, &images, &s, 4);
    if (!g->tv)
        check_bitmaps(dev, g, &images, &s);
    check_other_masks(dev, g, &images, &s);
    check_found(dev, g, &images, &proposals);
}

static void on_all(bool tv, void (*check)(struct device *dev, const struct golden *g))
{
    struct golden g = golden_of(tv);

    for (int i = 0; i < devices.n; i++) {
        use_device(i);
        check(devices.dev[i], &g);
        free_buffers();
    }
}

static void rpn_of_torchvision(void **state)
{
    (void)state;
    on_all(true, check_rpn);
}

static void rpn_of_d2(void **state)
{
    (void)state;
    on_all(false, check_rpn);
}

static void heads_of_torchvision(void **state)
{
    (void)state;
    on_all(true, check_heads);
}

static void heads_of_d2(void **state)
{
    (void)state;
    on_all(false, check_heads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rpn_of_torchvision),
        cmocka_unit_test(rpn_of_d2),
        cmocka_unit_test(heads_of_torchvision),
        cmocka_unit_test(heads_of_d2),
    };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}

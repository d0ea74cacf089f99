/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_set.c - uses: proto worker/core worker/layers cpu cuda
 * Detection as a set: the vectors of specs sparse_rcnn section 15, proposals, costs, losses and their slopes, broken
 * predictions, the same on every device. */
#include "tests/device/golden_json.h"
#include "tests/device/set_cases.h"

#include "worker/kernels/setloss.h"
#include "worker/core/tree.h"

#define VECTORS "tests/golden/sparse_rcnn.json"

static void decode_vectors(void **state)
{
    json_t *root = golden_file(VECTORS), *t = member(root, "deltas");
    struct set_head h = { .clamp = (float)number_of(t, "clamp") };
    float box[6][4], d[6][4], want[6][4], g[6][4], back[6][4], base_back[6][4], got[6][4], dd[6][4], db[6][4];

    (void)state;
    nested_in_json(member(t, "box"), box[0]);
    nested_in_json(member(t, "delta"), d[0]);
    nested_in_json(member(t, "decoded"), want[0]);
    nested_in_json(member(t, "dy"), g[0]);
    nested_in_json(member(t, "ddelta"), back[0]);
    nested_in_json(member(t, "dbox"), base_back[0]);
    for (int i = 0; i < 6; i++) {
        set_decode(got[i], &h, box[i], d[i]);
        set_decode_back(dd[i], db[i], &h, box[i], d[i], g[i]);
        close_to(got[i], want[i], 4, 0, 1e-5, "decoded");
        close_to(dd[i], back[i], 4, 0, 1e-5, "ddelta");
        close_to(db[i], base_back[i], 4, 0, 1e-5, "dbox");
    }
    h = (struct set_head){ .clamp = 0.5f, .floor = true }; /* the other way, too */
    set_decode(got[0], &h, box[0], (const float[4]){ 0, 0, -3, 3 });
    near((double)(got[0][2] - got[0][0]), 320 * exp(-0.5), 1e-5, "least width", 0);
    near((double)(got[0][3] - got[0][1]), 240 * exp(0.5), 1e-5, "largest height", 0);
    set_decode_back(dd[0], NULL, &h, box[0], (const float[4]){ 0, 0, -3, 0.25f }, g[0]);
    assert_true(dd[0][2] == 0 && dd[0][3] != 0);
    json_decref(root);
}

/* Nine pairs as nine images of one proposal: their terms, and gradients of the boxes, which deltas of 0 did not
 * move. */
static void pair_vectors(void **state)
{
    const int n[SET_SHARDS] = { 3, 3, 3 }, counts[SET_ALL] = { 1, 1, 1, 1, 1, 1, 1, 1, 1 };
    json_t *root = golden_file(VECTORS);
    float box[9][4], truth[9][4], value[9], grad[9][4];

    (void)state;
    for (int giou = 0; giou < 2; giou++) {
        json_t *t = member(root, giou ? "giou" : "l1");
        struct set_case *c = set_case_new(1, 3, n, counts, SET_SHARDS, 1);
        struct set_result *r;

        nested_in_json(member(t, "pred"), box[0]);
        nested_in_json(member(t, "truth"), truth[0]);
        nested_in_json(member(t, giou ? "giou" : "l1"), value);
        nested_in_json(member(t, giou ? "dpred_of_1_minus_giou" : "dpred"), grad[0]);
        for (int i = 0; i < SET_ALL; i++) {
            c->size[i / 3][i % 3][0] = 240;
            c->size[i / 3][i % 3][1] = 320;
            memcpy(c->base[i / 3] + i % 3 * 4, box[i], sizeof box[i]);
            memcpy(c->truth[i / 3][i % 3], truth[i], sizeof truth[i]);
        }
        c->head.l1_gain = giou ? 0 : 3;
        c->head.giou_gain = giou ? 3 : 0;
        c->grad_scale = 1.0f / 3;
        r = set_run(c);
        for (int i = 0; i < SET_ALL; i++)
            close_to(r->dbase[0][i / 3] + i % 3 * 4, grad[i], 4, 1e-8, 1e-5, giou ? "dgiou" : "dl1");
        free(r);
        c->validate = true;
        r = set_run(c);
        for (int i = 0; i < SET_ALL; i++)
            near(r->terms[0][i][giou ? SET_GIOU : SET_L1], giou ? 1.0 - (double)value[i] : (double)value[i], 1e-6, "pair", (size_t)i);
        free(r);
        free(c);
    }
    json_decref(root);
}

static void focal_vectors(void **state)
{
    json_t *root = golden_file(VECTORS), *t = member(root, "focal");
    const struct set_head h = { .alpha = 0.25f, .gamma = 2 };
    float z[13], loss[2][13], grad[2][13];

    (void)state;
    assert_int_equal(nested_in_json(member(t, "z"), z), 13);
    nested_in_json(member(t, "loss_0"), loss[0]);
    nested_in_json(member(t, "loss_1"), loss[1]);
    nested_in_json(member(t, "grad_0"), grad[0]);
    nested_in_json(member(t, "grad_1"), grad[1]);
    for (int y = 0; y < 2; y++)
        for (int i = 0; i < 13; i++) {
            float slope, got = set_focal(&slope, &h, z[i], y);

            close_to(&got, &loss[y][i], 1, 1e-30, 1e-5, "focal");
            close_to(&slope, &grad[y][i], 1, 1e-30, 1e-5, "slope of focal");
        }
    json_decref(root);
}

static void cost_vectors(void **state)
{
    json_t *root = golden_file(VECTORS), *t = member(root, "cost");
    const int n[1] = { 1 }, counts[1] = { 4 };
    struct set_case *c = set_case_new(6, 3, n, counts, 1, 1);
    float cost[24], cls[4], match[6];
    struct rcnn_truth truth = { c->offset[0], c->cls[0], c->truth[0][0], 4 };
    struct set_result *r;

    (void)state;
    c->size[0][0][0] = 240;
    c->size[0][0][1] = 320;
    nested_in_json(member(t, "logits"), c->z[0][0]);
    nested_in_json(member(t, "box"), c->base[0]);
    nested_in_json(member(t, "truth"), c->truth[0][0]);
    nested_in_json(member(t, "class"), cls);
    nested_in_json(member(t, "cost"), cost);
    nested_in_json(member(t, "truth_of_proposal"), match);
    for (int j = 0; j < 4; j++)
        c->cls[0][j] = (int32_t)cls[j];
    for (int p = 0; p < 6; p++) {
        int64_t got[4];

        assert_int_equal(set_costs(got, 1, &c->head, c->z[0][0] + 3 * p, c->base[0] + 4 * p, &truth, 0, 4, c->size[0][0]), 0);
        for (int j = 0; j < 4; j++)
            near((double)got[j] / 16777216.0, (double)cost[4 * p + j], 1e-5, "cost", (size_t)(4 * p + j));
    }
    r = set_run(c);
    for (int p = 0; p < 6; p++)
        assert_int_equal(r->match[0][p], (int)match[p]);
    free(r);
    free(c);
    json_decref(root);
}

/* The generator of the vectors. */
static void lcg(uint32_t x, float *ret, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++) {
        x = (1103515245u * x + 12345u) & 0x7FFFFFFFu;
        ret[i] = (float)((int)(x >> 16) - 16384) / 16384.0f * scale;
    }
}

/* Three pictures in two shards of different size. */
static void loss_vectors(void **state)
{
    const int n[2] = { 2, 1 }, counts[3] = { 2, 0, 3 };
    json_t *root = golden_file(VECTORS), *t = member(root, "set_loss"), *all = member(t, "truth"), *rows = member(t, "rows");
    struct set_case *c = set_case_new(5, 3, n, counts, 2, 1);
    float z[45], dz[45], box[60], db[60], side[12], cls[3];
    struct set_result *r;
    double total = 0;

    (void)state;
    lcg((uint32_t)number_of(member(t, "logits"), "seed"), z, 45, (float)number_of(member(t, "logits"), "scale"));
    nested_in_json(member(t, "dlogits"), dz);
    nested_in_json(member(t, "box"), box);
    nested_in_json(member(t, "dbox"), db);
    nested_in_json(member(t, "whwh"), side);
    c->grad_scale = 0.2f; /* 5 pairs */
    for (int i = 0; i < 3; i++) {
        int v = i / 2, at = i % 2, first = c->offset[v][at];
        json_t *one = json_array_get(all, (size_t)i);

        c->size[v][at][0] = (int32_t)side[4 * i + 1];
        c->size[v][at][1] = (int32_t)side[4 * i];
        nested_in_json(member(one, "box"), c->truth[v][first]);
        for (size_t k = 0; k < nested_in_json(member(one, "class"), cls); k++)
            c->cls[v][first + (int)k] = (int32_t)cls[k];
        memcpy(c->z[0][v] + 15 * at, z + 15 * i, 15 * sizeof *z);
        memcpy(c->base[v] + 20 * at, box + 20 * i, 20 * sizeof *box);
    }
    r = set_run(c);
    for (int i = 0; i < 3; i++) {
        close_to(r->dz[0][i / 2] + i % 2 * 15, dz + 15 * i, 15, 0, 1e-5, "dlogits");
        close_to(r->dbase[0][i / 2] + i % 2 * 20, db + 20 * i, 20, 0, 1e-5, "dbox");
    }
    for (int v = 0; v < 2; v++)
        total += (2 * r->terms[0][v][SET_CLS] + 5 * r->terms[0][v][SET_L1] + 2 * r->terms[0][v][SET_GIOU]) / 5;
    near(total, number_of(t, "total"), 1e-5, "total", 0);
    assert_true(r->terms[0][0][SET_PAIRS] == 2 && r->terms[0][1][SET_PAIRS] == 3);
    free(r);
    c->validate = true;
    r = set_run(c);
    for (int i = 0; i < 3; i++) {
        json_t *row = json_array_get(rows, (size_t)i);
        float match[5];

        near(r->terms[0][i][SET_CLS], number_of(row, "focal"), 1e-5, "focal", (size_t)i);
        near(r->terms[0][i][SET_L1], number_of(row, "l1"), 1e-5, "l1", (size_t)i);
        near(r->terms[0][i][SET_GIOU], number_of(row, "giou"), 1e-5, "giou", (size_t)i);
        assert_true(r->terms[0][i][SET_PAIRS] == number_of(row, "pairs"));
        nested_in_json(member(row, "truth_of_proposal"), match);
        for (int p = 0; p < 5; p++)
            assert_int_equal(r->match[i / 2][i % 2 * 5 + p], match[p] < 0 ? -1 : c->offset[i / 2][i % 2] + (int)match[p]);
    }
    free(r);
    free(c);
    json_decref(root);
}

/* ---- proposals ---- */

enum { D = 18, OF_START = 2 * 3 * (4 + D) + 2 * 2 * 3 * (4 + D) };

/* Shards of two images and of none. Writes boxes and features, then gradients with beta 0, then added to those. */
static void run_start(struct device *dev, const void *arg, void *out)
{
    static const int32_t size[2][2] = { { 240, 320 }, { 160, 200 } };
    const float *e = arg, *g = e + 12; /* [3][4], [2][3][4] */
    float *q = numbers(3 * D, 5, -1, 1), *dq = numbers(6 * D, 6, -1, 1), *ret = out, *box[2], *dbox[2], *de[2], *df[2];
    const struct set_head h = { .proposals = 3 };
    struct rcnn_images images[2];
    struct tensor to[2], back[2];

    for (int v = 0; v < 2; v++) {
        images[v] = (struct rcnn_images){ v == 0 ? 2 : 0, { 256, 320 }, put(dev, size, sizeof size) };
        to[v] = back[v] = tensor_f32(NULL, 3 * images[v].n, 1, 1, D);
        put_tensor(dev, &to[v], NULL, 2);
        put_tensor(dev, &back[v], dq, 1);
        box[v] = put(dev, NULL, 24 * sizeof(float));
        dbox[v] = put(dev, g, 24 * sizeof(float));
        de[v] = put(dev, NULL, 12 * sizeof(float));
        df[v] = put(dev, NULL, 3 * D * sizeof(float));
    }
    CALL(dev->on->set->start_fwd(dev, &h, box, to, put(dev, e, 12 * sizeof *e), put(dev, q, 3 * D * sizeof *q), images, 2, err));
    get(dev, ret, box[0], 24 * sizeof(float));
    get_tensor(dev, ret + 24, &to[0]);
    for (int r = 0; r < 6; r++)
        assert_memory_equal(ret + 24 + r * D, q + r % 3 * D, D * sizeof *q);
    ret += 24 + 6 * D;
    for (int beta = 0; beta < 2; beta++) {
        struct sums_dest dest[2] = { { de, (float)beta }, { df, (float)beta } };

        CALL(dev->on->set->start_bwd(dev, &h, dest[0], dest[1], (const float *const *)dbox, back, images, 2, err));
        for (int v = 0; v < 2; v++, ret += 12 + 3 * D) {
            get(dev, ret, de[v], 12 * sizeof(float));
            get(dev, ret + 12, df[v], 3 * D * sizeof(float));
            for (int i = 0; i < 3 * D; i++)
                assert_true(ret[12 + i] == (v > 0 ? 0.0f : (dq[i] + dq[3 * D + i]) * (float)(beta + 1)));
        }
    }
    free(q);
    free(dq);
}

static void proposals(void **state)
{
    json_t *root = golden_file(VECTORS), *t = member(root, "proposals");
    float in[36], box[24], sum[12], *out = malloc(OF_START * sizeof *out), twice[12];
    const float *back = out + 24 + 6 * D;

    (void)state;
    assert_non_null(out);
    nested_in_json(member(t, "cxcywh"), in);
    nested_in_json(member(t, "dbox"), in + 12);
    nested_in_json(member(t, "box"), box);
    nested_in_json(member(t, "dcxcywh_sum_of_images"), sum);
    same_on_all(run_start, in, out, OF_START * sizeof *out);
    close_to(out, box, 24, 0, 1e-6, "box");
    for (int i = 0; i < 12; i++)
        twice[i] = 2 * sum[i];
    close_to(back, sum, 12, 0, 1e-6, "dproposals");
    close_to(back + 2 * (12 + 3 * D), twice, 12, 0, 1e-6, "dproposals, added");
    free(out);
    json_decref(root);
}

/* In tiers with one destination for all shards it gets their sum. */
static void one_destination(void **state)
{
    const struct set_head h = { .proposals = 1 };
    const int32_t size[2] = { 10, 10 };
    const float g[4] = { 1, 2, 3, 5 };

    (void)state;
    for (int i = 0; i < devices.n; i++) {
        struct device *dev = devices.dev[i];

        use_device(i);
        dev->ops->set_tier(dev, TIER_RERUN);
        if (dev->one_dest) {
            float *box[2], *de, *df, got[5];
            struct rcnn_images images[2];
            struct tensor q[2];

            de = put(dev, NULL, 4 * sizeof *de);
            df = put(dev, NULL, sizeof *df);
            for (int v = 0; v < 2; v++) {
                images[v] = (struct rcnn_images){ 1, { 10, 10 }, put(dev, size, sizeof size) };
                box[v] = put(dev, g, sizeof g);
                q[v] = tensor_f32(put(dev, g + v, sizeof *g), 1, 1, 1, 1);
            }
            CALL(dev->on->set->start_bwd(dev, &h, (struct sums_dest){ (float *const[2]){ de, de }, 0 },
                                         (struct sums_dest){ (float *const[2]){ df, df }, 0 }, (const float *const *)box, q, images, 2,
                                         err));
            get(dev, got, de, 4 * sizeof *got);
            get(dev, got + 4, df, sizeof *got);
            assert_true(got[0] == 80 && got[1] == 140 && got[2] == 20 && got[3] == 30 && got[4] == 3);
            free_buffers();
        }
        dev->ops->set_tier(dev, TIER_WORLD);
    }
}

/* ---- losses of many shapes ---- */

static double weighted(const struct set_case *c, const struct set_result *r, int s)
{
    double sum = 0;

    for (int v = 0; v < c->nshards; v++)
        sum += (double)c->head.cls_gain * r->terms[s][v][SET_CLS] + (double)c->head.l1_gain * r->terms[s][v][SET_L1] +
               (double)c->head.giou_gain * r->terms[s][v][SET_GIOU];
    return sum * (double)c->grad_scale;
}

/* On one device, the others having the same bits. */
static double loss_moved(const struct set_case *c, float *x, float by)
{
    struct set_result *r = malloc(sizeof *r);
    float was = *x;
    double loss;

    assert_non_null(r);
    *x += by;
    use_device(0);
    run_set(devices.dev[0], c, r);
    free_buffers();
    loss = weighted(c, r, 0);
    *x = was;
    free(r);
    return loss;
}

static void check_slopes(const struct set_case *c, float *x, const float *dx, size_t n, float eps, const char *what)
{
    for (size_t i = 0; i < n; i++)
        near((double)dx[i], (loss_moved(c, x + i, eps) - loss_moved(c, x + i, -eps)) / 2 / (double)eps, 3e-3, what, i);
}

static void gradients_are_slopes(void **state)
{
    const int n[2] = { 1, 2 }, counts[3] = { 3, 0, 6 };
    struct set_case *c = set_case_new(4, 3, n, counts, 2, 0);

    (void)state;
    c->head.stages = 1;
    c->head.class_weight = c->weight;
    c->weight[0] = 0.5f, c->weight[1] = 2, c->weight[2] = 1;
    for (int i = 0; i < 2; i++) {
        struct set_result *r;

        c->head.gamma = i == 0 ? 2 : 1.5f;
        c->head.floor = i == 1;
        c->head.clamp = i == 1 ? 0.2f : c->head.clamp; /* some deltas lie beyond */
        r = set_run(c);
        for (int v = 0; v < 2; v++) {
            size_t rows = (size_t)set_rows(c, v);

            check_slopes(c, c->z[0][v], r->dz[0][v], rows * 3, 0x1p-7f, "dlogits");
            check_slopes(c, c->d[0][v], r->dd[0][v], rows * 4, 0x1p-10f, "ddeltas");
            check_slopes(c, c->base[v], r->dbase[0][v], rows * 4, 0x1p-4f, "dbase");
        }
        free(r);
    }
    free(c);
}

/* Shards of any size: an empty one, images without truth, more truths than proposals, more columns than a warp has
 * lanes, classes beyond 16. A shard alone has the same bits as beside others; its terms are the tree over its
 * images. */
static void shards_and_images(void **state)
{
    const int n[SET_SHARDS] = { 3, 0, 2 }, counts[5] = { 7, 0, 55, 40, 1 };
    struct set_case *c = set_case_new(SET_P, 19, n, counts, SET_SHARDS, 0);
    struct set_result *all = set_run(c), *images, *alone;
    int image = 0;

    (void)state;
    c->validate = true;
    images = set_run(c);
    for (int v = 0; v < SET_SHARDS; image += c->n[v++])
        for (int s = 0; s < SET_S; s++)
            for (int k = 0; k < SET_TERMS; k++)
                assert_true(all->terms[s][v][k] == tree_sum(&images->terms[s][image][k], SET_TERMS, c->n[v]));
    assert_true(images->terms[1][1][SET_PAIRS] == 0 && images->terms[1][1][SET_L1] == 0 && images->terms[1][1][SET_CLS] > 0);
    assert_true(images->terms[1][2][SET_PAIRS] == SET_P && all->terms[0][0][SET_BROKEN] == 0);
    c->validate = false;
    c->nshards = 1;
    c->n[0] = c->n[2];
    memcpy(c->size[0], c->size[2], sizeof c->size[0]);
    memcpy(c->offset[0], c->offset[2], sizeof c->offset[0]);
    memcpy(c->cls[0], c->cls[2], sizeof c->cls[0]);
    memcpy(c->truth[0], c->truth[2], sizeof c->truth[0]);
    memcpy(c->base[0], c->base[2], sizeof c->base[0]);
    for (int s = 0; s < SET_S; s++) {
        memcpy(c->z[s][0], c->z[s][2], sizeof c->z[s][0]);
        memcpy(c->d[s][0], c->d[s][2], sizeof c->d[s][0]);
    }
    alone = set_run(c);
    assert_memory_equal(alone->match[0], all->match[2], sizeof alone->match[0]);
    for (int s = 0; s < SET_S; s++) {
        assert_memory_equal(alone->terms[s][0], all->terms[s][2], sizeof alone->terms[s][0]);
        assert_memory_equal(alone->dz[s][0], all->dz[s][2], sizeof alone->dz[s][0]);
        assert_memory_equal(alone->dd[s][0], all->dd[s][2], sizeof alone->dd[s][0]);
        assert_memory_equal(alone->dbase[s][0], all->dbase[s][2], sizeof alone->dbase[s][0]);
    }
    free(alone);
    free(images);
    free(all);
    free(c);
}

/* Broken predictions are counted where they are. Matching ends, with each truth matched once, and avoids them. */
static void broken_predictions(void **state)
{
    const int n[2] = { 2, 1 }, counts[3] = { 4, 6, 0 };
    struct set_case *c = set_case_new(6, 3, n, counts, 2, 1);
    float *box = c->base[0];
    struct set_result *r;

    (void)state;
    c->head.stages = 1;
    c->z[0][0][1] = NAN; /* image 0 */
    c->z[0][0][3 + 2] = INFINITY;
    box[6 * 4 + 2] = box[6 * 4] - 1; /* image 1: inside out */
    box[7 * 4 + 3] = INFINITY;
    box[8 * 4] = -3e20f, box[8 * 4 + 2] = 3e20f, box[8 * 4 + 1] = -3e20f, box[8 * 4 + 3] = 3e20f; /* its area is not finite */
    box[9 * 4 + 2] = box[9 * 4];                                                                  /* no width: of use */
    c->d[0][1][2] = -INFINITY;                                                                    /* the other shard: no width */
    c->d[0][1][4 + 2] = NAN;
    r = set_run(c);
    assert_int_equal(r->broken[0][0], 2);
    assert_int_equal(r->broken[0][1], 3);
    assert_int_equal(r->broken[1][0], 1);
    assert_true(r->terms[0][0][SET_BROKEN] == 5 && r->terms[0][1][SET_BROKEN] == 1 && r->terms[0][0][SET_PAIRS] == 10);
    assert_true(r->match[0][0] < 0 && r->match[0][1] < 0); /* 4 others are left for 4 truths */
    for (int t = 0; t < 10; t++) {
        int matched = 0;

        for (int p = 0; p < 12; p++)
            matched += r->match[0][p] == t && p / 6 == t / 4 - (t >= 8);
        assert_int_equal(matched, 1);
    }
    free(r);
    free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_vectors),     cmocka_unit_test(pair_vectors),         cmocka_unit_test(focal_vectors),
        cmocka_unit_test(cost_vectors),       cmocka_unit_test(loss_vectors),         cmocka_unit_test(proposals),
        cmocka_unit_test(one_destination),    cmocka_unit_test(gradients_are_slopes), cmocka_unit_test(shards_and_images),
        cmocka_unit_test(broken_predictions),
    };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}

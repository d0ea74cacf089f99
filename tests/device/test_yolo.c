/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_yolo.c - losses of a YOLO head: the vectors, options,
 * numeric gradients, empty images, borders, wild numbers. uses: proto worker/core cpu cuda */
#include "tests/device/yolo_cases.h"

/* ---- the vectors ---- */

static void check_vector(json_t *j)
{
    json_t *mode = json_object_get(j, "mode_darknet"), *sum = json_object_get(mode, "loss_sum"), *grad = json_object_get(mode, "grad");
    json_t *ignored = json_object_get(mode, "ignored_mask");
    struct yolo_result *r;
    struct yolo_case t;
    double nignored = 0;

    load_case(j, &t);
    r = loss_of(&t);
    for (size_t i = 0; i < json_array_size(ignored); i++)
        nignored += item(ignored, i);
    near(r->terms[0][YOLO_BOX], number(sum, "x") + number(sum, "y") + number(sum, "w") + number(sum, "h"), 1e-5, "box", 0);
    near(r->terms[0][YOLO_OBJ], number(sum, "obj"), 1e-5, "obj", 0);
    near(r->terms[0][YOLO_NOOBJ], number(sum, "noobj"), 1e-5, "noobj", 0);
    near(r->terms[0][YOLO_CLS], number(sum, "cls"), 1e-5, "cls", 0);
    near(r->terms[0][YOLO_TOTAL], number(sum, "total"), 1e-5, "total", 0);
    assert_true(r->terms[0][YOLO_POSITIVES] == (double)json_array_size(json_object_get(mode, "positives")));
    assert_true(r->terms[0][YOLO_IGNORED] == nignored);
    for (size_t i = 0; i < json_array_size(grad); i++)
        near((double)r->grad[vector_index(&t, i)], item(grad, i), 1e-5, "grad", i);
    free(r);
    free(t.logits);
}

static void loss_vectors(void **state)
{
    json_t *root = json_load_file("../shared/specs/vectors/yolov3_loss.json", 0, NULL), *cases = json_object_get(root, "cases");

    (void)state;
    if (!cases) {
        json_decref(root);
        SKIP("no ../shared/specs/vectors/yolov3_loss.json");
        return;
    }
    assert_int_equal(json_array_size(cases), 14);
    for (size_t i = 0; i < json_array_size(cases); i++)
        check_vector(json_array_get(cases, i));
    json_decref(root);
}

/* scale_x_y and new_coords: the gradients that AlexeyAB's darknet computes, see tests/golden/make_yolo_coords.py. */
static void coordinates_of_darknet(void **state)
{
    json_t *root = json_load_file("tests/golden/yolo_coords.json", 0, NULL), *cases = json_object_get(root, "cases");

    (void)state;
    assert_int_equal(json_array_size(cases), 5);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        json_t *j = json_array_get(cases, i), *grad = json_object_get(json_object_get(j, "mode_darknet"), "grad");
        struct yolo_result *r;
        struct yolo_case t;

        load_case(j, &t);
        r = loss_of(&t);
        assert_int_equal(json_array_size(grad), (size_t)images_of(&t) * image_floats(&t));
        assert_true(r->terms[0][YOLO_POSITIVES] >= 3);
        for (size_t k = 0; k < json_array_size(grad); k++)
            near((double)r->grad[vector_index(&t, k)], item(grad, k), 2e-6, json_string_value(json_object_get(j, "name")), k);
        free(r);
        free(t.logits);
    }
    json_decref(root);
}

/* ---- our own batches ---- */

/* Image by image, in one batch, and in shards of several sizes: the same gradients and terms. */
static void empty_images_and_shards(void **state)
{
    const int cut[4] = { 1, 2, 4, 1 };
    struct yolo_case t, one;
    struct yolo_result *all, *shards, *single;
    double sum = 0.0;

    (void)state;
    random_case(&t, 35);
    all = loss_of(&t);
    t.nshards = 4;
    memcpy(t.images, cut, sizeof(cut));
    shards = loss_of(&t);
    assert_memory_equal(all->grad, shards->grad, (size_t)MAX_IMAGES * image_floats(&t) * sizeof(float));
    for (int i = 0; i < MAX_IMAGES; i++) {
        one = t;
        one.nshards = one.images[0] = 1;
        one.logits = t.logits + (size_t)i * image_floats(&t);
        one.offset[0] = t.offset[i];
        one.offset[1] = t.offset[i + 1];
        single = loss_of(&one);
        assert_memory_equal(single->grad, all->grad + (size_t)i * image_floats(&t), image_floats(&t) * sizeof(float));
        sum += single->terms[0][YOLO_TOTAL];
        if (i == 0 || i == 7)
            assert_memory_equal(single->terms[0], shards->terms[i == 0 ? 0 : 3], sizeof(single->terms[0]));
        if (rows_per_image[i] == 0)
            assert_true(single->terms[0][YOLO_POSITIVES] == 0.0 && single->terms[0][YOLO_IGNORED] == 0.0 &&
                        single->terms[0][YOLO_NOOBJ] > 0.0);
        free(single);
    }
    near(all->terms[0][YOLO_TOTAL], sum, 1e-12, "total", 0);
    assert_true(all->terms[0][YOLO_POSITIVES] > 5.0 && all->terms[0][YOLO_IGNORED] > 0.0);
    near(all->terms[0][YOLO_TOTAL],
         1.5 * all->terms[0][YOLO_BOX] + 0.8 * all->terms[0][YOLO_OBJ] + 0.5 * all->terms[0][YOLO_NOOBJ] + 2.0 * all->terms[0][YOLO_CLS],
         1e-6, "weighted", 0);
    t.validate = true; /* the same terms without gradients */
    single = loss_of(&t);
    assert_memory_equal(single->terms, shards->terms, sizeof(single->terms));
    free(single);
    free(all);
    free(shards);
    free(t.logits);
}

/* Every class's cross-entropy counts by its weight, as in torch's BCEWithLogitsLoss(weight=[classes], reduction="sum").
 * No other term does. Weights of 1 change no bit. */
static void class_weights(void **state)
{
    static float weight[35], ones[35];
    struct yolo_case t;
    struct yolo_result *plain, *even, *weighed;
    double cls = 0.0;
    size_t step, positives = 0;

    (void)state;
    random_case(&t, 35);
    step = 5 + 35;
    for (int k = 0; k < 35; k++) {
        weight[k] = 0.25f + 0.5f * (float)(k % 7);
        ones[k] = 1.0f;
    }
    plain = loss_of(&t);
    t.class_weight = ones;
    even = loss_of(&t);
    assert_memory_equal(even, plain, result_bytes(&t));
    t.class_weight = weight;
    weighed = loss_of(&t);
    for (size_t i = 0; i < MAX_IMAGES * image_floats(&t); i += step) {
        assert_memory_equal(weighed->grad + i, plain->grad + i, 5 * sizeof(float));
        if (plain->grad[i + 5] == 0.0f)
            continue; /* a slot that is responsible for no box */
        positives++;
        for (size_t k = 0; k < 35; k++) {
            double z = (double)t.logits[i + 5 + k], p = 1 / (1 + exp(-z)), w = (double)weight[k];
            double y = plain->grad[i + 5 + k] < 0.0f ? 1 : 0;

            cls -= w * (y * log(p) + (1 - y) * log(1 - p));
            near((double)weighed->grad[i + 5 + k], 0.25 * 2.0 * w * (p - y), 1e-6, "slope of a class", i + 5 + k);
        }
    }
    assert_true((double)positives == plain->terms[0][YOLO_POSITIVES]);
    near(weighed->terms[0][YOLO_CLS], cls, 1e-6, "cls", 0);
    near(weighed->terms[0][YOLO_TOTAL] - plain->terms[0][YOLO_TOTAL], 2.0 * (cls - plain->terms[0][YOLO_CLS]), 1e-6, "total", 0);
    for (int i = 0; i < YOLO_TERMS; i++)
        assert_true(i == YOLO_CLS || i == YOLO_TOTAL || weighed->terms[0][i] == plain->terms[0][i]);
    free(plain);
    free(even);
    free(weighed);
    free(t.logits);
}

/* Anchors are pixels of an input that each shard has for itself. */
static void shards_have_inputs_of_their_own(void **state)
{
    struct yolo_case t;
    struct yolo_result *small, *large, *both;
    size_t half;

    (void)state;
    random_case(&t, 3);
    half = MAX_IMAGES / 2 * image_floats(&t);
    t.nshards = 2;
    t.images[0] = t.images[1] = MAX_IMAGES / 2;
    small = loss_of(&t);
    t.second = (struct canvas){ 192, 160 };
    both = loss_of(&t);
    t.net = t.second;
    large = loss_of(&t);
    assert_memory_equal(both->terms[0], small->terms[0], sizeof(small->terms[0]));
    assert_memory_equal(both->terms[1], large->terms[1], sizeof(large->terms[1]));
    assert_memory_equal(both->grad, small->grad, half * sizeof(float));
    assert_memory_equal(both->grad + half, large->grad + half, half * sizeof(float));
    assert_memory_not_equal(small->terms[1], large->terms[1], sizeof(large->terms[1]));
    free(small);
    free(large);
    free(both);
    free(t.logits);
}

/* Heads, grids, batches and boxes of any kind, in fp32 and bf16, dense and sliced, with and without gradients: the same
 * bits on all devices. */
static void random_heads(void **state)
{
    const int classes[] = { 1, 2, 31, 32, 33, 65, 80 };

    (void)state;
    for (uint64_t seed = 0; seed < 14; seed++) {
        struct philox_key k = { .seed = 500 + seed };
        struct yolo_case t;

        random_case(&t, classes[seed % 7]);
        free(t.logits);
        t.gh = 1 + (int)philox_below(&k, 0, 9);
        t.gw = 1 + (int)philox_below(&k, 1, 9);
        t.head.nanchors = 1 + (int)philox_below(&k, 2, 5);
        for (int i = 0; i < t.head.nanchors; i++)
            t.head.mask[i] = (i * 2 + (int)seed) % t.head.ntotal;
        t.head.truth_thresh = seed % 3 == 0 ? 0.4f : 1.0f;
        t.head.ignore_thresh = 0.3f;
        t.validate = seed % 5 == 4;
        t.gap = seed % 4 == 1 ? 7 : 0;
        t.dtype = seed % 2 ? DTYPE_BF16 : DTYPE_F32;
        t.nshards = seed % 3 == 2 ? MAX_IMAGES : 1;
        for (int i = 0; i < MAX_IMAGES && t.nshards > 1; i++)
            t.images[i] = 1;
        t.logits = numbers_of(t.dtype, (size_t)MAX_IMAGES * image_floats(&t), 600 + seed, -2.0f, 2.0f);
        free(loss_of(&t));
        free(t.logits);
    }
}

/* More shards than travel in one launch: the images of a batch in turn, each a shard. Results: terms, then the first
 * and the last gradient. */
enum { MANY_SHARDS = 37 };

static void run_many(struct device *dev, const void *arg, void *ret)
{
    const struct yolo_case *t = arg;
    struct tensor z[MANY_SHARDS], dz[MANY_SHARDS];
    struct box_list list[MANY_SHARDS];
    struct canvas net[MANY_SHARDS];
    double *terms[MANY_SHARDS], *out = ret;
    const int32_t *cls = put(dev, t->cls, sizeof(t->cls));
    const float *box = put(dev, t->box, sizeof(t->box));
    struct err err;

    for (int v = 0; v < MANY_SHARDS; v++) {
        int image = v % MAX_IMAGES;

        net[v] = t->net;
        z[v] = put_slice(dev, t, t->logits + (size_t)image * image_floats(t), 1);
        dz[v] = put_slice(dev, t, t->logits, 1);
        terms[v] = put(dev, NULL, YOLO_TERMS * sizeof(double));
        list[v] = (struct box_list){ put(dev, t->offset + image, 2 * sizeof(int32_t)), cls, box, rows_per_image[image] };
    }
    assert_int_equal(dev->on->yolo->loss(dev, &t->head, net, dz, t->grad_scale, terms, z, list, MANY_SHARDS, &err), 0);
    for (int v = 0; v < MANY_SHARDS; v++)
        get(dev, out + v * YOLO_TERMS, terms[v], YOLO_TERMS * sizeof(double));
    get_slice(dev, t, (float *)(out + MANY_SHARDS * YOLO_TERMS), &dz[0]);
    get_slice(dev, t, (float *)(out + MANY_SHARDS * YOLO_TERMS) + image_floats(t), &dz[MANY_SHARDS - 1]);
}

static void many_shards(void **state)
{
    struct yolo_case t;
    struct yolo_result *one;
    double *out;
    size_t bytes;

    (void)state;
    random_case(&t, 3);
    bytes = MANY_SHARDS * YOLO_TERMS * sizeof(double) + 2 * image_floats(&t) * sizeof(float);
    out = malloc(bytes);
    assert_non_null(out);
    same_on_all(run_many, &t, out, bytes);
    t.nshards = MAX_IMAGES;
    for (int i = 0; i < MAX_IMAGES; i++)
        t.images[i] = 1;
    one = loss_of(&t);
    for (int v = 0; v < MANY_SHARDS; v++)
        assert_memory_equal(out + v * YOLO_TERMS, one->terms[v % MAX_IMAGES], sizeof(one->terms[0]));
    free(one);
    free(out);
    free(t.logits);
}

static double total_of(const struct yolo_case *t, double *ret_ignored, struct yolo_result *r)
{
    run_loss(devices.dev[0], t, r);
    free_buffers();
    *ret_ignored = r->terms[0][YOLO_IGNORED];
    return r->terms[0][YOLO_TOTAL];
}

/* Logits are left out if their move changes which slots are ignored: the loss jumps there. */
static void check_gradient(struct yolo_case *t)
{
    const float eps = 2e-3f;
    struct yolo_result *r = loss_of(t), *tmp = malloc(result_bytes(t));
    size_t n = (size_t)images_of(t) * image_floats(t), tried = 0, used = 0;

    for (size_t i = 0; i < n; i += 3, tried++) {
        float old = t->logits[i];
        double a, b, up, down;

        t->logits[i] = old + eps;
        up = total_of(t, &a, tmp);
        t->logits[i] = old - eps;
        down = total_of(t, &b, tmp);
        t->logits[i] = old;
        if (a != b || a != r->terms[0][YOLO_IGNORED])
            continue;
        near((double)r->grad[i], 0.25 * (up - down) / (double)((old + eps) - (old - eps)), 2e-3, "grad", i);
        used++;
    }
    assert_true(used > tried * 9 / 10);
    free(r);
    free(tmp);
}

static void gradients(void **state)
{
    struct yolo_case t;

    (void)state;
    random_case(&t, 2);
    check_gradient(&t);
    t.head.scale_xy = 1.2f;
    check_gradient(&t);
    t.head.new_coords = true;
    check_gradient(&t);
    free(t.logits);
}

/* A slot that owns nothing but predicts a box well becomes a positive of it, with that box's class alone. */
static void truth_thresh(void **state)
{
    struct yolo_result *off, *on;
    struct yolo_case t;
    float *z;

    (void)state;
    random_case(&t, 3);
    t.images[0] = 1;
    t.offset[1] = 1;
    t.cls[0] = 1;
    memcpy(t.box[0], (float[]){ 4.5f / 8, 2.5f / 6, 8.0f / 128, 10.0f / 96 }, sizeof(t.box[0])); /* anchor 0: not of this head */
    z = t.logits + (2 * 8 + 4) * channels(&t.head);
    z[0] = z[1] = 0.0f; /* the centre of the cell */
    z[2] = logf(8.0f / 14);
    z[3] = logf(10.0f / 30);
    t.head.assign_iou_thresh = 1.0f;
    off = loss_of(&t);
    assert_true(off->terms[0][YOLO_POSITIVES] == 0.0 && off->terms[0][YOLO_IGNORED] == 1.0);
    t.head.truth_thresh = 0.9f;
    on = loss_of(&t);
    assert_true(on->terms[0][YOLO_POSITIVES] == 1.0 && on->terms[0][YOLO_IGNORED] == 0.0 && on->terms[0][YOLO_RECALL75] == 1.0);
    near(on->terms[0][YOLO_SUM_IOU], 1.0, 1e-5, "iou", 0);
    near(on->terms[0][YOLO_SUM_OBJ_POS], 1 / (1 + exp(-(double)z[4])), 1e-6, "objectness", 0);
    for (int k = 0; k < 3; k++)
        near((double)on->grad[z + 5 + k - t.logits], 0.25 * 2.0 * (1 / (1 + exp(-(double)z[5 + k])) - (k == 1)), 1e-6, "class", (size_t)k);
    free(off);
    free(on);
    free(t.logits);
}

/* ---- exactly on the border: every comparison is strict ---- */

static double term_of(const struct yolo_case *t, enum yolo_term term)
{
    struct yolo_result *r = loss_of(t);
    double value = r->terms[0][term];

    free(r);
    return value;
}

static void an_iou_on_a_threshold(void **state)
{
    struct {
        size_t thresh;
        enum yolo_term term; /* counts the slot once the IoU is above */
    } t[] = { { offsetof(struct yolo_head, ignore_thresh), YOLO_IGNORED },
              { offsetof(struct yolo_head, truth_thresh), YOLO_POSITIVES },
              { offsetof(struct yolo_head, assign_iou_thresh), YOLO_POSITIVES } };
    const float half[] = { .5f, nextafterf(.5f, 0) };

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        for (int below = 0; below < 2; below++) {
            struct yolo_case c = one_slot();

            memcpy((char *)&c.head + t[i].thresh, &half[below], sizeof(float));
            assert_true(term_of(&c, t[i].term) == below);
        }
}

/* Claimed by a box that it overlaps by .5, then by exactly .75. */
static void a_recall_on_its_border(void **state)
{
    struct yolo_case c = one_slot();

    (void)state;
    c.head.assign_iou_thresh = .25f;
    assert_true(term_of(&c, YOLO_SUM_IOU) == .5 && term_of(&c, YOLO_RECALL50) == 0);
    c.box[0][3] = .5f;
    c.box[0][2] = .375f;
    assert_true(term_of(&c, YOLO_SUM_IOU) == .75 && term_of(&c, YOLO_RECALL50) == 1 && term_of(&c, YOLO_RECALL75) == 0);
}

/* The lower of two equal anchors owns the box. */
static void equal_anchors(void **state)
{
    struct yolo_case c = one_slot();

    (void)state;
    memcpy(c.box[0], (float[]){ .5f, .5f, .5f, .5f }, sizeof c.box[0]);
    memcpy(c.head.anchor[1], c.head.anchor[0], sizeof c.head.anchor[0]);
    assert_true(term_of(&c, YOLO_POSITIVES) == 1);
    c.head.mask[0] = 1;
    assert_true(term_of(&c, YOLO_POSITIVES) == 0);
}

/* Every slot with unchanged own logits has the same gradient. */
static void same_but_wild(const struct yolo_case *t, const float *tame, const struct yolo_result *got, const struct yolo_result *want)
{
    size_t slot = 5 + (size_t)t->head.classes, slots = (size_t)MAX_IMAGES * image_floats(t) / slot, compared = 0;

    for (size_t i = 0; i < slots; i++) {
        if (memcmp(t->logits + i * slot, tame + i * slot, slot * sizeof(float)) != 0)
            continue;
        assert_memory_equal(got->grad + i * slot, want->grad + i * slot, slot * sizeof(float));
        compared++;
    }
    assert_true(compared > slots / 4 && compared < slots);
}

static void counts_are_possible(const struct yolo_case *t, const struct yolo_result *r)
{
    double slots = (double)(MAX_IMAGES * image_floats(t) / (5 + (size_t)t->head.classes)), positives = r->terms[0][YOLO_POSITIVES];

    assert_true(positives > 0 && positives == floor(positives) && positives <= 3.0 * t->offset[MAX_IMAGES]);
    assert_true(r->terms[0][YOLO_IGNORED] >= 0 && r->terms[0][YOLO_IGNORED] <= slots - positives);
    assert_true(r->terms[0][YOLO_RECALL50] <= positives && r->terms[0][YOLO_RECALL75] <= r->terms[0][YOLO_RECALL50]);
}

/* Boxes at and beyond the border, and boxes without a class, give finite numbers. Logits that are NaN or huge spoil
 * only their own slot. */
static void wild_input(void **state)
{
    const float wild[] = { NAN, INFINITY, -INFINITY, 1e38f, -1e38f };
    struct yolo_result *tame_result, *r;
    struct yolo_case t, tame;

    (void)state;
    random_case(&t, 3);
    t.box[0][0] = t.box[0][1] = 1.0f;
    t.box[1][0] = 0.99999999f;
    t.box[2][0] = -0.5f;
    t.box[2][1] = 7.0f;
    t.cls[3] = 3;
    t.cls[4] = -1;
    tame = t;
    t.logits = malloc((size_t)MAX_IMAGES * image_floats(&t) * sizeof(float));
    memcpy(t.logits, tame.logits, (size_t)MAX_IMAGES * image_floats(&t) * sizeof(float));
    for (size_t i = 0; i < (size_t)MAX_IMAGES * image_floats(&t); i += 13)
        t.logits[i] = wild[i / 13 % 5];
    tame_result = loss_of(&tame);
    for (size_t i = 0; i < (size_t)MAX_IMAGES * image_floats(&t); i++)
        assert_true(isfinite(tame_result->grad[i]));
    for (int k = 0; k < YOLO_TERMS; k++)
        assert_true(isfinite(tame_result->terms[0][k]));
    counts_are_possible(&t, tame_result);
    r = malloc(result_bytes(&t));
    for (int i = 0; i < devices.n; i++) {
        t.validate = false;
        run_loss(devices.dev[i], &t, r);
        same_but_wild(&t, tame.logits, r, tame_result);
        counts_are_possible(&t, r);
        t.validate = true;
        run_loss(devices.dev[i], &t, r);
        counts_are_possible(&t, r);
        free_buffers();
    }
    free(tame_result);
    free(r);
    free(t.logits);
    free(tame.logits);
}

/* For any such number: no class of the box's own slot is set, nor of the slot behind it, which another box owns. */
static void a_class_out_of_range_sets_nothing(void **state)
{
    const int32_t out[] = { 35, 64 + 3, 1 << 20, INT32_MIN };
    struct yolo_result *none, *other;
    struct yolo_case t;

    (void)state;
    random_case(&t, 35); /* two words of bits a slot */
    memcpy(t.box[3], (float[]){ 2.5f / 8, 2.5f / 6, 30.0f / 128, 20.0f / 96 }, sizeof(t.box[3]));
    memcpy(t.box[4], t.box[3], sizeof(t.box[4]));
    t.box[4][0] = 3.5f / 8;
    t.cls[4] = 0;
    t.cls[3] = -1;
    none = loss_of(&t);
    for (int i = 0; i < 4; i++) {
        t.cls[3] = out[i];
        other = loss_of(&t);
        assert_memory_equal(other, none, result_bytes(&t));
        free(other);
    }
    free(none);
    free(t.logits);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(loss_vectors),
                                        cmocka_unit_test(coordinates_of_darknet),
                                        cmocka_unit_test(empty_images_and_shards),
                                        cmocka_unit_test(random_heads),
                                        cmocka_unit_test(many_shards),
                                        cmocka_unit_test(gradients),
                                        cmocka_unit_test(truth_thresh),
                                        cmocka_unit_test(wild_input),
                                        cmocka_unit_test(a_class_out_of_range_sets_nothing),
                                        cmocka_unit_test(an_iou_on_a_threshold),
                                        cmocka_unit_test(a_recall_on_its_border),
                                        cmocka_unit_test(equal_anchors),
                                        cmocka_unit_test(class_weights),
                                        cmocka_unit_test(shards_have_inputs_of_their_own) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}

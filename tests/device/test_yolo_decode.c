/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_yolo_decode.c - uses: proto worker/core cpu cuda
 * The detections of a YOLO head: Darknet's numbers, order, thresholds, no room. */
#include "tests/device/yolo_cases.h"

struct decode_case {
    struct yolo_head head;
    struct canvas net;
    const float *logits;
    int g, cap;
    float conf;
    enum dtype dtype;
};

enum { MAX_FOUND = 4096 };

struct decode_result {
    int count;
    struct candidate c[MAX_FOUND];
};

static void run_decode(struct device *dev, const void *arg, void *ret)
{
    const struct decode_case *t = arg;
    int c = channels(&t->head);
    void *data = put_numbers(dev, t->logits, 2 * (size_t)t->g * (size_t)t->g * (size_t)c, t->dtype);
    struct tensor z = tensor_f32(data, 2, t->g, t->g, c);
    struct decode_result *r = ret;
    struct err err;

    z.dtype = held_as(dev, t->dtype);
    memset(r, 0, sizeof(*r));
    assert_int_equal(dev->on->yolo->decode(dev, &t->head, t->net, &z, 1, t->conf, 1000, r->c, t->cap, &r->count, &err), 0);
}

/* Boxes and scores of scale_x_y and new_coords, as AlexeyAB's darknet has them: tests/golden/make_yolo_coords.py. */
static void coordinates_of_darknet(void **state)
{
    json_t *root = json_load_file("tests/golden/yolo_coords.json", 0, NULL), *cases = json_object_get(root, "cases");
    struct decode_result *r = calloc(1, sizeof(*r));

    (void)state;
    assert_int_equal(json_array_size(cases), 5);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        json_t *j = json_array_get(cases, i), *decoded = json_object_get(j, "decoded");
        struct decode_case t = { .cap = MAX_FOUND };
        struct yolo_case y;
        float *z;

        load_case(j, &y);
        t.head = y.head;
        t.net = y.net;
        t.g = y.gh;
        t.logits = z = malloc(2 * image_floats(&y) * sizeof *z);
        memcpy(z, y.logits, 2 * image_floats(&y) * sizeof *z);
        same_on_all(run_decode, &t, r, sizeof(*r));
        assert_int_equal(r->count, json_array_size(decoded) * (size_t)y.head.classes); /* conf is 0 */
        for (int k = 0; k < r->count; k++) {
            const struct candidate *c = &r->c[k];
            json_t *want = json_array_get(decoded, (size_t)(c->slot - 1000));

            near((double)(c->x1 + c->x2) / 2, item(want, 0), 1e-6, "x", (size_t)k);
            near((double)(c->y1 + c->y2) / 2, item(want, 1), 1e-6, "y", (size_t)k);
            near((double)(c->x2 - c->x1), item(want, 2), 2e-6, "w", (size_t)k);
            near((double)(c->y2 - c->y1), item(want, 3), 2e-6, "h", (size_t)k);
            near((double)c->score, item(want, 5 + (size_t)c->cls), 1e-6, "score", (size_t)k);
        }
        free(z);
        free(y.logits);
    }
    free(r);
    json_decref(root);
}

static void decode_order_and_cap(void **state)
{
    struct decode_case t = { .net = { 224, 224 }, .g = 7, .cap = MAX_FOUND, .conf = 0.3f };
    struct decode_result *all = calloc(1, sizeof(*all)), *some = calloc(1, sizeof(*some));
    struct yolo_case y;
    float *z;
    int found = 0, c;

    (void)state;
    random_case(&y, 4);
    t.head = y.head;
    c = channels(&t.head);
    t.logits = z = numbers(2 * 49 * (size_t)c, 91, -2.0f, 2.0f);
    same_on_all(run_decode, &t, all, sizeof(*all));
    for (int a = 0; a < 3; a++)
        for (int cell = 0; cell < 49; cell++)
            for (int k = 0; k < 4; k++) {
                const float *slot = z + (49 + cell) * c + a * 9;
                double score = 1 / (1 + exp(-(double)slot[4])) / (1 + exp(-(double)slot[5 + k]));

                if (fabs(score - 0.3) < 1e-6 || score < 0.3)
                    continue;
                assert_true(all->c[found].slot == 1000 + a * 49 + cell && all->c[found].cls == k);
                near((double)all->c[found++].score, score, 1e-6, "score", (size_t)k);
            }
    assert_int_equal(all->count, found);
    assert_true(found > 20);
    t.cap = 10;
    same_on_all(run_decode, &t, some, sizeof(*some));
    assert_int_equal(some->count, found); /* the number found, even beyond cap */
    assert_memory_equal(some->c, all->c, 10 * sizeof(all->c[0]));
    assert_true(some->c[10].score == 0.0f);
    free(z);
    free(y.logits);
    free(all);
    free(some);
}

/* A score of exactly conf makes no candidate, whether by its objectness or by its class. */
static void a_score_on_the_threshold(void **state)
{
    float z[2][6] = { { 0 } };
    struct decode_case t = { .head = one_slot().head, .net = { 32, 32 }, .logits = z[0], .g = 1, .cap = MAX_FOUND };
    struct decode_result *r = calloc(1, sizeof *r);

    (void)state;
    for (int i = 0; i < 4; i++) {
        z[1][4] = i % 2 ? 200 : 0; /* sigmoids of 1 and .5; run_decode() looks at the second image */
        z[1][5] = i % 2 ? 0 : 200;
        t.conf = i < 2 ? .5f : nextafterf(.5f, 0);
        same_on_all(run_decode, &t, r, sizeof *r);
        assert_int_equal(r->count, i >= 2);
        assert_true(i < 2 || r->c[0].score == .5f);
    }
    free(r);
}

/* Many classes, bf16, nothing found, no room. */
static void decode_cases(void **state)
{
    struct decode_result *r = calloc(1, sizeof(*r));
    const int classes[] = { 1, 33, 80 };

    (void)state;
    for (int i = 0; i < 9; i++) {
        struct decode_case t = { .net = { 416, 320 }, .g = 3 + 4 * (i % 3), .cap = i == 5 ? 0 : MAX_FOUND, .conf = i == 4 ? 0.999f : 0.4f };
        struct yolo_case y;
        float *z;

        random_case(&y, classes[i / 3]);
        t.head = y.head;
        t.dtype = i % 2 ? DTYPE_BF16 : DTYPE_F32;
        t.logits = z = numbers_of(t.dtype, 2 * (size_t)(t.g * t.g * channels(&t.head)), 92 + (uint64_t)i, -2.0f, 2.0f);
        same_on_all(run_decode, &t, r, sizeof(*r));
        assert_true(i == 4 ? r->count == 0 : r->count > 0);
        assert_true(t.cap > 0 || r->c[0].score == 0.0f);
        free(z);
        free(y.logits);
    }
    free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(coordinates_of_darknet), cmocka_unit_test(decode_order_and_cap),
                                        cmocka_unit_test(decode_cases), cmocka_unit_test(a_score_on_the_threshold) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}

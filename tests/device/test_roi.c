/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_roi.c - uses: proto worker/core cpu cuda
 * RoIAlign: levels by specs rcnn section 13, torchvision's results (tests/golden/make_roi.py), the scalar bodies on
 * every device, and rules for any rows. */
#include "tests/device/roi_cases.h"

#include "worker/core/safetensors.h"

static const int32_t zeros[CASE_ROWS];

/* A shard with one image of one level. */
static struct roi_case single(struct roi_align roi, int h, int w, int c, const float (*box)[4], int rows)
{
    return (struct roi_case){
        .roi = roi, .nshards = 1, .c = c, .n = { 1 }, .h = { h }, .w = { w }, .cap = rows, .count = { rows }, .box = box, .image = zeros
    };
}

/* ---- specs rcnn, section 13 ---- */

/* Levels with constant values show which level a box takes. */
static void vector_levels(void **state)
{
    static const float side[] = { 56, 111.9f, 112, 223.9f, 224, 447.9f, 448, 900, 0, 4000 };
    static const int want[] = { 0, 0, 1, 1, 2, 2, 3, 3, 0, 3 };
    struct roi_align d2 = roi_like(4, 1, 1, true), tv = roi_like(4, 1, 1, false), few = roi_like(2, 1, 1, true);
    const float almost[4] = { 0, 0, 111.9999f, 112 }, flipped[4] = { 10, 10, 5, 900 }, wild[4] = { 0, NAN, 5, 9 };
    const float endless[4] = { 0, 0, INFINITY, 900 };

    (void)state;
    for (size_t i = 0; i < sizeof side / sizeof *side; i++) {
        const float box[4] = { 3, 5, side[i] + 3, side[i] + 5 }, exact[4] = { 0, 0, side[i], side[i] };

        assert_int_equal(roi_level(&d2, exact), want[i]);
        assert_int_equal(roi_level(&tv, exact), want[i]);
        if (side[i] == (float)(int)side[i])
            assert_int_equal(roi_level(&d2, box), want[i]);
        assert_int_equal(roi_level(&few, exact), want[i] < 2 ? want[i] : 1);
    }
    assert_int_equal(roi_level(&d2, almost), 0);
    assert_int_equal(roi_level(&tv, almost), 1);
    assert_int_equal(roi_level(&d2, flipped), 0);
    assert_int_equal(roi_level(&tv, wild), 0);
    assert_int_equal(roi_level(&d2, endless), 3);
    few = roi_like(1, 1, 1, true);
    few.canonical_side = 1;
    assert_int_equal(roi_level(&few, endless), 0);
}

/* ---- torchvision ---- */

/* The same numbers as in make_roi.py. */
enum { GOLDEN_C = 2, GOLDEN_H = 13, GOLDEN_W = 17 };
static const float golden_box[][4] = {
    { 2, 1, 19, 13 },    { -6, -3, 9, 30 },          { 22.5f, 18.25f, 24, 20 },     { 10, 10, 10, 10 },
    { 0, 0, 68, 52 },    { -100, -80, 200, 170.5f }, { 31.7f, 8.3f, 66.1f, 49.9f }, { 60, 40, 90, 80 },
    { 40, 30, 20, 10 },  { 300, 300, 310, 320 },     { 5.1f, 6.2f, 7.3f, 9.4f },    { 67.5f, 51.5f, 68.5f, 52.5f },
    { 12, -30, 13, 90 },
};
enum { GOLDEN_ROWS = sizeof golden_box / sizeof *golden_box };

static float golden_number(uint32_t of, uint32_t i)
{
    uint32_t n = (of * 100000 + i) * 2654435761u + 1;

    n ^= n >> 15;
    n *= 2246822519u;
    n ^= n >> 13;
    return (float)(((n >> 8) / 16777216.0 - 0.5) * 4);
}

static void near_golden(const struct safetensors *file, const char *what, const struct roi_case *t, const float *got, double tol)
{
    const struct st_array *a;
    char key[32];

    snprintf(key, sizeof key, "%s.%d.%d.%d", what, t->roi.pool, t->roi.sampling, t->roi.aligned);
    a = safetensors_find(file, key);
    assert_non_null(a);
    for (size_t i = 0; i < st_count(a); i++) {
        double want = (double)((const float *)a->data)[i];

        if (!(fabs((double)got[i] - want) <= tol))
            fail_msg("%s[%zu] is %.9g, should be %.9g", key, i, (double)got[i], want);
    }
}

static void golden(void **state)
{
    static const int which[][3] = { { 7, 0, 0 }, { 7, 0, 1 }, { 7, 1, 0 },  { 7, 1, 1 },  { 7, 2, 0 }, { 7, 2, 1 },
                                    { 7, 3, 0 }, { 7, 3, 1 }, { 14, 0, 1 }, { 14, 2, 0 }, { 1, 0, 1 }, { 2, 2, 0 } };
    static float x[GOLDEN_H * GOLDEN_W * GOLDEN_C], dy[GOLDEN_ROWS * 14 * 14 * GOLDEN_C];
    struct safetensors *file;
    struct err err;

    (void)state;
    if (safetensors_open("tests/golden/roi.safetensors", &file, &err) < 0)
        fail_msg("%s", err.msg);
    for (uint32_t i = 0; i < sizeof x / sizeof *x; i++)
        x[i] = golden_number(0, i);
    for (uint32_t i = 0; i < sizeof dy / sizeof *dy; i++)
        dy[i] = golden_number(1, i);
    for (size_t i = 0; i < sizeof which / sizeof *which; i++) {
        struct roi_case t =
            single(roi_like(1, which[i][0], which[i][1], which[i][2]), GOLDEN_H, GOLDEN_W, GOLDEN_C, golden_box, GOLDEN_ROWS);
        struct tensor y = bins_of(&t);
        float *out;

        t.x = x;
        t.dy = dy;
        out = results(&t);
        near_golden(file, "fwd", &t, out, 7.5e-6);
        near_golden(file, "bwd", &t, out + numbers_in(&y), 3.6e-5);
        free(out);
    }
    safetensors_close(file);
}

/* ---- all devices, and the scalar bodies ---- */

enum { MIXED = 24 };
static float mixed_box[MIXED][4];
static int32_t mixed_image[MIXED];

/* Boxes of all sizes on a canvas of 96 x 120, some beyond it, and boxes that no correct program makes. */
static int draw_boxes(void **state)
{
    static const float odd[][4] = {
        { 90, 70, 20, 10 },       { -1e6f, -1e6f, 1e6f, 1e6f },   { NAN, 0, 50, 50 },     { 0, 0, INFINITY, 40 },
        { -INFINITY, 3, 4, 5 },   { 1e30f, 1e30f, 2e30f, 2e30f }, { 7, 7, 7, 7 },         { 30, 90, 60, 20 },
        { 0, 0, 1e-30f, 1e-30f }, { -4e6f, -4e6f, 4e6f, 4e6f },   { 119.5f, 0, 121, 96 }, { 0, 0, 120, 96 },
    };
    float *u = numbers(MIXED * 4, 77, 0.0f, 1.0f);

    (void)state;
    for (int i = 0; i < MIXED; i++) {
        float size = u[4 * i + 2] * u[4 * i + 2] * 150.0f;

        mixed_box[i][0] = u[4 * i] * 130.0f - 20.0f;
        mixed_box[i][1] = u[4 * i + 1] * 110.0f - 20.0f;
        mixed_box[i][2] = mixed_box[i][0] + size;
        mixed_box[i][3] = mixed_box[i][1] + size * (0.3f + u[4 * i + 3]);
        mixed_image[i] = i % 3 == 2 ? 1 : 0;
        if (i % 2 == 1)
            memcpy(mixed_box[i], odd[i / 2], sizeof odd[i / 2]);
    }
    free(u);
    mixed_image[5] = 7; /* no image of the shard */
    mixed_image[11] = -1;
    return 0;
}

/* Two shards of different sizes. */
static struct roi_case mixed(struct roi_align roi, int c)
{
    return (struct roi_case){ .roi = roi,
                              .nshards = 2,
                              .c = c,
                              .n = { 2, 1 },
                              .h = { 24, 9 },
                              .w = { 30, 40 },
                              .cap = MIXED,
                              .count = { MIXED, 17 },
                              .box = mixed_box,
                              .image = mixed_image,
                              .beta = { 0, 1, 0.5f, 1 } };
}

static void bodies(void **state)
{
    static const int pool[] = { 1, 2, 7, 3 };

    (void)state;
    for (int sampling = 0; sampling < 4; sampling++)
        for (int aligned = 0; aligned < 2; aligned++) {
            struct roi_case t = mixed(roi_like(1 + sampling, pool[(sampling + aligned) % 4], sampling, aligned), 5);

            t.roi.canonical_side = 60;
            t.slice = sampling % 2;
            check_case(&t);
        }
}

static void widths(void **state)
{
    static const int c[] = { 1, 4, 16, 40, 300 };

    (void)state;
    for (size_t i = 0; i < sizeof c / sizeof *c; i++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            struct roi_case t = mixed(roi_like(2, 2, 0, i % 2), c[i]);

            t.roi.canonical_side = 100;
            t.count[0] = 9;
            t.count[1] = 4;
            t.dtype = bf16 ? DTYPE_BF16 : DTYPE_F32;
            check_case(&t);
        }
}

/* The size for the mask head, and the largest size. */
static void pools(void **state)
{
    (void)state;
    for (int pool = 14; pool <= ROI_MAX_POOL; pool += ROI_MAX_POOL - 14) {
        struct roi_case t = mixed(roi_like(2, pool, pool == 14 ? 2 : 0, pool == 14), 3);

        t.cap = t.count[0] = 10;
        t.count[1] = 3;
        t.roi.canonical_side = 80;
        check_case(&t);
    }
}

/* A value that is not finite affects only the cells that read it with a weight: a weight of 0 passes nothing on. */
static void not_finite(void **state)
{
    static const float box[2][4] = { { 6, 6, 10, 10 }, { 14, 2, 30, 22 } };
    static float x[12 * 12], dy[2 * 2 * 2];
    struct roi_case t = single(roi_like(1, 2, 1, true), 12, 12, 1, box, 2);

    (void)state;
    for (int i = 0; i < 12 * 12; i++)
        x[i] = i % 7 == 0 ? INFINITY : i % 11 == 0 ? NAN : 1.0f;
    for (int i = 0; i < 8; i++)
        dy[i] = i == 3 ? NAN : i == 6 ? INFINITY : 1.0f;
    t.x = x;
    t.dy = dy;
    check_case(&t);
}

/* More shards than travel in one launch; in some nothing is left. */
static void many_shards(void **state)
{
    struct roi_case t = mixed(roi_like(1, 2, 2, false), 2);

    (void)state;
    t.nshards = CASE_SHARDS;
    t.cap = 5;
    for (int v = 0; v < CASE_SHARDS; v++) {
        t.n[v] = 1;
        t.h[v] = 3 + v % 4;
        t.w[v] = 9 - v % 5;
        t.count[v] = v % 6;
    }
    check_case(&t);
}

/* Levels without a gradient do not change the gradients of the other levels. */
static void unwanted(void **state)
{
    struct roi_case t = mixed(roi_like(3, 2, 2, true), 4);

    (void)state;
    t.roi.canonical_side = 60;
    for (t.unwanted = 1; t.unwanted < 8; t.unwanted++)
        check_case(&t);
}

/* ---- rules for any rows ---- */

static void no_rows(void **state)
{
    struct roi_case t = mixed(roi_like(3, 2, 0, true), 3);
    float *out, *old, *at;

    (void)state;
    t.count[0] = t.count[1] = 0;
    check_case(&t);
    t.nshards = 1;
    out = results(&t);
    for (int i = 0; i < MIXED * 2 * 2 * 3; i++)
        assert_true(out[i] == 0.0f);
    at = out + (ptrdiff_t)MIXED * 2 * 2 * 3;
    for (int i = 0; i < 2 * 24 * 30 * 3; i++)
        assert_true(at[i] == 0.0f); /* beta 0 */
    at += 2 * 24 * 30 * 3;
    old = old_numbers(&t, 1, 0);
    for (int i = 0; i < 2 * 12 * 15 * 3; i++)
        assert_true(at[i] == old[i]); /* beta 1 */
    free(old);
    free(out);
}

/* Rows in another order: the same outputs in that order; the gradients are the same sums up to rounding. */
static void other_order(void **state)
{
    struct roi_case a = mixed(roi_like(2, 3, 0, true), 4), b;
    int turn[MIXED], different = 0;
    size_t each = 3 * 3 * 4;
    float *first, *second;

    (void)state;
    for (int i = 0; i < MIXED; i++)
        turn[i] = (i * 7 + 5) % MIXED;
    a.roi.canonical_side = 60;
    a.nshards = 1;
    b = a;
    b.turn = turn;
    first = results(&a);
    second = results(&b);
    for (size_t i = 0; i < MIXED; i++)
        assert_memory_equal(second + i * each, first + (size_t)turn[i] * each, each * sizeof *first);
    for (size_t i = MIXED * each; i < results_of(&a); i++) {
        near((double)second[i], (double)first[i], 2e-6, "dx", i);
        different += second[i] != first[i];
    }
    assert_true(different > 0); /* the order is that of the rows, and it shows */
    free(first);
    free(second);
}

static void equal_shares(void **state)
{
    static const int32_t image[6] = { 0, 0, 1, 1, 2, 2 };
    static const float box[6][4] = {
        { 1, 2, 30, 20 }, { 0, 0, 8, 8 }, { 3, 3, 20, 30 }, { 0, 0, 40, 40 }, { 9, 1, 12, 33 }, { 5, 5, 6, 6 }
    };
    struct roi_case t = single(roi_like(1, 3, 2, true), 9, 10, 4, box, 6);

    (void)state;
    t.n[0] = 3;
    t.image = image;
    t.shares = true;
    check_case(&t);
}

/* A thousand times the same box. */
static void identical(void **state)
{
    enum { ROWS = 1000, H = 9, W = 11 };
    static float box[ROWS][4], dy[ROWS * 2 * 2];
    struct roi_case t = single(roi_like(1, 2, 0, true), H, W, 1, (const float(*)[4])box, ROWS), one;
    float *all, *alone;

    (void)state;
    for (int i = 0; i < ROWS; i++) {
        memcpy(box[i], (const float[4]){ 5, 6, 31, 29 }, sizeof box[i]);
        memcpy(&dy[4 * i], (const float[4]){ 1, 2, 3, 4 }, 4 * sizeof *dy);
    }
    t.dy = dy;
    one = t;
    one.cap = one.count[0] = 1;
    all = results(&t);
    alone = results(&one);
    for (size_t i = 0; i < ROWS; i++)
        assert_memory_equal(all + 4 * i, alone, 4 * sizeof *all);
    for (size_t i = 0; i < H * W; i++)
        near((double)all[4 * ROWS + i], 1000.0 * (double)alone[4 + i], 1e-4, "dx", i);
    free(all);
    free(alone);
}

/* The operation is linear: <dy, A x> = <A^T dy, x>, and a step in a cell is its gradient. */
static void numeric_gradient(void **state)
{
    struct roi_case t = mixed(roi_like(1, 7, 0, true), 2);
    float *before, *x, *dy, *dx;
    double through = 0, back = 0;
    size_t n = MIXED * 7 * 7 * 2;

    (void)state;
    t.nshards = 1;
    before = results(&t);
    x = map_numbers(&t, 0, 0);
    dy = bin_numbers(&t, 0);
    dx = before + n;
    for (size_t i = 0; i < n; i++)
        through += (double)dy[i] * (double)before[i];
    for (size_t i = 0; i < 2 * 24 * 30 * 2; i++)
        back += (double)dx[i] * (double)x[i];
    near(back, through, 1e-5, "<dx, x>", 0);
    for (size_t cell = 3; cell < 2 * 24 * 30 * 2; cell += 331) {
        double slope = 0;
        float *after;

        x[cell] += 1.0f;
        t.x = x;
        after = results(&t);
        for (size_t i = 0; i < n; i++)
            slope += (double)dy[i] * ((double)after[i] - (double)before[i]);
        near((double)dx[cell], slope, 3e-5, "slope", cell);
        x[cell] -= 1.0f;
        free(after);
    }
    free(before);
    free(x);
    free(dy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vector_levels),    cmocka_unit_test(golden),       cmocka_unit_test_setup(bodies, draw_boxes),
        cmocka_unit_test(widths),           cmocka_unit_test(pools),        cmocka_unit_test(not_finite),
        cmocka_unit_test(many_shards),      cmocka_unit_test(unwanted),     cmocka_unit_test(no_rows),
        cmocka_unit_test(other_order),      cmocka_unit_test(equal_shares), cmocka_unit_test(identical),
        cmocka_unit_test(numeric_gradient),
    };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}

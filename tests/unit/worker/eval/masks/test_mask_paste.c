/* SPDX-License-Identifier: Apache-2.0 */ /* Maps of probabilities become masks: against PyTorch
 * (tests/golden/make_mask_paste.py), and where there is nothing to paste.
 * uses: proto worker/eval worker/mask worker/core */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "worker/eval/masks/mask_paste.h"
#include "worker/mask/rle.h"

static bool set(const struct result_mask *m, int x, int y)
{
    if (x < m->x || y < m->y || x >= m->x + m->w || y >= m->y + m->h)
        return false;
    return m->bits[(y - m->y) * ((m->w + 7) / 8) + (x - m->x) / 8] >> (7 - (x - m->x) % 8) & 1;
}

/* The one mask of a picture; until the next call for p. */
static const struct result_mask *paste(struct mask_paster *p, enum mask_paste how, const float *map, int side, const float box[4], int w,
                                       int h)
{
    const struct result_mask *m;
    struct err err;
    int n;

    mask_paste_begin(p, w, h);
    assert_int_equal(mask_paste(p, how, map, side, box, &err), 0);
    m = mask_paste_masks(p, &n);
    assert_int_equal(n, 1);
    assert_true(m->x >= 0 && m->y >= 0 && m->x + m->w <= w && m->y + m->h <= h);
    return m;
}

static const float example[16] = { 0, .2f, .4f, .6f, .1f, .5f, .9f, .7f, .2f, .8f, 1, .6f, 0, .3f, .5f, .1f };
static const float example_box[4] = { 2.3f, 1.6f, 7.9f, 6.2f };

static void check_case(struct mask_paster *p, const json_t *c)
{
    enum mask_paste how = strcmp(json_string_value(json_object_get(c, "how")), "tv") == 0 ? MASK_PASTE_RESIZE : MASK_PASTE_HALF_PIXEL;
    const json_t *rows = json_object_get(c, "rows"), *map = json_object_get(c, "map");
    int h = (int)json_array_size(rows), w = (int)strlen(json_string_value(json_array_get(rows, 0))), side = (int)json_array_size(map);
    const struct result_mask *m;
    float value[28 * 28], box[4];

    for (size_t k = 0; k < 4; k++)
        box[k] = (float)json_number_value(json_array_get(json_object_get(c, "box"), k));
    for (int i = 0; i < side * side; i++)
        value[i] = (float)json_integer_value(json_array_get(json_array_get(map, (size_t)(i / side)), (size_t)(i % side))) / 1000;
    m = paste(p, how, value, side, box, w, h);
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            if (set(m, x, y) != (json_string_value(json_array_get(rows, (size_t)y))[x] == '#'))
                fail_msg("%s, side %d, box %g %g %g %g: pixel %d %d", how == MASK_PASTE_RESIZE ? "tv" : "d2", side, box[0], box[1], box[2],
                         box[3], x, y);
}

static void agrees_with_pytorch(void **state)
{
    json_t *all = json_load_file("tests/golden/mask_paste.json", 0, NULL), *c;
    struct mask_paster *p = mask_paster_new();
    size_t i;

    (void)state;
    assert_true(json_array_size(all) > 50);
    json_array_foreach (all, i, c) {
        check_case(p, c);
    }
    mask_paster_free(p);
    json_decref(all);
}

/* A probability of exactly one half belongs to the object in one flavor, and not in the other. */
static void one_half_is_the_object_by_one_way_only(void **state)
{
    struct mask_paster *p = mask_paster_new();
    const struct result_mask *m;
    float half[16];

    (void)state;
    for (int i = 0; i < 16; i++)
        half[i] = .5f;
    m = paste(p, MASK_PASTE_HALF_PIXEL, half, 4, (float[]){ 2, 3, 6, 7 }, 10, 8);
    for (int y = 0; y < 8; y++)
        for (int x = 0; x < 10; x++)
            assert_int_equal(set(m, x, y), x >= 2 && x < 6 && y >= 3 && y < 7);
    m = paste(p, MASK_PASTE_RESIZE, half, 4, (float[]){ 2, 3, 6, 7 }, 10, 8);
    for (int y = 0; y < 8; y++)
        for (int x = 0; x < 10; x++)
            assert_false(set(m, x, y));
    mask_paster_free(p);
}

static void nothing_to_paste_has_no_size(void **state)
{
    static const float boxes[][4] = {
        { 3, 3, 3, 8 },        { 5, 3, 2, 8 },   { 3, 3, 8, 3 },   { 2, 8, 5, 3 },         { NAN, 1, 2, 3 },
        { 1, 1, INFINITY, 3 }, { 20, 1, 30, 5 }, { 1, -9, 5, -5 }, { 1e30f, 0, 2e30f, 5 },
    };
    struct mask_paster *p = mask_paster_new();

    (void)state;
    for (size_t i = 0; i < sizeof boxes / sizeof *boxes; i++)
        for (int how = 0; how < 2; how++) {
            const struct result_mask *m = paste(p, (enum mask_paste)how, example, 4, boxes[i], 10, 8);

            assert_true(m->w == 0 && m->h == 0);
        }
    mask_paster_free(p);
}

/* Boxes as large as floats go, and maps that hold no numbers. */
static void wild_numbers_do_no_harm(void **state)
{
    static const float huge[4] = { -3e38f, -3e38f, 3e38f, 3e38f }, tiny[4] = { 3, 3, 3.0000002f, 3.0000002f };
    float odd[16];
    struct mask_paster *p = mask_paster_new();

    (void)state;
    for (int i = 0; i < 16; i++)
        odd[i] = i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : -INFINITY;
    for (int how = 0; how < 2; how++) {
        paste(p, (enum mask_paste)how, odd, 4, huge, 10, 8);
        paste(p, (enum mask_paste)how, odd, 4, tiny, 10, 8);
        paste(p, (enum mask_paste)how, odd, 4, example_box, 10, 8);
    }
    mask_paster_free(p);
}

static void same_masks(const struct result_mask *a, const struct result_mask *b)
{
    assert_true(a->x == b->x && a->y == b->y && a->w == b->w && a->h == b->h);
    if (a->w > 0)
        assert_memory_equal(a->bits, b->bits, (size_t)a->h * (size_t)((a->w + 7) / 8));
}

static void box_number(int i, float ret[4])
{
    memcpy(ret, (float[]){ (float)i, (float)(i % 60), (float)(i + 3 + i % 9), (float)(i % 60 + i % 7) }, 4 * sizeof *ret);
}

/* Many masks of a picture, some without size, some as large as pictures may be: each mask equals the same mask pasted
 * alone. */
static void masks_of_a_picture_keep_apart(void **state)
{
    enum { MANY = 1000, W = RLE_MAX_SIDE, H = 70 };
    struct mask_paster *p = mask_paster_new(), *alone = mask_paster_new();
    const float full[4] = { 1, 1, 1, 1 };
    const struct result_mask *m;
    struct err err;
    float box[4];
    int n;

    (void)state;
    mask_paste_begin(p, W, H);
    for (int i = 0; i < MANY; i++) {
        box_number(i, box);
        assert_int_equal(mask_paste(p, MASK_PASTE_HALF_PIXEL, full, 2, box, &err), 0);
    }
    assert_int_equal(mask_paste(p, MASK_PASTE_RESIZE, full, 2, (float[]){ 0, 0, W, H }, &err), 0);
    m = mask_paste_masks(p, &n);
    assert_int_equal(n, MANY + 1);
    for (int i = 0; i < MANY; i++) {
        box_number(i, box);
        same_masks(&m[i], paste(alone, MASK_PASTE_HALF_PIXEL, full, 2, box, W, H));
    }
    assert_true(set(&m[MANY], W / 2, H / 2) && m[MANY].w == W && m[MANY].h == H);
    mask_paster_free(p);
    mask_paster_free(alone);
    mask_paster_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_pytorch),           cmocka_unit_test(one_half_is_the_object_by_one_way_only),
        cmocka_unit_test(nothing_to_paste_has_no_size),  cmocka_unit_test(wild_numbers_do_no_harm),
        cmocka_unit_test(masks_of_a_picture_keep_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/eval/boxes/test_coco_masks.c
 * uses: proto worker/eval worker/mask worker/core
 * Measures of masks: areas and overlaps from words of bits equal those from run lengths, for masks at any place and
 * pictures of any size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "tests/unit/worker/mask/rle_pairs.h"
#include "worker/eval/boxes/coco_masks.h"
#include "worker/mask/rle.h"

enum { MOST = 1000, CLASSES = 3 };

struct scene {
    int w, h;
    size_t ntruths;
    struct truth truths[MOST];
    struct rle truth[MOST];
    int ndets;
    struct detection dets[MOST];
    struct result_mask masks[MOST];
    uint8_t *bits[MOST];
    struct rle det[MOST];
};

static uint64_t random_state = 88172645463325252;

static int below(int n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (int)(random_state % (unsigned)n);
}

/* A rectangle with holes, which are lines: x and y of a size up to most. */
static struct result_mask random_mask(int w, int h, int most, uint8_t **ret_bits)
{
    struct result_mask m = { .w = below((most < w ? most : w) + 1), .h = below((most < h ? most : h) + 1) };
    size_t stride = (size_t)(m.w + 7) / 8;
    uint8_t *bits = malloc(stride * (size_t)m.h + 1), hole = (uint8_t)below(256);

    m.x = below(w - m.w + 1);
    m.y = below(h - m.h + 1);
    for (size_t i = 0; i < stride * (size_t)m.h; i++)
        bits[i] = below(3) ? 0xff : (uint8_t)(below(256) & hole);
    m.bits = *ret_bits = bits;
    return m;
}

static void rle_of(struct rle *r, const struct scene *s, const struct result_mask *m)
{
    struct err err;

    assert_int_equal(rle_from_crop(r, s->h, s->w, &(struct rle_crop){ m->x, m->y, m->w, m->h, m->bits }, &err), 0);
}

static struct scene *scene_new(int w, int h, int truths, int dets, int most)
{
    struct scene *s = calloc(1, sizeof *s);

    assert_non_null(s);
    s->w = w;
    s->h = h;
    s->ntruths = (size_t)truths;
    s->ndets = dets;
    for (int k = 0; k < truths; k++) {
        uint8_t *bits;
        struct result_mask m = random_mask(w, h, most, &bits);

        rle_of(&s->truth[k], s, &m);
        s->truths[k] = (struct truth){ .image = 4, .cls = below(CLASSES), .crowd = below(5) == 0, .area = 1, .box = { 0, 0, 1, 1 } };
        free(bits);
    }
    for (int k = 0; k < dets; k++) {
        s->masks[k] = random_mask(w, h, most, &s->bits[k]);
        rle_of(&s->det[k], s, &s->masks[k]);
        s->dets[k] = (struct detection){ 4, below(CLASSES), k, .5, { 0, 0, 1, 1 } };
    }
    return s;
}

static void scene_free(struct scene *s)
{
    for (int k = 0; k < MOST; k++) {
        rle_free(&s->truth[k]);
        rle_free(&s->det[k]);
        free(s->bits[k]);
    }
    free(s);
}

static int read_truth(void *of, size_t k, struct rle *ret, struct err *err)
{
    const struct rle *m = &((const struct scene *)of)->truth[k];
    int rc = rle_begin(ret, m->h, m->w, err);

    for (size_t i = 0; i < m->n && rc >= 0; i++)
        rc = rle_add(ret, m->run[i], err);
    return rc;
}

/* Every pair of a class, by words and by runs. Returns how many meet. */
static int check_pairs(const struct scene *s, const struct coco_measure *by)
{
    int meet = 0;

    for (int d = 0; d < s->ndets; d++) {
        assert_true(by->area(by->of, (size_t)d) == (double)rle_area(&s->det[d]));
        for (size_t t = 0; t < s->ntruths; t++) {
            double want;

            if (s->truths[t].cls != s->dets[d].cls)
                continue;
            want = rle_overlap(&s->det[d], &s->truth[t], s->truths[t].crowd);
            assert_true(by->overlap(by->of, (size_t)d, t) == want);
            meet += want > 0;
        }
    }
    return meet;
}

static int check_scene(int w, int h, int truths, int dets, int most)
{
    struct scene *s = scene_new(w, h, truths, dets, most);
    const struct eval_masks masks = { s, read_truth };
    const struct eval_split split = { .nimages = 5, .nclasses = CLASSES, .truths = s->truths, .ntruths = s->ntruths, .masks = &masks };
    const struct result r = { .kind = RESULT_MASKS, .image = 4, .n = dets, .boxes = s->dets, .masks = s->masks };
    const struct truth *order[MOST];
    struct coco_measure by;
    struct coco_masks *m;
    struct err err;
    int meet;

    for (int k = 0; k < truths; k++)
        order[k] = &s->truths[truths - 1 - k];
    assert_int_equal(coco_masks_open(&split, &m, &err), 0);
    for (int again = 0; again < 2; again++) /* the second picture finds the memory of the first */
        assert_int_equal(coco_masks_begin(m, &r, order, (size_t)truths, &by, &err), 0);
    meet = check_pairs(s, &by);
    coco_masks_close(m);
    scene_free(s);
    return meet;
}

static void words_measure_as_runs_do(void **state)
{
    static const int sizes[][2] = { { 1, 1 }, { 7, 9 }, { 64, 64 }, { 63, 130 }, { 129, 65 }, { 200, 1 }, { 1, 200 }, { 300, 200 } };
    int meet = 0;

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int round = 0; round < 10; round++)
            meet += check_scene(sizes[i][0], sizes[i][1], 12, 15, 1 + below(300));
    assert_true(meet > 1000);
    check_scene(10, 10, 0, 3, 5);
    check_scene(10, 10, 3, 0, 5);
}

static void a_thousand_objects(void **state)
{
    (void)state;
    assert_true(check_scene(700, 500, MOST, MOST, 60) > 1000);
}

static void pictures_as_large_as_they_may_be(void **state)
{
    (void)state;
    assert_true(check_scene(RLE_MAX_SIDE, 50, 20, 20, RLE_MAX_SIDE) > 10);
    assert_true(check_scene(50, RLE_MAX_SIDE, 20, 20, RLE_MAX_SIDE) > 10);
    assert_true(check_scene(5000, 1, 40, 40, 5000) > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_measure_as_runs_do),
        cmocka_unit_test(a_thousand_objects),
        cmocka_unit_test(pictures_as_large_as_they_may_be),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/mask/test_rle.c - uses: proto worker/mask
 * Masks as run lengths, compared with COCO's tools (tests/golden/masks.json of make_masks.py) and with plain
 * bitmaps. */
#include <errno.h>
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
#include "tests/unit/worker/mask/rle_pairs.h"
#include "worker/mask/rle.h"

#define GOLDEN "tests/golden/masks.json"

static uint64_t random_state = 88172645463325252;

static unsigned below(unsigned n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (unsigned)(random_state % n);
}

/* ---- masks of a file ---- */

static void same_runs(const char *what, const struct rle *m, const json_t *runs)
{
    size_t i;
    json_t *run;

    if (m->n != json_array_size(runs))
        fail_msg("%s: %zu runs, expected %zu", what, m->n, json_array_size(runs));
    json_array_foreach (runs, i, run) {
        if (m->run[i] != json_integer_value(run))
            fail_msg("%s: run %zu is %d, expected %lld", what, i, m->run[i], (long long)json_integer_value(run));
    }
}

static void same_text(const char *what, const struct rle *m, const char *want)
{
    char *text = malloc(m->n * RLE_TEXT_MOST + 1);

    text[rle_to_text(m, text)] = '\0';
    if (strcmp(text, want) != 0)
        fail_msg("%s: \"%s\", expected \"%s\"", what, text, want);
    free(text);
}

static int size_of(const json_t *c, size_t k)
{
    return (int)json_integer_value(json_array_get(json_object_get(c, "size"), k));
}

/* A mask of a case, with "size" and "counts". */
static void read_mask(struct rle *m, const json_t *c)
{
    const char *text = json_string_value(json_object_get(c, "counts"));
    struct err err = { 0 };

    if (rle_from_text(m, size_of(c, 0), size_of(c, 1), text, strlen(text), &err) < 0)
        fail_msg("%s", err.msg);
}

/* Everything that is said of a mask: "runs", "counts", "area", "bbox". */
static void same_mask(const char *what, const struct rle *m, const json_t *c)
{
    struct rle back = { 0 };
    int box[4];

    same_runs(what, m, json_object_get(c, "runs"));
    same_text(what, m, json_string_value(json_object_get(c, "counts")));
    read_mask(&back, c);
    same_runs(what, &back, json_object_get(c, "runs"));
    assert_int_equal(rle_area(m), json_integer_value(json_object_get(c, "area")));
    rle_bounds(m, box);
    for (size_t k = 0; k < 4; k++)
        if (box[k] != json_number_value(json_array_get(json_object_get(c, "bbox"), k)))
            fail_msg("%s: bounds %d %d %d %d", what, box[0], box[1], box[2], box[3]);
    rle_free(&back);
}

static void draw(struct rle *m, int h, int w, const json_t *polygons)
{
    size_t parts = json_array_size(polygons), points = 0, i, k;
    int64_t *first = calloc(parts + 1, sizeof *first);
    json_t *p, *v;
    double(*xy)[2];
    struct err err;

    json_array_foreach (polygons, i, p) {
        points += json_array_size(p) / 2;
        first[i + 1] = (int64_t)points;
    }
    xy = calloc(points + 1, sizeof *xy);
    json_array_foreach (polygons, i, p) {
        json_array_foreach (p, k, v) {
            xy[(size_t)first[i] + k / 2][k % 2] = json_number_value(v);
        }
    }
    assert_int_equal(rle_from_polygons(m, h, w, xy, first, (int)parts, &err), 0);
    free(xy);
    free(first);
}

static void check_polygons(const json_t *list)
{
    struct rle m = { 0 };
    size_t i;
    json_t *c;

    json_array_foreach (list, i, c) {
        draw(&m, size_of(c, 0), size_of(c, 1), json_object_get(c, "polygons"));
        same_mask(json_string_value(json_object_get(c, "source")), &m, c);
    }
    rle_free(&m);
}

static void check_overlap(const json_t *c)
{
    const json_t *dets = json_object_get(c, "detections"), *truths = json_object_get(c, "ground_truth");
    struct rle d = { 0 }, t = { 0 };

    for (size_t i = 0; i < json_array_size(dets); i++)
        for (size_t k = 0; k < json_array_size(truths); k++) {
            double want = json_number_value(json_array_get(json_array_get(json_object_get(c, "iou"), i), k));
            bool crowd = json_integer_value(json_array_get(json_object_get(c, "iscrowd"), k)) != 0;

            read_mask(&d, json_array_get(dets, i));
            read_mask(&t, json_array_get(truths, k));
            assert_float_equal(rle_overlap(&d, &t, crowd), want, 1e-9);
        }
    rle_free(&d);
    rle_free(&t);
}

static void check_file(const json_t *all)
{
    struct rle m = { 0 };
    size_t i;
    json_t *c;

    check_polygons(json_object_get(all, "polygons"));
    json_array_foreach (json_object_get(all, "rle"), i, c) {
        read_mask(&m, c);
        same_mask(json_string_value(json_object_get(c, "name")), &m, c);
    }
    json_array_foreach (json_object_get(all, "mask_iou"), i, c) {
        check_overlap(c);
    }
    rle_free(&m);
}

static void agrees_with_the_golden_masks(void **state)
{
    json_t *all = json_load_file(GOLDEN, 0, NULL);

    (void)state;
    assert_non_null(all);
    assert_true(json_array_size(json_object_get(all, "polygons")) > 50);
    check_file(all);
    json_decref(all);
}

/* ---- odd runs and crops ---- */

static void runs_of_nothing_and_other_sizes(void **state)
{
    struct rle a = { 0 }, b = { 0 };
    struct err err;
    int box[4];

    (void)state;
    assert_int_equal(rle_from_text(&a, 2, 2, "2011", 4, &err), 0); /* the second run is 0, the fourth 1 + 0 */
    rle_bounds(&a, box);
    assert_true(box[0] == 1 && box[1] == 1 && box[2] == 1 && box[3] == 1);
    assert_int_equal(rle_from_text(&b, 2, 3, "06", 2, &err), 0);
    assert_int_equal(rle_common(&a, &b), 0);
    rle_free(&a);
    rle_free(&b);
}

/* Rows above and below the picture are not written. */
static void a_crop_may_leave_the_picture(void **state)
{
    static const uint8_t ones[4] = { 0xc0, 0xc0, 0xc0, 0xc0 }, above[4] = { 0xc0 };
    struct rle m = { 0 };
    struct err err;

    (void)state;
    assert_int_equal(rle_from_crop(&m, 2, 2, &(struct rle_crop){ 0, -1, 2, 4, ones }, &err), 0);
    assert_true(m.n == 2 && m.run[0] == 0 && m.run[1] == 4);
    assert_int_equal(rle_from_crop(&m, 2, 2, &(struct rle_crop){ 0, -1, 2, 4, above }, &err), 0);
    assert_true(m.n == 1 && m.run[0] == 4);
    rle_free(&m);
}

/* ---- refused masks ---- */

static void refused(int h, int w, const char *text, const char *why)
{
    struct rle m = { 0 };
    struct err err = { 0 };

    assert_int_equal(rle_from_text(&m, h, w, text, strlen(text), &err), ERR_DATA);
    assert_string_equal(err.msg, why);
    rle_free(&m);
}

static void broken_text_is_refused(void **state)
{
    struct rle m = { 0 };
    struct err err;

    (void)state;
    refused(0, 5, "5", "a size of 0 x 5 pixels (height x width)");
    refused(5, 16385, "5", "a size of 5 x 16385 pixels (height x width)");
    refused(2, 2, "4 ", "the run string is malformed");
    refused(2, 2, "4\x80", "the run string is malformed");
    refused(2, 2, "oooooo", "the run string is malformed");
    refused(2, 2, "PPPPPPPPPPPPPPPP", "the run string is malformed");
    refused(2, 2, "PPPPPPPP4", "the run string is malformed");
    refused(2, 2, "4p", "the run string is malformed");
    refused(2, 2, "T", "the run string is malformed"); /* more was to follow */
    refused(2, 2, "O", "a run is negative");
    refused(2, 2, "5", "the runs pass its size of 2 x 2 pixels (height x width)");
    refused(2, 2, "111", "the runs do not fill its size of 2 x 2 pixels (height x width)");
    refused(2, 2, "", "the runs do not fill its size of 2 x 2 pixels (height x width)");
    refused(2, 2, "1110N", "a run is negative");
    assert_int_equal(rle_begin(&m, 2, 2, &err), 0);
    assert_int_equal(rle_add(&m, INT64_MIN, &err), ERR_DATA);
    assert_int_equal(rle_add(&m, INT64_MAX, &err), ERR_DATA);
    assert_int_equal(rle_add(&m, 4, &err), 0);
    assert_int_equal(rle_add(&m, 0, &err), 0);
    assert_int_equal(rle_end(&m, &err), 0);
    rle_free(&m);
}

static void the_largest_picture(void **state)
{
    static const int32_t runs[] = { 1, (1 << 28) - 2, 1 };
    struct rle m = { RLE_MAX_SIDE, RLE_MAX_SIDE, (int32_t *)runs, 3, 3, 0 }, back = { 0 };
    const double far[4][2] = { { -1e300, -1e300 }, { 1e300, -1e300 }, { INFINITY, INFINITY }, { -INFINITY, 1e300 } };
    const double none[4][2] = { { NAN, 1 }, { 2, NAN }, { NAN, NAN }, { 3, 4 } };
    const int64_t first[2] = { 0, 4 };
    char text[3 * RLE_TEXT_MOST];
    struct err err;

    (void)state;
    assert_int_equal(rle_from_text(&back, m.h, m.w, text, rle_to_text(&m, text), &err), 0);
    assert_memory_equal(back.run, runs, sizeof runs);
    assert_int_equal(rle_from_polygons(&back, m.h, m.w, far, first, 1, &err), 0);
    assert_int_equal(rle_area(&back), 1 << 28);
    assert_int_equal(rle_from_polygons(&back, 8, 9, none, first, 1, &err), 0);
    assert_in_range(rle_area(&back), 0, 8 * 9); /* anything, but no harm */
    rle_free(&back);
}

/* ---- against bitmaps, pixel by pixel ---- */

enum { SIDE = 150, ROUNDS = 300 };

struct bitmap {
    uint8_t at[SIDE][SIDE]; /* [y][x] */
};

/* Grain: how long runs are. */
static void random_bitmap(struct bitmap *b, int h, int w, unsigned grain)
{
    unsigned set = below(2);

    memset(b, 0, sizeof *b);
    for (int x = 0; x < w; x++)
        for (int y = 0; y < h; y++) {
            if (below(grain) == 0)
                set ^= 1;
            b->at[y][x] = (uint8_t)set;
        }
}

static void bitmap_runs(const struct bitmap *b, int h, int w, struct rle *m)
{
    struct err err;
    int64_t run = 0;
    int value = 0;

    assert_int_equal(rle_begin(m, h, w, &err), 0);
    for (int x = 0; x < w; x++)
        for (int y = 0; y < h; y++) {
            if (b->at[y][x] != value) {
                assert_int_equal(rle_add(m, run, &err), 0);
                run = 0;
                value = !value;
            }
            run++;
        }
    assert_int_equal(rle_add(m, run, &err), 0);
    assert_int_equal(rle_end(m, &err), 0);
}

static void same_rle(const struct rle *a, const struct rle *b)
{
    assert_int_equal(a->h, b->h);
    assert_int_equal(a->w, b->w);
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->run, b->run, a->n * sizeof *a->run);
}

static void what_two_have_in_common_is_what_bits_say(void **state)
{
    static struct bitmap a, b;
    struct rle p = { 0 }, q = { 0 };

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        int h = 1 + (int)below(SIDE), w = 1 + (int)below(SIDE), common = 0, all = 0;

        random_bitmap(&a, h, w, 1 + below(60));
        random_bitmap(&b, h, w, 1 + below(60));
        for (int i = 0; i < SIDE * SIDE; i++) {
            int y = i / SIDE, x = i % SIDE;

            common += a.at[y][x] & b.at[y][x];
            all += a.at[y][x] | b.at[y][x];
        }
        bitmap_runs(&a, h, w, &p);
        bitmap_runs(&b, h, w, &q);
        assert_int_equal(rle_common(&p, &q), common);
        assert_true(rle_overlap(&p, &q, false) == (common ? (double)common / all : 0));
        q.w++;
        assert_true(rle_overlap(&p, &q, false) == -1);
        q.w--;
    }
    rle_free(&p);
    rle_free(&q);
}

/* The crop's pixel (x, y). */
static int crop_bit(const uint8_t *bits, int w, int x, int y)
{
    return bits[y * ((w + 7) / 8) + x / 8] >> (7 - x % 8) & 1;
}

static void check_crop(const struct bitmap *b, const struct rle *m, const struct rle_crop *c)
{
    for (int y = 0; y < c->h; y++)
        for (int x = 0; x < (c->w + 7) / 8 * 8; x++) {
            int px = c->x + x, py = c->y + y;
            bool in = px >= 0 && py >= 0 && px < m->w && py < m->h && x < c->w;

            assert_int_equal(crop_bit(c->bits, c->w, x, y), in && b->at[py][px]);
        }
}

/* Crops anywhere, which may lie partly or wholly outside, and hold rubbish behind their rows' ends. */
static void crops_come_and_go(void **state)
{
    static struct bitmap b, inside;
    static uint8_t bits[2 * SIDE * (2 * SIDE / 8 + 1)];
    struct rle m = { 0 }, back = { 0 }, want = { 0 };
    struct err err;

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        int h = 1 + (int)below(SIDE), w = 1 + (int)below(SIDE);
        struct rle_crop c = { (int)below(2 * SIDE) - SIDE, (int)below(2 * SIDE) - SIDE, (int)below(2 * SIDE), (int)below(2 * SIDE), bits };

        random_bitmap(&b, h, w, 1 + below(100));
        bitmap_runs(&b, h, w, &m);
        memset(bits, 0xa5, sizeof bits);
        rle_to_crop(&m, c.x, c.y, c.w, c.h, bits);
        check_crop(&b, &m, &c);
        memset(&inside, 0, sizeof inside);
        for (int y = 0; y < h; y++)
            for (int x = 0; x < w; x++)
                inside.at[y][x] = b.at[y][x] && x >= c.x && x < c.x + c.w && y >= c.y && y < c.y + c.h;
        bitmap_runs(&inside, h, w, &want);
        for (int y = 0; y < c.h && c.w % 8; y++)
            bits[(y + 1) * ((c.w + 7) / 8) - 1] |= (uint8_t)(0xff >> c.w % 8);
        assert_int_equal(rle_from_crop(&back, h, w, &c, &err), 0);
        same_rle(&back, &want);
    }
    rle_free(&m);
    rle_free(&back);
    rle_free(&want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_golden_masks),
        cmocka_unit_test(runs_of_nothing_and_other_sizes),
        cmocka_unit_test(a_crop_may_leave_the_picture),
        cmocka_unit_test(broken_text_is_refused),
        cmocka_unit_test(the_largest_picture),
        cmocka_unit_test(what_two_have_in_common_is_what_bits_say),
        cmocka_unit_test(crops_come_and_go),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

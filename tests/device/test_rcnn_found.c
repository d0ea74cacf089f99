/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_rcnn_found.c
 * uses: proto worker/core worker/layers cpu cuda
 * Rows of a second stage with NaN, on every device: specs rcnn section 6.1. */
#include "tests/device/rcnn_cases.h"

#include <math.h>

enum { CLASSES = 2, ROWS = 10, MOST = CLASSES * ROWS };

static struct rcnn_head head_of(bool tv, bool agnostic)
{
    return (struct rcnn_head){ .classes = CLASSES, .background_first = tv, .agnostic = agnostic, .weights = { 10, 10, 5, 5 } };
}

/* Both classes of every row are certain enough, and row r has its odd number in delta `delta` of class `cls`. */
static const struct {
    int cls, delta;
    float odd;
    bool gone;
} rows[ROWS] = {
    { 0, 0, 0, false },        { 0, 0, NAN, true },       { 1, 1, NAN, true },
    { 1, 2, INFINITY, false }, /* a side grows by this factor at most */
    { 0, 0, INFINITY, true },  { 1, 1, -INFINITY, true }, { 0, 2, NAN, true },
    { 1, 3, NAN, true },       { 0, 0, 3e38f, true }, /* finite, and too far */
    { 1, 3, 0, false },
};

struct found {
    struct candidate c[MOST];
    int n;
};

static void run(struct device *dev, const void *arg, void *ret)
{
    const struct rcnn_head *head = arg;
    int columns = rcnn_box_columns(head);
    float z[ROWS * (CLASSES + 1)], d[ROWS * 4 * (CLASSES + 1)] = { 0 }, box[ROWS][4];
    int32_t image[ROWS] = { 0 }, offset[2] = { 0, ROWS }, size[2] = { 64, 96 };
    struct tensor logits = tensor_f32(NULL, ROWS, 1, 1, CLASSES + 1), deltas = tensor_f32(NULL, ROWS, 1, 1, columns);
    struct rcnn_images images = { 1, { 64, 96 }, put(dev, size, sizeof size) };
    struct rpn_proposals proposals = { NULL, NULL, put(dev, image, sizeof image), put(dev, offset, sizeof offset), NULL, ROWS };
    struct found *f = ret;

    memset(f, 0, sizeof *f);
    for (int r = 0; r < ROWS; r++) {
        int cls = head->agnostic ? 0 : rows[r].cls + head->background_first;

        for (int c = 0; c <= CLASSES; c++)
            z[r * (CLASSES + 1) + c] = 1;
        d[r * columns + 4 * cls + rows[r].delta] = rows[r].odd;
        memcpy(box[r], (float[4]){ 10, 12, 40, 50 }, sizeof box[r]);
    }
    proposals.box = put(dev, box, sizeof box);
    put_tensor(dev, &logits, z, 1);
    put_tensor(dev, &deltas, d, 0);
    CALL(dev->on->rcnn->decode(dev, head, &images, &logits, &deltas, &proposals, 0, 0.2f, 0.01f, f->c, MOST, &f->n, err));
}

/* A row is dropped as a whole, with its good class. */
static void check(const struct rcnn_head *head)
{
    struct found f;
    int at = 0;

    same_on_all(run, head, &f, sizeof f);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < CLASSES && !rows[r].gone; c++, at++) {
            assert_true(at < f.n);
            assert_int_equal(f.c[at].slot, r * CLASSES + c);
        }
    assert_int_equal(f.n, at);
}

static void rows_that_are_not_finite(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        struct rcnn_head head = head_of(k % 2, k / 2);

        check(&head);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(rows_that_are_not_finite) };

    return cmocka_run_group_tests_name("rcnn_found", tests, open_devices, close_devices);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_rcnn_detect.c - which regions are detections: the vector
 * of specs rcnn section 13.2, on every device. uses: proto worker/core worker/layers cpu cuda */
#include "tests/device/rcnn_cases.h"

#include <math.h>

#include "worker/kernels/rcnn.h"

static void one_after_the_other(void **state)
{
    /* Section 13.2: boxes and scores; every class of its own is left alone. */
    const float box[5][4] = { { 0, 0, 10, 10 }, { 1, 1, 11, 11 }, { 0, 0, 10, 5 }, { 20, 20, 30, 30 }, { 20, 20, 30, 30 } };
    const float score[5] = { .9f, .8f, .95f, .5f, .5f };
    const int want[2][4] = { { 2, 0, 3, -1 }, { 2, 0, 1, 3 } };
    const int32_t offset[2] = { 0, 5 }, size[2] = { 100, 100 };
    float logits[5][2], deltas[5][4] = { { 0 } };

    (void)state;
    for (int i = 0; i < 5; i++) {
        logits[i][0] = logf(score[i]);
        logits[i][1] = logf(1 - score[i]);
    }
    for (int d = 0; d < devices.n; d++)
        for (int k = 0; k < 2; k++) {
            struct device *dev = devices.dev[d];
            struct rcnn_head head = { .classes = 1, .weights = { 10, 10, 5, 5 } };
            struct rcnn_detection_options opt = { .score = 0.05f, .nms = k ? 0.7f : 0.5f, .max = 100 };
            struct rcnn_images images = { 1, { 100, 100 }, put(dev, size, 8) };
            struct rpn_proposals p = { .box = put(dev, box, sizeof box), .offset = put(dev, offset, 8), .cap = 5 };
            struct tensor z = tensor_f32(put(dev, logits, sizeof logits), 5, 1, 1, 2),
                          t = tensor_f32(put(dev, deltas, sizeof deltas), 5, 1, 1, 4);
            struct candidate found[100];
            int n;

            use_device(d);
            CALL(rcnn_detect(dev, &head, &opt, &images, &z, &t, &p, 0, found, &n, err));
            assert_int_equal(n, k ? 4 : 3);
            for (int i = 0; i < n; i++)
                assert_int_equal(found[i].slot, want[k][i]);
            opt.max = 2;
            CALL(rcnn_detect(dev, &head, &opt, &images, &z, &t, &p, 0, found, &n, err));
            assert_int_equal(n, 2);
            free_buffers();
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_after_the_other),
    };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}

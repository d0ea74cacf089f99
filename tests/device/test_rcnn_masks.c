/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_rcnn_masks.c - targets of the mask head: the vector of
 * specs rcnn section 13.3, and pixel by pixel, on every device. uses: proto worker/core worker/layers cpu cuda */
#include "tests/device/rcnn_cases.h"

#include <math.h>

#include "worker/kernels/rcnn.h"

static const int sides[] = { 28, 8, 33, 56, RCNN_MAX_MASK_SIDE };

struct mask_case {
    struct rcnn_head head;
    double xy[16][2];
    int npoints, npolygons;
    int32_t point[4];
    int32_t length[512];
    int nruns;
    int32_t size[2];
    float box[4];
};

static void run_mask(struct device *dev, const void *arg, void *ret)
{
    const struct mask_case *m = arg;
    const int32_t zero[2] = { 0, 0 }, one[2] = { 0, 1 }, polygons[2] = { 0, m->nruns ? 0 : m->npolygons }, runs[2] = { 0, m->nruns };
    struct rcnn_images images = { 1, { 64, 64 }, put(dev, m->size, sizeof m->size) };
    struct rcnn_outlines o = { put(dev, polygons, 8), put(dev, m->point, sizeof m->point), put(dev, m->xy, sizeof m->xy), put(dev, runs, 8),
                               put(dev, m->length, sizeof m->length) };
    struct rcnn_samples s = { .mask_cap = 1,
                              .mask_box = put(dev, m->box, 16),
                              .mask_image = put(dev, zero, 8),
                              .mask_label = put(dev, zero, 8),
                              .mask_truth = put(dev, zero, 8),
                              .mask_offset = put(dev, one, 8) };
    size_t bytes = (size_t)rcnn_mask_cells(&m->head) * sizeof(float);
    float *target = put(dev, NULL, bytes);

    CALL(dev->on->rcnn->mask_targets(dev, &m->head, &images, &o, &target, &s, 1, err));
    get(dev, ret, target, bytes);
}

static double bit_at(const struct mask_case *m, int y, int x)
{
    int at = 0, value = 0;

    for (int r = 0; r < m->nruns; r++, value = !value) {
        at += m->length[r];
        if (x * m->size[0] + y < at)
            return value;
    }
    return 0;
}

/* RoIAlign of a bitmap, point by point. */
static double plain_align(const struct mask_case *m, bool aligned, int py, int px)
{
    double side = m->head.mask_side, o = aligned ? 0.5 : 0, sx = m->box[0] - o, sy = m->box[1] - o, w = m->box[2] - o - sx,
           h = m->box[3] - o - sy, sum = 0;
    int gx, gy;

    if (!aligned) {
        w = fmax(w, 1);
        h = fmax(h, 1);
    }
    gx = (int)ceil(w / side);
    gy = (int)ceil(h / side);
    for (int iy = 0; iy < gy; iy++)
        for (int ix = 0; ix < gx; ix++) {
            double y = sy + py * h / side + (iy + 0.5) * h / side / gy, x = sx + px * w / side + (ix + 0.5) * w / side / gx;
            int H = m->size[0], W = m->size[1], y0, x0;

            if (y < -1 || y > H || x < -1 || x > W)
                continue;
            y = fmin(fmax(y, 0), H - 1);
            x = fmin(fmax(x, 0), W - 1);
            y0 = (int)y < H - 1 ? (int)y : H - 2;
            x0 = (int)x < W - 1 ? (int)x : W - 2;
            y -= y0;
            x -= x0;
            sum += (1 - y) * (1 - x) * bit_at(m, y0, x0) + (1 - y) * x * bit_at(m, y0, x0 + 1) + y * (1 - x) * bit_at(m, y0 + 1, x0) +
                   y * x * bit_at(m, y0 + 1, x0 + 1);
        }
    return gx * gy > 0 ? sum / (gx * gy) : 0;
}

static void check_bitmap(struct mask_case *m)
{
    int side = m->head.mask_side;
    float got[RCNN_MAX_MASK_CELLS];

    for (int aligned = 0; aligned < 2; aligned++) {
        m->head.masks = aligned ? RCNN_MASKS_OF_OUTLINES : RCNN_MASKS_OF_BITMAPS;
        same_on_all(run_mask, m, got, (size_t)(side * side) * sizeof *got);
        for (int i = 0; i < side * side; i++) {
            double want = plain_align(m, aligned, i / side, i % side);

            if (!aligned)
                near(got[i], want, 1e-5, "target", (size_t)i);
            else if (fabs(want - 0.5) > 1e-4)
                assert_true(got[i] == (want > 0.5 ? 1.0f : 0.0f));
        }
    }
}

static void sampled_bitmaps(void **state)
{
    struct mask_case m = { .size = { 40, 50 }, .nruns = 101 };
    const float boxes[5][4] = {
        { 3.3f, 4.1f, 44.7f, 36.2f }, { 10, 10, 14, 13 }, { -4, -6, 70, 60 }, { 48, 38, 50, 40 }, { 20, 20, 20, 20 }
    };
    struct philox_key key = { .seed = 5 };

    (void)state;
    for (int i = 0; i < 100; i++)
        m.length[i] = (int32_t)philox_below(&key, (uint64_t)i, 38);
    m.length[100] = 4000;
    for (size_t s = 0; s < sizeof sides / sizeof *sides; s++)
        for (int i = 0; i < 5; i++) {
            memcpy(m.box, boxes[i], sizeof m.box);
            m.head.mask_side = sides[s];
            check_bitmap(&m);
        }
}

/* The cells inside a polygon, by the walk of section 8.3, literally. */
static void plain_polygon(unsigned char *ret, const double *x, const double *y, int k, int h, int w)
{
    static int u[4000000], v[4000000];
    unsigned char turn[64 * 64 + 1] = { 0 }, inside = 0;
    int n = 0;

    for (int j = 0; j < k; j++) {
        int xs = (int)(5 * x[j] + .5), ys = (int)(5 * y[j] + .5), xe = (int)(5 * x[(j + 1) % k] + .5), ye = (int)(5 * y[(j + 1) % k] + .5);
        int dx = abs(xe - xs), dy = abs(ye - ys), flip = (dx >= dy && xs > xe) || (dx < dy && ys > ye), t;

        if (flip) {
            t = xs, xs = xe, xe = t;
            t = ys, ys = ye, ye = t;
        }
        for (int d = 0; d <= (dx >= dy ? dx : dy) && dx + dy > 0; d++, n++) {
            t = flip ? (dx >= dy ? dx : dy) - d : d;
            u[n] = dx >= dy ? t + xs : (int)(xs + (double)(xe - xs) / dy * t + .5);
            v[n] = dx >= dy ? (int)(ys + (double)(ye - ys) / dx * t + .5) : t + ys;
        }
    }
    for (int j = 1; j < n; j++) {
        double xd = u[j] < u[j - 1] ? u[j] : u[j] - 1, yd = v[j] < v[j - 1] ? v[j] : v[j - 1];

        if (u[j] == u[j - 1])
            continue;
        xd = (xd + .5) / 5 - .5;
        if (floor(xd) != xd || xd < 0 || xd > w - 1)
            continue;
        yd = (yd + .5) / 5 - .5;
        yd = ceil(yd < 0 ? 0 : yd > h ? h : yd);
        turn[(int)(xd * h + yd)] ^= 1;
    }
    for (int i = 0; i < h * w; i++) {
        inside ^= turn[i];
        ret[i % h * w + i / h] |= inside;
    }
}

static void check_outline(const struct mask_case *m)
{
    unsigned char want[RCNN_MAX_MASK_CELLS] = { 0 };
    int side = m->head.mask_side;
    float got[RCNN_MAX_MASK_CELLS];

    for (int p = 0; p < m->npolygons; p++) {
        double x[16], y[16], w = (double)(m->box[2] - m->box[0]), h = (double)(m->box[3] - m->box[1]);
        int n = m->point[p + 1] - m->point[p];

        for (int i = 0; i < n; i++) {
            x[i] = (m->xy[m->point[p] + i][0] - (double)m->box[0]) * (side / fmax(w, 0.1));
            y[i] = (m->xy[m->point[p] + i][1] - (double)m->box[1]) * (side / fmax(h, 0.1));
        }
        plain_polygon(want, x, y, n, side, side);
    }
    same_on_all(run_mask, m, got, (size_t)(side * side) * sizeof *got);
    for (int i = 0; i < side * side; i++)
        if (got[i] != (float)want[i])
            fail_msg("of %d: cell %d, %d is %g", side, i / side, i % side, (double)got[i]);
}

static void drawn_outlines(void **state)
{
    struct philox_key key = { .seed = 6 };

    (void)state;
    for (uint64_t i = 0; i < 40; i++) {
        struct mask_case m = {
            .head.masks = RCNN_MASKS_OF_OUTLINES, .size = { 64, 64 }, .npolygons = 2, .point = { 0, 5 + (int)i % 4, 13 }
        };

        for (uint64_t k = 0; k < 13; k++)
            for (uint64_t d = 0; d < 2; d++) {
                double x = -20 + 100 * (double)philox_uniform(&key, i * 64 + 2 * k + d);

                m.xy[k][d] = i % 3 == 0 ? floor(x) / 2 : x;
            }
        for (uint64_t d = 0; d < 4; d++)
            m.box[d] = (d < 2 ? 0.0f : 32.0f) + 20 * philox_uniform(&key, i * 64 + 32 + d);
        if (i % 8 == 7)
            m.box[2] = m.box[0] + 0.01f;
        for (size_t s = 0; s < sizeof sides / sizeof *sides; s++) {
            m.head.mask_side = sides[s];
            check_outline(&m);
        }
    }
}

/* Section 13.3: polygon 4,4 20,4 20,16 4,16 and box (6, 2, 18, 14), on cells seven times as fine. */
static void mask_vector(void **state)
{
    struct mask_case m = {
        .xy = { { 4, 4 }, { 20, 4 }, { 20, 16 }, { 4, 16 } }, .npolygons = 1, .point = { 0, 4 }, .size = { 20, 24 }, .box = { 6, 2, 18, 14 }
    };
    float got[28 * 28];

    (void)state;
    m.head.mask_side = 28;
    m.head.masks = RCNN_MASKS_OF_OUTLINES;
    same_on_all(run_mask, &m, got, sizeof got);
    for (int i = 0; i < 28 * 28; i++) /* two of twelve pixels above the polygon: 4 2/3 cells */
        assert_true(got[i] == (i / 28 < 5 ? 0.0f : 1.0f));
    m.head.masks = RCNN_MASKS_OF_BITMAPS;
    same_on_all(run_mask, &m, got, sizeof got);
    for (int i = 0; i < 28 * 28; i++) {
        double y = 2 + (i / 28 + 0.5) * 12 / 28;

        near(got[i], fmin(fmax(y - 3, 0), 1), 1e-5, "soft target", (size_t)i);
    }
}

/* Runs of a bitmap of that size; the pixels x1 .. x2 - 1, y1 .. y2 - 1 are set. */
static void set_rectangle(struct mask_case *m, int x1, int y1, int x2, int y2)
{
    const int h = m->size[0];

    m->nruns = 0;
    m->length[m->nruns++] = x1 * h + y1;
    for (int x = x1; x < x2; x++) {
        m->length[m->nruns++] = y2 - y1;
        m->length[m->nruns++] = h - (y2 - y1);
    }
}

/* The same section to the letter: 4 x 4 cells, the outline and its bitmap of 20 rows and 24 columns. The bitmap's first
 * row is 1/3 with d2, which cuts at 1/2, and 1/2 with torchvision. */
static void vector_of_four_cells(void **state)
{
    static const float first[3] = { 0, 0, 0.5f };
    struct mask_case m = { .head = { .masks = RCNN_MASKS_OF_OUTLINES, .mask_side = 4 },
                           .xy = { { 4, 4 }, { 20, 4 }, { 20, 16 }, { 4, 16 } },
                           .npolygons = 1,
                           .point = { 0, 4 },
                           .size = { 20, 24 },
                           .box = { 6, 2, 18, 14 } };
    float got[16];

    (void)state;
    for (int path = 0; path < 3; path++) {
        if (path > 0)
            set_rectangle(&m, 4, 4, 20, 16);
        m.head.masks = path < 2 ? RCNN_MASKS_OF_OUTLINES : RCNN_MASKS_OF_BITMAPS;
        same_on_all(run_mask, &m, got, sizeof got);
        for (int i = 0; i < 16; i++)
            near(got[i], (double)(i < 4 ? first[path] : 1.0f), 1e-6, "target", (size_t)i);
    }
}

/* Rows of cells lie half between those of pixels: exactly 1/2 above and below the set pixels, and that counts. */
static void half_a_pixel_counts(void **state)
{
    struct mask_case m = { .head = { .masks = RCNN_MASKS_OF_OUTLINES, .mask_side = 28 },
                           .size = { 64, 64 },
                           .box = { 10, 8.5f, 38, 36.5f } };
    float got[28 * 28];

    (void)state;
    set_rectangle(&m, 5, 12, 50, 20);
    same_on_all(run_mask, &m, got, sizeof got);
    for (int i = 0; i < 28 * 28; i++)
        assert_true(got[i] == (i / 28 >= 3 && i / 28 <= 11 ? 1.0f : 0.0f));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sampled_bitmaps),      cmocka_unit_test(drawn_outlines),      cmocka_unit_test(mask_vector),
        cmocka_unit_test(vector_of_four_cells), cmocka_unit_test(half_a_pixel_counts),
    };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}

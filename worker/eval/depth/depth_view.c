#include "worker/eval/depth/depth_view.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <string.h>

bool depth_view_place(const struct depth_lens *lens, const double pose[RESULT_POSE], double x, double y, double depth, double *ret_u,
                      double *ret_v)
{
    double p[3] = { (x - lens->cx) / lens->fx * depth, (y - lens->cy) / lens->fy * depth, depth }, q[3];

    for (int i = 0; i < 3; i++)
        q[i] = pose[4 * i] * p[0] + pose[4 * i + 1] * p[1] + pose[4 * i + 2] * p[2] + pose[4 * i + 3];
    if (!(q[2] > 1e-6 * depth))
        return false;
    *ret_u = lens->fx * q[0] / q[2] + lens->cx;
    *ret_v = lens->fy * q[1] / q[2] + lens->cy;
    return true;
}

/* Interpolates between the centres of four pixels. Returns false outside of the centres. */
static bool look_up(const uint8_t *rgb, int w, int h, double u, double v, uint8_t ret[3])
{
    int x, y;
    double fx, fy;

    if (!(u >= 0 && u <= w - 1 && v >= 0 && v <= h - 1))
        return false;
    x = (int)u - (u >= w - 1 && w > 1);
    y = (int)v - (v >= h - 1 && h > 1);
    fx = u - x;
    fy = v - y;
    for (int k = 0; k < 3; k++) {
        const uint8_t *at = rgb + 3 * ((size_t)y * (size_t)w + (size_t)x) + k, *below = h > 1 ? at + 3 * (size_t)w : at;
        size_t right = w > 1 ? 3 : 0;

        ret[k] = (uint8_t)((1 - fy) * ((1 - fx) * at[0] + fx * at[right]) + fy * ((1 - fx) * below[0] + fx * below[right]) + 0.5);
    }
    return true;
}

void depth_view(const struct result_map *depth, const struct depth_lens *lens, const double pose[RESULT_POSE], const uint8_t *source,
                uint8_t *ret)
{
    int w = depth->w, h = depth->h;

    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            size_t at = (size_t)y * (size_t)w + (size_t)x;
            double u, v;

            if (!depth_view_place(lens, pose, x, y, (double)depth->value[at], &u, &v) || !look_up(source, w, h, u, v, ret + 3 * at))
                memset(ret + 3 * at, 0, 3);
        }
}

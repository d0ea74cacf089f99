#include "worker/eval/depth/depth_picture.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <string.h>

#include "proto/err.h"
#include "worker/eval/depth_metrics.h"
#include "worker/eval/result.h"
#include "worker/kernels/pose.h"

enum { MOST = 65535, COLOURS = 256, LEAST_POWER = -10, MOST_POWER = 15, MOST_MEDIANS = 64 };

/* Start, rotations and hue of Green's colour map: from violet over red to yellow. The ends are neither black nor
 * white. */
static const double start = 0.3, rotations = 0.9, hue = 1.3, darkest = 0.06, brightest = 0.96, pi = 3.14159265358979323846;

double depth_code_scale(double farthest, double median)
{
    double most = fmin(farthest, MOST_MEDIANS * median);
    int power = MOST_POWER;

    while (power > LEAST_POWER && ldexp(most, power) > MOST)
        power--;
    return ldexp(1, power);
}

void depth_code(const struct result_map *m, double factor, double scale, uint16_t *ret)
{
    size_t n = (size_t)m->w * (size_t)m->h;

    for (size_t i = 0; i < n; i++) {
        double x = (double)m->value[i] * factor * scale + 0.5;

        ret[i] = (uint16_t)(!(x >= 1) ? 1 : x > MOST ? MOST : x);
    }
}

static uint8_t byte_of(double x)
{
    return (uint8_t)(x <= 0 ? 0 : x >= 1 ? 255 : 255 * x + 0.5);
}

void depth_colour(double x, uint8_t ret_rgb[3])
{
    double light = darkest + (brightest - darkest) * (x < 0 ? 0 : x > 1 ? 1 : x);
    double turn = 2 * pi * (start / 3 + 1 + rotations * light), amount = hue * light * (1 - light) / 2, s, c;

    pose_sin_cos(turn, &s, &c);
    ret_rgb[0] = byte_of(light + amount * (-0.14861 * c + 1.78277 * s));
    ret_rgb[1] = byte_of(light + amount * (-0.29227 * c - 0.90649 * s));
    ret_rgb[2] = byte_of(light + amount * (1.97294 * c));
}

int depth_colours(const struct result_map *m, uint8_t *ret, struct err *err)
{
    size_t n = (size_t)m->w * (size_t)m->h;
    uint8_t table[COLOURS][3];
    double near, far, range;
    int rc = depth_place(m->value, (int64_t)n, (int64_t)n / 20, &near, err);

    if (rc >= 0)
        rc = depth_place(m->value, (int64_t)n, (int64_t)n - 1, &far, err);
    if (rc < 0)
        return rc;
    for (int i = 0; i < COLOURS; i++)
        depth_colour((double)i / (COLOURS - 1), table[i]);
    range = 1 / near - 1 / far;
    for (size_t i = 0; i < n; i++) {
        double x = range > 0 ? (1 / (double)m->value[i] - 1 / far) / range : 0.5;
        int k = (int)(COLOURS * (x < 0 ? 0 : x));

        memcpy(ret + 3 * i, table[k < COLOURS ? k : COLOURS - 1], 3);
    }
    return 0;
}

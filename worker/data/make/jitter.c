#include "worker/data/make/jitter.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>

/* Luma as Pillow computes it. */
static int luma(const uint8_t *p)
{
    return (int)((19595u * p[0] + 38470u * p[1] + 7471u * p[2] + 0x8000u) >> 16);
}

static uint8_t blend(int other, float factor, uint8_t own)
{
    float v = (float)other + factor * (float)(own - other);

    return (uint8_t)(v <= 0 ? 0 : v >= 255 ? 255 : v);
}

static void brightness(float factor, uint8_t *rgb, size_t pixels)
{
    for (size_t i = 0; i < pixels * 3; i++)
        rgb[i] = blend(0, factor, rgb[i]);
}

static void contrast(float factor, uint8_t *rgb, size_t pixels)
{
    uint64_t sum = 0;
    int mean;

    for (size_t i = 0; i < pixels; i++)
        sum += (uint64_t)luma(rgb + i * 3);
    mean = pixels ? (int)((double)sum / (double)pixels + 0.5) : 0;
    for (size_t i = 0; i < pixels * 3; i++)
        rgb[i] = blend(mean, factor, rgb[i]);
}

static void saturation(float factor, uint8_t *rgb, size_t pixels)
{
    for (uint8_t *p = rgb; p < rgb + pixels * 3; p += 3) {
        int grey = luma(p);

        for (int c = 0; c < 3; c++)
            p[c] = blend(grey, factor, p[c]);
    }
}

static int clip(int v)
{
    return v < 0 ? 0 : v > 255 ? 255 : v;
}

/* Converts RGB to hue, saturation and value, in bytes. */
static void to_hsv(const uint8_t *p, int hsv[3])
{
    int r = p[0], g = p[1], b = p[2], most = r > g ? r : g, least = r < g ? r : g;
    float range, rc, gc, bc, h;

    most = b > most ? b : most;
    least = b < least ? b : least;
    hsv[0] = hsv[1] = 0;
    hsv[2] = most;
    if (most == least)
        return;
    range = (float)(most - least);
    rc = (float)(most - r) / range;
    gc = (float)(most - g) / range;
    bc = (float)(most - b) / range;
    h = r == most ? bc - gc : g == most ? (float)(2.0 + rc - bc) : (float)(4.0 + gc - rc);
    h = (float)fmod(h / 6.0 + 1.0, 1.0);
    hsv[0] = clip((int)(h * 255.0));
    hsv[1] = clip((int)(range / (float)most * 255.0));
}

static uint8_t nearest(double v)
{
    return (uint8_t)clip((int)round(v));
}

static void from_hsv(const int hsv[3], uint8_t *p)
{
    static const uint8_t sextants[6][3] = { { 0, 3, 1 }, { 2, 0, 1 }, { 1, 0, 3 }, { 1, 2, 0 }, { 3, 1, 0 }, { 0, 1, 2 } };
    float v = (float)hsv[2], s = (float)(hsv[1] / 255.0), f;
    double turn = (float)hsv[0] * 6.0 / 255.0;
    int sextant = (int)turn;
    uint8_t of[4];

    f = (float)(turn - sextant);
    of[0] = (uint8_t)hsv[2];
    of[1] = nearest(v * (1.0 - s));
    of[2] = nearest(v * (1.0 - s * f));
    of[3] = nearest(v * (1.0 - s * (1.0 - f)));
    for (int c = 0; c < 3; c++)
        p[c] = hsv[1] ? of[sextants[sextant % 6][c]] : of[0];
}

static void hue(float shift, uint8_t *rgb, size_t pixels)
{
    int by = (int)(255.0 * shift), hsv[3];

    for (uint8_t *p = rgb; p < rgb + pixels * 3; p += 3) {
        to_hsv(p, hsv);
        hsv[0] = (hsv[0] + by) & 255;
        from_hsv(hsv, p);
    }
}

void jitter_one(enum jitter_op op, float amount, uint8_t *rgb, size_t pixels)
{
    static void (*const ops[JITTER_OPS])(float, uint8_t *, size_t) = { brightness, contrast, saturation, hue };

    ops[op](amount, rgb, pixels);
}

void jitter(const struct jitter *j, uint8_t *rgb, size_t pixels)
{
    for (int i = 0; i < JITTER_OPS; i++)
        jitter_one(j->order[i], j->amount[j->order[i]], rgb, pixels);
}

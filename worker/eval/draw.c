#include "worker/eval/draw.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/eval/font.h"

enum { MAX_LETTERS = 48, FAR = 1 << 24, SMALL_OBJECT = 8 /* measured in areas of its label */ };

/* Pixels x0 .. x1 - 1, y0 .. y1 - 1. */
struct area {
    int x0, y0, x1, y1;
};

struct label {
    const struct detection *det;
    struct area box, place;
    uint8_t color[3];
    char text[MAX_LETTERS + 16];
    size_t length;
};

struct canvas {
    struct picture *p;
    double scale; /* pixels per unit of the font */
    int line;     /* thickness of frames */
    int pad;      /* around letters */
};

static int least(int a, int b)
{
    return a < b ? a : b;
}

static int most(int a, int b)
{
    return a > b ? a : b;
}

static void blend(struct picture *p, int x, int y, const uint8_t color[3], unsigned alpha)
{
    uint8_t *at = p->rgb + ((size_t)y * (size_t)p->w + (size_t)x) * 3;

    for (int k = 0; k < 3; k++)
        at[k] = (uint8_t)((at[k] * (255 - alpha) + color[k] * alpha + 127) / 255);
}

static struct area clip(const struct picture *p, struct area a)
{
    return (struct area){ most(a.x0, 0), most(a.y0, 0), least(a.x1, p->w), least(a.y1, p->h) };
}

static void fill(struct picture *p, struct area a, const uint8_t color[3], unsigned alpha)
{
    a = clip(p, a);
    for (int y = a.y0; y < a.y1; y++)
        for (int x = a.x0; x < a.x1; x++)
            blend(p, x, y, color, alpha);
}

static struct area grow(struct area a, int by)
{
    return (struct area){ a.x0 - by, a.y0 - by, a.x1 + by, a.y1 + by };
}

/* Fills `a` except for its inner part, `line` pixels from every side. */
static void frame(struct picture *p, struct area a, int line, const uint8_t color[3], unsigned alpha)
{
    int top = least(a.y0 + line, a.y1), bottom = most(a.y1 - line, top);

    fill(p, (struct area){ a.x0, a.y0, a.x1, top }, color, alpha);
    fill(p, (struct area){ a.x0, bottom, a.x1, a.y1 }, color, alpha);
    fill(p, (struct area){ a.x0, top, least(a.x0 + line, a.x1), bottom }, color, alpha);
    fill(p, (struct area){ most(a.x1 - line, a.x0 + line), top, a.x1, bottom }, color, alpha);
}

/* A dark rim lets the frame stand out from a background of its own colour. */
static void draw_frame(const struct canvas *c, const struct label *l)
{
    static const uint8_t black[3] = { 0, 0, 0 };

    frame(c->p, grow(l->box, 1), 1, black, 110);
    frame(c->p, grow(l->box, -c->line), 1, black, 110);
    frame(c->p, l->box, c->line, l->color, 255);
}

static void draw_text(const struct canvas *c, const struct label *l)
{
    static const uint8_t ink[2][3] = { { 255, 255, 255 }, { 0, 0, 0 } };
    double light = 0.299 * l->color[0] + 0.587 * l->color[1] + 0.114 * l->color[2];
    const uint8_t *color = ink[light > 130];
    struct area in = clip(c->p, l->place);
    double advance = floor(FONT_ADVANCE * c->scale + 0.5);

    for (int y = in.y0; y < in.y1; y++)
        for (int x = in.x0; x < in.x1; x++) {
            double from = x + 0.5 - l->place.x0 - c->pad, row = y + 0.5 - l->place.y0 - c->pad;
            size_t i = from > 0 ? (size_t)(from / advance) : l->length;

            if (i < l->length)
                blend(c->p, x, y, color,
                      font_coverage((unsigned char)l->text[i], (from - (double)i * advance) / c->scale, row / c->scale, c->scale));
        }
}

static double common(struct area a, struct area b)
{
    int w = least(a.x1, b.x1) - most(a.x0, b.x0), h = least(a.y1, b.y1) - most(a.y0, b.y0);

    return w > 0 && h > 0 ? (double)w * h : 0;
}

/* The area of a small object under a label at that place. It weighs as much as letters; a large object loses little
 * under a label. */
static double hides(struct area place, struct area box)
{
    double size = (double)(place.x1 - place.x0) * (place.y1 - place.y0), object = (double)(box.x1 - box.x0) * (box.y1 - box.y0);

    return object < SMALL_OBJECT * size ? common(place, box) : 0;
}

/* Places the label above, inside or below the box, flush left or right. It takes the place that hides the least of
 * earlier labels and small objects. */
static void place_label(const struct canvas *c, struct label *labels, size_t count, size_t index)
{
    struct label *l = &labels[index];
    int w = (int)(floor(FONT_ADVANCE * c->scale + 0.5) * (double)l->length) + 2 * c->pad;
    int h = (int)ceil(FONT_H * c->scale) + 2 * c->pad;
    int lefts[] = { l->box.x0, l->box.x1 - w }, tops[] = { l->box.y0 - h, l->box.y0, l->box.y1, l->box.y1 - h };
    double best = INFINITY;

    for (int i = 0; i < 8; i++) {
        int x = most(0, least(lefts[i / 4], c->p->w - w)), y = tops[i % 4];
        struct area a = { x, y, x + w, y + h };
        double hidden = (double)w * h - common(a, (struct area){ 0, 0, c->p->w, c->p->h });

        for (size_t j = 0; j < count; j++)
            hidden += hides(a, labels[j].box) + (j < index ? common(a, labels[j].place) : 0);
        if (hidden < best) {
            best = hidden;
            l->place = a;
        }
    }
}

static int bounded(double v)
{
    return (int)floor(fmin(fmax(v, -FAR), FAR) + 0.5);
}

static void describe(struct label *l, const struct detection *d, const char *const *names, int nnames)
{
    char name[MAX_LETTERS + 1];
    double right = d->box[0] + d->box[2], bottom = d->box[1] + d->box[3];

    if (d->cls >= 0 && d->cls < nnames && names[d->cls])
        font_letters(names[d->cls], name, sizeof name);
    else
        snprintf(name, sizeof name, "%d", d->cls);
    l->det = d;
    l->length = (size_t)(d->score > 1 ? snprintf(l->text, sizeof l->text, "%s", name)
                                      : snprintf(l->text, sizeof l->text, "%s %.2f", name, fmax(d->score, 0)));
    l->box = (struct area){ bounded(d->box[0]), bounded(d->box[1]), bounded(right), bounded(bottom) };
    draw_class_color(d->cls, l->color);
}

static int best_first(const void *a, const void *b)
{
    const struct detection *p = ((const struct label *)a)->det, *q = ((const struct label *)b)->det;

    if (p->score != q->score)
        return p->score > q->score ? -1 : 1;
    return detection_compare(p, q);
}

static bool drawable(const struct detection *d)
{
    return isfinite(d->score) && isfinite(d->box[0]) && isfinite(d->box[1]) && isfinite(d->box[2]) && isfinite(d->box[3]) &&
           d->box[2] >= 0 && d->box[3] >= 0;
}

int draw_detections(struct picture *p, const struct detection *dets, size_t n, const char *const *names, int nnames, struct err *err)
{
    double scale = fmin(fmax(least(p->w, p->h) / 300.0, 1), 8);
    struct canvas c = { p, scale, (int)(1.4 * scale + 0.5), (int)(1.5 * scale) };
    struct label *labels = calloc(n + 1, sizeof *labels);
    size_t count = 0;

    if (!labels)
        return err_set(err, -ENOMEM, "drawing: out of memory");
    for (size_t i = 0; i < n; i++)
        if (drawable(&dets[i]))
            describe(&labels[count++], &dets[i], names, nnames);
    qsort(labels, count, sizeof *labels, best_first);
    for (size_t i = count; i-- > 0;)
        draw_frame(&c, &labels[i]);
    for (size_t i = 0; i < count; i++)
        place_label(&c, labels, count, i);
    for (size_t i = count; i-- > 0;) {
        fill(p, labels[i].place, labels[i].color, 225);
        draw_text(&c, &labels[i]);
    }
    free(labels);
    return 0;
}

/* ---- masks ---- */

static bool in_mask(const struct result_mask *m, int x, int y)
{
    if (x < 0 || y < 0 || x >= m->w || y >= m->h)
        return false;
    return m->bits[(size_t)y * ((size_t)(m->w + 7) / 8) + (size_t)(x / 8)] >> (7 - x % 8) & 1;
}

/* Draws pixel (x, y) of the mask, enlarged. Sides towards pixels outside of the mask are drawn as lines. */
static void draw_mask_pixel(struct picture *p, const struct result_mask *m, int x, int y, int factor, const uint8_t color[3])
{
    int line = (factor + 3) / 4, x0 = (m->x + x) * factor, y0 = (m->y + y) * factor;
    struct area inside = { x0, y0, x0 + factor, y0 + factor };

    inside.x0 += in_mask(m, x - 1, y) ? 0 : line;
    inside.y0 += in_mask(m, x, y - 1) ? 0 : line;
    inside.x1 -= in_mask(m, x + 1, y) ? 0 : line;
    inside.y1 -= in_mask(m, x, y + 1) ? 0 : line;
    for (int v = most(y0, 0); v < least(y0 + factor, p->h); v++)
        for (int u = most(x0, 0); u < least(x0 + factor, p->w); u++)
            blend(p, u, v, color, u >= inside.x0 && u < inside.x1 && v >= inside.y0 && v < inside.y1 ? 110 : 230);
}

void draw_masks(struct picture *p, const struct result_mask *masks, int n, int factor)
{
    for (int i = n; i-- > 0;) {
        uint8_t color[3];

        draw_class_color(i, color);
        for (int y = 0; y < masks[i].h; y++)
            for (int x = 0; x < masks[i].w; x++)
                if (in_mask(&masks[i], x, y))
                    draw_mask_pixel(p, &masks[i], x, y, factor, color);
    }
}

/* Hues at steps of the golden section differ well for many classes. Brightness alternates as well. */
void draw_class_color(int cls, uint8_t ret_rgb[3])
{
    static const double saturation[3] = { 0.85, 0.55, 0.95 }, value[3] = { 1.0, 0.95, 0.75 };
    unsigned number = (unsigned)cls % 4096u;
    double hue = fmod(0.96 + number * 0.6180339887498949, 1.0) * 6, s = saturation[number % 3], v = value[number % 3];

    for (int k = 0; k < 3; k++) {
        double x = fmod(hue + (k == 0 ? 5 : k == 1 ? 3 : 1), 6); /* the usual HSV hexagon, channel by channel */
        double dip = fmax(0, fmin(fmin(x, 4 - x), 1));

        ret_rgb[k] = (uint8_t)(255 * (v - v * s * dip) + 0.5);
    }
}

static uint8_t sample(const struct picture *p, double x, double y, int channel)
{
    int x0 = (int)floor(x), y0 = (int)floor(y), x1 = least(x0 + 1, p->w - 1), y1 = least(y0 + 1, p->h - 1);
    double fx = x - x0, fy = y - y0;
    const uint8_t *rgb = p->rgb + channel;
    size_t w = (size_t)p->w;

    x0 = most(x0, 0);
    y0 = most(y0, 0);
    return (uint8_t)((rgb[((size_t)y0 * w + (size_t)x0) * 3] * (1 - fx) + rgb[((size_t)y0 * w + (size_t)x1) * 3] * fx) * (1 - fy) +
                     (rgb[((size_t)y1 * w + (size_t)x0) * 3] * (1 - fx) + rgb[((size_t)y1 * w + (size_t)x1) * 3] * fx) * fy + 0.5);
}

int draw_enlarge(const struct picture *p, int factor, struct picture *ret, struct err *err)
{
    struct picture big;

    if (factor < 1 || factor > DRAW_MAX_FACTOR || p->w > FAR / DRAW_MAX_FACTOR || p->h > FAR / DRAW_MAX_FACTOR)
        return err_set(err, ERR_INPUT, "cannot enlarge a picture of %dx%d by %d", p->w, p->h, factor);
    big = (struct picture){ NULL, p->w * factor, p->h * factor };
    big.rgb = malloc((size_t)big.w * (size_t)big.h * 3 + 1);
    if (!big.rgb)
        return err_set(err, -ENOMEM, "enlarging a picture: out of memory");
    for (int y = 0; y < big.h; y++)
        for (int x = 0; x < big.w; x++)
            for (int k = 0; k < 3; k++)
                big.rgb[((size_t)y * (size_t)big.w + (size_t)x) * 3 + (size_t)k] =
                    sample(p, (x + 0.5) / factor - 0.5, (y + 0.5) / factor - 0.5, k);
    *ret = big;
    return 0;
}

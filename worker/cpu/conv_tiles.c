/* worker/cpu/conv_tiles.c - see conv_tiles.h. */
#include "worker/cpu/conv_tiles.h"

#include <string.h>

#include "worker/cpu/tile.h"
#include "worker/kernels/act.h"
#include "worker/kernels/bf16.h"

static int least(int a, int b)
{
    return a < b ? a : b;
}

struct tiles tiles_of(const struct rows *g)
{
    struct tiles t = { .g = g, .taps_y = g->taps_y, .taps_x = g->taps_x, .run = 1 };

    if (g->c < TILE_BLOCK && g->taps_x > 0) {
        t.run = g->taps_x;
        t.taps_x = 1;
    }
    t.depth = t.run * g->c;
    t.blocks = (t.depth + TILE_BLOCK - 1) / TILE_BLOCK;
    t.phases_y = least(g->stride, t.taps_y);
    t.phases_x = least(g->stride, t.taps_x);
    return t;
}

/* Rows, or columns, that the last tap is away from the first, in panels. */
static int reach(int taps, int stride)
{
    return taps > 0 ? (taps - 1) / stride : 0;
}

/* The fewest positions a row can have: of rows that are not cut the padding on their right is that on the left of the next one. */
static int pitch_of(const struct tiles *t, int w)
{
    const struct rows *g = t->g;
    int far = reach(t->taps_x, g->stride), pitch = w;

    if (t->run > 1 || w < g->ow)
        return t->run > 1 ? w : w + far;
    while (pitch < w + far && (pitch * g->stride + g->off_x < g->iw || (w - 1 + far - pitch + 1) * g->stride - 1 + g->off_x >= 0))
        pitch++;
    return pitch;
}

static long pixels_of(const struct tiles *t, int h, int pitch)
{
    return (long)round_up(h * pitch, TILE_BLOCK) + (long)reach(t->taps_y, t->g->stride) * pitch + reach(t->taps_x, t->g->stride);
}

struct tiles_part tiles_part(const struct tiles *t, const struct rows_part *p)
{
    struct tiles_part r = { .p = *p, .pitch = pitch_of(t, p->w) };

    r.positions = (p->h - 1) * r.pitch + p->w;
    r.pixels = pixels_of(t, p->h, r.pitch);
    return r;
}

static int widest(const struct tiles *t)
{
    return (t->g->ow + t->g->segs - 1) / t->g->segs + reach(t->taps_x, t->g->stride);
}

size_t tiles_panels(const struct tiles *t)
{
    size_t pixels = (size_t)pixels_of(t, t->g->band_rows, widest(t));

    return (size_t)(t->phases_y * t->phases_x) * pixels * (size_t)t->blocks * TILE_BLOCK;
}

int tiles_positions(const struct tiles *t)
{
    return round_up(t->g->band_rows * widest(t), TILE_BLOCK);
}

/* ---- inputs ---- */

/* n numbers of a pixel as a convolution reads them, channels from c on. */
static void read_numbers(const struct operand *x, const uint16_t *from, int c, int n, uint16_t *ret)
{
    const struct affine *a = &x->act;

    if (!a->scale) {
        memcpy(ret, from + c, (size_t)n * sizeof *ret);
        return;
    }
    for (int i = 0; i < n; i++)
        ret[i] = bf16_round(act_pending(bf16_value(from[c + i]), a->scale[c + i], a->shift[c + i], a->slope[c + i]));
}

/* Where number d of position q of a panel stands; what follows it in the same block of 32 is `step` further each. */
static uint16_t *place(const struct tiles *t, const struct tiles_part *p, bool turned, uint16_t *panels, int panel, long q, int d)
{
    long count = (long)t->phases_y * t->phases_x;

    if (turned)
        return panels + ((long)panel * tiles_depth_rows(t) + d) * p->pixels + q;
    return panels + ((d / TILE_BLOCK * count + panel) * p->pixels + q) * TILE_BLOCK + d % TILE_BLOCK;
}

/* A pixel's numbers to d ... of position q. */
static void put_pixel(const struct tiles *t, const struct tiles_part *p, const struct operand *x, const uint16_t *from, bool turned,
                      uint16_t *panels, int panel, long q, int first)
{
    uint16_t number[TILE_BLOCK];

    for (int c = 0, n; c < t->g->c; c += n) {
        int d = first + c;
        uint16_t *to = place(t, p, turned, panels, panel, q, d);

        n = least(t->g->c - c, TILE_BLOCK - d % TILE_BLOCK);
        read_numbers(x, from, c, n, number);
        if (!turned)
            memcpy(to, number, (size_t)n * sizeof *to);
        for (int i = 0; i < n && turned; i++)
            to[i * p->pixels] = number[i];
    }
}

/* One row of a panel, whose inputs are those of row y of the image. */
static void pack_row(const struct tiles *t, const struct tiles_part *p, const struct operand *x, bool turned, uint16_t *panels, int panel,
                     long q, int y)
{
    const struct rows *g = t->g;
    const uint16_t *row = (const uint16_t *)x->x.data + ((long)(p->p.image % g->per) * g->ih + y) * g->iw * x->x.stride;

    for (int j = 0; j < p->pitch; j++)
        for (int s = 0; s < t->run; s++) {
            int column = (p->p.x + j) * g->stride + panel % t->phases_x + s + g->off_x;

            if (column >= 0 && column < g->iw)
                put_pixel(t, p, x, row + (long)column * x->x.stride, turned, panels, panel, q + j, s * g->c);
        }
}

void tiles_pack(const struct tiles *t, const struct tiles_part *p, const struct operand *x, bool turned, uint16_t *panels)
{
    const struct rows *g = t->g;
    int count = t->phases_y * t->phases_x, rows = p->p.h + reach(t->taps_y, g->stride);
    long depth = turned ? tiles_depth_rows(t) : t->blocks * TILE_BLOCK;

    memset(panels, 0, (size_t)(count * p->pixels * depth) * sizeof *panels);
    for (int panel = 0; panel < count; panel++)
        for (int i = 0; i < rows; i++) {
            int y = (p->p.y + i) * g->stride + panel / t->phases_x + g->off_y;

            if (y >= 0 && y < g->ih)
                pack_row(t, p, &x[p->p.image / g->per], turned, panels, panel, (long)i * p->pitch, y);
        }
}

void tiles_shifts(const struct tiles *t, const struct tiles_part *p, bool turned, long *tap)
{
    int stride = t->g->stride;

    for (int r = 0; r < t->taps_y; r++)
        for (int s = 0; s < t->taps_x; s++) {
            long panel = r % stride * t->phases_x + s % stride, q = (long)(r / stride) * p->pitch + s / stride;

            *tap++ = turned ? panel * tiles_depth_rows(t) * p->pixels + q : (panel * p->pixels + q) * TILE_BLOCK;
        }
}

/* ---- output gradients ---- */

void tiles_pack_gradients(const struct tiles *t, const struct tiles_part *p, const struct tensor *dy, int k, int cols, uint16_t *to)
{
    const struct rows *g = t->g;
    int blocks = (p->positions + TILE_BLOCK - 1) / TILE_BLOCK, panels = (cols + TILE_COLS - 1) / TILE_COLS;
    const uint16_t *from = (const uint16_t *)dy->data + (((long)(p->p.image % g->per) * g->oh + p->p.y) * g->ow + p->p.x) * dy->stride + k;

    memset(to, 0, (size_t)panels * (size_t)blocks * TILE_PANEL * sizeof *to);
    for (int y = 0; y < p->p.h; y++)
        for (int x = 0; x < p->p.w; x++) {
            const uint16_t *pixel = from + ((long)y * g->ow + x) * dy->stride;
            int q = y * p->pitch + x;

            for (int j = 0; j < cols; j++)
                to[((long)(j / TILE_COLS) * blocks + q / TILE_BLOCK) * TILE_PANEL + tile_place(q % TILE_BLOCK, j % TILE_COLS)] = pixel[j];
        }
}

/* ---- weights ---- */

size_t tiles_weights(const struct tiles *t, int outputs)
{
    size_t panels = (size_t)(outputs + TILE_COLS - 1) / TILE_COLS;

    return panels * (size_t)tiles_taps(t) * (size_t)t->blocks * TILE_PANEL * sizeof(uint16_t) / sizeof(float);
}

void tiles_pack_weights(const struct tiles *t, int first, int outputs, tiles_number *number, const void *arg, uint16_t *to)
{
    int columns = least(outputs - first, TILE_COLS);

    memset(to, 0, (size_t)tiles_taps(t) * (size_t)t->blocks * TILE_PANEL * sizeof *to);
    for (int r = 0; r < t->taps_y; r++)
        for (int s = 0; s < t->g->taps_x; s++) {
            int d0 = t->run > 1 ? s * t->g->c : 0, tap = t->run > 1 ? r : r * t->taps_x + s;

            for (int c = 0; c < t->g->c; c++)
                for (int j = 0; j < columns; j++) {
                    int d = d0 + c;

                    to[((long)tap * t->blocks + d / TILE_BLOCK) * TILE_PANEL + tile_place(d % TILE_BLOCK, j)] =
                        bf16_round(number(arg, r, s, c, first + j));
                }
        }
}

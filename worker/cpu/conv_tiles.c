/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/conv_tiles.c - see conv_tiles.h. */
#include "worker/cpu/conv_tiles.h"

#include <string.h>

#include "worker/core/simd.h"
#include "worker/cpu/tile.h"

static int least(int a, int b)
{
    return a < b ? a : b;
}

struct tiles tiles_of(const struct rows *g)
{
    struct tiles t = { .g = g, .taps_y = g->taps_y, .taps_x = g->taps_x, .run = 1 };

    if (g->c < TILE_BLOCK && g->taps_x > 0 && !(g->over_positions && g->c % 16 == 0)) {
        t.run = g->taps_x;
        t.taps_x = 1;
    }
    t.depth = t.run * g->c;
    t.blocks = (t.depth + TILE_BLOCK - 1) / TILE_BLOCK;
    t.phases_y = least(g->stride, t.taps_y);
    t.phases_x = least(g->stride, t.taps_x);
    return t;
}

/* Rows or columns between the first and the last tap, in panels. */
static int reach(int taps, int stride)
{
    return taps > 0 ? (taps - 1) / stride : 0;
}

/* Positions of a row of inputs, if a position is a row of taps: `w` outputs and the whole blocks of the last one. A row
 * is then read without touching the data packed below it. */
static int line_pitch(const struct tiles *t, int w)
{
    return w - 1 + (t->blocks * TILE_BLOCK + tiles_step(t) - 1) / tiles_step(t);
}

/* The fewest positions of a row. In rows that are not cut, the padding on the right is that on the left of the next
 * row. */
static int pitch_of(const struct tiles *t, int w)
{
    const struct rows *g = t->g;
    int far = reach(t->taps_x, g->stride), pitch = w;

    if (t->run > 1)
        return g->over_positions ? w : line_pitch(t, w);
    if (w < g->ow)
        return w + far;
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
    const int w = rows_widest(t->g);

    return t->run > 1 ? pitch_of(t, w) : w + reach(t->taps_x, t->g->stride);
}

long tiles_pixels(const struct tiles *t)
{
    return pixels_of(t, t->g->band_rows, widest(t));
}

/* Numbers in a panel of lines of so many positions. Whole blocks of the last position are read, too. */
static long lines_size(const struct tiles *t, long pixels)
{
    return (pixels * tiles_step(t) + t->blocks * TILE_BLOCK + TILE_BLOCK - 1) / TILE_BLOCK * TILE_BLOCK;
}

static long panel_size(const struct tiles *t, const struct tiles_part *p)
{
    return t->run > 1 ? lines_size(t, p->pixels) : p->pixels * TILE_BLOCK;
}

long tiles_block(const struct tiles *t, const struct tiles_part *p)
{
    return t->run > 1 ? TILE_BLOCK : t->phases_y * t->phases_x * panel_size(t, p);
}

long tiles_numbers(const struct tiles *t, const struct tiles_part *p)
{
    return t->phases_y * t->phases_x * panel_size(t, p) * (t->run > 1 ? 1 : t->blocks);
}

size_t tiles_panels(const struct tiles *t)
{
    const struct tiles_part most = { .pixels = tiles_pixels(t) };

    return (size_t)tiles_numbers(t, &most);
}

size_t tiles_more(const struct tiles *t)
{
    const struct tiles_part most = { .pixels = tiles_pixels(t) + TILE_BLOCK };

    return (size_t)tiles_numbers(t, &most) - tiles_panels(t);
}

int tiles_positions(const struct tiles *t)
{
    return round_up(t->g->band_rows * widest(t), TILE_BLOCK);
}

int tiles_band_rows(const struct rows *g)
{
    const struct tiles t = tiles_of(g);
    const int w = rows_widest(g), pitch = t.run > 1 ? w : pitch_of(&t, w), halo = reach(t.taps_y, g->stride);
    long least_work = 0;
    int best = 1;

    for (int h = 1; h <= g->band_rows; h++) {
        int whole = g->oh / h, rest = g->oh % h;
        long blocks = (long)whole * round_up((h - 1) * pitch + w, TILE_BLOCK) + (rest ? round_up((rest - 1) * pitch + w, TILE_BLOCK) : 0);
        long packed = (long)(g->oh + (whole + (rest > 0)) * halo) * pitch,
             work = 4 * blocks + packed; /* a computed position costs about as much as 4 packed ones */

        if (h == 1 || work < least_work) {
            least_work = work;
            best = h;
        }
    }
    return best;
}

/* ---- inputs ---- */

/* The positions of [0, n) in a row that read an existing column of the image. Position j reads column first + j *
 * step. */
struct range {
    int from, to;
};

static struct range inside(int first, int step, int n, int width)
{
    struct range r = { 0, 0 };

    if (first < 0)
        r.from = least((step - 1 - first) / step, n);
    if (first < width)
        r.to = least((width - 1 - first) / step + 1, n);
    if (r.to < r.from)
        r.to = r.from;
    return r;
}

static int lanes_of(int count, int at, int most)
{
    return count <= at ? 0 : least(count - at, most);
}

/* The part of a pending activation for some channels. */
struct pending {
    vec scale, shift, slope;
};

SIMD_FN struct pending pending_of(const struct affine *a, int c, int n)
{
    return (struct pending){ vload_n(a->scale + c, n), vload_n(a->shift + c, n), vload_n(a->slope + c, n) };
}

SIMD_FN vec activated(const struct pending *p, vec x)
{
    return vact(vfma(x, p->scale, p->shift), p->slope);
}

/* Packs channels c ... c + 31 of `count` pixels, `step` numbers apart, into rows of 32. */
SIMD_FN void pack_block(const struct affine *a, const uint16_t *from, long step, int c, int channels, int count, uint16_t *to)
{
    for (int v = 0; v < TILE_BLOCK && !a->scale; v += 2 * VW) {
        int n = lanes_of(channels, c + v, 2 * VW);

        for (int i = 0; i < count; i++)
            vcopy_half_n(to + i * TILE_BLOCK + v, from + i * step + c + v, n);
    }
    for (int v = 0; v < TILE_BLOCK && a->scale; v += VW) {
        int n = lanes_of(channels, c + v, VW);
        struct pending p = pending_of(a, c + v, n);

        for (int i = 0; i < count; i++)
            vstore_half(to + i * TILE_BLOCK + v, activated(&p, vload_half_n(from + i * step + c + v, n)));
    }
}

/* Pixels side by side, with zeros outside of the image. */
static void gather(const struct tiles *t, const struct operand *x, const uint16_t *row, int first, int count, uint16_t *line)
{
    const int c = t->g->c;
    struct range in = inside(first, 1, count, t->g->iw);

    memset(line, 0, (size_t)(in.from * c) * sizeof *line);
    memset(line + in.to * c, 0, (size_t)((count - in.to) * c) * sizeof *line);
    for (int k = 0; k < c; k += VW) {
        int n = vlanes(c, k);
        const uint16_t *from = row + (long)(first + in.from) * x->x.stride + k;
        uint16_t *to = line + in.from * c + k;

        if (x->act.scale) {
            struct pending p = pending_of(&x->act, k, n);

            for (int i = in.from; i < in.to; i++, from += x->x.stride, to += c)
                vstore_half_n(to, activated(&p, vload_half_n(from, n)), n);
        } else if (x->x.stride == c && k == 0) {
            memcpy(to, from, (size_t)((in.to - in.from) * c) * sizeof *to);
            return;
        } else {
            for (int i = in.from; i < in.to; i++, from += x->x.stride, to += c)
                vstore_half_n(to, vload_half_n(from, n), n);
        }
    }
}

/* ---- by position ---- */

/* Packs row i of a panel, if the image has it. A position is a pixel. */
static void pack_pixels(const struct tiles *t, const struct tiles_part *p, const struct operand *x, const uint16_t *row, int first,
                        long panels, uint16_t *to)
{
    const struct rows *g = t->g;
    struct range in = inside(first, g->stride, p->pitch, g->iw);

    for (int c = 0; c < g->c; c += TILE_BLOCK, to += panels * p->pixels * TILE_BLOCK) {
        memset(to, 0, (size_t)(in.from * TILE_BLOCK) * sizeof *to);
        pack_block(&x->act, row + (long)(first + in.from * g->stride) * x->x.stride, (long)g->stride * x->x.stride, c, g->c,
                   in.to - in.from, to + in.from * TILE_BLOCK);
        memset(to + in.to * TILE_BLOCK, 0, (size_t)((p->pitch - in.to) * TILE_BLOCK) * sizeof *to);
    }
}

/* Packs rows of inputs unchanged. A position is a row of taps, and those of neighbouring positions overlap. */
static void pack_lines(const struct tiles *t, const struct rows_part *p, const struct operand *x, int phase, long pixels, uint16_t *to)
{
    const struct rows *g = t->g;
    const uint16_t *image = (const uint16_t *)x->x.data + (long)(p->image % g->per) * g->ih * g->iw * x->x.stride;
    const int rows = p->h + reach(t->taps_y, g->stride), columns = line_pitch(t, p->w) * g->stride;
    const uint16_t *end = to + lines_size(t, pixels);

    for (int i = 0; i < rows; i++, to += columns * g->c) {
        int y = (p->y + i) * g->stride + phase + g->off_y;

        if (y >= 0 && y < g->ih)
            gather(t, x, image + (long)y * g->iw * x->x.stride, p->x * g->stride + g->off_x, columns, to);
        else
            memset(to, 0, (size_t)(columns * g->c) * sizeof *to);
    }
    memset(to, 0, (size_t)(end - to) * sizeof *to);
}

/* Fills positions [from, to) of a panel with zeros, in all blocks. */
static void clear(const struct tiles *t, const struct tiles_part *p, long panels, uint16_t *panel, long from, long to)
{
    for (int n = 0; n < t->blocks; n++)
        memset(panel + (n * panels * p->pixels + from) * TILE_BLOCK, 0, (size_t)((to - from) * TILE_BLOCK) * sizeof *panel);
}

void tiles_pack(const struct tiles *t, const struct tiles_part *p, const struct operand *x, uint16_t *panels)
{
    const struct rows *g = t->g;
    const struct operand *in = &x[p->p.image / g->per];
    const uint16_t *image = (const uint16_t *)in->x.data + (long)(p->p.image % g->per) * g->ih * g->iw * in->x.stride;
    int count = t->phases_y * t->phases_x, rows = p->p.h + reach(t->taps_y, g->stride);

    for (int panel = 0; panel < count; panel++) {
        uint16_t *to = panels + panel * panel_size(t, p);
        int first = p->p.x * g->stride + panel % t->phases_x + g->off_x;

        if (t->run > 1) {
            pack_lines(t, &p->p, in, panel, p->pixels, to);
            continue;
        }
        for (int i = 0; i < rows; i++) {
            int y = (p->p.y + i) * g->stride + panel / t->phases_x + g->off_y;
            long q = (long)i * p->pitch;

            if (y >= 0 && y < g->ih)
                pack_pixels(t, p, in, image + (long)y * g->iw * in->x.stride, first, count, to + q * TILE_BLOCK);
            else
                clear(t, p, count, to, q, q + p->pitch);
        }
        clear(t, p, count, to, (long)rows * p->pitch, p->pixels);
    }
}

/* The panel and position of a tap. */
static long tap_at(const struct tiles *t, const struct tiles_part *p, int r, int s, int *ret_panel)
{
    int stride = t->g->stride;

    *ret_panel = r % stride * t->phases_x + s % stride;
    return (long)(r / stride) * p->pitch + s / stride;
}

void tiles_shifts(const struct tiles *t, const struct tiles_part *p, long *tap)
{
    for (int r = 0; r < t->taps_y; r++)
        for (int s = 0, panel; s < t->taps_x; s++) {
            long q = tap_at(t, p, r, s, &panel);

            *tap++ = panel * panel_size(t, p) + q * tiles_step(t);
        }
}

/* ---- by pairs of positions, for weight gradients ---- */

size_t tiles_pairs_lines(const struct tiles *t)
{
    return t->run > 1 ? (size_t)lines_size(t, (long)(t->g->band_rows + reach(t->taps_y, t->g->stride)) * line_pitch(t, rows_widest(t->g)))
                      : 0;
}

size_t tiles_pairs(const struct tiles *t)
{
    const struct tiles_part most = { .pixels = tiles_pixels(t) };

    return (size_t)(t->phases_y * t->phases_x * tiles_halves(t)) * (size_t)tiles_pairs_half(&most);
}

/* Pairs each position with the next one. Pairs that begin at an even position go to one row of blocks, the others to
 * another. */
struct pairing {
    uint16_t *to, *then; /* destinations of the next pair and of the one after it */
    vec last;            /* the previous position */
};

SIMD_FN struct pairing pairing_of(uint16_t *even, uint16_t *odd)
{
    return (struct pairing){ odd - 2 * 16, even, vset1(0.0f) }; /* the first pair has no position: it is overwritten, or never read */
}

SIMD_FN void pair_next(struct pairing *p, vec next)
{
    uint16_t *to = p->to;

    vstore_pairs(to, vpair_half(p->last, next));
    p->to = p->then;
    p->then = to + 2 * 16;
    p->last = next;
}

SIMD_FN void pair_zeros(struct pairing *p, long count)
{
    for (long i = 0; i < count; i++)
        pair_next(p, vset1(0.0f));
}

/* Adds `count` positions of n numbers each, `step` numbers apart. */
SIMD_FN void pair_row(struct pairing *to, const uint16_t *from, long step, int count, const struct pending *act, int n)
{
    struct pairing p = *to;

    if (act)
        for (int i = 0; i < count; i++)
            pair_next(&p, vkept_half(activated(act, vload_half_n(from + i * step, n))));
    else
        for (int i = 0; i < count; i++)
            pair_next(&p, vload_half_n(from + i * step, n));
    *to = p;
}

/* Pairs inputs d ... of all positions of a panel, at most 16 inputs. */
SIMD_FN void pair_panel(const struct tiles *t, const struct tiles_part *p, const struct operand *x, int panel, const uint16_t *lines, int d,
                        uint16_t *to)
{
    const struct rows *g = t->g;
    const uint16_t *image = (const uint16_t *)x->x.data + (long)(p->p.image % g->per) * g->ih * g->iw * x->x.stride;
    const int rows = p->p.h + reach(t->taps_y, g->stride), first = p->p.x * g->stride + panel % t->phases_x + g->off_x;
    const long odd = (p->pixels / 2 + 1) * 2 * 16, line = (long)line_pitch(t, p->p.w) * tiles_step(t);

    for (int v = 0; v < 16; v += VW) {
        const int n = lanes_of(t->depth - d, v, VW);
        struct pairing pairs = pairing_of(to + 2 * v, to + odd + 2 * v);
        struct pending act = { 0 };

        if (x->act.scale && t->run == 1)
            act = pending_of(&x->act, d + v, n);
        for (int i = 0; i < rows; i++) {
            int y = (p->p.y + i) * g->stride + panel / t->phases_x + g->off_y;
            struct range in = inside(first, g->stride, y >= 0 && y < g->ih ? p->pitch : 0, g->iw);

            if (t->run > 1) {
                pair_row(&pairs, lines + i * line + d + v, tiles_step(t), p->pitch, NULL, VW);
                continue;
            }
            pair_zeros(&pairs, in.from);
            pair_row(&pairs, image + ((long)y * g->iw + first + (long)in.from * g->stride) * x->x.stride + d + v,
                     (long)g->stride * x->x.stride, in.to - in.from, x->act.scale ? &act : NULL, n);
            pair_zeros(&pairs, p->pitch - in.to);
        }
        pair_zeros(&pairs, p->pixels - (long)rows * p->pitch + 1);
    }
}

void tiles_pack_pairs(const struct tiles *t, const struct tiles_part *p, const struct operand *x, uint16_t *lines, uint16_t *pairs)
{
    const struct operand *in = &x[p->p.image / t->g->per];
    const int count = t->phases_y * t->phases_x;

    for (int panel = 0; panel < count; panel++) {
        if (t->run > 1)
            pack_lines(t, &p->p, in, panel, (long)(p->p.h + reach(t->taps_y, t->g->stride)) * line_pitch(t, p->p.w), lines);
        for (int d = 0; d < t->depth; d += 16, pairs += tiles_pairs_half(p))
            pair_panel(t, p, in, panel, lines, d, pairs);
    }
}

void tiles_pairs_shifts(const struct tiles *t, const struct tiles_part *p, long *tap)
{
    const long half = tiles_pairs_half(p);

    for (int r = 0; r < t->taps_y; r++)
        for (int s = 0, panel; s < t->taps_x; s++) {
            long q = tap_at(t, p, r, s, &panel);

            *tap++ = panel * tiles_halves(t) * half + (q & 1) * (half / 2) + (q >> 1) * 2 * 16;
        }
}

/* ---- output gradients ---- */

/* Transposes 2 * VW positions to rows of a block. Pixel i is at at[i] (NULL: zeros), or, without at, at from + i *
 * step. 32 columns have `ld` numbers. */
SIMD_FN void turn(const uint16_t *const *at, const uint16_t *from, long step, int cols, uint16_t *to, long ld)
{
    for (int c = 0; c < round_up(cols, 16); c += VW) {
        uint16_t *block = to + c / TILE_COLS * ld + c % TILE_COLS * TILE_BLOCK;
        const int n = lanes_of(cols, c, VW);
        vec t[VW];

#pragma GCC unroll 16
        for (int i = 0; i < VW; i++) {
            const uint16_t *even = at ? at[2 * i] : from + 2 * i * step, *odd = at ? at[2 * i + 1] : from + (2 * i + 1) * step;

            t[i] = vpair_half(even ? vload_half_n(even + c, n) : vset1(0.0f), odd ? vload_half_n(odd + c, n) : vset1(0.0f));
        }
        vtranspose(t);
#pragma GCC unroll 16
        for (int i = 0; i < VW; i++)
            vstore_pairs(block + i * TILE_BLOCK, t[i]);
    }
}

void tiles_pack_gradients(const struct tiles *t, const struct tiles_part *p, const struct tiles_gradients *dy, int cols, uint16_t *to)
{
    const long ld = (long)tiles_positions(t) * TILE_COLS;
    const uint16_t *row = dy->at;
    int y = 0, x = 0;

    for (int q = 0; q < tiles_blocks(p) * TILE_BLOCK; q += 2 * VW) {
        const bool whole = y < p->p.h && x + 2 * VW <= p->p.w;
        const uint16_t *at[2 * VW], *from = row + x * dy->pixel;
        uint16_t *block = to + q / TILE_BLOCK * (TILE_COLS * TILE_BLOCK) + q % TILE_BLOCK;

        for (int i = 0; i < (whole ? 1 : 2 * VW); i++) {
            at[i] = y < p->p.h && x < p->p.w ? row + x * dy->pixel : NULL;
            x += whole ? 2 * VW : 1;
            if (x == p->pitch) {
                x = 0;
                y++;
                row += dy->row;
            }
        }
        if (whole)
            turn(NULL, from, dy->pixel, cols, block, ld);
        else
            turn(at, row, 0, cols, block, ld);
    }
}

/* ---- weights ---- */

size_t tiles_weights(const struct tiles *t, int outputs)
{
    size_t panels = (size_t)(outputs + TILE_COLS - 1) / TILE_COLS;

    return panels * (size_t)tiles_taps(t) * (size_t)t->blocks * TILE_PANEL * sizeof(uint16_t) / sizeof(float);
}

/* A block of weights stored channel by channel, `count` of them side by side. */
SIMD_FN void block_by_channel(const float *from, long output, int outputs, int count, uint16_t *to)
{
    for (int d = 0; d < TILE_BLOCK; d += 2 * VW)
        for (int j = 0; j < TILE_COLS; j += VW) {
            vec t[VW];

            for (int i = 0; i < VW; i++) {
                const float *at = from + (j + i < outputs ? j + i : 0) * output + d;
                const int n = j + i < outputs ? count : 0;

                t[i] = vround_half(vload_n(at, lanes_of(n, d, VW)), vload_n(at + VW, lanes_of(n, d + VW, VW)));
            }
            vtranspose(t);
            for (int i = 0; i < VW; i++)
                vstore_pairs(to + tile_place(d + 2 * i, j), t[i]);
        }
}

/* A block of weights stored output by output. Number d of the block belongs to channel (first + d) % c. */
SIMD_FN void block_by_output(const struct tiles *t, const struct tiles_numbers *w, const float *from, int first, int outputs, uint16_t *to,
                             bool stream)
{
    const float *row[TILE_BLOCK];

    for (int d = 0; d < TILE_BLOCK; d++)
        row[d] = first + d < t->depth ? from + (first + d) / t->g->c * w->column + (first + d) % t->g->c * w->channel : NULL;
    for (int d = 0; d < TILE_BLOCK; d += 2)
        for (int j = 0; j < TILE_COLS; j += VW) {
            int n = lanes_of(outputs, j, VW);
            vec even = vload_n(row[d] ? row[d] + j : from, row[d] ? n : 0),
                odd = vload_n(row[d + 1] ? row[d + 1] + j : from, row[d + 1] ? n : 0);

            if (stream)
                vstream_pairs(to + tile_place(d, j), vpair_half(vkept_half(even), vkept_half(odd)));
            else
                vstore_pairs(to + tile_place(d, j), vpair_half(vkept_half(even), vkept_half(odd)));
        }
}

int tiles_weight_units(const struct tiles *t, int outputs, const struct tiles_numbers *w)
{
    return w->channel == 1 ? (outputs + TILE_COLS - 1) / TILE_COLS : t->blocks;
}

void tiles_pack_weights(const struct tiles *t, int unit, int outputs, const struct tiles_numbers *w, uint16_t *all, bool stream)
{
    const bool by_channel = w->channel == 1;
    const int first = by_channel ? unit * TILE_COLS : 0, end = by_channel ? least(first + TILE_COLS, outputs) : outputs;
    const int n0 = by_channel ? 0 : unit, n1 = by_channel ? t->blocks : unit + 1;

    for (int tap = 0; tap < tiles_taps(t); tap++)
        for (int n = n0; n < n1; n++)
            for (int k = first; k < end; k += TILE_COLS) {
                const float *from = w->at + tap / t->taps_x * w->row + tap % t->taps_x * w->column + k * w->output;
                uint16_t *to = all + (((long)k / TILE_COLS * tiles_taps(t) + tap) * t->blocks + n) * TILE_PANEL;

                if (by_channel)
                    block_by_channel(from + n * TILE_BLOCK, w->output, end - k, least(t->depth - n * TILE_BLOCK, TILE_BLOCK), to);
                else
                    block_by_output(t, w, from, n * TILE_BLOCK, least(end - k, TILE_COLS), to, stream);
            }
}

/* worker/cpu/conv_tiles.c - see conv_tiles.h. */
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
    return rows_widest(t->g) + reach(t->taps_x, t->g->stride);
}

long tiles_pixels(const struct tiles *t)
{
    return pixels_of(t, t->g->band_rows, widest(t));
}

size_t tiles_panels(const struct tiles *t)
{
    return (size_t)(t->phases_y * t->phases_x) * (size_t)tiles_pixels(t) * (size_t)t->blocks * TILE_BLOCK;
}

int tiles_positions(const struct tiles *t)
{
    return round_up(t->g->band_rows * widest(t), TILE_BLOCK);
}

int tiles_band_rows(const struct rows *g)
{
    const struct tiles t = tiles_of(g);
    const int w = rows_widest(g), pitch = pitch_of(&t, w), halo = reach(t.taps_y, g->stride);
    long least_work = 0;
    int best = 1;

    for (int h = 1; h <= g->band_rows; h++) {
        int whole = g->oh / h, rest = g->oh % h;
        long blocks = (long)whole * round_up((h - 1) * pitch + w, TILE_BLOCK) + (rest ? round_up((rest - 1) * pitch + w, TILE_BLOCK) : 0);
        long packed = (long)(g->oh + (whole + (rest > 0)) * halo) * pitch,
             work = 4 * blocks + packed; /* a position that is packed costs about so much */

        if (h == 1 || work < least_work) {
            least_work = work;
            best = h;
        }
    }
    return best;
}

/* ---- inputs ---- */

enum { COLUMNS = 512 }; /* of a row of inputs that is gathered at once, where a position holds several */

/* Which of positions [0, n) of a row read a column that the image has: that of position j is first + j * step. */
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

/* Some channels' part of a pending activation. */
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

/* Channels c ... c + 31 of `count` pixels `step` numbers apart, to rows of 32. */
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

/* Pixels side by side, zeros outside of the image. */
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

/* Positions of a row whose columns one chunk of COLUMNS has. */
static int chunk_of(const struct tiles *t)
{
    return (COLUMNS - t->run) / t->g->stride + 1;
}

/* ---- by position: [blocks][panel][pixels][32] ---- */

/* Row i of a panel, where the image has one: a position is a pixel. */
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

/* A position is a row of taps. */
static void pack_runs(const struct tiles *t, const struct tiles_part *p, const struct operand *x, const uint16_t *row, int first,
                      long panels, uint16_t *to)
{
    const int step = t->g->stride * t->g->c, chunk = chunk_of(t);
    uint16_t line[COLUMNS * TILE_BLOCK];

    for (int j = 0, n; j < p->pitch; j += n) {
        n = least(p->pitch - j, chunk);
        gather(t, x, row, first + j * t->g->stride, (n - 1) * t->g->stride + t->run, line);
        for (int d = 0; d < t->blocks * TILE_BLOCK; d += 2 * VW) {
            uint16_t *at = to + (d / TILE_BLOCK * panels * p->pixels + j) * TILE_BLOCK + d % TILE_BLOCK;
            int lanes = lanes_of(t->depth, d, 2 * VW);

            for (int i = 0; i < n; i++)
                vcopy_half_n(at + i * TILE_BLOCK, line + i * step + d, lanes);
        }
    }
}

/* Positions [from, to) of a panel are zeros, in all blocks. */
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
        uint16_t *to = panels + panel * p->pixels * TILE_BLOCK;
        int first = p->p.x * g->stride + panel % t->phases_x + g->off_x;

        for (int i = 0; i < rows; i++) {
            int y = (p->p.y + i) * g->stride + panel / t->phases_x + g->off_y;
            long q = (long)i * p->pitch;

            if (y >= 0 && y < g->ih)
                (t->run > 1 ? pack_runs : pack_pixels)(t, p, in, image + (long)y * g->iw * in->x.stride, first, count, to + q * TILE_BLOCK);
            else
                clear(t, p, count, to, q, q + p->pitch);
        }
        clear(t, p, count, to, (long)rows * p->pitch, p->pixels);
    }
}

/* Panel and position of a tap. */
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

            *tap++ = (panel * p->pixels + q) * TILE_BLOCK;
        }
}

/* ---- by pairs of positions, for weight gradients ---- */

static size_t pointers_of(const struct tiles *t)
{
    return (size_t)(tiles_pixels(t) + 1) * sizeof(uint16_t *);
}

size_t tiles_pairs_memory(const struct tiles *t)
{
    return round_up((int)pointers_of(t), 64) + (t->run > 1 ? tiles_panels(t) * sizeof(uint16_t) : 0);
}

size_t tiles_pairs(const struct tiles *t)
{
    const struct tiles_part most = { .pixels = tiles_pixels(t) };

    return (size_t)(t->phases_y * t->phases_x * tiles_halves(t)) * (size_t)tiles_pairs_half(&most);
}

/* Inputs c ... of all positions, at most 16 of them, `count` are there. Where they stand: at[q], NULL: zeros; or, without that, `step` apart from `from` on. */
SIMD_FN void pair_up(const struct affine *a, const uint16_t *const *at, const uint16_t *from, long step, long positions, int c, int count,
                     uint16_t *to)
{
    const long odd = (positions / 2 + 1) * 2 * 16;

    for (int v = 0; v < 16; v += VW) {
        int n = lanes_of(count, v, VW);
        struct pending p = { 0 };
        vec next = vset1(0.0f);

        if (a->scale)
            p = pending_of(a, c + v, n);
        for (long q = -1; q < positions; q++) {
            const uint16_t *beside = q + 1 == positions ? NULL : at ? at[q + 1] : from + (q + 1) * step;
            vec here = next;

            next = vset1(0.0f);
            if (beside) {
                next = vload_half_n(beside + c + v, n);
                if (a->scale)
                    next = vkept_half(activated(&p, next));
            }
            if (q >= 0)
                vstore_pairs(to + (q & 1) * odd + ((q >> 1) * 16 + v) * 2, vpair_half(here, next));
        }
    }
}

/* Where the numbers of a panel's positions stand: in the image, or, a row of taps each, in panels by position. */
static void find_pixels(const struct tiles *t, const struct tiles_part *p, const struct operand *x, int panel, const uint16_t **at)
{
    const struct rows *g = t->g;
    const uint16_t *image = (const uint16_t *)x->x.data + (long)(p->p.image % g->per) * g->ih * g->iw * x->x.stride;
    int rows = p->p.h + reach(t->taps_y, g->stride), first = p->p.x * g->stride + panel % t->phases_x + g->off_x;
    const uint16_t **end = at + p->pixels;

    for (int i = 0; i < rows; i++) {
        int y = (p->p.y + i) * g->stride + panel / t->phases_x + g->off_y;
        struct range in = inside(first, g->stride, y >= 0 && y < g->ih ? p->pitch : 0, g->iw);
        const uint16_t *row = image + ((long)y * g->iw + first) * x->x.stride;

        for (int j = 0; j < p->pitch; j++)
            *at++ = j >= in.from && j < in.to ? row + (long)j * g->stride * x->x.stride : NULL;
    }
    while (at < end)
        *at++ = NULL;
}

void tiles_pack_pairs(const struct tiles *t, const struct tiles_part *p, const struct operand *x, void *memory, uint16_t *pairs)
{
    static const struct affine nothing = { 0 };
    const struct operand *in = &x[p->p.image / t->g->per];
    const uint16_t **at = memory;
    uint16_t *panels = (uint16_t *)(void *)((char *)memory + round_up((int)pointers_of(t), 64));
    const int count = t->phases_y * t->phases_x;

    if (t->run > 1)
        tiles_pack(t, p, x, panels);
    for (int panel = 0; panel < count; panel++) {
        if (t->run == 1)
            find_pixels(t, p, in, panel, at);
        for (int d = 0; d < t->depth; d += 16, pairs += tiles_pairs_half(p)) {
            if (t->run == 1) {
                pair_up(&in->act, at, panels, 0, p->pixels, d, least(t->depth - d, 16), pairs);
                continue;
            }
            pair_up(&nothing, NULL, panels + (d / TILE_BLOCK * count + panel) * p->pixels * TILE_BLOCK + d % TILE_BLOCK, TILE_BLOCK,
                    p->pixels, 0, 16, pairs);
        }
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

/* 2 * VW positions, of which pixel i stands at at[i] (NULL: zeros), or, without that, i * step from `from` on: turned, to rows ld apart. */
SIMD_FN void turn(const uint16_t *const *at, const uint16_t *from, long step, int cols, uint16_t *to, long ld)
{
    for (int c = 0; c < round_up(cols, 16); c += VW) {
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
            vstore_pairs(to + (c + i) * ld, t[i]);
    }
}

void tiles_pack_gradients(const struct tiles *t, const struct tiles_part *p, const struct tensor *dy, int k, int cols, long ld,
                          uint16_t *to)
{
    const struct rows *g = t->g;
    const uint16_t *row = (const uint16_t *)dy->data + (((long)(p->p.image % g->per) * g->oh + p->p.y) * g->ow + p->p.x) * dy->stride + k;
    int y = 0, x = 0;

    for (int q = 0; q < tiles_blocks(p) * TILE_BLOCK; q += 2 * VW) {
        const bool whole = y < p->p.h && x + 2 * VW <= p->p.w;
        const uint16_t *at[2 * VW], *from = row + (long)x * dy->stride;

        for (int i = 0; i < (whole ? 1 : 2 * VW); i++) {
            at[i] = y < p->p.h && x < p->p.w ? row + (long)x * dy->stride : NULL;
            x += whole ? 2 * VW : 1;
            if (x == p->pitch) {
                x = 0;
                y++;
                row += (long)g->ow * dy->stride;
            }
        }
        if (whole)
            turn(NULL, from, dy->stride, cols, to + q, ld);
        else
            turn(at, row, 0, cols, to + q, ld);
    }
}

/* ---- weights ---- */

size_t tiles_weights(const struct tiles *t, int outputs)
{
    size_t panels = (size_t)(outputs + TILE_COLS - 1) / TILE_COLS;

    return panels * (size_t)tiles_taps(t) * (size_t)t->blocks * TILE_PANEL * sizeof(uint16_t) / sizeof(float);
}

/* A block of weights whose channels lie side by side, `count` of them. */
SIMD_FN void block_by_channel(const float *from, long output, int outputs, int count, uint16_t *to)
{
    for (int d = 0; d < TILE_BLOCK; d += 2 * VW)
        for (int j = 0; j < TILE_COLS; j += VW) {
            vec t[VW];

            for (int i = 0; i < VW; i++) {
                uint16_t numbers[2 * VW];
                const float *at = from + (j + i < outputs ? j + i : 0) * output + d;

                vstore_half(numbers, vload_n(at, j + i < outputs ? lanes_of(count, d, VW) : 0));
                vstore_half(numbers + VW, vload_n(at + VW, j + i < outputs ? lanes_of(count, d + VW, VW) : 0));
                memcpy(&t[i], numbers, sizeof t[i]);
            }
            vtranspose(t);
            for (int i = 0; i < VW; i++)
                vstore_pairs(to + tile_place(d + 2 * i, j), t[i]);
        }
}

/* One whose outputs do. Number d of the block is of channel (first + d) % c. */
SIMD_FN void block_by_output(const struct tiles *t, const struct tiles_numbers *w, const float *from, int first, int outputs, uint16_t *to)
{
    const float *row[TILE_BLOCK];

    for (int d = 0; d < TILE_BLOCK; d++)
        row[d] = first + d < t->depth ? from + (first + d) / t->g->c * w->column + (first + d) % t->g->c * w->channel : NULL;
    for (int d = 0; d < TILE_BLOCK; d += 2)
        for (int j = 0; j < TILE_COLS; j += VW) {
            int n = lanes_of(outputs, j, VW);
            vec even = vload_n(row[d] ? row[d] + j : from, row[d] ? n : 0),
                odd = vload_n(row[d + 1] ? row[d + 1] + j : from, row[d + 1] ? n : 0);

            vstore_pairs(to + tile_place(d, j), vpair_half(vkept_half(even), vkept_half(odd)));
        }
}

void tiles_pack_weights(const struct tiles *t, int first, int outputs, const struct tiles_numbers *w, uint16_t *to)
{
    int columns = least(outputs - first, TILE_COLS);

    for (int r = 0; r < t->taps_y; r++)
        for (int s = 0; s < t->taps_x; s++)
            for (int n = 0; n < t->blocks; n++, to += TILE_PANEL) {
                const float *from = w->at + r * w->row + s * w->column + first * w->output;

                if (w->channel == 1)
                    block_by_channel(from + n * TILE_BLOCK, w->output, columns, least(t->depth - n * TILE_BLOCK, TILE_BLOCK), to);
                else
                    block_by_output(t, w, from, n * TILE_BLOCK, columns, to);
            }
}

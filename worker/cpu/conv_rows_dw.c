/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/conv_rows_dw.c - weight gradients on rows: dw[(r, s, c)][k] =
 * sum over outputs of input times output gradient. Inputs are broadcast from the buffer of conv_rows.h; output
 * gradients are vectors.
 *
 * A slab is about a thousand outputs of one shard, in bf16 eight times as many, in one chain of FMAs. Slabs are summed
 * in a pairwise tree. Threads share groups of slabs and, if weights are many and slabs few, groups of outputs k. */
#include <errno.h>
#include <string.h>

#include "worker/core/simd.h"
#include "worker/cpu/conv.h"
#include "worker/cpu/conv_rows.h"
#include "worker/cpu/conv_tiles.h"
#include "worker/cpu/norm_apply.h"
#include "worker/cpu/tile.h"

enum {
    SLAB_PIXELS = 1024,
    SLAB_PIXELS_TILES = 8192, /* for blocks of 32 products: large, since sums that go through memory cost more than the products */
    UNITS = 4,                /* least pieces of work for each thread, if the shape has so many */
    ROWS = 512,               /* inputs used with all outputs at once: those of a part stay in the L2 cache meanwhile */
    OUTPUTS = 128,            /* bf16: least outputs of a piece of work, if all threads have enough */
    PACKED_DEPTH = 64,        /* weights of an output from which on its gradients are packed */
    /* bytes of inputs packed at once: PAIRS_KEPT stays in the cache together with sums up to SUMS_KEPT; with larger
     * sums PAIRS_BYTES, so that these are written once */
    SUMS_KEPT = 512 << 10,
    PAIRS_KEPT = 128 << 10,
    PAIRS_BYTES = 4 << 20
};

struct work {
    struct rows g;
    const struct conv_call *q;
    int depth;                          /* taps_y * taps_x * c */
    int shard_parts, slab_parts, slabs; /* per shard */
    int group, groups;                  /* slabs of a group (a power of two); groups of a shard */
    int panels, group_panels, k_groups; /* panels of 32 outputs; panels of a group; groups */
    float *buf, *dy, *stack, *part;     /* part: [shards][k_groups][groups][depth][cols] */
    float *means;                       /* with q->norm: see norm_apply.h */
    size_t buf_size, dy_size, stack_size, part_size;
    bool half; /* bf16: by tiles; part is then [shards][k_groups][groups][cols][taps][depth, whole tiles] */
    struct tiles tiles;
    bool in_place;            /* sums are written straight to the result */
    uint16_t *x_all, *dy_all; /* of all parts, packed once; NULL: packed by each reader */
    int parts_at_once;
    long pairs_size; /* numbers of a part's packed inputs */
    long *shifts;    /* per thread: [parts][taps], twice [parts], and twice [2 * taps] */
    int *counts;     /* per thread: [parts] blocks */
    uint16_t *lines; /* per thread: for tiles_pack_pairs() */
    uint16_t *grad;  /* per thread, with q->norm: output gradients of a part */
    size_t shifts_size, lines_size, grad_size;
};

static int group_cols(const struct work *j)
{
    return j->group_panels * GEMM_NP;
}

/* Output gradients of a part. Panel i of 32 outputs begins at at + i * panel; pixel x of row y is at y * row + x *
 * pixel. */
struct gradients {
    const float *at;
    long panel, row, pixel;
};

static void pack_pixel(const float *from, int cols, float *to, long panel)
{
    for (int c = 0; c < round_up(cols, 16); c += VW) {
        int lanes = vlanes(cols, c);

        vstore(to + c / GEMM_NP * panel + c % GEMM_NP, lanes > 0 ? vload_n(from + c, lanes) : vset1(0.0f));
    }
}

/* Columns [k, k + cols) of a part. */
static struct norm_piece piece_of(const struct work *j, const struct rows_part *p, int k, int cols)
{
    const struct rows *g = &j->g;

    return (struct norm_piece){ .shard = p->image / g->per,
                                .first = ((size_t)(p->image % g->per) * (size_t)g->oh + (size_t)p->y) * (size_t)g->ow + (size_t)p->x,
                                .h = p->h,
                                .w = p->w,
                                .pitch = g->ow,
                                .k = k,
                                .cols = cols };
}

/* Computes the output gradients behind a normalisation for columns from k on, packed. */
static struct gradients gradients_of_norm(const struct work *j, const struct rows_part *p, int k, int cols, float *pack)
{
    const long pixel = cols > 16 ? GEMM_NP : 16, panel = (long)p->h * p->w * pixel;

    for (int v = 0; v < cols; v += GEMM_NP) {
        const struct norm_piece piece = piece_of(j, p, k + v, cols - v < GEMM_NP ? cols - v : GEMM_NP);
        float *to = pack + v / GEMM_NP * panel;

        if (piece.cols % 16 != 0) /* whole vectors are read */
            memset(to, 0, (size_t)panel * sizeof *to);
        norm_apply_piece(j->q->norm, j->means, &piece, to, pixel);
    }
    return (struct gradients){ pack, panel, p->w * pixel, pixel };
}

/* Columns from k on: in place if they are read few times, else packed. Zeros fill up the last vector. Packing helps
 * since pixels that lie apart share few sets of the L1 cache. */
static struct gradients gradients(const struct work *j, const struct rows_part *p, int k, int cols, float *pack)
{
    const struct tensor *t = &j->q->dy[p->image / j->g.per];
    const float *from = (const float *)t->data + (((long)(p->image % j->g.per) * j->g.oh + p->y) * j->g.ow + p->x) * t->stride + k;
    struct gradients ret = { from, GEMM_NP, (long)j->g.ow * t->stride, t->stride };

    if (cols % 16 == 0 && j->depth < PACKED_DEPTH)
        return ret;
    ret = (struct gradients){ pack, (long)p->h * p->w * GEMM_NP, (long)p->w * GEMM_NP, GEMM_NP };
    for (int y = 0; y < p->h; y++)
        for (int x = 0; x < p->w; x++)
            pack_pixel(from + ((long)y * j->g.ow + x) * t->stride, cols, pack + y * ret.row + x * ret.pixel, ret.panel);
    return ret;
}

static void part_add(const struct work *j, const struct rows_part *p, const struct rows_input *in, const struct gradients *dy, int cols,
                     float *acc, bool add)
{
    const struct rows *g = &j->g;
    long width = rows_width(g, p);
    int rows = g->taps_x * g->c;

    for (int r = 0; r < g->taps_y; r++)
        for (int first = 0; first < rows; first += ROWS)
            for (int v = 0; v < cols; v += GEMM_NP) {
                struct gemm mm = { .a = in->at + r * width + first,
                                   .a_row = 1,
                                   .a_seg = in->row,
                                   .a_depth = in->pixel,
                                   .b = dy->at + v / GEMM_NP * dy->panel,
                                   .b_seg = dy->row,
                                   .b_depth = dy->pixel,
                                   .c = acc + ((long)r * rows + first) * group_cols(j) + v,
                                   .c_row = group_cols(j),
                                   .rows = rows - first < ROWS ? rows - first : ROWS,
                                   .cols = cols - v > 16 ? 32 : 16,
                                   .segs = p->h,
                                   .depth = p->w,
                                   .add = add };

                gemm_run(&mm);
            }
}

/* The same into the rows of the result, one for each output. Windows are single pixels. */
static void part_add_in_place(const struct work *j, const struct rows_input *in, const struct gradients *dy, const struct rows_part *p,
                              int cols, float *dw, bool add)
{
    for (int first = 0; first < j->depth; first += ROWS)
        for (int v = 0; v < cols; v += GEMM_NP) {
            struct gemm mm = { .a = dy->at + v / GEMM_NP * dy->panel,
                               .a_row = 1,
                               .a_seg = dy->row,
                               .a_depth = dy->pixel,
                               .b = in->at + first,
                               .b_seg = in->row,
                               .b_depth = in->pixel,
                               .c = dw + (long)v * j->depth + first,
                               .c_row = j->depth,
                               .rows = cols - v < GEMM_NP ? cols - v : GEMM_NP,
                               .cols = j->depth - first < ROWS ? j->depth - first : ROWS,
                               .segs = p->h,
                               .depth = p->w,
                               .add = add };

            gemm_run(&mm);
        }
}

static void part_run(const struct work *j, const struct rows_part *p, int k, int cols, int thread, float *acc, bool add)
{
    float *buf = j->buf + (size_t)thread * j->buf_size, *pack = j->dy + (size_t)thread * j->dy_size;
    struct gradients dy = j->q->norm ? gradients_of_norm(j, p, k, cols, pack) : gradients(j, p, k, cols, pack);
    struct rows_input in = rows_input(&j->g, p, j->q->x, buf);

    if (j->in_place)
        part_add_in_place(j, &in, &dy, p, cols, acc, add);
    else
        part_add(j, p, &in, &dy, round_up(cols, 16), acc, add);
}

static void slab_run(const struct work *j, int shard, int first, int n, int k, int cols, int thread, float *acc)
{
    for (int i = 0; i < n; i++) {
        struct rows_part p = rows_part(&j->g, shard * j->shard_parts + first + i);

        part_run(j, &p, k, cols, thread, acc, i > 0);
    }
}

/* Numbers of a part's packed gradients with `cols` rows. */
static long gradients_size(const struct work *j, int cols)
{
    return (long)round_up(cols, TILE_COLS) * tiles_positions(&j->tiles);
}

/* Columns [k, k + cols), in place or computed behind a normalisation. */
static struct tiles_gradients half_gradients(const struct work *j, const struct rows_part *p, int k, int cols, int thread)
{
    const struct norm_piece piece = piece_of(j, p, k, cols);
    const struct tensor *t;
    uint16_t *made;

    if (j->q->norm) {
        made = j->grad + (size_t)thread * j->grad_size;
        norm_apply_piece(j->q->norm, j->means, &piece, made, cols);
        return (struct tiles_gradients){ made, cols, (long)p->w * cols };
    }
    t = &j->q->dy[piece.shard];
    return (struct tiles_gradients){ (const uint16_t *)t->data + (long)piece.first * t->stride + k, t->stride, (long)j->g.ow * t->stride };
}

static void part_pack(const struct work *j, int part, int k, int cols, int thread, uint16_t *x, uint16_t *dy)
{
    const struct tiles *t = &j->tiles;
    struct rows_part p = rows_part(&j->g, part);
    struct tiles_part tp = tiles_part(t, &p);
    struct tiles_gradients grad = half_gradients(j, &p, k, cols, thread);

    tp.pixels = tiles_pixels(t); /* the same for all parts, so that columns of a product are equally far apart */
    tiles_pack_pairs(t, &tp, j->q->x, j->lines + (size_t)thread * j->lines_size, x);
    tiles_pack_gradients(t, &tp, &grad, cols, dy);
}

/* Packs all parts, if several groups of outputs read them. */
static void pack_run(void *arg, size_t part, int thread)
{
    const struct work *j = arg;

    part_pack(j, (int)part, 0, j->g.k, thread, j->x_all + (long)part * j->pairs_size, j->dy_all + (long)part * gradients_size(j, j->g.k));
}

/* Columns of sums for two halves of the inputs, one for each tap. Columns with inputs close to each other are
 * neighbours. */
struct columns {
    long *b, *c; /* as in a tile_product */
    int n;
};

/* Adds the columns of one half: taps that begin at an even position or, with `odd`, the others. The two kinds read
 * different rows of pairs. */
static void columns_of(const struct tiles *t, const long *shift, int half, bool odd, long b_half, struct columns *to)
{
    const int taps = tiles_taps(t), halves = tiles_halves(t);

    for (int tap = 0; tap < taps && half < halves; tap++) {
        if ((shift[tap] % (b_half * halves) >= b_half / 2) != odd)
            continue;
        to->b[to->n] = shift[tap] + half * b_half;
        to->c[to->n++] = (tap * halves + half) * 16L;
    }
}

static bool same_shifts(const long *shift, int taps, int n)
{
    for (int i = taps; i < n * taps; i++)
        if (shift[i] != shift[i % taps])
            return false;
    return true;
}

/* Writes complete sums past the caches, in whole lines. If an output has many weights, each line is in another page
 * than the one before; loading the lines only to overwrite them would take longer than the products. */
static void run_past_caches(const struct tile_unit *unit, const struct tile_product *mm)
{
    enum { LD = TILE_COLUMNS * 16 };
    static const long column[TILE_COLUMNS] = { 0, 16, 32, 48, 64, 80 };
    _Alignas(64) float sums[TILE_COLS * LD];
    struct tile_product own = *mm;

    own.c = sums;
    own.c_row = LD;
    own.c_column = column;
    unit->run(&own);
    for (int i = 0; i < mm->rows; i++)
        for (int n = 0; n < mm->columns; n++)
            for (int v = 0; v < 16; v += VW)
                vstream(mm->c + i * mm->c_row + mm->c_column[n] + v, vload(sums + i * LD + column[n] + v));
}

/* Sums n parts that are packed together, so that their sums stay in registers. Rows are output gradients, columns
 * inputs, sums run over positions. */
static void parts_run_tiles(const struct work *j, int first, int n, int k, int cols, int thread, float *acc, bool add)
{
    const struct tile_unit *unit = cpu_device(j->q->dev)->tiles;
    const struct tiles *t = &j->tiles;
    uint16_t *x = j->x_all ? j->x_all + first * j->pairs_size : (uint16_t *)(void *)(j->buf + (size_t)thread * j->buf_size);
    const long dy_size = gradients_size(j, j->x_all ? j->g.k : cols);
    uint16_t *dy = j->x_all ? j->dy_all + first * dy_size : (uint16_t *)(void *)(j->dy + (size_t)thread * j->dy_size);
    const int taps = tiles_taps(t), halves = tiles_halves(t);
    long *shifts = j->shifts + (size_t)thread * j->shifts_size, *a_tap = shifts + n * taps, *b_tap = a_tap + n, b_half = 0;
    struct columns all = { b_tap + n, b_tap + n + 2 * taps, 0 };
    int *counts = j->counts + thread * j->parts_at_once, at_once;
    bool past_caches;
    struct tile_product mm = { .b = x, .a_row = TILE_BLOCK, .a_block = TILE_COLS * TILE_BLOCK, .b_block = TILE_HALF };

    for (int i = 0; i < n; i++) {
        struct rows_part p = rows_part(&j->g, first + i);
        struct tiles_part tp = tiles_part(t, &p);

        if (!j->x_all)
            part_pack(j, first + i, k, cols, thread, x + i * j->pairs_size, dy + i * dy_size);
        tp.pixels = tiles_pixels(t);
        counts[i] = tiles_blocks(&tp);
        a_tap[i] = i * dy_size;
        b_tap[i] = i * j->pairs_size;
        tiles_pairs_shifts(t, &tp, shifts + i * taps);
        b_half = tiles_pairs_half(&tp);
    }
    mm.c_row = taps * halves * 16;
    at_once = same_shifts(shifts, taps, n) ? n : 1; /* parts with rows of another width have other tap positions */
    past_caches = VSTREAMS && j->in_place && n == j->shard_parts && at_once == n && (uintptr_t)acc % 64 == 0;
    unit->begin();
    for (int h = 0; h < halves; h += 2)
        for (int i = 0; i < n; i += at_once) {
            all.n = 0;
            for (int side = 0; side < 4; side++)
                columns_of(t, shifts + i * taps, h + side / 2, side == 1 || side == 2, b_half, &all);
            mm.a_tap = a_tap + i;
            mm.b_tap = b_tap + i;
            mm.counts = counts + i;
            mm.taps = at_once;
            mm.add = add || i > 0;
            for (int k0 = 0; k0 < cols; k0 += TILE_COLS)
                for (int column = 0; column < all.n; column += mm.columns) {
                    mm.columns = all.n - column < TILE_COLUMNS ? all.n - column : TILE_COLUMNS;
                    mm.a = dy + (long)(j->x_all ? k + k0 : k0) * tiles_positions(t);
                    mm.rows = cols - k0 < TILE_COLS ? cols - k0 : TILE_COLS;
                    mm.c = acc + k0 * mm.c_row;
                    mm.b_column = all.b + column;
                    mm.c_column = all.c + column;
                    if (past_caches)
                        run_past_caches(unit, &mm);
                    else
                        unit->run(&mm);
                }
        }
    unit->end();
    if (past_caches)
        vstream_end();
}

static void slab_run_tiles(const struct work *j, int shard, int first, int n, int k, int cols, int thread, float *acc)
{
    for (int i = 0; i < n; i += j->parts_at_once)
        parts_run_tiles(j, shard * j->shard_parts + first + i, n - i < j->parts_at_once ? n - i : j->parts_at_once, k, cols, thread, acc,
                        i > 0);
}

static void unit_run(void *arg, size_t index, int thread)
{
    const struct work *j = arg;
    int group = (int)index % j->groups, kg = (int)index / j->groups % j->k_groups, shard = (int)index / j->groups / j->k_groups;
    int k = kg * group_cols(j), cols = j->g.k - k < group_cols(j) ? j->g.k - k : group_cols(j);
    int first = group * j->group, end = first + j->group < j->slabs ? first + j->group : j->slabs;
    struct slabs s = { .stack = j->stack + (size_t)thread * j->stack_size, .n = j->part_size };
    float *sum = j->in_place ? j->q->dw[shard] + (size_t)k * (size_t)j->depth : j->part + index * j->part_size;

    for (int i = first; i < end; i++) {
        int part = i * j->slab_parts, left = j->shard_parts - part;

        (j->half ? slab_run_tiles : slab_run)(j, shard, part, left < j->slab_parts ? left : j->slab_parts, k, cols, thread,
                                              end - first == 1 ? sum : slab_next(&s));
        if (end - first > 1)
            slab_push(&s);
    }
    if (end - first > 1)
        slab_write(sum, 0.0f, slab_finish(&s), j->part_size);
}

/* Transposes src[depth][ld] to dst[cols][depth]. */
static void turn(const float *src, long ld, int depth, int cols, float *dst, float beta)
{
    for (int d = 0; d < depth; d += VW)
        for (int k = 0; k < cols; k += VW) {
            int rows = vlanes(depth, d), lanes = vlanes(cols, k);
            vec t[VW];

            for (int i = 0; i < VW; i++)
                t[i] = i < rows ? vload(src + (long)(d + i) * ld + k) : vset1(0.0f);
            vtranspose(t);
            for (int i = 0; i < lanes; i++) {
                float *to = dst + (long)(k + i) * depth + d;

                if (beta != 0.0f)
                    t[i] = vfma(vset1(beta), vload_n(to, rows), t[i]);
                vstore_n(to, t[i], rows);
            }
        }
}

/* Copies src[cols][taps][depth, whole tiles], plus `more` if that is not NULL, to dst[cols][taps][depth]. */
static void unpad(const struct tiles *t, const float *src, const float *more, int cols, float *dst, float beta)
{
    const long ld = tiles_halves(t) * 16;

    for (long i = 0; i < (long)cols * tiles_taps(t); i++, src += ld, dst += t->depth)
        for (int d = 0; d < t->depth; d += VW) {
            int n = vlanes(t->depth, d);
            vec v = vload_n(src + d, n);

            if (more)
                v = vadd(v, vload_n(more + i * ld + d, n));
            if (beta != 0.0f)
                v = vfma(vset1(beta), vload_n(dst + d, n), v);
            vstore_n(dst + d, v, n);
        }
}

static void write_group(void *arg, size_t index, int thread)
{
    const struct work *j = arg;
    int kg = (int)index % j->k_groups, shard = (int)index / j->k_groups, k = kg * group_cols(j);
    int cols = j->g.k - k < group_cols(j) ? j->g.k - k : group_cols(j);

    const float *from = j->part + index * (size_t)j->groups * j->part_size;
    float *to = j->q->dw[shard] + (size_t)k * (size_t)j->depth;

    (void)thread;
    if (j->half)
        unpad(&j->tiles, from, j->groups == 2 ? from + j->part_size : NULL, cols, to, j->q->beta);
    else
        turn(from, group_cols(j), j->depth, cols, to, j->q->beta);
}

static void sizes(struct work *j, int threads)
{
    int part_pixels = j->g.oh * j->g.ow / rows_parts(&j->g);

    j->depth = j->g.taps_y * j->g.taps_x * j->g.c;
    j->shard_parts = rows_parts(&j->g) * j->g.per;
    j->slab_parts = (j->half ? SLAB_PIXELS_TILES : SLAB_PIXELS) / (part_pixels > 0 ? part_pixels : 1);
    if (j->slab_parts == 0)
        j->slab_parts = 1;
    j->slabs = (j->shard_parts + j->slab_parts - 1) / j->slab_parts;
    for (j->group = 1; j->slabs * j->q->nshards / (2 * j->group) >= UNITS * threads;)
        j->group *= 2;
    j->groups = (j->slabs + j->group - 1) / j->group;
    j->panels = (j->g.k + GEMM_NP - 1) / GEMM_NP;
    j->group_panels = j->panels;
    while (j->group_panels > 1 && j->groups * j->q->nshards * ((j->panels + j->group_panels - 1) / j->group_panels) <
                                      (j->half && j->group_panels <= OUTPUTS / GEMM_NP ? 1 : UNITS) * threads)
        j->group_panels = (j->group_panels + 1) / 2;
    j->k_groups = (j->panels + j->group_panels - 1) / j->group_panels;
    j->buf_size = rows_buffer(&j->g) + 16;
    j->dy_size = (size_t)(j->g.band_rows * rows_widest(&j->g)) * (size_t)group_cols(j);
    j->part_size = (size_t)j->depth * (size_t)group_cols(j);
    j->stack_size = (size_t)slab_levels(j->group) * j->part_size;
    j->in_place = j->slabs == 1 && j->q->beta == 0.0f && (j->half || j->g.taps_y * j->g.taps_x == 1) && j->tiles.depth % 16 == 0;
}

static void sizes_tiles(struct work *j)
{
    const struct tiles *t = &j->tiles;
    const long sums = (long)group_cols(j) * tiles_taps(t) * tiles_halves(t) * 16 * (long)sizeof(float),
               room = sums > SUMS_KEPT ? PAIRS_BYTES : PAIRS_KEPT;
    int most = 1;

    j->pairs_size = (long)tiles_pairs(t);
    while (most < j->slab_parts && (most + 1) * j->pairs_size * (long)sizeof(uint16_t) <= room)
        most++;
    j->parts_at_once = most;
    j->buf_size = (size_t)(most * j->pairs_size) / 2;
    j->dy_size = (size_t)(most * gradients_size(j, group_cols(j))) / 2;
    j->shifts_size = (size_t)most * ((size_t)tiles_taps(t) + 2) + 4 * (size_t)tiles_taps(t);
    j->lines_size = tiles_pairs_lines(t);
    j->grad_size = j->q->norm ? (size_t)(j->g.band_rows * rows_widest(&j->g)) * (size_t)j->g.k : 0;
    j->part_size = (size_t)group_cols(j) * (size_t)(tiles_taps(t) * tiles_halves(t) * 16);
    j->stack_size = (size_t)slab_levels(j->group) * j->part_size;
}

static void layout_tiles(struct work *j, struct carve *c, int threads)
{
    const size_t parts = (size_t)rows_parts(&j->g) * (size_t)j->g.images;

    sizes_tiles(j);
    j->shifts = carve(c, (size_t)threads * j->shifts_size * sizeof *j->shifts);
    j->counts = carve(c, (size_t)threads * (size_t)j->parts_at_once * sizeof *j->counts);
    j->lines = carve(c, (size_t)threads * j->lines_size * sizeof *j->lines);
    j->grad = carve(c, (size_t)threads * j->grad_size * sizeof *j->grad);
    if (j->k_groups > 1) {
        j->x_all = carve(c, parts * (size_t)j->pairs_size * sizeof *j->x_all);
        j->dy_all = carve(c, parts * (size_t)gradients_size(j, j->g.k) * sizeof *j->dy_all);
        j->buf_size = j->dy_size = 0;
    }
}

static void layout(struct work *j, struct carve *c, int threads)
{
    if (j->half)
        layout_tiles(j, c, threads);
    if (j->in_place)
        j->part_size = 0;
    if (j->q->norm)
        j->means = carve_floats(c, norm_means_count(j->q->norm, j->q->nshards));
    j->buf = carve_floats(c, (size_t)threads * j->buf_size);
    j->dy = carve_floats(c, (size_t)threads * j->dy_size);
    j->stack = carve_floats(c, (size_t)threads * j->stack_size);
    j->part = carve_floats(c, (size_t)(j->q->nshards * j->groups * j->k_groups) * j->part_size);
}

/* Images of a single pixel that may be taken as one row: slabs begin at the same images, and chains keep their
 * order. */
static int joined(const struct work *j)
{
    int n = SLAB_PIXELS;

    if (j->half)
        return 1;
    if (j->g.per <= n)
        return j->g.per;
    while (j->g.per % n != 0)
        n /= 2;
    return n;
}

int rows_conv_bwd_weights(const struct conv_call *q, struct err *err)
{
    struct threads *threads = cpu_threads(q->dev);
    const struct tensor *x = &q->x[0].x, *dy = conv_dy(q, 0);
    struct work j = { .q = q };

    j.g = rows_of(q, x, dy);
    j.g.over_positions = true;
    j.half = dy->dtype == DTYPE_BF16;
    j.g.joined = joined(&j);
    rows_cut(&j.g, j.half);
    j.tiles = tiles_of(&j.g);
    sizes(&j, threads_count(threads));
    for (struct carve c = { 0 };;) {
        c.used = 0;
        layout(&j, &c, threads_count(threads));
        if (c.base)
            break;
        c.base = cpu_scratch(q->dev, c.used, err);
        if (!c.base)
            return -ENOMEM;
    }
    if (q->norm)
        norm_means(q->norm, q->nshards, j.means);
    if (j.x_all)
        threads_each(threads, (size_t)rows_parts(&j.g) * (size_t)j.g.images, pack_run, &j);
    threads_each(threads, (size_t)(q->nshards * j.groups * j.k_groups), unit_run, &j);
    if (j.in_place)
        return 0;
    for (int i = 0; i < q->nshards * j.k_groups && j.groups > (j.half ? 2 : 1); i++) { /* bf16: write_group() adds two groups */
        float *part = j.part + (size_t)(i * j.groups) * j.part_size;

        slab_sum(threads, part, 0.0f, part, j.groups, j.part_size);
    }
    threads_each(threads, (size_t)(q->nshards * j.k_groups), write_group, &j);
    return 0;
}

/* worker/cpu/conv_rows_dw.c - weight gradients on rows: dw[(r, s, c)][k] = sum over outputs of input times output gradient, inputs broadcast
 * from the buffer of conv_rows.h, output gradients as vectors.
 *
 * A slab is about a thousand outputs of one shard, one chain of FMAs; slabs are summed in a pairwise tree. Work is shared out by groups of
 * slabs and, where weights are many and slabs few, by groups of outputs k. */
#include <errno.h>

#include "worker/core/simd.h"
#include "worker/cpu/conv.h"
#include "worker/cpu/conv_rows.h"
#include "worker/cpu/conv_tiles.h"
#include "worker/cpu/tile.h"

enum {
    SLAB_PIXELS = 1024,
    UNITS = 4, /* pieces of work a thread, at least, where the shape has them */
    ROWS = 512 /* inputs that go by all outputs at once: those of a part stay in the L2 cache meanwhile */
};

struct job {
    struct rows g;
    const struct conv_call *q;
    int depth;                          /* taps_y * taps_x * c */
    int shard_parts, slab_parts, slabs; /* of a shard */
    int group, groups;                  /* slabs of a group (a power of two), groups of a shard */
    int panels, group_panels, k_groups; /* panels of 32 outputs; of a group; groups */
    float *buf, *dy, *stack, *part;     /* part: [shards][k_groups][groups][depth][cols] */
    size_t buf_size, dy_size, stack_size, part_size;
    bool half; /* bf16: inputs turned and gradients in blocks for tiles */
    struct tiles tiles;
    long *shifts; /* per thread: [taps] */
};

static int group_cols(const struct job *j)
{
    return j->group_panels * GEMM_NP;
}

/* Output gradients of a part, columns from k on: as they lie, or packed with zeros after the last where they do not fill vectors. */
static const float *gradients(const struct job *j, const struct rows_part *p, int k, int cols, float *pack, long *ret_row, long *ret_pixel)
{
    const struct tensor *t = &j->q->dy[p->image / j->g.per];
    const float *from = (const float *)t->data + (((long)(p->image % j->g.per) * j->g.oh + p->y) * j->g.ow + p->x) * t->stride + k;
    long row = (long)j->g.ow * t->stride;

    if (cols % 16 == 0) {
        *ret_row = row;
        *ret_pixel = t->stride;
        return from;
    }
    *ret_pixel = round_up(cols, 16);
    *ret_row = *ret_pixel * p->w;
    for (int y = 0; y < p->h; y++)
        for (int x = 0; x < p->w; x++)
            for (int c = 0; c < *ret_pixel; c += VW) {
                int lanes = vlanes(cols, c);

                vstore(pack + y * *ret_row + x * *ret_pixel + c,
                       lanes > 0 ? vload_n(from + y * row + (long)x * t->stride + c, lanes) : vset1(0.0f));
            }
    return pack;
}

static void part_add(const struct job *j, const struct rows_part *p, const struct rows_input *in, const float *dy, long dy_row,
                     long dy_pixel, int cols, float *acc, bool add)
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
                                   .b = dy + v,
                                   .b_seg = dy_row,
                                   .b_depth = dy_pixel,
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

static void part_run(const struct job *j, const struct rows_part *p, int k, int cols, int thread, float *acc, bool add)
{
    float *buf = j->buf + (size_t)thread * j->buf_size, *pack = j->dy + (size_t)thread * j->dy_size;
    long row, pixel;
    const float *dy = gradients(j, p, k, cols, pack, &row, &pixel);
    struct rows_input in = rows_input(&j->g, p, j->q->x, buf);

    part_add(j, p, &in, dy, row, pixel, round_up(cols, 16), acc, add);
}

/* Rows of inputs, columns of output gradients, sums over positions; a tap's rows of acc follow the one's before it. */
static void part_run_tiles(const struct job *j, const struct rows_part *p, int k, int cols, int thread, float *acc, bool add)
{
    const struct tiles *t = &j->tiles;
    struct tiles_part tp = tiles_part(t, p);
    uint16_t *x = (uint16_t *)(void *)(j->buf + (size_t)thread * j->buf_size);
    uint16_t *dy = (uint16_t *)(void *)(j->dy + (size_t)thread * j->dy_size);
    long *shifts = j->shifts + thread * tiles_taps(t);
    int blocks = (tp.positions + TILE_BLOCK - 1) / TILE_BLOCK;

    tiles_pack(t, &tp, j->q->x, true, x);
    tiles_shifts(t, &tp, true, shifts);
    tiles_pack_gradients(t, &tp, &j->q->dy[p->image / j->g.per], k, cols, dy);
    for (int tap = 0; tap < tiles_taps(t); tap++)
        for (int v = 0; v < cols; v += TILE_COLS) {
            struct tile_product mm = { .a = x, .tap = shifts + tap, .a_row = tp.pixels, .a_block = TILE_BLOCK };

            mm.b = dy + (long)(v / TILE_COLS) * blocks * TILE_PANEL;
            mm.c = acc + (long)tap * t->depth * group_cols(j) + v;
            mm.c_row = group_cols(j);
            mm.rows = t->depth;
            mm.taps = 1;
            mm.blocks = blocks;
            mm.add = add;
            cpu_device(j->q->dev)->tiles(&mm);
        }
}

static void slab_run(const struct job *j, int shard, int slab, int k, int cols, int thread, float *acc)
{
    int first = slab * j->slab_parts, left = j->shard_parts - first, n = left < j->slab_parts ? left : j->slab_parts;

    for (int i = 0; i < n; i++) {
        struct rows_part p = rows_part(&j->g, shard * j->shard_parts + first + i);

        (j->half ? part_run_tiles : part_run)(j, &p, k, cols, thread, acc, i > 0);
    }
}

static void unit_run(void *arg, size_t index, int thread)
{
    const struct job *j = arg;
    int group = (int)index % j->groups, kg = (int)index / j->groups % j->k_groups, shard = (int)index / j->groups / j->k_groups;
    int k = kg * group_cols(j), cols = j->g.k - k < group_cols(j) ? j->g.k - k : group_cols(j);
    struct slabs s = { .stack = j->stack + (size_t)thread * j->stack_size, .n = j->part_size };

    for (int i = group * j->group; i < (group + 1) * j->group && i < j->slabs; i++) {
        slab_run(j, shard, i, k, cols, thread, slab_next(&s));
        slab_push(&s);
    }
    slab_write(j->part + index * j->part_size, 0.0f, slab_finish(&s), j->part_size);
}

/* src[depth][ld] turned to dst[cols][depth] */
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

static void turn_group(void *arg, size_t index, int thread)
{
    const struct job *j = arg;
    int kg = (int)index % j->k_groups, shard = (int)index / j->k_groups, k = kg * group_cols(j);
    int cols = j->g.k - k < group_cols(j) ? j->g.k - k : group_cols(j);

    (void)thread;
    turn(j->part + index * (size_t)j->groups * j->part_size, group_cols(j), j->depth, cols, j->q->dw[shard] + (size_t)k * (size_t)j->depth,
         j->q->beta);
}

static void sizes(struct job *j, int threads)
{
    int part_pixels = j->g.oh * j->g.ow / rows_parts(&j->g);

    j->depth = j->g.taps_y * j->g.taps_x * j->g.c;
    j->shard_parts = rows_parts(&j->g) * j->g.per;
    j->slab_parts = SLAB_PIXELS / (part_pixels > 0 ? part_pixels : 1) > 0 ? SLAB_PIXELS / (part_pixels > 0 ? part_pixels : 1) : 1;
    j->slabs = (j->shard_parts + j->slab_parts - 1) / j->slab_parts;
    for (j->group = 1; j->slabs * j->q->nshards / (2 * j->group) >= UNITS * threads;)
        j->group *= 2;
    j->groups = (j->slabs + j->group - 1) / j->group;
    j->panels = (j->g.k + GEMM_NP - 1) / GEMM_NP;
    j->group_panels = j->panels;
    while (j->group_panels > 1 && j->groups * j->q->nshards * ((j->panels + j->group_panels - 1) / j->group_panels) < UNITS * threads)
        j->group_panels = (j->group_panels + 1) / 2;
    j->k_groups = (j->panels + j->group_panels - 1) / j->group_panels;
    j->buf_size = rows_buffer(&j->g) + 16;
    j->dy_size = (size_t)(j->g.band_rows * ((j->g.ow + j->g.segs - 1) / j->g.segs)) * (size_t)group_cols(j);
    j->part_size = (size_t)j->depth * (size_t)group_cols(j);
    j->stack_size = (size_t)slab_levels(j->group) * j->part_size;
}

/* Turned panels have rows of inputs for blocks of 32. */
static void sizes_tiles(struct job *j)
{
    size_t rows = (size_t)tiles_depth_rows(&j->tiles), padded = (size_t)j->tiles.blocks * TILE_BLOCK;

    j->buf_size = tiles_panels(&j->tiles) / padded * rows / 2;
    j->dy_size = (size_t)tiles_positions(&j->tiles) * (size_t)group_cols(j) / 2;
}

static void layout(struct job *j, struct carve *c, int threads)
{
    if (j->half)
        sizes_tiles(j);
    j->shifts = carve(c, (size_t)threads * (size_t)tiles_taps(&j->tiles) * sizeof *j->shifts);
    j->buf = carve_floats(c, (size_t)threads * j->buf_size);
    j->dy = carve_floats(c, (size_t)threads * j->dy_size);
    j->stack = carve_floats(c, (size_t)threads * j->stack_size);
    j->part = carve_floats(c, (size_t)(j->q->nshards * j->groups * j->k_groups) * j->part_size);
}

int rows_conv_bwd_weights(const struct conv_call *q, struct err *err)
{
    struct threads *threads = cpu_threads(q->dev);
    const struct tensor *x = &q->x[0].x, *dy = &q->dy[0];
    struct job j = { .q = q };

    j.g = (struct rows){ .images = dy->n * q->nshards, .per = dy->n, .oh = dy->h, .ow = dy->w, .ih = x->h, .iw = x->w };
    j.g.taps_y = q->r;
    j.g.taps_x = q->s;
    j.g.stride = q->stride;
    j.g.off_y = j.g.off_x = -q->pad;
    j.g.c = x->c;
    j.g.k = dy->c;
    j.g.out_step = 1;
    j.g.out_h = dy->h;
    j.g.out_w = dy->w;
    rows_cut(&j.g);
    j.half = dy->dtype == DTYPE_BF16;
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
    threads_each(threads, (size_t)(q->nshards * j.groups * j.k_groups), unit_run, &j);
    for (int i = 0; i < q->nshards * j.k_groups; i++) {
        float *part = j.part + (size_t)(i * j.groups) * j.part_size;

        slab_sum(threads, part, 0.0f, part, j.groups, j.part_size);
    }
    threads_each(threads, (size_t)(q->nshards * j.k_groups), turn_group, &j);
    return 0;
}

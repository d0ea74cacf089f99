/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/roi.cu - RoIAlign. A block computes the bands of a box. Forward: a
 * thread owns a few channels of a bin. Backward: a block owns a tile of 8 x 8 cells, a warp a row of it, a lane a few
 * channels. The boxes that touch the tile are listed in ascending order, and each warp goes through the list. */
#include "cuda/cuda.h"

#include <errno.h>
#include <string.h>

#include "cuda/vec.h"
#include "worker/kernels/roi.h"

enum { TILE = 8, WARP = 32, THREADS = TILE * WARP, RUN = 1 /* bins per thread */ };

#define FULL 0xFFFFFFFFu /* all lanes of a warp */

struct roi_map {
    void *data; /* x, or dx; NULL: not wanted */
    int h, w, stride;
};

struct roi_shard {
    struct roi_map map[ROI_MAX_LEVELS];
    struct roi_rows rows;
    struct roi_table table;
    void *y; /* or dy */
    int n, y_stride;
};

struct roi_args {
    struct roi_shard shard[SHARDS_AT_ONCE];
    struct roi_align roi;
    float beta[ROI_MAX_LEVELS];
    int c;
};
static_assert(sizeof(struct roi_args) <= 4096, "the arguments of a launch");
static_assert((int)ROI_MAX_POOL <= (int)WARP, "a lane a bin");

DEVICE_FN int rows_of(const struct roi_shard *s)
{
    int n = s->rows.count ? *s->rows.count : s->rows.cap;

    return n < 0 ? 0 : n < s->rows.cap ? n : s->rows.cap;
}

/* ---- bands: a block for each row, a thread for each bin of an axis ---- */

static __global__ void __launch_bounds__(ROI_AXES *ROI_MAX_POOL) roi_place_kernel(const struct roi_args a)
{
    SHARED(int, from, ROI_AXES);
    SHARED(int, to, ROI_AXES);
    const struct roi_shard *s = &a.shard[blockIdx.y];
    int row = (int)blockIdx.x, axis = (int)threadIdx.x / ROI_MAX_POOL, p = (int)threadIdx.x % ROI_MAX_POOL, level, image;
    struct roi_place *place = s->table.place + row;
    const float *box = s->rows.box + (size_t)row * 4;
    bool sees;

    if (row >= rows_of(s))
        return;
    level = roi_level(&a.roi, box);
    image = roi_image(&s->rows, s->n, row);
    if (p == 0) {
        from[axis] = INT32_MAX;
        to[axis] = 0;
    }
    __syncthreads();
    if (p < a.roi.pool && s->map[level].data && image >= 0 && image < s->n) {
        int cells = axis == ROI_X ? s->map[level].w : s->map[level].h;
        struct roi_axis along = roi_axis(&a.roi, box[axis == ROI_X ? 0 : 1], box[axis == ROI_X ? 2 : 3], a.roi.scale[level], cells);
        struct roi_band band = roi_band(&a.roi, &along, p, roi_weights(&s->table, row, axis));

        roi_bands(&s->table, row, axis)[p] = band;
        if (band.first < band.end) {
            atomicMin(&from[axis], band.first);
            atomicMax(&to[axis], band.end);
        }
    }
    __syncthreads();
    sees = from[ROI_Y] < to[ROI_Y] && from[ROI_X] < to[ROI_X];
    if (p == 0) {
        place->from[axis] = from[axis];
        place->to[axis] = to[axis];
    }
    if (threadIdx.x == 0) {
        place->level = sees ? level : -1;
        place->image = image;
    }
}

/* ---- forward ---- */

/* W channels of roi_value(). */
template <typename T, int W>
DEVICE_FN void bin_value(float (&sum)[W], const struct roi_view *v, int p, int q, const T *x, int w, int stride)
{
    struct roi_band by = v->band[ROI_Y][p], bx = v->band[ROI_X][q];

    for (int i = by.first; i < by.end; i++) {
        float a = roi_weight(&by, v->weight[ROI_Y], i), part[W] = { 0.0f }, f[W];

        if (a == 0.0f)
            continue;
        for (int j = bx.first; j < bx.end; j++) {
            float b = roi_weight(&bx, v->weight[ROI_X], j);

            if (b == 0.0f)
                continue;
            vec_unpack(f, vec_load<W>(x + ((size_t)i * (size_t)w + (size_t)j) * (size_t)stride));
#pragma unroll
            for (int k = 0; k < W; k++)
                part[k] = fmaf(b, f[k], part[k]);
        }
#pragma unroll
        for (int k = 0; k < W; k++)
            sum[k] = fmaf(a, part[k], sum[k]);
    }
}

template <typename T, int W> static __global__ void __launch_bounds__(VEC_THREADS) roi_values_kernel(const struct roi_args a)
{
    const struct roi_shard *s = &a.shard[blockIdx.z];
    unsigned bins = (unsigned)(a.roi.pool * a.roi.pool);
    int k = vec_channel<W>(), count = rows_of(s);
    size_t n = (size_t)s->rows.cap * bins, i = vec_pixel<RUN>();

    for (int r = 0; r < RUN && i < n && k < a.c; r++, i += vec_step()) {
        int row = (int)(i / bins), bin = (int)(i % bins);
        float sum[W] = { 0.0f };

        if (row < count && s->table.place[row].level >= 0) {
            struct roi_place at = s->table.place[row];
            const struct roi_map *m = &s->map[at.level];
            const T *x = (const T *)m->data + (size_t)at.image * (size_t)m->h * (size_t)m->w * (size_t)m->stride + k;
            struct roi_view view = roi_view(&s->table, row);

            bin_value(sum, &view, bin / a.roi.pool, bin % a.roi.pool, x, m->w, m->stride);
        }
        vec_store((T *)s->y + i * (size_t)s->y_stride + k, sum);
    }
}

/* ---- backward ---- */

static __host__ __device__ __forceinline__ unsigned tiles_along(int cells)
{
    return ((unsigned)cells + TILE - 1) / TILE;
}

static __host__ __device__ __forceinline__ unsigned tiles_of(const struct roi_shard *s, int level)
{
    return s->map[level].data ? (unsigned)s->n * tiles_along(s->map[level].h) * tiles_along(s->map[level].w) : 0;
}

struct roi_tile {
    int level, image, y, x; /* level -1: the shard has fewer tiles */
};

/* The tile of a block. Levels with few tiles and much work come first. */
DEVICE_FN struct roi_tile tile_of_block(const struct roi_args *a, const struct roi_shard *s)
{
    unsigned i = blockIdx.x, across, down;
    struct roi_tile t;

    t.level = a->roi.nlevels - 1;
    while (t.level >= 0 && i >= tiles_of(s, t.level))
        i -= tiles_of(s, t.level--);
    if (t.level < 0)
        return t;
    across = tiles_along(s->map[t.level].w);
    down = tiles_along(s->map[t.level].h);
    t.x = (int)(i % across) * TILE;
    t.y = (int)(i / across % down) * TILE;
    t.image = (int)(i / across / down);
    return t;
}

/* Lists the rows of `first` .. first + THREADS - 1 that touch the tile, in order. Returns their number. */
static __device__ int list_rows(int *list, int *found, const struct roi_shard *s, struct roi_tile t, int first, int count)
{
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, row = first + (int)threadIdx.x, before = 0, all = 0;
    bool touches = row < count && roi_touches(&s->table.place[row], t.level, t.image, t.y, t.y + TILE, t.x, t.x + TILE);
    unsigned votes = __ballot_sync(FULL, touches);

    if (lane == 0)
        found[warp] = __popc(votes);
    __syncthreads();
    for (int w = 0; w < TILE; w++) {
        before += w < warp ? found[w] : 0;
        all += found[w];
    }
    if (touches)
        list[before + __popc(votes & ((1u << lane) - 1u))] = row;
    __syncthreads();
    return all;
}

/* Adds the share of one box to a warp's row of cells; see roi_gradient(). Lane l holds the weights of bins l. */
template <typename T, int W>
DEVICE_FN void add_box(float (&sum)[TILE][W], const struct roi_args *a, const struct roi_shard *s, int row, struct roi_tile t, int i, int k)
{
    int lane = (int)threadIdx.x % WARP, pool = a->roi.pool;
    const T *dy = (const T *)s->y + (size_t)row * (size_t)(pool * pool) * (size_t)s->y_stride + k;
    struct roi_view v = roi_view(&s->table, row);
    float own = lane < pool ? roi_weight(&v.band[ROI_Y][lane], v.weight[ROI_Y], i) : 0.0f, across[TILE];
    unsigned rows = __ballot_sync(FULL, own != 0.0f), columns;
    bool any = false;

    if (rows == 0)
        return;
#pragma unroll
    for (int j = 0; j < TILE; j++) {
        across[j] = lane < pool ? roi_weight(&v.band[ROI_X][lane], v.weight[ROI_X], t.x + j) : 0.0f;
        any = any || across[j] != 0.0f;
    }
    for (columns = __ballot_sync(FULL, any); columns != 0; columns &= columns - 1) {
        int q = __ffs((int)columns) - 1;
        float part[W] = { 0.0f }, f[W];

        for (unsigned left = rows; left != 0; left &= left - 1) {
            int p = __ffs((int)left) - 1;
            float w = __shfl_sync(FULL, own, p);

            if (k >= a->c)
                continue;
            vec_unpack(f, vec_load<W>(dy + (size_t)(p * pool + q) * (size_t)s->y_stride));
#pragma unroll
            for (int n = 0; n < W; n++)
                part[n] = fmaf(w, f[n], part[n]);
        }
#pragma unroll
        for (int j = 0; j < TILE; j++) {
            float w = __shfl_sync(FULL, across[j], q);

#pragma unroll
            for (int n = 0; n < W; n++)
                sum[j][n] = w != 0.0f ? fmaf(w, part[n], sum[j][n]) : sum[j][n];
        }
    }
}

/* A lane's numbers in a row of cells. */
template <typename T, int W> struct roi_line {
    T *dx;
    int stride, cells; /* 0: outside of the image, or no channels */
};

template <typename T, int W> DEVICE_FN void line_begin(float (&sum)[TILE][W], const roi_line<T, W> &line, float beta)
{
#pragma unroll
    for (int j = 0; j < TILE; j++) {
#pragma unroll
        for (int n = 0; n < W; n++)
            sum[j][n] = 0.0f;
        if (beta == 0.0f || j >= line.cells)
            continue;
        vec_unpack(sum[j], vec_load<W>((const T *)line.dx + (size_t)j * (size_t)line.stride));
#pragma unroll
        for (int n = 0; n < W; n++)
            sum[j][n] = beta * sum[j][n];
    }
}

template <typename T, int W> static __global__ void __launch_bounds__(THREADS) roi_gradients_kernel(const struct roi_args a)
{
    SHARED(int, list, THREADS);
    SHARED(int, found, TILE);
    const struct roi_shard *s = &a.shard[blockIdx.z];
    struct roi_tile t = tile_of_block(&a, s);
    int k = (int)(blockIdx.y * WARP + threadIdx.x % WARP) * W, i = t.y + (int)threadIdx.x / WARP, count = rows_of(s);
    const struct roi_map *m = &s->map[t.level < 0 ? 0 : t.level];
    roi_line<T, W> line = { NULL, m->stride, 0 };
    float sum[TILE][W];
    bool begun = false;

    if (t.level < 0)
        return;
    if (k < a.c && i < m->h) {
        line.dx = (T *)m->data + (((size_t)t.image * (size_t)m->h + (size_t)i) * (size_t)m->w + (size_t)t.x) * (size_t)m->stride + k;
        line.cells = m->w - t.x < TILE ? m->w - t.x : TILE;
    }
    for (int first = 0; first < count; first += THREADS) {
        int n = list_rows(list, found, s, t, first, count);

        if (n > 0 && !begun)
            line_begin(sum, line, a.beta[t.level]);
        begun = begun || n > 0;
        for (int r = 0; r < n; r++)
            add_box<T>(sum, &a, s, list[r], t, i, k);
    }
    if (!begun && a.beta[t.level] == 1.0f)
        return;
    if (!begun)
        line_begin(sum, line, a.beta[t.level]);
#pragma unroll
    for (int j = 0; j < TILE; j++)
        if (j < line.cells)
            vec_store(line.dx + (size_t)j * (size_t)line.stride, sum[j]);
}

/* ---- launching ---- */

struct roi_call {
    cudaStream_t stream;
    struct roi_args a;
    int nshards;
    size_t bins;         /* of the largest shard */
    unsigned tiles, cap; /* of the largest shard, too */
    bool wide;
};

/* Lays out a shard's table. Returns its size in bytes. With `at`, aligned like scratch, also sets its pointers. */
static size_t lay_out(struct roi_table *t, const struct roi_align *roi, const struct tensor *const *map, int v, int cap, char *at)
{
    size_t rows = (size_t)cap, bands = rows * ROI_AXES * (size_t)roi->pool * sizeof(*t->band), places = rows * sizeof(*t->place);
    int h = 1, w = 1;

    for (int l = 0; l < roi->nlevels; l++) {
        h = map[l] && map[l][v].h > h ? map[l][v].h : h;
        w = map[l] && map[l][v].w > w ? map[l][v].w : w;
    }
    t->pool = roi->pool;
    t->room[ROI_Y] = roi_room(roi, h);
    t->room[ROI_X] = roi_room(roi, w);
    if (at) {
        t->place = (struct roi_place *)at;
        t->band = (struct roi_band *)(at + places);
        t->weight = (float *)(at + places + bands);
    }
    return places + bands + rows * (size_t)(t->room[ROI_Y] + t->room[ROI_X]) * sizeof(float);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static void fill_shard(struct roi_call *c, int i, int v, const struct tensor *const *map, const struct tensor *y,
                       const struct roi_rows *rows)
{
    struct roi_shard *s = &c->a.shard[i];
    unsigned tiles = 0;

    s->rows = rows[v];
    s->y = y[v].data;
    s->y_stride = y[v].stride;
    c->wide = c->wide && vec_fits(&y[v], vec_width(y[v].dtype));
    for (int l = 0; l < c->a.roi.nlevels; l++) {
        const struct tensor *t = map[l] ? &map[l][v] : NULL;

        if (!t)
            continue;
        s->n = t->n;
        s->map[l].data = t->data;
        s->map[l].h = t->h;
        s->map[l].w = t->w;
        s->map[l].stride = t->stride;
        tiles += tiles_of(s, l);
        c->wide = c->wide && vec_fits(t, vec_width(t->dtype));
    }
    c->tiles = tiles > c->tiles ? tiles : c->tiles;
    c->cap = (unsigned)larger(c->cap, (size_t)s->rows.cap);
    c->bins = larger(c->bins, (size_t)s->rows.cap * (size_t)(c->a.roi.pool * c->a.roi.pool));
}

template <typename T, int W> static void launch_fwd(struct roi_call *c)
{
    struct vec_grid g = vec_grid(c->bins, c->a.c, W, RUN, c->nshards);

    CUDA_LAUNCH((roi_values_kernel<T, W>), g.grid, g.block, c->stream, c->a);
}

/* At most four channels for each lane: eight cells of these fit its registers. */
template <typename T, int W> static void launch_bwd(struct roi_call *c)
{
    const int few = W < 4 ? W : 4;
    dim3 grid(c->tiles, cuda_blocks((size_t)c->a.c, WARP * few), (unsigned)c->nshards);

    if (c->tiles > 0)
        CUDA_LAUNCH((roi_gradients_kernel<T, few>), grid, THREADS, c->stream, c->a);
}

/* Launches all shards, some at a time. map: the levels, x or dx; y: or dy; beta NULL: forward. */
static int launch(struct device *dev, const struct roi_align *roi, const struct tensor *const *map, const float *beta,
                  const struct tensor *y, const struct roi_rows *rows, int nshards, struct err *err)
{
    struct roi_table table;
    size_t bytes = 0;
    struct roi_call c;
    char *at;

    for (int v = 0; v < nshards; v++)
        bytes += lay_out(&table, roi, map, v, rows[v].cap, NULL);
    at = (char *)cuda_scratch(dev, bytes, "roi_align", err);
    if (!at)
        return -ENOMEM;
    for (int first = 0; first < nshards; first += SHARDS_AT_ONCE) {
        memset(&c, 0, sizeof(c));
        c.stream = cuda_device(dev)->stream;
        c.nshards = nshards - first < SHARDS_AT_ONCE ? nshards - first : SHARDS_AT_ONCE;
        c.wide = true;
        c.a.roi = *roi;
        c.a.c = y[0].c;
        for (int l = 0; beta && l < roi->nlevels; l++)
            c.a.beta[l] = beta[l];
        for (int i = 0; i < c.nshards; i++) {
            fill_shard(&c, i, first + i, map, y, rows);
            at += lay_out(&c.a.shard[i].table, roi, map, first + i, rows[first + i].cap, at);
        }
        if (c.cap > 0)
            CUDA_LAUNCH(roi_place_kernel, dim3(c.cap, (unsigned)c.nshards), ROI_AXES * ROI_MAX_POOL, c.stream, c.a);
        if (beta)
            VEC_CALL(launch_bwd, y[0].dtype, c.wide, &c);
        else if (c.cap > 0)
            VEC_CALL(launch_fwd, y[0].dtype, c.wide, &c);
    }
    return cuda_check(cudaPeekAtLastError(), beta ? "roi_align_bwd" : "roi_align_fwd", err);
}

int cuda_roi_align_fwd(struct device *dev, const struct roi_align *roi, struct tensor *y, const struct tensor *const *x,
                       const struct roi_rows *rows, int nshards, struct err *err)
{
    return launch(dev, roi, x, NULL, y, rows, nshards, err);
}

int cuda_roi_align_bwd(struct device *dev, const struct roi_align *roi, struct tensor *const *dx, const float *beta,
                       const struct tensor *dy, const struct roi_rows *rows, int nshards, struct err *err)
{
    return launch(dev, roi, (const struct tensor *const *)dx, beta, dy, rows, nshards, err);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/warp.cu - poses, and pictures as seen by another camera. Positions are
 * computed at each use. For the gradient of a source, the target's pixels form runs of 32 with known boxes of source
 * cells. A block owns a tile of 8 x 8 cells, a warp a row of it, a lane every 32nd channel. They go in order through
 * the runs that touch the tile. */
#include "cuda/cuda.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/vec.h"
#include "worker/core/carve.h"
#include "worker/kernels/pose.h"
#include "worker/kernels/warp.h"

enum {
    THREADS = 256,
    WARP = 32,
    PER_WARP = WARP / WARP_LANES, /* sums that a warp adds up at once */
    TILE = 8,                     /* cells of a side: a warp has one row of a tile */
    SLAB = 64,                    /* channels of a tile */
    FEW = 4,                      /* most channels that one thread loops over alone */
};
static_assert(TILE * WARP == THREADS, "a warp a row of cells");

#define FULL 0xFFFFFFFFu /* all lanes of a warp */

// ---- poses: a thread for each image ----

struct pose_item {
    const float *x, *dy; /* dy NULL: forward */
    float *dst;
};

static __global__ void pose_kernel(const struct pose_item *items, unsigned n, bool invert, float beta)
{
    unsigned i = blockIdx.x * WARP + threadIdx.x;

    if (i >= n)
        return;
    if (items[i].dy)
        pose_grad(items[i].dst, beta, items[i].dy, items[i].x, invert);
    else
        pose_matrix(items[i].dst, items[i].x, invert);
}

static int poses(struct device *dev, bool invert, struct tensor *dst, float beta, const struct tensor *dy, const struct tensor *x,
                 int nshards, struct err *err)
{
    unsigned n = (unsigned)warp_images(x, nshards), at = 0;
    struct pose_item *items = (struct pose_item *)calloc(n + 1, sizeof *items);
    const struct pose_item *table;

    if (!items)
        return err_set(err, -ENOMEM, "out of memory: pose");
    for (int v = 0; v < nshards; v++)
        for (int i = 0; i < x[v].n; i++, at++) {
            items[at].x = (const float *)x[v].data + (size_t)i * (size_t)x[v].stride;
            items[at].dy = dy ? (const float *)dy[v].data + (size_t)i * (size_t)dy[v].stride : NULL;
            items[at].dst = (float *)dst[v].data + (size_t)i * (size_t)dst[v].stride;
        }
    table = (const struct pose_item *)cuda_table(dev, items, (n + 1) * sizeof *items, err);
    free(items);
    if (!table)
        return err->code;
    CUDA_LAUNCH(pose_kernel, cuda_blocks(n, WARP), WARP, cuda_device(dev)->stream, table, n, invert, beta);
    return cuda_check(cudaPeekAtLastError(), "pose", err);
}

int cuda_warp_pose_fwd(struct device *dev, bool invert, struct tensor *y, const struct tensor *x, int nshards, struct err *err)
{
    return poses(dev, invert, y, 0.0f, NULL, x, nshards, err);
}

int cuda_warp_pose_bwd(struct device *dev, bool invert, struct tensor *dx, float beta, const struct tensor *dy, const struct tensor *x,
                       int nshards, struct err *err)
{
    return poses(dev, invert, dx, beta, dy, x, nshards, err);
}

// ---- the data of a launch ----

/* The place where a pixel of the target falls. */
struct cell {
    int y, x;
    float fx, fy;
};

/* The cells that a run of 32 pixels touches: rows [y, y_end), columns [x, x_end). */
struct run_box {
    int y, y_end, x, x_end;
};

/* The gradient of a position. */
struct slope {
    float u, v;
};

struct warp_work {
    struct slope *slope; /* [pixels] */
    double *sums;        /* [h][pieces][WARP_SUMS] */
    struct cell *cell;   /* [pixels] */
    struct run_box *box; /* [runs] */
};

struct warp_args {
    const struct warp_image *image;
    struct warp_view *view;
    const struct warp_work *work; /* for each image; NULL: forward */
    unsigned images;
    float beta_disp, beta_pose, beta;
};

static __global__ void view_kernel(const struct warp_args a)
{
    unsigned i = blockIdx.x * WARP + threadIdx.x;

    if (i < a.images)
        a.view[i] = warp_view(a.image[i].pose, a.image[i].camera, a.image[i].camera_scale);
}

DEVICE_FN struct warp_point point_of(const struct warp_image *m, const struct warp_view *v, unsigned pixel)
{
    unsigned y = pixel / (unsigned)m->w, x = pixel % (unsigned)m->w;

    return warp_point(&m->lens, v, (float)x, (float)y, m->disp[(size_t)pixel * (size_t)m->disp_stride]);
}

DEVICE_FN size_t first_cell(const struct warp_image *m, const struct warp_point *p)
{
    return ((size_t)p->y0 * (size_t)m->source_w + (size_t)p->x0) * (size_t)m->source_stride;
}

DEVICE_FN size_t step_right(const struct warp_image *m)
{
    return (size_t)(m->lens.right * m->source_stride);
}

DEVICE_FN size_t step_below(const struct warp_image *m)
{
    return (size_t)m->lens.below * (size_t)m->source_w * (size_t)m->source_stride;
}

// ---- forward: a thread has W channels of a pixel, or, if W is 0, all of them ----

template <int W> DEVICE_FN void sample_channels(const struct warp_image *m, float *y, const float *at, struct warp_weights w)
{
    size_t right = step_right(m), below = step_below(m);
    float a[W], b[W], c[W], d[W];

    vec_unpack(a, vec_load<W>(at));
    vec_unpack(b, vec_load<W>(at + right));
    vec_unpack(c, vec_load<W>(at + below));
    vec_unpack(d, vec_load<W>(at + right + below));
#pragma unroll
    for (int k = 0; k < W; k++)
        a[k] = warp_value(w, a[k], b[k], c[k], d[k]);
    vec_store(y, a);
}

template <int W> static __global__ void __launch_bounds__(VEC_THREADS) sample_kernel(const struct warp_args a)
{
    const struct warp_image *m = &a.image[blockIdx.z];
    int k = vec_channel<(W > 0 ? W : 1)>();
    unsigned pixel = (unsigned)vec_pixel<1>();
    struct warp_weights w;
    struct warp_point p;
    const float *at;
    float *y;

    if (pixel >= (unsigned)(m->h * m->w) || k >= m->c)
        return;
    p = point_of(m, &a.view[blockIdx.z], pixel);
    w = warp_weights(p.fx, p.fy);
    at = m->source + first_cell(m, &p) + k;
    y = m->y + (size_t)pixel * (size_t)m->y_stride + k;
    if (W > 0)
        sample_channels<(W > 0 ? W : 1)>(m, y, at, w);
    else
        for (int i = 0; i < m->c; i++)
            sample_channels<1>(m, y + i, at + i, w);
}

// ---- backward: positions ----

DEVICE_FN struct slope slope_of(const struct warp_image *m, const struct warp_point *p, const float *at, const float *dy, int k,
                                struct slope sum)
{
    size_t right = step_right(m), below = step_below(m);
    float a = at[k], b = at[k + right], c = at[k + below], d = at[k + right + below];

    sum.u = fmaf(dy[k], warp_slope(p->fy, a, b, c, d), sum.u);
    sum.v = fmaf(dy[k], warp_slope(p->fx, a, c, b, d), sum.v);
    return sum;
}

/* A thread for each pixel with at most FEW channels. It adds in the order of warp_sum(). */
static __global__ void __launch_bounds__(THREADS) slope_few_kernel(const struct warp_args a)
{
    const struct warp_image *m = &a.image[blockIdx.y];
    unsigned pixel = blockIdx.x * THREADS + threadIdx.x;
    struct slope lane[FEW], sum;
    struct warp_point p;

    if (pixel >= (unsigned)(m->h * m->w))
        return;
    p = point_of(m, &a.view[blockIdx.y], pixel);
#pragma unroll
    for (int k = 0; k < FEW; k++) {
        lane[k].u = lane[k].v = 0.0f;
        if (k < m->c)
            lane[k] = slope_of(m, &p, m->source + first_cell(m, &p), m->dy + (size_t)pixel * (size_t)m->y_stride, k, lane[k]);
    }
    sum.u = ((lane[0].u + lane[1].u) + (lane[2].u + lane[3].u)) + 0.0f;
    sum.v = ((lane[0].v + lane[1].v) + (lane[2].v + lane[3].v)) + 0.0f;
    a.work[blockIdx.y].slope[pixel] = sum;
}

/* The sum of the lanes of half a warp, added in pairs: warp_sum(). */
DEVICE_FN float sum_half(float x)
{
    for (int step = 1; step < WARP_LANES; step *= 2)
        x += __shfl_xor_sync(FULL, x, step);
    return x;
}

/* Half a warp for each pixel. */
static __global__ void __launch_bounds__(THREADS) slope_kernel(const struct warp_args a)
{
    const struct warp_image *m = &a.image[blockIdx.y];
    unsigned pixel = (blockIdx.x * THREADS + threadIdx.x) / WARP_LANES;
    int lane = (int)threadIdx.x % WARP_LANES;
    struct slope sum = { 0.0f, 0.0f };

    if (pixel < (unsigned)(m->h * m->w)) {
        struct warp_point p = point_of(m, &a.view[blockIdx.y], pixel);

        for (int k = lane; k < m->c; k += WARP_LANES)
            sum = slope_of(m, &p, m->source + first_cell(m, &p), m->dy + (size_t)pixel * (size_t)m->y_stride, k, sum);
    }
    sum.u = sum_half(sum.u);
    sum.v = sum_half(sum.v);
    if (pixel < (unsigned)(m->h * m->w) && lane == 0)
        a.work[blockIdx.y].slope[pixel] = sum;
}

/* Half a warp for each piece of a row: gradients of disparities, and the sums of the piece. */
static __global__ void __launch_bounds__(THREADS) settle_kernel(const struct warp_args a)
{
    const struct warp_image *m = &a.image[blockIdx.y];
    const struct warp_work *work = &a.work[blockIdx.y];
    unsigned piece = (blockIdx.x * THREADS + threadIdx.x) / WARP_LANES, pieces = (unsigned)warp_pieces(m->w);
    int y = (int)(piece / pieces), from = (int)(piece % pieces) * WARP_PIECE, lane = (int)threadIdx.x % WARP_LANES;
    int to = from + WARP_PIECE < m->w ? from + WARP_PIECE : m->w;
    struct warp_lane sum = { { 0 }, { 0 }, { 0 } };

    for (int x = from + lane; y < m->h && x < to; x += WARP_LANES) {
        unsigned pixel = (unsigned)(y * m->w + x);
        struct warp_point p = point_of(m, &a.view[blockIdx.y], pixel);
        struct slope slope = work->slope[pixel];
        struct warp_back b = warp_back(&m->lens, &a.view[blockIdx.y], (float)x, (float)y, &p, slope.u, slope.v);

        warp_lane_add(&sum, &b, (float)x);
        if (m->ddisp) {
            float *ddisp = m->ddisp + (size_t)pixel * (size_t)m->ddisp_stride;

            *ddisp = act_store(a.beta_disp, ddisp, b.disp);
        }
    }
    for (int i = 0; i < 3; i++) {
        sum.q[i] = sum_half(sum.q[i]);
        sum.e[i] = sum_half(sum.e[i]);
        sum.ex[i] = sum_half(sum.ex[i]);
    }
    if (lane == 0 && y < m->h)
        warp_piece_sums(work->sums + (size_t)piece * WARP_SUMS, sum.q, sum.e, sum.ex, y);
}

/* A block for each image: the tree over its pieces, like tree_sum(), then the gradient of its pose. */
static __global__ void __launch_bounds__(THREADS) pose_sums_kernel(const struct warp_args a)
{
    const struct warp_image *m = &a.image[blockIdx.x];
    double *sums = a.work[blockIdx.x].sums;
    int n = m->h * warp_pieces(m->w);

    for (int step = 1; step < n; step *= 2) {
        int pairs = (n - step + 2 * step - 1) / (2 * step);

        for (int i = (int)threadIdx.x; i < pairs * WARP_SUMS; i += THREADS) {
            double *to = sums + (size_t)(i / WARP_SUMS) * 2 * (size_t)step * WARP_SUMS + i % WARP_SUMS;

            *to += to[(size_t)step * WARP_SUMS];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0)
        warp_pose_grad(m->dpose, a.beta_pose, sums, m->camera, m->camera_scale);
}

// ---- backward: the source ----

DEVICE_FN int least_of(int x)
{
    for (int step = 1; step < WARP; step *= 2) {
        int other = __shfl_xor_sync(FULL, x, step);

        x = other < x ? other : x;
    }
    return x;
}

/* A warp for each run. */
static __global__ void __launch_bounds__(THREADS) cells_kernel(const struct warp_args a)
{
    const struct warp_image *m = &a.image[blockIdx.y];
    const struct warp_work *work = &a.work[blockIdx.y];
    unsigned pixel = blockIdx.x * THREADS + threadIdx.x, pixels = (unsigned)(m->h * m->w);
    struct run_box box = { INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX }; /* the ends are negated */

    if (pixel < pixels) {
        struct warp_point p = point_of(m, &a.view[blockIdx.y], pixel);
        struct cell cell = { p.y0, p.x0, p.fx, p.fy };

        work->cell[pixel] = cell;
        box.y = p.y0;
        box.x = p.x0;
        box.y_end = -(p.y0 + m->lens.below + 1);
        box.x_end = -(p.x0 + m->lens.right + 1);
    }
    box.y = least_of(box.y);
    box.x = least_of(box.x);
    box.y_end = -least_of(box.y_end);
    box.x_end = -least_of(box.x_end);
    if (threadIdx.x % WARP == 0 && pixel < pixels)
        work->box[pixel / WARP] = box;
}

/* Lists the runs of `first` .. first + THREADS - 1 that touch the tile, in order. Returns their number. */
static __device__ int list_runs(int *list, int *found, const struct run_box *box, int y, int x, int first, int count)
{
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, run = first + (int)threadIdx.x, before = 0, all = 0;
    bool touches = run < count && box[run].y < y + TILE && box[run].y_end > y && box[run].x < x + TILE && box[run].x_end > x;
    unsigned votes = __ballot_sync(FULL, touches);

    __syncthreads(); /* all threads have read the list before */
    if (lane == 0)
        found[warp] = __popc(votes);
    __syncthreads();
    for (int w = 0; w < TILE; w++) {
        before += w < warp ? found[w] : 0;
        all += found[w];
    }
    if (touches)
        list[before + __popc(votes & ((1u << lane) - 1u))] = run;
    __syncthreads();
    return all;
}

/* A warp's row of cells, [TILE][SLAB]; each number belongs to one lane. */
struct tile_row {
    float *sum;
    int y, x, k; /* k: the slab's first channel */
};

/* Adds the shares of a run's pixels to the row, in order. */
DEVICE_FN void add_run(const struct tile_row *t, const struct warp_image *m, const struct cell *cells, unsigned run, unsigned pixels)
{
    unsigned lane = threadIdx.x % WARP, first = run * WARP;
    struct cell own = { -2, -2, 0.0f, 0.0f };
    unsigned votes;

    if (first + lane < pixels)
        own = cells[first + lane];
    for (votes =
             __ballot_sync(FULL, (own.y == t->y || own.y + m->lens.below == t->y) && own.x < t->x + TILE && own.x + m->lens.right >= t->x);
         votes != 0; votes &= votes - 1) {
        int from = __ffs((int)votes) - 1;
        int y = __shfl_sync(FULL, own.y, from), x = __shfl_sync(FULL, own.x, from);
        struct warp_weights w = warp_weights(__shfl_sync(FULL, own.fx, from), __shfl_sync(FULL, own.fy, from));
        const float *dy = m->dy + (size_t)(first + (unsigned)from) * (size_t)m->y_stride;

        for (int k = (int)lane; k < SLAB && t->k + k < m->c; k += WARP) {
            float g = dy[t->k + k];

#pragma unroll
            for (int i = 0; i < 4; i++) {
                int column = x + i % 2 * m->lens.right - t->x;

                if (y + i / 2 * m->lens.below == t->y && column >= 0 && column < TILE)
                    t->sum[column * SLAB + k] = fmaf(w.w[i], g, t->sum[column * SLAB + k]);
            }
        }
    }
}

static __host__ __device__ __forceinline__ unsigned tiles_along(int cells)
{
    return ((unsigned)cells + TILE - 1) / TILE;
}

static __host__ __device__ __forceinline__ unsigned tiles_of(const struct warp_image *m)
{
    return tiles_along(m->source_h) * tiles_along(m->source_w);
}

static __global__ void __launch_bounds__(THREADS) source_kernel(const struct warp_args a)
{
    SHARED(float, sum, TILE *TILE *SLAB);
    SHARED(int, list, THREADS);
    SHARED(int, found, TILE);
    const struct warp_image *m = &a.image[blockIdx.z];
    const struct warp_work *work = &a.work[blockIdx.z];
    unsigned across = tiles_along(m->source_w), pixels = (unsigned)(m->h * m->w);
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP, runs = (int)((pixels + WARP - 1) / WARP);
    struct tile_row t = { sum + warp * TILE * SLAB, (int)(blockIdx.x / across) * TILE + warp, (int)(blockIdx.x % across) * TILE,
                          (int)blockIdx.y * SLAB };
    int columns = m->source_w - t.x < TILE ? m->source_w - t.x : TILE;
    float *dst = m->dsource + ((size_t)t.y * (size_t)m->source_w + (size_t)t.x) * (size_t)m->source_stride + t.k;

    if (blockIdx.x >= tiles_of(m))
        return;
    if (t.y >= m->source_h)
        columns = 0;
    for (int j = 0; j < TILE; j++)
        for (int k = lane; k < SLAB; k += WARP) {
            float *cell = dst + (size_t)j * (size_t)m->source_stride + k;

            if (j < columns && t.k + k < m->c)
                t.sum[j * SLAB + k] = a.beta == 0.0f ? 0.0f : a.beta == 1.0f ? *cell : a.beta * *cell;
        }
    for (int first = 0; first < runs; first += THREADS) {
        int n = list_runs(list, found, work->box, t.y - warp, t.x, first, runs);

        for (int r = 0; r < n; r++)
            add_run(&t, m, work->cell, (unsigned)list[r], pixels);
    }
    for (int j = 0; j < columns; j++)
        for (int k = lane; k < SLAB && t.k + k < m->c; k += WARP)
            dst[(size_t)j * (size_t)m->source_stride + k] = t.sum[j * SLAB + k];
}

// ---- launching ----

struct warp_call {
    struct warp_args a;
    struct warp_image *image; /* host, [images] */
    struct warp_work *work;
    size_t pixels, pieces; /* of the largest image */
    unsigned tiles;
    cudaStream_t stream;
};

enum wants { WANTS_SLOPES = 1, WANTS_CELLS = 2 };

/* Lays out the scratch of all images. */
static void lay_out(struct warp_call *c, unsigned wants, struct carve *at)
{
    c->a.view = (struct warp_view *)carve(at, c->a.images * sizeof *c->a.view);
    for (unsigned i = 0; i < c->a.images; i++) {
        const struct warp_image *m = &c->image[i];
        size_t pixels = (size_t)m->h * (size_t)m->w, pieces = (size_t)m->h * (size_t)warp_pieces(m->w);
        struct warp_work *w = &c->work[i];

        c->pixels = pixels > c->pixels ? pixels : c->pixels;
        c->pieces = pieces > c->pieces ? pieces : c->pieces;
        c->tiles = tiles_of(m) > c->tiles ? tiles_of(m) : c->tiles;
        if (wants & WANTS_SLOPES) {
            w->slope = (struct slope *)carve(at, pixels * sizeof *w->slope);
            w->sums = (double *)carve(at, pieces * WARP_SUMS * sizeof *w->sums);
        }
        if (wants & WANTS_CELLS) {
            w->cell = (struct cell *)carve(at, pixels * sizeof *w->cell);
            w->box = (struct run_box *)carve(at, cuda_blocks(pixels, WARP) * sizeof *w->box);
        }
    }
}

static int call_open(struct warp_call *c, const struct warp *w, const struct warp_in *in, const struct tensor *y, int nshards,
                     struct err *err)
{
    unsigned at = 0;

    memset(c, 0, sizeof *c);
    c->a.images = (unsigned)warp_images(y, nshards);
    c->image = (struct warp_image *)calloc(c->a.images + 1, sizeof *c->image);
    c->work = (struct warp_work *)calloc(c->a.images + 1, sizeof *c->work);
    if (!c->image || !c->work)
        return err_set(err, -ENOMEM, "out of memory: warp");
    for (int v = 0; v < nshards; v++)
        for (int i = 0; i < y[v].n; i++)
            c->image[at++] = warp_image(w, in, y, v, i);
    return 0;
}

static void call_close(struct warp_call *c)
{
    free(c->image);
    free(c->work);
}

/* After it tables and scratch are ready, and the views are queued. */
static int call_start(struct warp_call *c, struct device *dev, unsigned wants, struct err *err)
{
    struct carve at = { NULL, 0 };

    lay_out(c, wants, &at);
    at.base = (char *)cuda_scratch(dev, at.used, "warp", err);
    if (!at.base)
        return -ENOMEM;
    at.used = 0;
    lay_out(c, wants, &at);
    c->stream = cuda_device(dev)->stream;
    c->a.image = (const struct warp_image *)cuda_table(dev, c->image, (c->a.images + 1) * sizeof *c->image, err);
    c->a.work = c->a.image ? (const struct warp_work *)cuda_table(dev, c->work, (c->a.images + 1) * sizeof *c->work, err) : NULL;
    if (!c->a.work)
        return err->code;
    CUDA_LAUNCH(view_kernel, cuda_blocks(c->a.images, WARP), WARP, c->stream, c->a);
    return 0;
}

int cuda_warp_fwd(struct device *dev, const struct warp *w, struct tensor *y, const struct warp_in *in, int nshards, struct err *err)
{
    bool wide = true;
    struct warp_call c;
    int rc = call_open(&c, w, in, y, nshards, err);

    if (rc == 0)
        rc = call_start(&c, dev, 0, err);
    for (int v = 0; v < nshards; v++)
        wide = wide && vec_fits(&y[v], FEW) && vec_fits(&in->source[v], FEW);
    if (rc == 0 && c.a.images > 0) {
        struct vec_grid g = vec_grid(c.pixels, wide ? y[0].c : 1, wide ? FEW : 1, 1, (int)c.a.images);

        if (wide)
            CUDA_LAUNCH(sample_kernel<FEW>, g.grid, g.block, c.stream, c.a);
        else
            CUDA_LAUNCH(sample_kernel<0>, g.grid, g.block, c.stream, c.a);
        rc = cuda_check(cudaPeekAtLastError(), "warp_fwd", err);
    }
    call_close(&c);
    return rc;
}

/* Sets the gradients of the images; NULL: not wanted. */
static void set_gradients(struct warp_call *c, const struct tensor *ddisp, const struct tensor *dpose, const struct tensor *dsource,
                          const struct tensor *of, int nshards)
{
    struct warp_image *m = c->image;

    for (int v = 0; v < nshards; v++)
        for (int i = 0; i < of[v].n; i++, m++) {
            if (ddisp) {
                m->ddisp_stride = ddisp[v].stride;
                m->ddisp = (float *)ddisp[v].data + (size_t)i * (size_t)m->h * (size_t)m->w * (size_t)m->ddisp_stride;
            }
            if (dpose)
                m->dpose = (float *)dpose[v].data + (size_t)i * (size_t)dpose[v].stride;
            if (dsource) {
                m->source_stride = dsource[v].stride;
                m->dsource = (float *)dsource[v].data + (size_t)i * (size_t)m->source_h * (size_t)m->source_w * (size_t)m->source_stride;
            }
        }
}

static int launch_bwd(struct warp_call *c, int channels, bool pose, struct err *err)
{
    dim3 pieces(cuda_blocks(c->pieces * WARP_LANES, THREADS), c->a.images);

    if (channels <= FEW)
        CUDA_LAUNCH(slope_few_kernel, dim3(cuda_blocks(c->pixels, THREADS), c->a.images), THREADS, c->stream, c->a);
    else
        CUDA_LAUNCH(slope_kernel, dim3(cuda_blocks(c->pixels * WARP_LANES, THREADS), c->a.images), THREADS, c->stream, c->a);
    CUDA_LAUNCH(settle_kernel, pieces, THREADS, c->stream, c->a);
    if (pose)
        CUDA_LAUNCH(pose_sums_kernel, c->a.images, THREADS, c->stream, c->a);
    return cuda_check(cudaPeekAtLastError(), "warp_bwd", err);
}

int cuda_warp_bwd(struct device *dev, const struct warp *w, struct tensor *ddisp, float beta_disp, struct tensor *dpose, float beta_pose,
                  const struct tensor *dy, const struct warp_in *in, int nshards, struct err *err)
{
    struct warp_call c;
    int rc = call_open(&c, w, in, dy, nshards, err);

    if (rc == 0) {
        set_gradients(&c, ddisp, dpose, NULL, dy, nshards);
        c.a.beta_disp = beta_disp;
        c.a.beta_pose = beta_pose;
        rc = call_start(&c, dev, WANTS_SLOPES, err);
    }
    if (rc == 0 && c.a.images > 0)
        rc = launch_bwd(&c, dy[0].c, dpose != NULL, err);
    call_close(&c);
    return rc;
}

int cuda_warp_bwd_source(struct device *dev, const struct warp *w, struct tensor *dsource, float beta, const struct tensor *dy,
                         const struct warp_in *in, int nshards, struct err *err)
{
    struct warp_call c;
    int rc = call_open(&c, w, in, dy, nshards, err);

    if (rc == 0) {
        set_gradients(&c, NULL, NULL, dsource, dy, nshards);
        c.a.beta = beta;
        rc = call_start(&c, dev, WANTS_CELLS, err);
    }
    if (rc == 0 && c.a.images > 0) {
        CUDA_LAUNCH(cells_kernel, dim3(cuda_blocks(c.pixels, THREADS), c.a.images), THREADS, c.stream, c.a);
        CUDA_LAUNCH(source_kernel, dim3(c.tiles, cuda_blocks((size_t)dy[0].c, SLAB), c.a.images), THREADS, c.stream, c.a);
        rc = cuda_check(cudaPeekAtLastError(), "warp_bwd_source", err);
    }
    call_close(&c);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/stem.cu - 3x3 convolutions of three channels, forward and weight
 * gradient. A tile of the output and its inputs go through shared memory. A thread keeps 64 or 72 sums, so that each
 * number read there serves many multiply-adds. */
#include "cuda/stem.h"

#include "cuda/fold.h"

enum {
    TAPS = STEM_TAP * STEM_TAP * STEM_C,
    ROW_TAPS = STEM_TAP * STEM_C, /* taps of one filter row */
    IN_H = STEM_TILE_H + STEM_TAP - 1,
    IN_W = (STEM_TILE_W + STEM_TAP - 1) * STEM_C, /* numbers of an input row */
    IN_PITCH = IN_W + 2,                          /* a multiple of 4 */
    IN_SIZE = IN_H * IN_PITCH,
    IN_STEPS = (IN_W + 31) / 32 /* steps of a warp */
};

struct stem_args {
    int h, w, k, oh, ow, pad;
    unsigned across, down, tiles; /* tiles across and down an image; tiles of all images */
};

struct tile {
    unsigned image;
    int y, x; /* first output pixel */
};

DEVICE_FN struct tile tile_of(const struct stem_args &a, unsigned i)
{
    unsigned line = i / a.across;
    struct tile t = { line / a.down, (int)(line % a.down) * STEM_TILE_H, (int)(i % a.across) * STEM_TILE_W };

    return t;
}

/* Reads the inputs of a tile, with zeros for padding. A warp takes whole rows, every `warps`-th from its own on, and
 * loads AHEAD of them at once. */
template <int AHEAD, typename T>
DEVICE_FN void stage_input(float *to, const T *x, const struct stem_args &a, const struct tile &t, int warp, int warps)
{
    const int lane = (int)(threadIdx.y * blockDim.x + threadIdx.x) % 32;
    int top = t.y - a.pad, left = (t.x - a.pad) * STEM_C + lane, width = a.w * STEM_C;

    x += (size_t)t.image * a.h * width;
    for (int first = warp; first < IN_H; first += AHEAD * warps) {
        T ahead[AHEAD][IN_STEPS];

#pragma unroll
        for (int r = 0; r < AHEAD; r++)
#pragma unroll
            for (int i = 0; i < IN_STEPS; i++) {
                int row = first + r * warps, y = top + row, e = left + i * 32;

                from_float(&ahead[r][i], 0.0f);
                if (row < IN_H && y >= 0 && y < a.h && e >= 0 && e < width)
                    ahead[r][i] = x[y * width + e];
            }
#pragma unroll
        for (int r = 0; r < AHEAD; r++)
#pragma unroll
            for (int i = 0; i < IN_STEPS; i++)
                if (first + r * warps < IN_H && lane + i * 32 < IN_W)
                    to[(first + r * warps) * IN_PITCH + lane + i * 32] = to_float(ahead[r][i]);
    }
}

/* ---- forward: a thread has 8 neighbouring pixels and 8 channels, a block a tile and all channels ---- */

enum {
    FWD_RUN = 8,
    FWD_RUNS = STEM_TILE_W / FWD_RUN,
    FWD_READS = (FWD_RUN + STEM_TAP - 1) * STEM_C,
    FWD_GROUPS = FWD_RUNS * STEM_TILE_H, /* threads for a group of channels */
    FWD_PITCH = STEM_K_MAX + 4,          /* padding, so that threads that transpose filters do not wait for the same bank */
    FWD_FILTERS = (STEM_GROUP * TAPS + FWD_GROUPS - 1) / FWD_GROUPS
};

/* Loads a thread's share of the filters [k][tap]. */
template <typename T> DEVICE_FN void ask_filters(T (&ret)[FWD_FILTERS], const T *w, int k, unsigned self, unsigned threads)
{
#pragma unroll
    for (unsigned i = 0; i < FWD_FILTERS; i++)
        if (self + i * threads < (unsigned)k * TAPS)
            ret[i] = w[self + i * threads];
}

/* Writes them as [tap][k]. */
template <typename T> DEVICE_FN void put_filters(float *to, const T (&f)[FWD_FILTERS], int k, unsigned self, unsigned threads)
{
#pragma unroll
    for (unsigned i = 0; i < FWD_FILTERS; i++) {
        unsigned at = self + i * threads;

        if (at < (unsigned)k * TAPS)
            to[at % TAPS * FWD_PITCH + at / TAPS] = to_float(f[i]);
    }
}

/* in: the first number that the thread reads; filter: filters of its channels. */
DEVICE_FN void fwd_row(float (&sum)[FWD_RUN][STEM_GROUP], const float *in, const float *filter)
{
    float x[FWD_READS + 2];

#pragma unroll
    for (int i = 0; i < FWD_READS; i += 4)
        vec_unpack((float(&)[4])x[i], vec_load<4>(in + i));
#pragma unroll
    for (int tap = 0; tap < ROW_TAPS; tap++) {
        float f[STEM_GROUP];

        vec_unpack(f, vec_load<STEM_GROUP>(filter + tap * FWD_PITCH));
#pragma unroll
        for (int p = 0; p < FWD_RUN; p++)
#pragma unroll
            for (int k = 0; k < STEM_GROUP; k++)
                sum[p][k] = fmaf(x[p * STEM_C + tap], f[k], sum[p][k]);
    }
}

template <typename T>
static __global__ void __launch_bounds__(FWD_GROUPS *STEM_K_MAX / STEM_GROUP, 2)
    stem_fwd_kernel(T *y, const T *x, const T *w, const T *bias, struct stem_args a)
{
    typedef pack<float, 4> quad;
    SHARED(quad, in, IN_SIZE / 4);
    SHARED(quad, filter, TAPS * FWD_PITCH / 4);
    unsigned threads = blockDim.x * blockDim.y, self = threadIdx.y * blockDim.x + threadIdx.x;
    int k = (int)threadIdx.x * STEM_GROUP, row = (int)threadIdx.y / FWD_RUNS, column = (int)threadIdx.y % FWD_RUNS * FWD_RUN;
    struct tile t = tile_of(a, blockIdx.x);
    float sum[FWD_RUN][STEM_GROUP];
    T ahead[FWD_FILTERS];

    ask_filters(ahead, w, a.k, self, threads);
    stage_input<3>((float *)in, x, a, t, (int)self / 32, (int)threads / 32);
    put_filters((float *)filter, ahead, a.k, self, threads);
#pragma unroll
    for (int i = 0; i < STEM_GROUP; i++) {
        float b = bias ? to_float(bias[k + i]) : 0.0f;

#pragma unroll
        for (int p = 0; p < FWD_RUN; p++)
            sum[p][i] = b;
    }
    __syncthreads();
#pragma unroll 1
    for (int r = 0; r < STEM_TAP; r++)
        fwd_row(sum, (const float *)in + (row + r) * IN_PITCH + column * STEM_C, (const float *)filter + r * ROW_TAPS * FWD_PITCH + k);
    if (t.y + row >= a.oh)
        return;
    y += (((size_t)t.image * a.oh + t.y + row) * a.ow + t.x + column) * a.k + k;
#pragma unroll
    for (int p = 0; p < FWD_RUN; p++)
        if (t.x + column + p < a.ow)
            vec_store(y + p * a.k, sum[p]);
}

/* ---- weight gradient: a warp has a row of the filters and 32 channels, a thread 8 of these channels in one row of the
 * tile ---- */

enum {
    DW_GROUPS = 4, /* groups of channels */
    DW_K = DW_GROUPS * STEM_GROUP,
    DW_THREADS = 32 * STEM_TAP,
    DW_STEP = 4,                /* pixels at once */
    DW_SHIFT = 2,               /* numbers before an input row, so that the new numbers of a step are aligned */
    DW_CARRY = 2 * STEM_C,      /* numbers shared with the next step */
    DW_PIXELS = 32 / DW_GROUPS, /* pixels that a warp loads at once */
    DW_STEPS = STEM_TILE_W / DW_PIXELS,
    DW_STAGED = 8 * 16, /* bytes that a thread loads at once */
    DW_PAD = 64         /* bytes between rows, half of the banks: lanes read two rows at once */
};

template <typename T> struct dw_group {
    typedef pack<T, STEM_GROUP> type;
    enum { PITCH = STEM_TILE_W * DW_GROUPS + DW_PAD / (int)sizeof(type), AHEAD = DW_STAGED / (DW_STEPS * (int)sizeof(type)) };
};

/* Reads dy of a tile for the block's channels, from k on, with zeros outside. A warp takes every third row, a lane 8
 * channels of every eighth pixel. */
template <typename T>
DEVICE_FN void stage_gradient(typename dw_group<T>::type *to, const T *dy, const struct stem_args &a, const struct tile &t, int k)
{
    const int AHEAD = dw_group<T>::AHEAD, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, x = t.x + lane / DW_GROUPS;

    k += lane % DW_GROUPS * STEM_GROUP;
    dy += (size_t)t.image * a.oh * a.ow * a.k + k;
    for (int first = warp; first < STEM_TILE_H; first += AHEAD * STEM_TAP) {
        typename dw_group<T>::type p[AHEAD][DW_STEPS];

#pragma unroll
        for (int r = 0; r < AHEAD; r++)
#pragma unroll
            for (int i = 0; i < DW_STEPS; i++) {
                int row = first + r * STEM_TAP, y = t.y + row;

                p[r][i] = {};
                if (row < STEM_TILE_H && y < a.oh && x + i * DW_PIXELS < a.ow && k < a.k)
                    p[r][i] = vec_load<STEM_GROUP>(dy + (y * a.ow + x + i * DW_PIXELS) * a.k);
            }
#pragma unroll
        for (int r = 0; r < AHEAD; r++)
#pragma unroll
            for (int i = 0; i < DW_STEPS; i++)
                if (first + r * STEM_TAP < STEM_TILE_H)
                    to[(first + r * STEM_TAP) * dw_group<T>::PITCH + lane + i * 32] = p[r][i];
    }
}

/* Adds one row of a tile. in: the input row under this row of the filters; dy: of the thread's channels. */
template <typename G> DEVICE_FN void dw_row(float (&sum)[STEM_GROUP][ROW_TAPS], const float *in, const G *dy)
{
    float x[DW_CARRY + DW_STEP * STEM_C];

#pragma unroll
    for (int i = 0; i < DW_CARRY; i++)
        x[i] = in[i];
    for (int at = 0; at < STEM_TILE_W; at += DW_STEP) {
#pragma unroll
        for (int i = 0; i < DW_STEP * STEM_C; i += 4)
            vec_unpack((float(&)[4])x[DW_CARRY + i], vec_load<4>(in + at * STEM_C + DW_CARRY + i));
#pragma unroll
        for (int p = 0; p < DW_STEP; p++) {
            float d[STEM_GROUP];

            vec_unpack(d, dy[(at + p) * DW_GROUPS]);
#pragma unroll
            for (int k = 0; k < STEM_GROUP; k++)
#pragma unroll
                for (int i = 0; i < ROW_TAPS; i++)
                    sum[k][i] = fmaf(x[p * STEM_C + i], d[k], sum[k][i]);
        }
#pragma unroll
        for (int i = 0; i < DW_CARRY; i++)
            x[i] = x[DW_STEP * STEM_C + i];
    }
}

/* Exchange between lanes that are `lanes` apart: each keeps the sums of half of the N channels. */
template <int N> DEVICE_FN void halve(float (&sum)[STEM_GROUP][ROW_TAPS], int lanes)
{
    bool upper = threadIdx.x & (unsigned)lanes;

#pragma unroll
    for (int k = 0; k < N / 2; k++)
#pragma unroll
        for (int i = 0; i < ROW_TAPS; i++) {
            float keep = upper ? sum[k + N / 2][i] : sum[k][i], give = upper ? sum[k][i] : sum[k + N / 2][i];

            sum[k][i] = keep + __shfl_xor_sync(0xFFFFFFFFu, give, lanes);
        }
}

/* part: [slabs][k][TAPS] */
template <typename T>
static __global__ void __launch_bounds__(DW_THREADS, 5) stem_dw_kernel(float *part, const T *x, const T *dy, struct stem_args a)
{
    typedef pack<float, 4> quad;
    typedef typename dw_group<T>::type group;
    SHARED(quad, in, IN_SIZE / 4);
    SHARED(group, gradient, STEM_TILE_H * dw_group<T>::PITCH);
    unsigned r = threadIdx.x / 32, row = threadIdx.x % 32 / DW_GROUPS, g = threadIdx.x % DW_GROUPS, first = blockIdx.x * STEM_SLAB;
    int from = (int)blockIdx.y * DW_K, k = from + (int)(g * STEM_GROUP + row);
    float sum[STEM_GROUP][ROW_TAPS] = {};

    for (unsigned i = first; i < vec_least(first + STEM_SLAB, a.tiles); i++) {
        struct tile t = tile_of(a, i);

        __syncthreads(); /* all threads have finished the tile before */
        stage_input<4>((float *)in + DW_SHIFT, x, a, t, (int)r, STEM_TAP);
        stage_gradient(gradient, dy, a, t, from);
        __syncthreads();
        dw_row(sum, (const float *)in + DW_SHIFT + (row + r) * IN_PITCH, gradient + row * dw_group<T>::PITCH + g);
    }
    /* Adds the 8 rows of the tile, which are the lanes of one group. Lane `row` then has that channel of the group. */
    halve<8>(sum, 4 * DW_GROUPS);
    halve<4>(sum, 2 * DW_GROUPS);
    halve<2>(sum, DW_GROUPS);
    if (k >= a.k)
        return;
    part += ((size_t)blockIdx.x * a.k + k) * TAPS + r * ROW_TAPS;
#pragma unroll
    for (int i = 0; i < ROW_TAPS; i++)
        part[i] = sum[0][i];
}

/* to[j] = (add ? to[j] : 0) + the tree over part[i][j], for each STEM_FOLD rows. */
static __global__ void __launch_bounds__(FOLD_THREADS)
    stem_fold_kernel(float *to, const float *part, unsigned rows, unsigned count, bool add)
{
    SHARED(float, runs, FOLD_THREADS);
    unsigned i = blockIdx.x * FOLD_WIDTH + threadIdx.x, top = blockIdx.y * STEM_FOLD, n = vec_least(rows - top, STEM_FOLD);
    unsigned run = fold_run(n), first = threadIdx.y * run;
    float sum = 0.0f;

    if (i < count && first < n)
        sum = fold_rows<float>(part + (size_t)(top + first) * count + i, count, vec_least(n - first, run));
    sum = fold_block(runs, sum, n);
    if (i >= count || threadIdx.y != 0)
        return;
    to += (size_t)blockIdx.y * count + i;
    *to = add ? *to + sum : sum;
}

/* ---- launches ---- */

static struct stem_args args_of(const struct conv_key *k)
{
    struct stem_args a;

    a.h = k->h;
    a.w = k->w;
    a.k = k->k;
    a.oh = plan_key_out_h(k);
    a.ow = plan_key_out_w(k);
    a.pad = k->pad;
    a.across = cuda_blocks((size_t)a.ow, STEM_TILE_W);
    a.down = cuda_blocks((size_t)a.oh, STEM_TILE_H);
    a.tiles = (unsigned)stem_tiles(k);
    return a;
}

template <typename T> static void forward(const struct conv_key *k, const struct conv_args *args, cudaStream_t stream)
{
    struct stem_args a = args_of(k);

    CUDA_LAUNCH(stem_fwd_kernel<T>, dim3(a.tiles), dim3((unsigned)k->k / STEM_GROUP, FWD_GROUPS), stream, (T *)args->y, (const T *)args->x,
                (const T *)args->w, (const T *)(k->bias ? args->bias : NULL), a);
}

/* Folds in rounds. Sums alternate between the halves of the workspace; the last round writes to the destination. */
static void fold_slabs(const struct conv_key *k, const struct conv_args *args, float *workspace, cudaStream_t stream)
{
    unsigned count = (unsigned)k->k * TAPS, rows = (unsigned)stem_slabs(k), across = cuda_blocks(count, FOLD_WIDTH);
    float *from = workspace, *to = workspace + (size_t)rows * count, *done;

    for (; rows > STEM_FOLD; rows = cuda_blocks(rows, STEM_FOLD)) {
        CUDA_LAUNCH(stem_fold_kernel, dim3(across, cuda_blocks(rows, STEM_FOLD)), dim3(FOLD_WIDTH, FOLD_RUNS), stream, to, from, rows,
                    count, false);
        done = to;
        to = from;
        from = done;
    }
    CUDA_LAUNCH(stem_fold_kernel, dim3(across), dim3(FOLD_WIDTH, FOLD_RUNS), stream, args->dw, from, rows, count, args->add);
}

template <typename T> static void weights(const struct conv_key *k, const struct conv_args *args, float *workspace, cudaStream_t stream)
{
    struct stem_args a = args_of(k);

    CUDA_LAUNCH(stem_dw_kernel<T>, dim3(cuda_blocks(a.tiles, STEM_SLAB), cuda_blocks((size_t)k->k, DW_K)), dim3(DW_THREADS), stream,
                workspace, (const T *)args->x, (const T *)args->y, a);
    fold_slabs(k, args, workspace, stream);
}

template <typename T> static void launch(const struct conv_key *k, const struct conv_args *args, float *workspace, cudaStream_t stream)
{
    if (k->dir == CONV_FWD)
        forward<T>(k, args, stream);
    else
        weights<T>(k, args, workspace, stream);
}

int stem_run(const struct conv_key *k, const struct conv_args *args, void *workspace, cudaStream_t stream, struct err *err)
{
    if (k->dtype == DTYPE_BF16)
        launch<bf16>(k, args, (float *)workspace, stream);
    else
        launch<float>(k, args, (float *)workspace, stream);
    return cuda_check(cudaPeekAtLastError(), "own stem", err);
}

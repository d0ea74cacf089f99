/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/mat.cu - products of many small matrices, with the bits of the CPU in
 * every tier. A block of threads has a tile of one output, a thread 4 x 4 numbers of it. Pieces of both factors go
 * through shared memory. The products are a few percent of a step's arithmetic, so cuBLASLt's strided batches are not
 * worth plans of their own. */
#include "cuda/cuda.h"

#include <string.h>

#include "cuda/vec.h"

enum {
    TILE = 64,
    EACH = 4, /* rows and columns of a thread */
    ACROSS = TILE / EACH,
    THREADS = ACROSS * ACROSS,
    DEPTH = 16,      /* numbers of k in shared memory at once */
    PITCH = TILE + 4 /* aligned for four numbers; fewer threads write to the same bank */
};

/* A factor: number d of k for row or column i of the output stands at data[i * across + d * deep]. */
struct factor {
    const void *data;
    long step;
    int across, deep; /* one of them is 1 */
};

struct mat_shard {
    struct factor a, b;
    struct mat c;
    int batch;
};

struct mat_args {
    struct mat_shard shard[SHARDS_AT_ONCE];
    struct mat_shape s;
    float beta;
    unsigned down, tiles; /* tiles in a column, in an output */
};

/* Loads a piece of a factor for a tile. Neighbouring threads read neighbouring numbers. */
template <typename T> DEVICE_FN void stage(float *to, const struct factor &f, size_t matrix, int first, int n, int d0, int k)
{
    const T *from = (const T *)f.data + matrix * f.step;

#pragma unroll
    for (int e = (int)threadIdx.x; e < TILE * DEPTH; e += THREADS) {
        int i = f.deep == 1 ? e / DEPTH : e % TILE, d = f.deep == 1 ? e % DEPTH : e / TILE;
        bool in = first + i < n && d0 + d < k;

        to[d * PITCH + i] = in ? to_float(from[(size_t)(first + i) * f.across + (size_t)(d0 + d) * f.deep]) : 0.0f;
    }
}

template <typename T> static __global__ void __launch_bounds__(THREADS) mul_kernel(const struct mat_args a)
{
    typedef pack<float, EACH> quad;
    SHARED(quad, left, DEPTH * PITCH / EACH);
    SHARED(quad, right, DEPTH * PITCH / EACH);
    const struct mat_shard *s = &a.shard[blockIdx.y];
    const size_t matrix = blockIdx.x / a.tiles;
    const int tile = (int)(blockIdx.x % a.tiles), row = tile % (int)a.down * TILE, column = tile / (int)a.down * TILE;
    const int y = (int)threadIdx.x / ACROSS * EACH, x = (int)threadIdx.x % ACROSS;
    T *c = (T *)s->c.data + matrix * s->c.step;
    float sum[EACH][EACH] = {}, f[EACH];

    if (matrix >= (size_t)s->batch)
        return;
    for (int d0 = 0; d0 < a.s.k; d0 += DEPTH) {
        stage<T>((float *)left, s->a, matrix, row, a.s.m, d0, a.s.k);
        stage<T>((float *)right, s->b, matrix, column, a.s.n, d0, a.s.k);
        __syncthreads();
#pragma unroll 8
        for (int d = 0; d < DEPTH && d0 + d < a.s.k; d++) { /* not beyond k: adding zeros would turn -0 into +0 */
            vec_unpack(f, left[(d * PITCH + y) / EACH]);
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int j = 0; j < EACH; j++)
                    sum[i][j] = fmaf(f[i], ((const float *)right)[d * PITCH + x + j * ACROSS], sum[i][j]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++)
            if (row + y + i < a.s.m && column + x + j * ACROSS < a.s.n) {
                T *to = c + (size_t)(row + y + i) * s->c.pitch + column + x + j * ACROSS;
                float old = a.beta != 0.0f ? to_float(*to) : 0.0f;

                from_float(to, act_store(a.beta, &old, sum[i][j]));
            }
}

/* along: numbers of k stand a pitch apart. */
static struct factor factor_of(const struct mat *m, bool along)
{
    struct factor f = { m->data, m->step, along ? 1 : m->pitch, along ? m->pitch : 1 };

    return f;
}

int cuda_mat_mul(struct device *dev, const struct mat_shape *shape, const struct mat *c, float beta, const struct mat *a,
                 const struct mat *b, const int *batch, int nshards, struct err *err)
{
    struct mat_args args;

    memset(&args, 0, sizeof(args));
    args.s = *shape;
    args.beta = beta;
    args.down = cuda_blocks((size_t)shape->m, TILE);
    args.tiles = args.down * cuda_blocks((size_t)shape->n, TILE);
    for (int first = 0; first < nshards; first += SHARDS_AT_ONCE) {
        int n = nshards - first < SHARDS_AT_ONCE ? nshards - first : SHARDS_AT_ONCE, most = 1;

        for (int v = 0; v < n; v++) {
            struct mat_shard shard = { factor_of(&a[first + v], a[first + v].turned), factor_of(&b[first + v], !b[first + v].turned),
                                       c[first + v], batch[first + v] };

            args.shard[v] = shard;
            most = shard.batch > most ? shard.batch : most;
        }
        dim3 grid((unsigned)most * args.tiles, (unsigned)n, 1);

        if (shape->dtype == DTYPE_BF16)
            CUDA_LAUNCH(mul_kernel<bf16>, grid, THREADS, cuda_device(dev)->stream, args);
        else
            CUDA_LAUNCH(mul_kernel<float>, grid, THREADS, cuda_device(dev)->stream, args);
    }
    return cuda_check(cudaPeekAtLastError(), "mat_mul", err);
}

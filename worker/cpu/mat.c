/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/mat.c - products of many small matrices by the register tile of
 * convolutions. The tile reads and writes fp32 in place where it can. Other matrices go through copies: bf16, a second
 * factor that is turned, and numbers of columns that are not a multiple of 16. */
#include "worker/cpu/cpu.h"

#include "proto/err.h"
#include "worker/core/carve.h"
#include "worker/cpu/elem.h"
#include "worker/cpu/gemm.h"

struct mat_args {
    const struct mat_shape *shape;
    const struct mat *c, *a, *b;
    const int *batch;
    float beta;
    char *mem;
    size_t bytes; /* of mem, for each thread */
};

/* fp32 copies of the matrices of one product, rows one after the other. */
struct copies {
    float *a, *b, *c;
    int a_row, b_row, c_row;
};

static struct copies layout(const struct mat_shape *s, const struct mat *a, struct carve *mem)
{
    struct copies ret = { .a_row = round_up(a->turned ? s->m : s->k, 16), .b_row = gemm_ld(s->n), .c_row = round_up(s->n, 16) };

    ret.a = carve(mem, (size_t)(a->turned ? s->k : s->m) * (size_t)ret.a_row * sizeof(float));
    ret.b = carve(mem, (size_t)s->k * (size_t)ret.b_row * sizeof(float));
    ret.c = carve(mem, (size_t)s->m * (size_t)ret.c_row * sizeof(float));
    return ret;
}

/* How many of the `all` numbers stand in the vector that begins at number `first`. */
static inline int lanes(int all, int first)
{
    return all - first >= VW ? VW : all > first ? all - first : 0;
}

/* Zeros follow in rows that are longer in the copy. */
SIMD_FN void copy(float *to, int to_row, const void *from, long pitch, int rows, int cols, bool half)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < to_row; j += VW)
            vstore(to + (long)i * to_row + j, elem_load_n(from, i * pitch + j, lanes(cols, j), half));
}

/* Row i of the copy is column i of `from`. */
SIMD_FN void copy_turned(float *to, int to_row, const void *from, long pitch, int rows, int cols, bool half)
{
    for (int j = 0; j < to_row; j += VW)
        for (int i = 0; i < rows; i += VW) {
            vec t[VW];

            for (int l = 0; l < VW; l++)
                t[l] = elem_load_n(from, (j + l) * pitch + i, j + l < cols ? lanes(rows, i) : 0, half);
            vtranspose(t);
            for (int l = 0; l < lanes(rows, i); l++)
                vstore(to + (long)(i + l) * to_row + j, t[l]);
        }
}

SIMD_FN void store(void *to, long pitch, const float *from, int from_row, int rows, int cols, float beta, bool half)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j += VW) {
            vec y = vload(from + (long)i * from_row + j);

            if (beta != 0.0f)
                y = vfma(vset1(beta), elem_load_n(to, i * pitch + j, lanes(cols, j), half), y);
            elem_store_n(to, i * pitch + j, y, lanes(cols, j), half);
        }
}

/* Makes the number of a product in all shards one in its shard. */
static int shard_of(const int *batch, size_t *index)
{
    int v = 0;

    for (; *index >= (size_t)batch[v]; v++)
        *index -= (size_t)batch[v];
    return v;
}

static void run_product(void *arg, size_t index, int thread)
{
    const struct mat_args *p = arg;
    const struct mat_shape *s = p->shape;
    const struct gemm_end end = { .beta = p->beta };
    const bool half = s->dtype == DTYPE_BF16, whole = !half && s->n % 16 == 0;
    struct carve mem = { p->mem + (size_t)thread * p->bytes, 0 };
    const int v = shard_of(p->batch, &index);
    const struct mat *a = &p->a[v], *b = &p->b[v], *c = &p->c[v];
    const struct copies to = layout(s, a, &mem);
    const void *from_a = elem_at(a->data, (long)index * a->step, half), *from_b = elem_at(b->data, (long)index * b->step, half);
    const long row = half ? to.a_row : a->pitch;
    void *dst = elem_at(c->data, (long)index * c->step, half);
    struct gemm g = { .a = half ? to.a : from_a,
                      .a_row = a->turned ? 1 : row,
                      .a_depth = a->turned ? row : 1,
                      .b = to.b,
                      .b_depth = to.b_row,
                      .c = to.c,
                      .c_row = to.c_row,
                      .rows = s->m,
                      .cols = to.c_row,
                      .segs = 1,
                      .depth = s->k };

    if (half)
        copy(to.a, to.a_row, from_a, a->pitch, a->turned ? s->k : s->m, a->turned ? s->m : s->k, true);
    if (b->turned)
        ELEM_CALL(s->dtype, copy_turned, to.b, to.b_row, from_b, b->pitch, s->k, s->n);
    else if (whole)
        g.b = from_b, g.b_depth = b->pitch;
    else
        ELEM_CALL(s->dtype, copy, to.b, to.b_row, from_b, b->pitch, s->k, s->n);
    if (whole && (p->beta == 0.0f || g.a_depth == 1)) { /* gemm.h: an end needs a_depth 1 */
        g.c = dst, g.c_row = c->pitch;
        g.end = p->beta != 0.0f ? &end : NULL;
    }
    gemm_run(&g);
    if (g.c == to.c)
        ELEM_CALL(s->dtype, store, dst, c->pitch, to.c, to.c_row, s->m, s->n, p->beta);
}

int cpu_mat_mul(struct device *dev, const struct mat_shape *shape, const struct mat *c, float beta, const struct mat *a,
                const struct mat *b, const int *batch, int nshards, struct err *err)
{
    struct mat_args p = { .shape = shape, .c = c, .a = a, .b = b, .batch = batch, .beta = beta };
    size_t products = 0;

    for (int v = 0; v < nshards; v++) {
        struct carve mem = { 0 };

        layout(shape, &a[v], &mem);
        p.bytes = mem.used > p.bytes ? mem.used : p.bytes;
        products += (size_t)batch[v];
    }
    p.mem = cpu_scratch(dev, p.bytes * (size_t)threads_count(cpu_threads(dev)), err);
    if (!p.mem)
        return err->code;
    threads_each(cpu_threads(dev), products, run_product, &p);
    return 0;
}

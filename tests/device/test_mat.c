/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_mat.c - products of many small matrices: every number is
 * the chain of its definition, on every device, in fp32 and bf16. uses: proto worker/core cpu cuda */
#include "tests/device/bf16.h"

#include <math.h>

enum { SHARDS = 18 }; /* more than go in one launch */

struct mat_case {
    struct mat_shape s;
    bool turned[2];
    int gap; /* behind each row and each matrix */
    float beta, size;
    int nshards, batch[SHARDS];
};

/* A side of a case on the host: all shards, one after the other. */
struct side {
    float *x;
    int rows, cols, pitch;
    size_t step, from[SHARDS + 1];
};

static struct side side(const struct mat_case *t, int rows, int cols, uint64_t seed)
{
    struct side s = { .rows = rows, .cols = cols, .pitch = cols + t->gap, .step = (size_t)(rows * (cols + t->gap) + t->gap) };

    for (int v = 0; v < t->nshards; v++)
        s.from[v + 1] = s.from[v] + s.step * (size_t)t->batch[v];
    s.x = numbers_of(t->s.dtype, s.from[t->nshards] + 1, seed, -t->size, t->size);
    return s;
}

static struct side factor(const struct mat_case *t, int which)
{
    int rows = which == 0 ? t->s.m : t->s.k, cols = which == 0 ? t->s.k : t->s.n;

    return side(t, t->turned[which] ? cols : rows, t->turned[which] ? rows : cols, 1 + (uint64_t)which);
}

static struct side output(const struct mat_case *t)
{
    struct side c = side(t, t->s.m, t->s.n, 3);

    for (size_t i = 0; i < c.from[t->nshards] && t->beta == 0.0f; i++)
        c.x[i] = NAN; /* must not be read */
    return c;
}

static void run(struct device *dev, const void *arg, void *ret)
{
    const struct mat_case *t = arg;
    const struct side host[] = { output(t), factor(t, 0), factor(t, 1) };
    struct mat_shape s = t->s;
    struct mat m[3][SHARDS];
    struct err err;

    s.dtype = held_as(dev, t->s.dtype);
    for (int i = 0; i < 3; i++) {
        char *data = put_numbers(dev, host[i].x, host[i].from[t->nshards], t->s.dtype);

        for (int v = 0; v < t->nshards; v++)
            m[i][v] =
                (struct mat){ data + host[i].from[v] * dtype_bytes(s.dtype), host[i].pitch, (long)host[i].step, i > 0 && t->turned[i - 1] };
        free(host[i].x);
    }
    assert_int_equal(dev->on->mat->mul(dev, &s, m[0], t->beta, m[1], m[2], t->batch, t->nshards, &err), 0);
    get_numbers(dev, ret, m[0]->data, host[0].from[t->nshards], t->s.dtype);
}

/* Element (i, j) of a factor after turning. */
static float element(const struct side *f, bool turned, size_t matrix, int i, int j)
{
    return f->x[matrix * f->step + (size_t)((turned ? j : i) * f->pitch + (turned ? i : j))];
}

/* The definition; gaps stay as they are. */
static void define(const struct mat_case *t, const struct side *c)
{
    const struct side a = factor(t, 0), b = factor(t, 1);

    for (size_t matrix = 0; matrix < c->from[t->nshards] / c->step; matrix++)
        for (int i = 0; i < t->s.m; i++)
            for (int j = 0; j < t->s.n; j++) {
                float *to = c->x + matrix * c->step + (size_t)(i * c->pitch + j), sum = 0;

                for (int d = 0; d < t->s.k; d++)
                    sum = fmaf(element(&a, t->turned[0], matrix, i, d), element(&b, t->turned[1], matrix, d, j), sum);
                *to = stored(t->beta != 0.0f ? fmaf(t->beta, *to, sum) : sum, t->s.dtype);
            }
    free(a.x);
    free(b.x);
}

static void check(const struct mat_case *t)
{
    struct side want = output(t);
    size_t n = want.from[t->nshards], at;
    float *got = malloc((n + 1) * sizeof *got);

    assert_non_null(got);
    same_on_all(run, t, got, n * sizeof *got);
    for (size_t i = 0; i < n; i++)
        want.x[i] = stored(want.x[i], t->s.dtype); /* NaN has other bits in bf16 */
    define(t, &want);
    at = difference(want.x, got, n * sizeof *got, devices.real);
    if (at < n * sizeof *got)
        fail_msg("%d x %d x %d, turned %d %d, beta %g, dtype %d: number %zu is %.9g, should be %.9g", t->s.m, t->s.n, t->s.k, t->turned[0],
                 t->turned[1], (double)t->beta, t->s.dtype, at / sizeof *got, (double)got[at / sizeof *got],
                 (double)want.x[at / sizeof *got]);
    free(want.x);
    free(got);
}

/* All ways to turn, to add and to store, for sizes on and beside the borders of vectors and tiles. */
static void products(void **state)
{
    static const int size[][3] = { { 1, 1, 1 }, { 5, 17, 3 }, { 49, 64, 40 }, { 7, 16, 33 }, { 70, 131, 16 }, { 64, 48, 250 } };

    (void)state;
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        for (int way = 0; way < 16; way++)
            check(&(struct mat_case){ .s = { size[i][0], size[i][1], size[i][2], way & 4 ? DTYPE_BF16 : DTYPE_F32 },
                                      .turned = { way & 1, way & 2 },
                                      .gap = i % 2 ? 3 : 0,
                                      .beta = way & 8 ? 1.0f : 0.0f,
                                      .size = 1,
                                      .nshards = 2,
                                      .batch = { 2, 1 } });
}

static void batches(void **state)
{
    struct mat_case t = { .s = { 3, 16, 2, DTYPE_F32 }, .beta = 0.5f, .size = 1, .nshards = SHARDS };

    (void)state;
    for (int v = 0; v < SHARDS; v++)
        t.batch[v] = v % 4;
    check(&t);
    t.nshards = 1; /* a batch of 0 */
    check(&t);
    t.nshards = 2;
    t.batch[0] = 40; /* for several threads */
    check(&t);
}

/* Products below the smallest number: a chain ends with the sign of its last product. */
static void signs_of_zeros(void **state)
{
    (void)state;
    check(&(struct mat_case){ .s = { 9, 20, 5, DTYPE_F32 }, .size = 1e-30f, .nshards = 1, .batch = { 2 } });
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(products), cmocka_unit_test(batches), cmocka_unit_test(signs_of_zeros) };

    return cmocka_run_group_tests_name("mat", tests, open_devices, close_devices);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_optimizer.c - uses: proto worker/core cpu cuda
 * Steps of every optimizer over lists of parameters: clipping, averages, skipped steps, and the effect of a gradient's
 * length. */
#include "tests/device/bf16.h"

#include "cuda/derived.h"
#include "tests/device/hashes.h"
#include "worker/kernels/optim.h"

enum { STEPS = 3, MAX_ITEMS = 300, MAX_NUMBERS = 40000 };

enum kind { SGD, NESTEROV, ADAM, ADAMW, KINDS };

/* Parameters of any sizes; results are w, both states and the average of each in turn. */
struct step_case {
    enum kind kind;
    int nitems;
    int count[MAX_ITEMS];
    int32_t skip;
    bool odd;    /* addresses that no wide load can use */
    bool hashes; /* of some items are wanted */
};

/* Rate and decay of an item. Adam's numbers are of step t. */
static const float lr = 0.1f, momentum = 0.9f, ema_decay = 0.75f, factor = 0.25f;
static const double beta1 = 0.8, beta2 = 0.95, eps = 0.01;

static float decay_of(int item)
{
    return item % 2 ? 0.0f : 0.01f;
}

static struct adam adam_of(int t)
{
    return (struct adam){ (float)beta1,
                          (float)(1 - beta1),
                          (float)beta2,
                          (float)(1 - beta2),
                          (float)eps,
                          (float)(1 / (1 - pow(beta1, t))),
                          (float)(1 / sqrt(1 - pow(beta2, t))) };
}

static int step_of(struct device *dev, const struct step_case *t, int step, const struct optim_item *items, const struct clip *clip,
                   struct err *err)
{
    const struct sgd sgd = { momentum, t->kind == NESTEROV };
    const struct adam adam = adam_of(step);

    if (t->kind == ADAM)
        return dev->on->optim->adam(dev, items, t->nitems, &adam, clip, err);
    if (t->kind == ADAMW)
        return dev->on->optim->adamw(dev, items, t->nitems, &adam, clip, err);
    return dev->on->optim->sgd(dev, items, t->nitems, &sgd, clip, err);
}

/* Every third item keeps an average. */
static bool averages(int item)
{
    return item % 3 == 0;
}

static size_t total(const struct step_case *t)
{
    size_t n = 0;

    for (int i = 0; i < t->nitems; i++)
        n += (size_t)t->count[i];
    return n;
}

static float *grads(const struct step_case *t, int item, int step)
{
    return numbers((size_t)t->count[item], 1000 + (uint64_t)(item * STEPS + step), -1.0f, 1.0f);
}

static float *weights(const struct step_case *t, int item)
{
    return numbers((size_t)t->count[item], 1 + (uint64_t)item, -1.0f, 1.0f);
}

/* A single allocation for all: `n` floats each, 16-byte aligned unless the case is odd. */
struct place {
    float *at;
    bool odd;
};

static float *next_place(struct place *p, int n)
{
    float *ret = p->at + p->odd;

    p->at += (n + 1 + 3) / 4 * 4;
    return ret;
}

static struct place memory(struct device *dev, const struct step_case *t)
{
    return (struct place){ put(dev, NULL, (total(t) + 8 * MAX_ITEMS) * sizeof(float)), t->odd };
}

static void fill(struct device *dev, float *dst, float *host, int n)
{
    struct err err;

    assert_int_equal(dev->ops->upload(dev, dst, host, (size_t)n * sizeof(float), &err), 0);
    free(host);
}

/* If the device keeps bf16 copies of weights, some items have a copy: fresh or stale. */
static void add_copy(struct device *dev, const struct step_case *t, struct param *p, struct cuda_derived *copy, int item)
{
    if (dev->host_memory || item % 4 == 0 || item > 40)
        return;
    copy->bf16 = (uint16_t *)put(dev, NULL, (p->count + 1) * sizeof(uint16_t)) + t->odd;
    copy->version = item % 4 == 1 ? p->version - 1 : p->version;
    p->derived = copy;
}

/* A fresh copy becomes the new weights' copy, unless the step was skipped. A stale copy stays stale; its contents do
 * not matter. */
static void check_copy(struct device *dev, const struct step_case *t, const struct param *p, int item, const float *w)
{
    uint16_t *half;

    if (!p->derived)
        return;
    assert_int_equal(derived_fresh(p), item % 4 != 1);
    half = malloc((p->count + 1) * sizeof(*half));
    assert_non_null(half);
    get(dev, half, cuda_derived(p)->bf16, p->count * sizeof(*half));
    for (size_t i = 0; i < p->count && item % 4 != 1; i++)
        assert_int_equal(half[i], t->skip ? 0 : bf16_bits(w[i]));
    free(half);
}

enum { MAX_HASHES = MAX_NUMBERS / 1024 + 2 * MAX_ITEMS };

/* The fill shows that hashes are written, and that memory behind them is not. */
static struct hash128 *hashes_of_all(struct device *dev)
{
    static struct hash128 fill[MAX_HASHES];

    memset(fill, 0xCD, sizeof fill);
    return put(dev, fill, sizeof fill);
}

/* Every fifth item has no hashes. */
static struct hash128 *next_hashes(struct hash128 **at, const struct step_case *t, int item)
{
    struct hash128 *ret = *at;

    *at += (t->count[item] + 1023) / 1024 + 1;
    return t->hashes && item % 5 != 4 ? ret : NULL;
}

/* The hashes must be those of the weights w after the step. */
static void check_hashes(struct device *dev, const struct step_case *t, const struct optim_item *item, const float *w)
{
    struct hash128 got[MAX_NUMBERS / 1024 + 2], unwritten;
    size_t count = item->param->count, n = (count + 1023) / 1024;

    if (!item->hashes)
        return;
    memset(&unwritten, 0xCD, sizeof unwritten);
    get(dev, got, item->hashes, (n + 1) * sizeof *got);
    for (size_t b = 0; b < n; b++)
        assert_true(same_hash(got[b], t->skip ? unwritten : plain_block(w + b * 1024, count - b * 1024 < 1024 ? count - b * 1024 : 1024)));
    assert_true(same_hash(got[n], unwritten));
}

static void run_steps(struct device *dev, const void *arg, void *ret)
{
    const struct step_case *t = arg;
    struct place w = memory(dev, t), m = memory(dev, t), v = memory(dev, t), g = memory(dev, t), e = memory(dev, t);
    static struct optim_item item[MAX_ITEMS];
    static struct param param[MAX_ITEMS];
    static struct cuda_derived copy[MAX_ITEMS];
    const struct clip *clip = put(dev, &(struct clip){ 0.0, factor, t->skip }, sizeof(*clip));
    float *out = ret, *grad[MAX_ITEMS];
    struct hash128 *hashes = hashes_of_all(dev);
    struct err err;

    for (int i = 0; i < t->nitems; i++) {
        param[i] = (struct param){ .count = (size_t)t->count[i], .data = next_place(&w, t->count[i]), .version = 5 };
        item[i] = (struct optim_item){ .param = &param[i], .lr = lr, .decay = decay_of(i), .ema_decay = ema_decay };
        item[i].state[0] = next_place(&m, t->count[i]);
        item[i].state[1] = t->kind >= ADAM ? next_place(&v, t->count[i]) : NULL;
        item[i].grad = grad[i] = next_place(&g, t->count[i]);
        item[i].ema = averages(i) ? next_place(&e, t->count[i]) : NULL;
        item[i].hashes = next_hashes(&hashes, t, i);
        add_copy(dev, t, &param[i], &copy[i], i);
        fill(dev, param[i].data, weights(t, i), t->count[i]);
        if (item[i].ema)
            fill(dev, item[i].ema, weights(t, i), t->count[i]);
    }
    for (int s = 0; s < STEPS; s++) {
        for (int i = 0; i < t->nitems; i++)
            fill(dev, grad[i], grads(t, i, s), t->count[i]);
        assert_int_equal(step_of(dev, t, s + 1, item, clip, &err), 0);
    }
    for (int i = 0; i < t->nitems; out += 4 * t->count[i++]) {
        size_t bytes = (size_t)t->count[i] * sizeof(float);

        assert_int_equal(param[i].version, 5 + STEPS);
        get(dev, out, param[i].data, bytes);
        check_copy(dev, t, &param[i], i, out);
        check_hashes(dev, t, &item[i], out);
        memset(out + t->count[i], 0, 3 * bytes);
        for (int k = 0; k < OPTIM_STATES && item[i].state[k]; k++)
            get(dev, out + (1 + k) * t->count[i], item[i].state[k], bytes);
        if (item[i].ema)
            get(dev, out + 3 * t->count[i], item[i].ema, bytes);
    }
}

/* A single number, in double. */
struct plain {
    double w, m, v, average;
};

static void plain_step(const struct step_case *t, struct plain *x, double g, double decay, int step)
{
    const double rate = (double)lr, mu = (double)momentum;

    if (t->kind == ADAMW)
        x->w -= rate * decay * x->w;
    else
        g += decay * x->w;
    if (t->kind < ADAM) {
        x->m = mu * x->m + g;
        x->w -= rate * (t->kind == NESTEROV ? g + mu * x->m : x->m);
    } else {
        x->m = beta1 * x->m + (1 - beta1) * g;
        x->v = beta2 * x->v + (1 - beta2) * g * g;
        x->w -= rate * (x->m / (1 - pow(beta1, step))) / (sqrt(x->v / (1 - pow(beta2, step))) + eps);
    }
    x->average += (1 - (double)ema_decay) * (x->w - x->average);
}

static void check_item(const struct step_case *t, int i, const float *out)
{
    float *w0 = weights(t, i), *g[STEPS];
    double tolerance = t->skip ? 0 : t->kind < ADAM ? 1e-6 : 4e-6;
    size_t n = (size_t)t->count[i];

    for (int k = 0; k < STEPS; k++)
        g[k] = grads(t, i, k);
    for (size_t j = 0; j < n; j++) {
        struct plain x = { (double)w0[j], 0, 0, (double)w0[j] };

        for (int k = 0; k < STEPS && !t->skip; k++)
            plain_step(t, &x, (double)factor * (double)g[k][j], (double)decay_of(i), k + 1);
        near((double)out[j], x.w, tolerance, "w", j);
        near((double)out[n + j], x.m, tolerance, "m", j);
        near((double)out[2 * n + j], x.v, tolerance, "v", j);
        if (averages(i))
            near((double)out[3 * n + j], x.average, tolerance, "average", j);
    }
    for (int k = 0; k < STEPS; k++)
        free(g[k]);
    free(w0);
}

static void run_case(const struct step_case *t, float *ret)
{
    assert_true(total(t) <= MAX_NUMBERS);
    same_on_all(run_steps, t, ret, 4 * total(t) * sizeof *ret);
    for (int i = 0; i < t->nitems; ret += 4 * t->count[i++])
        check_item(t, i, ret);
}

/* The numbers are the same with and without hashes. */
static void check_case(const struct step_case *given)
{
    static float out[4 * MAX_NUMBERS], hashed[4 * MAX_NUMBERS];
    struct step_case t = *given;

    for (t.kind = SGD; t.kind < KINDS; t.kind++) {
        t.hashes = false;
        run_case(&t, out);
        t.hashes = true;
        run_case(&t, hashed);
        assert_memory_equal(out, hashed, 4 * total(&t) * sizeof *out);
    }
}

/* Sizes around those of vectors and of blocks, an empty one too. */
static void lists(void **state)
{
    struct step_case t = { .nitems = 9, .count = { 3, 4096, 1, 0, 4097, 12289, 4, 0, 255 } };

    (void)state;
    check_case(&t);
    t.odd = true;
    check_case(&t);
    t.odd = false;
    t.skip = 1;
    check_case(&t);
}

static void many_items(void **state)
{
    struct philox_key k = { .seed = 31 };
    struct step_case t = { .nitems = MAX_ITEMS, .hashes = true };
    static float out[4 * MAX_NUMBERS];

    (void)state;
    for (int i = 0; i < MAX_ITEMS; i++)
        t.count[i] = i % 50 == 7 ? 5000 : (int)philox_below(&k, (uint64_t)i, 20);
    for (t.kind = SGD; t.kind < KINDS; t.kind++)
        run_case(&t, out);
    check_case(&(struct step_case){ .nitems = 0 });
}

/* ---- the length of a gradient ---- */

enum { MAX_BLOCKS = 1100000 };

struct clip_case {
    int n;
    double max_norm;
    bool ordered;
    double bad; /* placed in the middle; 0: no such number */
    double weight;
};

static struct {
    double blocks[MAX_BLOCKS], placed[MAX_BLOCKS];
    uint32_t order[MAX_BLOCKS];
} squares;

/* Numbers of very different size; number k of the flat order is in place (7 k + 3) mod n if 7 does not divide n. */
static void make_squares(const struct clip_case *t)
{
    struct philox_key key = { .seed = 77 };

    for (int i = 0; i < t->n; i++) {
        squares.order[i] = t->ordered ? (uint32_t)((7 * (int64_t)i + 3) % t->n) : (uint32_t)i;
        squares.blocks[i] =
            ldexp((double)philox_below(&key, (uint64_t)i, 1 << 20), -(int)(philox_below(&key, (uint64_t)i + (1 << 30), 30)));
        if (t->bad != 0 && i == t->n / 2)
            squares.blocks[i] = t->bad;
    }
    for (int i = 0; i < t->n; i++)
        squares.placed[squares.order[i]] = squares.blocks[i];
}

static void run_clip(struct device *dev, const void *arg, void *ret)
{
    const struct clip_case *t = arg;
    const double *blocks = put(dev, squares.placed, (size_t)t->n * sizeof(double));
    const uint32_t *order = t->ordered ? put(dev, squares.order, (size_t)t->n * sizeof(uint32_t)) : NULL;
    struct clip *clip = put(dev, NULL, sizeof(*clip));
    struct err err;

    assert_int_equal(dev->on->optim->clip(dev, clip, blocks, order, t->n, t->weight, t->max_norm, &err), 0);
    get(dev, ret, clip, sizeof(*clip));
}

/* The tree from its definition: both halves, the left one a power of two. */
static double tree_from(const double *x, int n)
{
    int left = 1;

    if (n == 1)
        return x[0];
    while (2 * left < n)
        left *= 2;
    return tree_from(x, left) + tree_from(x + left, n - left);
}

static void check_clip(const struct clip_case *t)
{
    struct clip c;
    double want, norm;

    make_squares(t);
    want = tree_from(squares.blocks, t->n);
    same_on_all(run_clip, t, &c, sizeof(c));
    assert_int_equal(c.skip != 0, t->bad != 0);
    if (t->bad != 0)
        return;
    assert_memory_equal(&c.square, &want, sizeof(want));
    norm = t->weight * sqrt(want);
    if (t->max_norm > 0 && norm > t->max_norm)
        assert_true(c.factor == (float)(t->weight * (t->max_norm / norm)) && c.factor < (float)t->weight);
    else
        assert_true(c.factor == (float)t->weight);
}

/* The norm of a weighted gradient is limited: numbers of 3 and 4 with a weight of 2 have norm 10. */
static void weighted_norm(void **state)
{
    struct clip_case t = { .n = 2, .weight = 2 };
    struct clip c;

    (void)state;
    squares.placed[0] = 9;
    squares.placed[1] = 16;
    for (t.max_norm = 4; t.max_norm <= 16; t.max_norm *= 2) {
        same_on_all(run_clip, &t, &c, sizeof(c));
        assert_true(c.square == 25 && c.skip == 0);
        assert_true(c.factor == (t.max_norm < 10 ? (float)(t.max_norm / 5) : 2.0f));
    }
}

static void clips(void **state)
{
    static const int counts[] = { 1, 2, 3, 5, 31, 1023, 1024, 1025, 2047, 2050, 10001, 65536, 1048577, 1050001 };
    static const double weights[] = { 1, 16.0 / 7, 1, 1e-12 };

    (void)state;
    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
        check_clip(&(struct clip_case){ .n = counts[i], .max_norm = i % 3 ? 10 : 0, .weight = weights[i % 4] });
        check_clip(&(struct clip_case){ .n = counts[i], .max_norm = 1e15, .ordered = counts[i] % 7 != 0, .weight = weights[(i + 2) % 4] });
    }
}

static void not_finite(void **state)
{
    (void)state;
    check_clip(&(struct clip_case){ .n = 3000, .bad = (double)INFINITY, .weight = 1 });
    check_clip(&(struct clip_case){ .n = 3000, .bad = (double)NAN, .max_norm = 1, .weight = 1 });
    check_clip(&(struct clip_case){ .n = 1, .bad = (double)NAN, .weight = 2 });
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(lists), cmocka_unit_test(many_items), cmocka_unit_test(clips),
                                        cmocka_unit_test(weighted_norm), cmocka_unit_test(not_finite) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}

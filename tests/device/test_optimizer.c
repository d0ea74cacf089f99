/* tests/device/test_optimizer.c - momentum SGD over lists of parameters: the vector, clipping, averages, skipped steps.
 * uses: proto worker/core cpu cuda */
#include "tests/device/bf16.h"

#include <jansson.h>

#include "cuda/derived.h"
#include "tests/harness.h"
#include "worker/kernels/optim.h"

enum { STEPS = 3, MAX_ITEMS = 300, MAX_NUMBERS = 40000 };

/* Parameters of any sizes; results are w, m and the average of each in turn. */
struct sgd_case {
    int nitems;
    int count[MAX_ITEMS];
    int32_t skip;
    bool odd; /* addresses that no wide load can use */
};

static struct sgd settings(int item)
{
    return (struct sgd){ .lr = 0.1f, .momentum = 0.9f, .decay = item % 2 ? 0.0f : 0.01f, .scale = 0.25f, .ema_decay = 0.75f };
}

/* Every third item keeps an average. */
static bool averages(int item)
{
    return item % 3 == 0;
}

static size_t total(const struct sgd_case *t)
{
    size_t n = 0;

    for (int i = 0; i < t->nitems; i++)
        n += (size_t)t->count[i];
    return n;
}

static float *grads(const struct sgd_case *t, int item, int step)
{
    return numbers((size_t)t->count[item], 1000 + (uint64_t)(item * STEPS + step), -1.0f, 1.0f);
}

static float *weights(const struct sgd_case *t, int item)
{
    return numbers((size_t)t->count[item], 1 + (uint64_t)item, -1.0f, 1.0f);
}

/* One allocation for all: `n` floats each, 16-byte aligned unless the case is odd. */
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

static struct place memory(struct device *dev, const struct sgd_case *t)
{
    return (struct place){ put(dev, NULL, (total(t) + 8 * MAX_ITEMS) * sizeof(float)), t->odd };
}

static void fill(struct device *dev, float *dst, float *host, int n)
{
    struct err err;

    assert_int_equal(dev->ops->upload(dev, dst, host, (size_t)n * sizeof(float), &err), 0);
    free(host);
}

/* Where the device keeps bf16 copies of weights, some items have one: fresh or stale. */
static void add_copy(struct device *dev, const struct sgd_case *t, struct param *p, struct cuda_derived *copy, int item)
{
    if (held_as(dev, DTYPE_BF16) != DTYPE_BF16 || item % 4 == 0 || item > 40)
        return;
    copy->bf16 = (uint16_t *)put(dev, NULL, (p->count + 1) * sizeof(uint16_t)) + t->odd;
    copy->version = item % 4 == 1 ? p->version - 1 : p->version;
    p->derived = copy;
}

/* A fresh one is the new weights', unless the step was skipped; a stale one stays stale, whatever it holds. */
static void check_copy(struct device *dev, const struct sgd_case *t, const struct param *p, int item, const float *w)
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

static void run_sgd(struct device *dev, const void *arg, void *ret)
{
    const struct sgd_case *t = arg;
    struct place w = memory(dev, t), m = memory(dev, t), g = memory(dev, t), e = memory(dev, t);
    static struct sgd_item item[MAX_ITEMS];
    static struct param param[MAX_ITEMS];
    static struct cuda_derived copy[MAX_ITEMS];
    int32_t *skip = put(dev, &t->skip, sizeof(t->skip));
    float *out = ret, *grad[MAX_ITEMS];
    struct err err;

    for (int i = 0; i < t->nitems; i++) {
        param[i] = (struct param){ .count = (size_t)t->count[i], .data = next_place(&w, t->count[i]), .version = 5 };
        item[i] = (struct sgd_item){ .param = &param[i], .momentum = next_place(&m, t->count[i]), .sgd = settings(i) };
        item[i].grad = grad[i] = next_place(&g, t->count[i]);
        item[i].ema = averages(i) ? next_place(&e, t->count[i]) : NULL;
        add_copy(dev, t, &param[i], &copy[i], i);
        fill(dev, param[i].data, weights(t, i), t->count[i]);
        if (item[i].ema)
            fill(dev, item[i].ema, weights(t, i), t->count[i]);
    }
    for (int s = 0; s < STEPS; s++) {
        for (int i = 0; i < t->nitems; i++)
            fill(dev, grad[i], grads(t, i, s), t->count[i]);
        assert_int_equal(dev->on->optim->sgd(dev, item, t->nitems, skip, &err), 0);
    }
    for (int i = 0; i < t->nitems; out += 3 * t->count[i++]) {
        size_t bytes = (size_t)t->count[i] * sizeof(float);

        assert_int_equal(param[i].version, 5 + STEPS);
        get(dev, out, param[i].data, bytes);
        check_copy(dev, t, &param[i], i, out);
        get(dev, out + t->count[i], item[i].momentum, bytes);
        if (item[i].ema)
            get(dev, out + 2 * t->count[i], item[i].ema, bytes);
        else
            memset(out + 2 * t->count[i], 0, bytes);
    }
}

static void check_item(const struct sgd_case *t, int i, const float *out)
{
    struct sgd s = settings(i);
    float *w0 = weights(t, i), *g[STEPS];

    for (int k = 0; k < STEPS; k++)
        g[k] = grads(t, i, k);
    for (int j = 0; j < t->count[i]; j++) {
        double w = (double)w0[j], m = 0, e = w;

        for (int k = 0; k < STEPS && !t->skip; k++) {
            m = 0.9 * m + (0.25 * (double)g[k][j] + (double)s.decay * w);
            w -= 0.1 * m;
            e = 0.75 * e + 0.25 * w;
        }
        near((double)out[j], w, t->skip ? 0 : 1e-6, "w", (size_t)j);
        near((double)out[t->count[i] + j], m, t->skip ? 0 : 1e-6, "m", (size_t)j);
        if (averages(i))
            near((double)out[2 * t->count[i] + j], e, t->skip ? 0 : 1e-6, "average", (size_t)j);
    }
    for (int k = 0; k < STEPS; k++)
        free(g[k]);
    free(w0);
}

static void check_case(const struct sgd_case *t)
{
    static float out[3 * MAX_NUMBERS];
    const float *at = out;

    assert_true(total(t) <= MAX_NUMBERS);
    same_on_all(run_sgd, t, out, 3 * total(t) * sizeof(float));
    for (int i = 0; i < t->nitems; at += 3 * t->count[i++])
        check_item(t, i, at);
}

static void steps(void **state)
{
    struct sgd_case t = { .nitems = 1, .count = { 1003 } };

    (void)state;
    check_case(&t);
    t.odd = true;
    check_case(&t);
    t.skip = 1;
    check_case(&t);
}

/* Sizes around those of vectors and of blocks, an empty one too. */
static void lists(void **state)
{
    struct sgd_case t = { .nitems = 9, .count = { 3, 4096, 1, 0, 4097, 12289, 4, 0, 255 } };

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
    struct sgd_case t = { .nitems = MAX_ITEMS };

    (void)state;
    for (int i = 0; i < MAX_ITEMS; i++)
        t.count[i] = i % 50 == 7 ? 5000 : (int)philox_below(&k, (uint64_t)i, 20);
    check_case(&t);
    check_case(&(struct sgd_case){ .nitems = 0 });
}

static double number(json_t *object, const char *name)
{
    return json_number_value(json_object_get(object, name));
}

static void vector(void **state)
{
    json_t *root = json_load_file("../shared/specs/vectors/yolov3_misc.json", 0, NULL), *t = json_object_get(root, "sgd");
    struct sgd s = { .scale = 1.0f };
    float w, m = 0.0f;

    (void)state;
    if (!t) {
        json_decref(root);
        SKIP("no ../shared/specs/vectors/yolov3_misc.json");
        return;
    }
    w = (float)number(t, "w0");
    s.lr = (float)number(t, "lr");
    s.momentum = (float)number(t, "momentum");
    s.decay = (float)number(t, "decay");
    for (size_t i = 0; i < json_array_size(json_object_get(t, "grads")); i++) {
        sgd_element(&w, &m, (float)json_number_value(json_array_get(json_object_get(t, "grads"), i)), &s);
        near((double)w, json_number_value(json_array_get(json_object_get(t, "w"), i)), 1e-6, "w", i);
    }
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(steps), cmocka_unit_test(lists), cmocka_unit_test(many_items),
                                        cmocka_unit_test(vector) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}

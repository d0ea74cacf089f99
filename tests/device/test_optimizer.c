/* tests/device/test_optimizer.c - momentum SGD: the vector, clipping, and a skipped step.
 * uses: proto worker/core cpu */
#include "tests/device/devices.h"

#include <jansson.h>

#include "worker/kernels/optimizer.h"

enum { COUNT = 1003, STEPS = 3 };

struct sgd_case {
    struct sgd s;
    int32_t skip;
};

/* Results: w, then m, after three steps. */
static void run_sgd(struct device *dev, const void *arg, void *ret)
{
    const struct sgd_case *t = arg;
    float *w0 = numbers(COUNT, 1, -1.0f, 1.0f), *w = put(dev, w0, COUNT * sizeof(float)), *m = put(dev, NULL, COUNT * sizeof(float));
    int32_t *skip = put(dev, &t->skip, sizeof(t->skip));
    struct err err;

    for (uint64_t i = 0; i < STEPS; i++) {
        float *g = numbers(COUNT, 2 + i, -1.0f, 1.0f);

        assert_int_equal(dev->ops->sgd_step(dev, w, m, put(dev, g, COUNT * sizeof(float)), COUNT, &t->s, skip, &err), 0);
        free(g);
    }
    get(dev, ret, w, COUNT * sizeof(float));
    get(dev, (float *)ret + COUNT, m, COUNT * sizeof(float));
    free(w0);
}

static void steps(void **state)
{
    struct sgd_case t = { { .lr = 0.1f, .momentum = 0.9f, .decay = 0.01f, .scale = 0.25f }, 0 };
    float out[2 * COUNT] = { 0 }, *w0 = numbers(COUNT, 1, -1.0f, 1.0f), *g[STEPS];

    (void)state;
    for (uint64_t i = 0; i < STEPS; i++)
        g[i] = numbers(COUNT, 2 + i, -1.0f, 1.0f);
    same_on_all(run_sgd, &t, out, sizeof(out));
    for (size_t j = 0; j < COUNT; j++) {
        double w = w0[j], m = 0;

        for (int i = 0; i < STEPS; i++) {
            m = 0.9 * m + (0.25 * (double)g[i][j] + 0.01 * w);
            w -= 0.1 * m;
        }
        near((double)out[j], w, 1e-6, "w", j);
        near((double)out[COUNT + j], m, 1e-6, "m", j);
    }
    t.skip = 1;
    same_on_all(run_sgd, &t, out, sizeof(out));
    assert_memory_equal(out, w0, COUNT * sizeof(float));
    for (size_t j = 0; j < COUNT; j++)
        assert_true(out[COUNT + j] == 0.0f);
    for (int i = 0; i < STEPS; i++)
        free(g[i]);
    free(w0);
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
        printf("skipped: ../shared/specs/vectors/yolov3_misc.json is not there\n");
        json_decref(root);
        skip();
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
    const struct CMUnitTest tests[] = { cmocka_unit_test(steps), cmocka_unit_test(vector) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}

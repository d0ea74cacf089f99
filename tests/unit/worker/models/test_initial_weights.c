/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/models/test_initial_weights.c
 * uses: proto worker/models worker/layers worker/data worker/eval worker/mask worker/comm worker/core cpu
 * Initial weights depend on the seed and on names only, and are the same on every computer. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "tests/stand/harness.h"
#include "proto/hash/hash.h"
#include "worker/models/builtin.h"

const struct device_ops *cpu_backend_generic(void);

/* A layer with or without normalisation, before 32 more filters and a head of two classes. With normalisation it has
 * four parameters instead of a bias. */
static const char net[] =
    "[net]\nbatch=1\nwidth=32\nheight=32\nchannels=3\n\n[convolutional]\n%sfilters=8\nsize=3\nstride=1\npad=1\n"
    "activation=leaky\n\n[convolutional]\nbatch_normalize=1\nfilters=32\nsize=3\nstride=1\npad=1\nactivation=leaky\n\n"
    "[convolutional]\nfilters=14\nsize=1\nstride=1\npad=1\nactivation=linear\n\n"
    "[yolo]\nmask=0,1\nanchors=5,6, 8,14\nclasses=2\nnum=2\n";

struct started {
    struct device *dev;
    struct jobspec *spec;
    struct model *m;
};

/* cfg NULL: preset yolov3_tiny */
static struct started start(const char *cfg, int seed)
{
    struct device_options opt = { 1, "auto", PRECISION_FP32 };
    char path[TEMP_MAX];
    struct started s;
    struct err err;
    int fd = mkstemp(temp_path(path, sizeof path, "test_initial_weights-XXXXXX"));
    json_t *root = json_pack("{s:{s:s},s:{s:{s:s,s:s}},s:{s:i,s:i,s:i}}", "model", cfg ? "cfg" : "preset", cfg ? path : "yolov3_tiny",
                             "data", "train", "annotations", "none", "images", "none", "train", "steps", 1, "batch", 1, "seed", seed);

    assert_true(fd >= 0 && (!cfg || write(fd, cfg, strlen(cfg)) == (ssize_t)strlen(cfg)));
    close(fd);
    if (jobspec_parse(root, &s.spec, &err) < 0 || cpu_backend_generic()->open(0, &opt, &s.dev, &err) < 0 ||
        model_open(&models_builtin, s.spec, (struct model_classes){ 2, NULL, NULL }, s.dev, &s.m, &err) < 0)
        fail_msg("%s", err.msg);
    json_decref(root);
    unlink(path);
    return s;
}

static struct started start_net(bool normalised, int seed)
{
    char cfg[1024];

    snprintf(cfg, sizeof cfg, net, normalised ? "batch_normalize=1\n" : "");
    return start(cfg, seed);
}

static void stop(struct started *s)
{
    model_free(s->m);
    s->dev->ops->close(s->dev);
    jobspec_free(s->spec);
}

static const struct param *named(const struct started *s, const char *name)
{
    for (int i = 0; i < s->m->nparams; i++)
        if (strcmp(s->m->params[i]->name, name) == 0)
            return s->m->params[i];
    fail_msg("no parameter '%s'", name);
    return NULL;
}

/* Memory of the CPU device is the host's. */
static struct hash128 hash_of(const struct param *p)
{
    return hash_bytes(p->data, p->count * sizeof(float), 0);
}

static void seed_and_name_alone(void **state)
{
    static const char *const names[] = { "module_list.0.conv_0.weight", "module_list.1.conv_1.weight", "module_list.2.conv_2.weight" };
    struct started a = start_net(true, 1), b = start_net(false, 1), c = start_net(true, 2);

    (void)state;
    assert_int_not_equal(named(&a, names[1])->index, named(&b, names[1])->index);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct hash128 h = hash_of(named(&a, names[i])), other = hash_of(named(&b, names[i])), reseeded = hash_of(named(&c, names[i]));

        assert_memory_equal(&h, &other, sizeof h);
        assert_memory_not_equal(&h, &reseeded, sizeof h);
    }
    stop(&a);
    stop(&b);
    stop(&c);
}

static void check_variance(const struct param *p)
{
    const float *w = p->data;
    double sum = 0, square = 0, want = 2.0 / (p->r * p->s * p->c);

    for (size_t k = 0; k < p->count; k++) {
        sum += (double)w[k];
        square += (double)w[k] * (double)w[k];
    }
    assert_true(fabs(sum / (double)p->count) < 0.02 * sqrt(want));
    assert_true(fabs(square / (double)p->count - want) < 0.02 * want);
}

/* The first number of each layer, divided by its scale, is another; all together have the variance that keeps
 * activations in scale. */
static void layers_differ(void **state)
{
    struct started s = start(NULL, 1);
    double first[64];
    int n = 0;

    (void)state;
    for (int i = 0; i < s.m->nparams; i++) {
        const struct param *p = s.m->params[i];

        if (p->kind != PARAM_CONV)
            continue;
        first[n] = (double)*(const float *)p->data * sqrt((double)(p->r * p->s * p->c));
        for (int k = 0; k < n; k++)
            assert_true(fabs(first[k] - first[n]) > 1e-6);
        n++;
        if (p->count > 100000)
            check_variance(p);
    }
    assert_int_equal(n, 13);
    stop(&s);
}

/* The bits drawn on one computer; every other computer must draw the same. */
static void pinned(void **state)
{
    struct started s = start_net(true, 1);
    struct hash128 h = { { 0, 0 } };
    const float *bias = named(&s, "module_list.2.conv_2.bias")->data;
    char hex[33];

    (void)state;
    for (int i = 0; i < s.m->nparams; i++)
        h = hash_fold(h, hash_of(s.m->params[i]));
    hash_hex(h, hex);
    assert_string_equal(hex, "f31945a0c7cd223dc3eef624041950be");
    for (int k = 0; k < 14; k++) /* -ln(.99 / .01) where an anchor's objectness is */
        assert_true(bias[k] == (k % 7 == 4 ? -4.5951199f : 0.0f));
    stop(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(seed_and_name_alone), cmocka_unit_test(layers_differ), cmocka_unit_test(pinned) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_norm_uses.c - uses: proto trainer cpu cuda
 * A normalisation shared by several layers of a step, compared with PyTorch (make_norm_uses.py): each use has
 * statistics of its own, gradients are sums over uses, and running statistics are updated use by use. */
#include "tests/device/tape_net.h"

#include "worker/core/safetensors.h"
#include "worker/train/running.h"

enum { C = 4, SHARDS = 2, IMAGES = 2, H = 5, W = 3, WEIGHTS = C * 9 * C };

/* value() of make_norm_uses.py */
static void value(int which, size_t count, double scale, double offset, float *ret)
{
    for (size_t k = 0; k < count; k++) {
        uint32_t i = ((uint32_t)which * 4096 + (uint32_t)k) * 2654435761u + 1;

        i ^= i >> 15;
        i *= 2246822519u;
        i ^= i >> 13;
        ret[k] = (float)(((i >> 8) / 16777216.0 - 0.5) * scale + offset);
    }
}

static void fill(struct net *n, void *dst, int which, size_t count, double scale, double offset)
{
    float x[IMAGES * H * W * C + WEIGHTS];

    value(which, count, scale, offset, x);
    NET_OK(n, n->dev->ops->upload(n->dev, dst, x, count * sizeof *x, &n->err));
}

/* All shards are here. */
static int merge(void *arg, enum merge_kind kind, const double *const *local, int count, double *ret, struct err *err)
{
    struct net *n = arg;
    const struct reduce_ops *reduce = n->dev->on->reduce;

    return kind == MERGE_MOMENTS ? reduce->tree_moments(n->dev, ret, local, SHARDS, (count - 1) / 2, err)
                                 : reduce->tree_sums(n->dev, ret, local, SHARDS, (size_t)count, err);
}

/* A record a shard, as in the trainer. */
struct shared {
    struct net net;
    struct running running;
    double *record[SHARDS];
};

static double *record_dest(void *arg, int index, int use, int shard)
{
    struct shared *t = (struct shared *)arg; /* the net stands first */

    return t->record[shard] + running_at(&t->running, index, use);
}

static struct value *image(struct net *n)
{
    for (int s = 0; s < SHARDS; s++)
        fill(n, n->image[s].data, s, IMAGES * H * W * C, 2, 0);
    return net_begin(n);
}

static void seed(struct net *n, struct value *v)
{
    float g[IMAGES * H * W * C], beta;

    NET_OK(n, tape_status(n->tape, &n->err));
    NET_OK(n, tape_grad(n->tape, v, &beta, &n->err));
    for (int s = 0; s < SHARDS; s++) {
        assert_int_equal(v->grad[s].stride, C);
        value(4 + s, IMAGES * H * W * C, 2, 0, g);
        NET_OK(n, n->dev->ops->upload(n->dev, v->grad[s].data, g, sizeof g, &n->err));
    }
}

static void check(struct net *n, const struct safetensors *f, const char *name, const struct param *p, bool running)
{
    const struct st_array *array = safetensors_find(f, name);
    float want[WEIGHTS], got[SHARDS][WEIGHTS] = { 0 };
    struct err err;

    assert_true(array && st_count(array) == p->count);
    assert_int_equal(safetensors_f32(array, want, &err), 0);
    for (int s = 0; s < (running ? 1 : SHARDS); s++)
        get(n->dev, got[s], running ? p->data : n->grad[p->index][s], p->count * sizeof(float));
    for (size_t i = 0; i < p->count; i++)
        near((double)got[0][i] + (running ? 0 : (double)got[1][i]), (double)want[i], running ? 1e-6 : 2e-5, name, i);
}

static void run(int device, const struct safetensors *f, bool sync)
{
    static const int h[SHARDS] = { H, H }, w[SHARDS] = { W, W };
    const struct conv cv = { 1, 1 };
    struct shared t = { 0 };
    struct net *n = &t.net;
    struct param *p[2];
    struct norm norm;
    struct value *v;
    int32_t *skip;
    char name[32];

    net_open_on(n, device, 0, SHARDS, IMAGES, h, w, C);
    n->hooks.stats_dest = record_dest;
    n->hooks.merge = merge;
    for (int i = 0; i < 2; i++) {
        p[i] = net_param(n, PARAM_CONV, C, 3, C, true);
        fill(n, p[i]->data, 8 + i, WEIGHTS, 0.8, 0);
    }
    norm = net_norm(n, C, true, false);
    norm.sync = sync;
    norm.uses = 2;
    fill(n, norm.gamma->data, 10, C, 1, 1);
    fill(n, norm.beta->data, 11, C, 1, 0);
    fill(n, norm.mean->data, 12, C, 1, 0);
    fill(n, norm.var->data, 13, C, 1, 1);
    NET_OK(n, running_open(&t.running, &norm, 1, &n->err));
    assert_int_equal(t.running.doubles, 2 * (2 * C + 1));
    assert_int_equal(t.running.widest, sync ? 2 * C + 1 : 0);
    for (int s = 0; s < SHARDS; s++)
        t.record[s] = put(n->dev, NULL, t.running.doubles * sizeof(double));
    skip = put(n->dev, NULL, sizeof *skip);
    v = image(n);
    for (int i = 0; i < 2; i++)
        v = layer_conv_norm(n->tape, v, &cv, p[i], &norm, LEAKY_SLOPE);
    assert_int_equal(tape_norm_uses(n->tape, 0), 2);
    seed(n, v);
    net_back(n);
    assert_int_equal(n->ready[norm.gamma->index], 1);
    NET_OK(n, running_update(&t.running, n->dev, (const double *const *)t.record, SHARDS, 0.1f, skip, &n->err));
    for (int i = 0; i < 6; i++) {
        static const char *const part[] = { "w1", "w2", "gamma", "beta", "mean", "var" };
        const struct param *of[] = { p[0], p[1], norm.gamma, norm.beta, norm.mean, norm.var };

        snprintf(name, sizeof name, "%s.%s", sync ? "sync" : "shards", part[i]);
        check(n, f, name, of[i], i >= 4);
    }
    running_close(&t.running);
    net_free(n);
}

static void golden(void **state)
{
    struct safetensors *f;
    struct err err;

    (void)state;
    if (safetensors_open("tests/golden/norm_uses.safetensors", &f, &err) < 0)
        fail_msg("%s", err.msg);
    for (int d = 0; d < devices.n; d++)
        for (int sync = 0; sync < 2; sync++)
            run(d, f, sync);
    safetensors_close(f);
}

/* The places in a record: use by use, no place for frozen normalisations; the updates go round by round. */
static void places(void **state)
{
    struct param mean[4] = { { .count = 3 }, { .count = 5 }, { .count = 2 }, { .count = 4 } }, var[4];
    static const int uses[4] = { 2, 1, 1, 3 }, want[6] = { 0, 1, 3, 0, 3, 3 };
    struct norm norms[4];
    struct running r;
    struct err err;

    (void)state;
    for (int i = 0; i < 4; i++)
        norms[i] = (struct norm){ .mean = &mean[i], .var = &var[i], .index = i, .uses = uses[i], .sync = i == 1, .frozen = i == 2 };
    assert_int_equal(running_open(&r, norms, 4, &err), 0);
    assert_int_equal(r.nitems, 6);
    for (int i = 0; i < 6; i++)
        assert_ptr_equal(r.item[i].mean, &mean[want[i]]);
    assert_int_equal(running_at(&r, 0, 1), 7);
    assert_int_equal(running_at(&r, 1, 0), 14);
    assert_int_equal(running_at(&r, 3, 2), 25 + 2 * 9);
    assert_int_equal(r.doubles, 25 + 3 * 9);
    assert_int_equal(r.widest, 11);
    assert_true(r.item[1].sync && !r.item[0].sync && r.item[3].at == 7);
    running_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(golden), cmocka_unit_test(places) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}

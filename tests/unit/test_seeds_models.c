/* Replays tests/fuzz/{cfg,weights,safetensors}, each seed whole, cut short and with bytes changed: nothing crashes, leaks or writes where it
 * refuses, and every refusal has words.
 * uses: proto worker/models worker/models/yolo worker/models/rcnn worker/layers worker/data worker/data/sample worker/eval worker/mask worker/core */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "worker/core/file.h"
#include "worker/core/safetensors.h"
#include "worker/models/yolo/darknet_cfg.h"
#include "worker/models/yolo/darknet_weights.h"

enum { SEED_MAX = 1 << 16, VARIANTS = 400 };

typedef void feed_fn(const void *bytes, size_t len);

/* A refusal has a code and a sentence that begins with what it is about. */
static void refused(int rc, int code, const struct err *err, const char *about)
{
    if (rc != code || err->code != code || strncmp(err->msg, about, strlen(about)) != 0 || strlen(err->msg) < strlen(about) + 4)
        fail_msg("%d, not %d: \"%s\" about '%s'", rc, code, err->msg, about);
}

static void shapes_are_possible(const struct darknet_net *net)
{
    for (int i = 0; i < net->nlayers; i++) {
        const struct darknet_layer *l = &net->layers[i];

        assert_true(l->out.c > 0 && l->out.h > 0 && l->out.w > 0);
        for (int k = 0; k < l->nsources; k++)
            assert_true(l->source[k] >= 0 && l->source[k] < i);
        if (l->type == DARKNET_CONV)
            assert_int_equal(l->out.c, l->filters);
        if (l->type == DARKNET_YOLO)
            assert_int_equal(net->layers[i - 1].filters, l->yolo.nanchors * (5 + net->classes));
    }
}

/* Changes the net: done, or refused and as it was. */
static void change(struct darknet_net *net, int (*fn)(struct darknet_net *net, struct err *err))
{
    size_t bytes = (size_t)net->nlayers * sizeof *net->layers;
    struct darknet_layer *layers = malloc(bytes + 1);
    struct darknet_net old = *net;
    struct err err = { 0 };
    int rc;

    memcpy(layers, net->layers, bytes);
    rc = fn(net, &err);
    if (rc < 0) {
        refused(rc, ERR_INPUT, &err, "seed:");
        old.layers = net->layers;
        assert_memory_equal(net, &old, sizeof old);
        assert_memory_equal(net->layers, layers, bytes);
    }
    shapes_are_possible(net);
    free(layers);
}

static int three_classes(struct darknet_net *net, struct err *err)
{
    int rc = darknet_net_set_classes(net, 3, err);

    assert_true(rc < 0 || net->classes == (net->nheads ? 3 : 0));
    return rc;
}

static int half_width(struct darknet_net *net, struct err *err)
{
    int rc = darknet_net_set_width(net, 0.5, err);

    for (int i = 0; i < net->nlayers && rc == 0; i++)
        if (net->layers[i].type == DARKNET_CONV && !darknet_net_is_head_conv(net, i))
            assert_int_equal(net->layers[i].filters % 8, 0);
    return rc;
}

static int two_strides_by_one(struct darknet_net *net, struct err *err)
{
    int stride = darknet_net_stride(net), rc = darknet_net_set_size(net, 2 * stride, stride, err);

    assert_true(rc < 0 || (net->width == 2 * stride && net->height == stride));
    return rc;
}

static void feed_cfg(const void *bytes, size_t len)
{
    struct darknet_net *net = NULL;
    struct err err = { 0 };
    int rc = darknet_cfg_parse(bytes, len, "seed", &net, &err);

    if (rc < 0) {
        refused(rc, ERR_INPUT, &err, "seed:");
        assert_null(net);
        return;
    }
    shapes_are_possible(net);
    if (net->nheads > 0)
        assert_int_equal(darknet_net_set_classes(net, 3, &err), 0);
    change(net, three_classes);
    change(net, half_width);
    change(net, two_strides_by_one);
    darknet_net_free(net);
}

static void feed_weights(const void *bytes, size_t len)
{
    for (int until = -1; until < 3; until++) {
        float v[13] = { 0 }, zero[13] = { 0 };
        struct darknet_block b[2] = { { 0, 2, 1, 1, v, v + 2, v + 4, v + 6, v + 8, 0, false },
                                      { 1, 1, 2, 1, v + 10, NULL, NULL, NULL, v + 11, 0, false } };
        struct darknet_weights_info info;
        struct err err = { 0 };

        int rc = darknet_weights_parse(bytes, len, "seed", b, 2, until, &info, &err);

        if (rc < 0) {
            refused(rc, ERR_DATA, &err, "seed:");
            assert_memory_equal(v, zero, sizeof v);
        } else {
            assert_true(info.nloaded <= (until < 0 || until > 2 ? 2 : (size_t)until));
        }
    }
}

static void feed_safetensors(const void *bytes, size_t len)
{
    struct safetensors *f = NULL;
    struct err err = { 0 };
    uint64_t total = 0;

    int rc = safetensors_parse(bytes, len, "seed", &f, &err);

    if (rc < 0) {
        refused(rc, ERR_CORRUPT, &err, "seed:");
        assert_null(f);
        return;
    }
    for (size_t i = 0; i < safetensors_count(f); i++) {
        const struct st_array *a = safetensors_at(f, i);
        float *v = malloc(st_count(a) * sizeof *v + 1);

        assert_ptr_equal(safetensors_find(f, a->name), a);
        rc = safetensors_f32(a, v, &err);
        if (st_count(a) == 0 || a->dtype == ST_F32 || a->dtype == ST_F16 || a->dtype == ST_BF16 || a->dtype == ST_F64)
            assert_int_equal(rc, 0);
        else
            refused(rc, ERR_UNSUPPORTED, &err, "array '");
        total += st_bytes(a);
        free(v);
    }
    assert_true(total <= len);
    safetensors_close(f);
}

/* Of exactly this size, so that a sanitizer sees a byte too far. */
static void feed_copy(feed_fn *feed, const unsigned char *bytes, size_t len, size_t at, const char *put, size_t put_len)
{
    unsigned char *copy = malloc(len ? len : 1);

    memcpy(copy, bytes, len);
    for (size_t i = 0; i < put_len && at + i < len; i++)
        copy[at + i] = (unsigned char)put[i];
    feed(copy, len);
    free(copy);
}

static void vary(feed_fn *feed, const unsigned char *seed, size_t len)
{
    static const struct {
        const char *text;
        size_t len;
    } puts[] = { { "", 1 }, { "9", 1 }, { "-", 1 }, { "\n[", 2 }, { "\xff\xff\xff\x7f", 4 }, { ",9999", 5 }, { "\"", 1 }, { "=", 1 } };
    size_t stride = len / VARIANTS + 1;

    feed_copy(feed, seed, len, 0, "", 0);
    for (size_t at = 0; at < len; at += stride) {
        feed_copy(feed, seed, at, 0, "", 0);
        for (size_t k = 0; k < sizeof puts / sizeof *puts; k++)
            feed_copy(feed, seed, len, at, puts[k].text, puts[k].len);
    }
}

static void replay(const char *name, feed_fn *feed)
{
    char path[400];
    struct dirent *entry;
    struct file_map map;
    struct err err;
    DIR *dir;
    int count = 0;

    snprintf(path, sizeof path, "tests/fuzz/%s", name);
    dir = opendir(path);
    assert_non_null(dir);
    while ((entry = readdir(dir))) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "tests/fuzz/%s/%s", name, entry->d_name);
        assert_int_equal(file_map_open(path, SEED_MAX, &map, &err), 0);
        vary(feed, map.data, map.size);
        file_map_close(&map);
        count++;
    }
    closedir(dir);
    assert_true(count > 5);
}

static void networks(void **state)
{
    (void)state;
    replay("cfg", feed_cfg);
}

static void weight_files(void **state)
{
    (void)state;
    replay("weights", feed_weights);
}

static void tensors(void **state)
{
    (void)state;
    replay("safetensors", feed_safetensors);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(networks), cmocka_unit_test(weight_files), cmocka_unit_test(tensors) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

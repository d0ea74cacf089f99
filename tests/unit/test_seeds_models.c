/* Replays tests/fuzz/{cfg,weights,safetensors}, each seed whole, cut short and with bytes changed: nothing crashes, leaks or writes where it
 * refuses, and every refusal has words.
 * uses: proto worker/models worker/layers worker/eval worker/core */
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
#include "worker/models/darknet_cfg.h"
#include "worker/models/darknet_weights.h"

enum { SEED_MAX = 1 << 16, VARIANTS = 400 };

typedef void feed_fn(const void *bytes, size_t len);

static void feed_cfg(const void *bytes, size_t len)
{
    struct darknet_net *net = NULL;
    struct err err = { 0 };
    int stride;

    if (darknet_cfg_parse(bytes, len, "seed", &net, &err) < 0) {
        assert_true(err.msg[0]);
        return;
    }
    for (int i = 0; i < net->nlayers; i++)
        assert_true(net->layers[i].out.c > 0 && net->layers[i].out.h > 0 && net->layers[i].out.w > 0);
    stride = darknet_net_stride(net);
    if (net->nheads > 0)
        assert_true(darknet_net_set_classes(net, 3, &err) == 0 && net->classes == 3);
    assert_true(darknet_net_set_width(net, 0.5, &err) == 0 || err.msg[0]);
    assert_true(darknet_net_set_size(net, 2 * stride, stride, &err) == 0 || err.msg[0]);
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

        if (darknet_weights_parse(bytes, len, "seed", b, 2, until, &info, &err) < 0) {
            assert_true(err.msg[0]);
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

    if (safetensors_parse(bytes, len, "seed", &f, &err) < 0) {
        assert_true(err.msg[0]);
        return;
    }
    for (size_t i = 0; i < safetensors_count(f); i++) {
        const struct st_array *a = safetensors_at(f, i);
        float *v = malloc(st_count(a) * sizeof *v + 1);

        assert_ptr_equal(safetensors_find(f, a->name), a);
        assert_true(safetensors_f32(a, v, &err) == 0 || err.msg[0]);
        total += st_bytes(a);
        free(v);
    }
    assert_true(total <= len);
    safetensors_meta(f, "format");
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

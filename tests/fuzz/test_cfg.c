/* SPDX-License-Identifier: Apache-2.0 */ /* tests/fuzz/test_cfg.c
 * uses: proto worker/models worker/layers worker/data worker/eval worker/mask worker/core
 * A darknet cfg, and questions about the network that it describes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "tests/fuzz/fuzz.h"
#include "worker/models/yolo/darknet_cfg.h"

const char fuzz_name[] = "cfg";
const int fuzz_places = 120;

/* A refusal has a code and a sentence that begins with its subject. */
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

void fuzz_one(const uint8_t *bytes, size_t size)
{
    struct darknet_net *net = NULL;
    struct err err = { 0 };
    int rc = darknet_cfg_parse((const char *)bytes, size, "seed", &net, &err);

    if (rc < 0) {
        refused(rc, ERR_INPUT, &err, "seed:");
        assert_null(net);
        return;
    }
    shapes_are_possible(net);
    change(net, three_classes);
    change(net, half_width);
    change(net, two_strides_by_one);
    darknet_net_free(net);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/models/yolo/test_darknet_cfg.c
 * uses: proto worker/models worker/layers worker/data worker/eval worker/mask worker/core
 * .cfg files, presets and permitted changes of a network. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/err.h"
#include "tests/stand/harness.h"
#include "worker/models/yolo/darknet_cfg.h"
#include "worker/models/yolo/presets.h"

struct totals {
    int convs;
    int64_t floats, trainable;
    double gflop;
};

/* Without running statistics. */
static int64_t layer_trainable(const struct darknet_layer *l)
{
    return darknet_layer_floats(l) - (l->type == DARKNET_CONV && l->bn ? 2 * l->filters : 0);
}

/* Forward, one image, 2 per multiply-add, convolutions only. */
static double layer_flop(const struct darknet_layer *l)
{
    return l->type == DARKNET_CONV ? 2.0 * l->filters * l->in.c * l->size * l->size * l->out.h * l->out.w : 0.0;
}

static struct totals sum(const struct darknet_net *net)
{
    struct totals t = { 0 };

    for (int i = 0; i < net->nlayers; i++) {
        t.convs += net->layers[i].type == DARKNET_CONV;
        t.floats += darknet_layer_floats(&net->layers[i]);
        t.trainable += layer_trainable(&net->layers[i]);
        t.gflop += layer_flop(&net->layers[i]) * 1e-9;
    }
    return t;
}

static struct darknet_net *preset(const char *name, int size)
{
    struct darknet_net *net = NULL;
    struct err err = { 0 };

    if (preset_net(name, &net, &err) < 0 || darknet_net_set_size(net, size, size, &err) < 0)
        fail_msg("%s", err.msg);
    assert_string_equal(net->warnings, "");
    return net;
}

static void assert_layer(const struct darknet_net *net, int i, enum darknet_type type, int c, int side, int64_t floats)
{
    const struct darknet_layer *l = &net->layers[i];

    assert_int_equal(l->type, type);
    assert_int_equal(l->out.c, c);
    assert_int_equal(l->out.h, side);
    assert_int_equal(l->out.w, side);
    assert_int_equal(darknet_layer_floats(l), floats);
}

/* Layers at which the tables of the specification change; the totals check the rest. */
static void yolov3_has_the_published_layers(void **state)
{
    struct darknet_net *net = preset("yolov3", 416);
    struct totals t = sum(net);

    (void)state;
    assert_int_equal(net->nlayers, 107);
    assert_int_equal(t.convs, 75);
    assert_int_equal(t.floats, 62001757);
    assert_int_equal(t.trainable, 61949149);
    assert_true(fabs(t.gflop - 65.864) < 5e-4);
    assert_layer(net, 0, DARKNET_CONV, 32, 416, 992);
    assert_layer(net, 1, DARKNET_CONV, 64, 208, 18688);
    assert_layer(net, 4, DARKNET_SHORTCUT, 64, 208, 0);
    assert_int_equal(net->layers[4].source[0], 1);
    assert_layer(net, 12, DARKNET_CONV, 256, 52, 295936);
    assert_layer(net, 37, DARKNET_CONV, 512, 26, 1181696);
    assert_layer(net, 62, DARKNET_CONV, 1024, 13, 4722688);
    assert_layer(net, 74, DARKNET_SHORTCUT, 1024, 13, 0);
    assert_int_equal(net->layers[74].source[0], 71);
    assert_layer(net, 81, DARKNET_CONV, 255, 13, 261375);
    assert_layer(net, 83, DARKNET_ROUTE, 512, 13, 0);
    assert_int_equal(net->layers[83].source[0], 79);
    assert_layer(net, 85, DARKNET_UPSAMPLE, 256, 26, 0);
    assert_layer(net, 86, DARKNET_ROUTE, 768, 26, 0);
    assert_int_equal(net->layers[86].source[0], 85);
    assert_int_equal(net->layers[86].source[1], 61);
    assert_layer(net, 87, DARKNET_CONV, 256, 26, 197632);
    assert_layer(net, 93, DARKNET_CONV, 255, 26, 130815);
    assert_int_equal(net->layers[95].source[0], 91);
    assert_layer(net, 98, DARKNET_ROUTE, 384, 52, 0);
    assert_int_equal(net->layers[98].source[1], 36);
    assert_layer(net, 99, DARKNET_CONV, 128, 52, 49664);
    assert_layer(net, 105, DARKNET_CONV, 255, 52, 65535);
    assert_layer(net, 106, DARKNET_YOLO, 255, 52, 0);
    assert_int_equal(net->nheads, 3);
    assert_int_equal(net->layers[82].yolo.mask[0], 6);
    assert_int_equal(net->layers[82].scale, 32);
    assert_int_equal(net->layers[94].scale, 16);
    assert_int_equal(net->layers[106].scale, 8);
    assert_int_equal(darknet_net_stride(net), 32);
    assert_true(net->layers[106].yolo.anchor[8][0] == 373.0f && net->layers[106].yolo.anchor[8][1] == 326.0f);
    darknet_net_free(net);
}

static void yolov3_cost_follows_its_size(void **state)
{
    struct darknet_net *net = preset("yolov3", 320);

    (void)state;
    assert_true(fabs(sum(net).gflop - 38.973) < 5e-4);
    assert_int_equal(darknet_net_set_size(net, 608, 608, NULL), 0);
    assert_true(fabs(sum(net).gflop - 140.692) < 5e-4);
    darknet_net_free(net);
}

static void tiny_has_the_published_layers(void **state)
{
    struct darknet_net *net = preset("yolov3_tiny", 416);
    struct totals t = sum(net);

    (void)state;
    assert_int_equal(net->nlayers, 24);
    assert_int_equal(t.convs, 13);
    assert_int_equal(t.floats, 8858734);
    assert_int_equal(t.trainable, 8852366);
    assert_true(fabs(t.gflop - 5.565) < 5e-4);
    assert_layer(net, 0, DARKNET_CONV, 16, 416, 496);
    assert_layer(net, 9, DARKNET_MAXPOOL, 256, 13, 0);
    assert_layer(net, 11, DARKNET_MAXPOOL, 512, 13, 0); /* size 2, stride 1 keeps the size */
    assert_int_equal(net->layers[11].pad, 1);
    assert_layer(net, 12, DARKNET_CONV, 1024, 13, 4722688);
    assert_layer(net, 13, DARKNET_CONV, 256, 13, 263168);
    assert_layer(net, 15, DARKNET_CONV, 255, 13, 130815);
    assert_int_equal(net->layers[17].source[0], 13);
    assert_layer(net, 20, DARKNET_ROUTE, 384, 26, 0);
    assert_layer(net, 21, DARKNET_CONV, 256, 26, 885760);
    assert_layer(net, 23, DARKNET_YOLO, 255, 26, 0);
    assert_int_equal(net->layers[23].yolo.mask[0], 0);
    darknet_net_free(net);
}

static void spp_has_the_published_layers(void **state)
{
    struct darknet_net *net = preset("yolov3_spp", 608);
    struct totals t = sum(net);

    (void)state;
    assert_int_equal(net->nlayers, 114);
    assert_int_equal(t.convs, 76);
    assert_int_equal(t.floats, 63052381);
    assert_int_equal(t.trainable, 62998749);
    assert_true(fabs(t.gflop - 141.449) < 5e-4);
    assert_layer(net, 83, DARKNET_ROUTE, 2048, 19, 0);
    assert_int_equal(net->layers[83].source[3], 77);
    assert_int_equal(net->layers[81].source[0], 77);
    assert_int_equal(net->layers[89].type, DARKNET_YOLO);
    assert_int_equal(net->layers[101].type, DARKNET_YOLO);
    assert_int_equal(net->layers[113].type, DARKNET_YOLO);
    assert_int_equal(net->layers[93].source[1], 61);
    assert_int_equal(net->layers[105].source[1], 36);
    darknet_net_free(net);
}

static void classes_rewrite_the_heads(void **state)
{
    struct darknet_net *net = preset("yolov3", 416);
    struct err err;

    (void)state;
    assert_int_equal(darknet_net_set_classes(net, 20, &err), 0);
    assert_int_equal(sum(net).floats, 61678657);
    assert_int_equal(net->layers[105].filters, 75);
    assert_int_equal(net->classes, 20);
    assert_int_equal(darknet_net_set_classes(net, 0, &err), ERR_INPUT);
    assert_int_equal(net->classes, 20);
    darknet_net_free(net);
}

static void width_scales_hidden_layers_only(void **state)
{
    struct darknet_net *net = preset("yolov3_tiny", 96);
    struct err err;

    (void)state;
    assert_int_equal(darknet_net_set_width(net, 0.3, &err), 0);
    assert_int_equal(net->layers[0].filters, 8);    /* 4.8 */
    assert_int_equal(net->layers[6].filters, 40);   /* 38.4 */
    assert_int_equal(net->layers[12].filters, 304); /* 307.2 */
    assert_int_equal(net->layers[15].filters, 255);
    assert_int_equal(net->layers[20].out.c, net->layers[18].filters + net->layers[8].filters);
    assert_int_equal(darknet_net_set_width(net, 1e9, &err), ERR_INPUT);
    assert_int_equal(darknet_net_set_width(net, -1, &err), ERR_INPUT);
    assert_int_equal(net->layers[6].filters, 40);
    darknet_net_free(net);
}

static void a_size_that_does_not_tile_is_refused(void **state)
{
    struct darknet_net *net = preset("yolov3_tiny", 416);
    struct err err;

    (void)state;
    assert_int_equal(darknet_net_set_size(net, 400, 416, &err), ERR_INPUT);
    assert_string_equal(err.msg, "yolov3_tiny: input 400x416: both sides must be multiples of 32");
    assert_int_equal(net->width, 416);
    assert_int_equal(net->layers[23].out.w, 26);
    assert_int_equal(darknet_net_set_size(net, 320, 96, &err), 0);
    assert_int_equal(net->layers[23].out.w, 20);
    assert_int_equal(net->layers[23].out.h, 6);
    darknet_net_free(net);
}

static void an_unknown_preset_is_named(void **state)
{
    struct darknet_net *net;
    struct err err;

    (void)state;
    assert_int_equal(preset_net("yolov9", &net, &err), ERR_NOTFOUND);
    assert_non_null(strstr(err.msg, "yolov9"));
}

static void reads_what_darknet_reads(void **state)
{
    static const char text[] = "\xef\xbb\xbf# a comment\r\n; another\r\n[net]\r\n width = 6 4 # blanks vanish\r\nheight=32\r\nchannels=3\n"
                               "policy=steps\nsteps=-1, 20\nscales=.1,1e-1\nbatch=10\nsubdivisions=4\nuse_cuda_graph=1\nbatch=3\n"
                               "[convolutional]\nfilters=8\nsize=3\nstride=1\npad=1\n[conv]\nsize=3\npadding=2\nstride=2\n"
                               "activation=leaky\nlearning_rate=.5\nstopbackward=1\n[route]\nlayers=-1, 1";
    struct darknet_net *net = NULL;
    struct err err = { 0 };

    (void)state;
    if (darknet_cfg_parse(text, sizeof text - 1, "a.cfg", &net, &err) < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(net->width, 64);
    assert_int_equal(net->nlayers, 3);
    assert_int_equal(net->layers[0].act, ACT_LOGISTIC); /* darknet's default */
    assert_int_equal(net->layers[1].act, ACT_LEAKY);
    assert_int_equal(net->layers[1].out.w, 33);
    assert_int_equal(net->layers[1].filters, 1);
    assert_true(net->layers[1].learning_rate == .5);
    assert_true(net->layers[1].stop_backward);
    assert_int_equal(net->layers[2].out.c, 2);
    assert_string_equal(net->warnings,
                        "a.cfg:13: 'batch' is already set in line 10, which holds\n"
                        "a.cfg: ignored, because the job's keys say how to train: batch, subdivisions, policy, steps, scales\n"
                        "a.cfg: ignored, because they change no result here: use_cuda_graph\n");
    darknet_net_free(net);
}

#define NET  "[net]\nwidth=32\nheight=32\nchannels=3\n"
#define CONV "[convolutional]\nfilters=18\nsize=1\nactivation=linear\n"

/* Darknet's defaults for missing keys of a section. */
static void a_head_of_few_words(void **state)
{
    static const char text[] = NET "[convolutional]\nfilters=50\nsize=1\nactivation=linear\n[yolo]\nanchors=10,14, 23,27\nnum=2\n";
    const struct yolo_head *y;
    struct darknet_net *net = NULL;
    struct err err = { 0 };

    (void)state;
    if (darknet_cfg_parse(text, sizeof text - 1, "a.cfg", &net, &err) < 0)
        fail_msg("%s", err.msg);
    y = &net->layers[1].yolo;
    assert_int_equal(y->classes, 20);
    assert_true(y->nanchors == 2 && y->mask[0] == 0 && y->mask[1] == 1);
    assert_true(y->anchor[0][0] == 10 && y->anchor[0][1] == 14 && y->anchor[1][0] == 23 && y->anchor[1][1] == 27);
    assert_true(y->ignore_thresh == .5f && y->truth_thresh == 1 && y->assign_iou_thresh == 1);
    assert_true(y->box_gain == 1 && y->obj_gain == 1 && y->noobj_gain == 1 && y->cls_gain == 1);
    assert_true(net->layers[1].jitter == .2 && net->layers[1].random == 0);
    assert_true(y->scale_xy == 1 && !y->new_coords);
    darknet_net_free(net);
}

static const struct bad {
    const char *text, *msg;
} bads[] = {
    { "", "b.cfg:1: the first section must be [net]" },
    { "width=3\n[net]\n", "b.cfg:1: 'width=3' stands before the first section" },
    { "[conv]\n", "b.cfg:1: the first section must be [net]" },
    { "[net\n", "b.cfg:1: '[net' is not a section; expected [name]" },
    { "[net]\nwidth\n", "b.cfg:2: 'width' is neither [section] nor key=value" },
    { "[net]\nwidth=\n", "b.cfg:2: 'width=' is neither [section] nor key=value" },
    { "[net]\nwidth=\x01\n", "b.cfg:2: unexpected character" },
    { "[net]\nwidth=32\n", "b.cfg:1: 0 layers: must be 1 to 1024" },
    { "[net]\nwidth=32x\n[conv]\n", "b.cfg:2: width: '32x' is not a number" },
    { "[net]\nwidth=0x20\n[conv]\n", "b.cfg:2: width: '0x20' is not a number" },
    { "[net]\nwidth=nan\n[conv]\n", "b.cfg:2: width: 'nan' is not a number" },
    { "[net]\nwidth=1e999\n[conv]\n", "b.cfg:2: width: must be 1 to 8192, is inf" },
    { "[net]\nwidth=32.5\n[conv]\n", "b.cfg:2: width: must be a whole number, is 32.5" },
    { "[net]\nwidth=32,32\n[conv]\n", "b.cfg:2: width: one number expected, is '32,32'" },
    { "[net]\nheight=32\nchannels=3\n[conv]\n", "b.cfg: width, height and channels must be set in [net]" },
    { NET "steps=-1,2\nwith=32\n[conv]\n[crnn]\n",
      "b.cfg:8: layer 1: [crnn] is not supported; supported are convolutional, shortcut, route, upsample, maxpool and yolo" },
    { NET "[conv]\nactivation=mish\n", "b.cfg:6: activation: 'mish' is not supported; supported are linear, leaky, relu, logistic, tanh" },
    { NET "[conv]\nsize=33\n", "b.cfg:5: layer 0: its window is larger than its input" },
    { NET "[conv]\nstride=33\n", "b.cfg: input 32x32: both sides must be multiples of 33" },
    { NET "[conv]\nstride=64\n[conv]\nstride=64\n[conv]\nstride=64\n",
      "b.cfg:9: layer 2: strides multiply to more than the largest input" },
    { NET "[route]\nlayers=0\n", "b.cfg:5: layer 0: source 0 is no layer before it" },
    { NET "[conv]\n[shortcut]\nfrom=-1e114\n", "b.cfg:7: from: must be -1024 to 1024, is -1e+114" },
    { NET "[conv]\n[route]\nlayers=-2\n", "b.cfg:6: layer 1: source -2 is no layer before it" },
    { NET "[conv]\n[route]\n", "b.cfg:6: a [route] needs layers=" },
    { NET "[conv]\n[conv]\nstride=2\n[route]\nlayers=0,1\n", "b.cfg:8: layer 2: route joins 32x32 (layer 0) with 16x16 (layer 1)" },
    { NET "[conv]\n[conv]\nstride=2\n[shortcut]\nfrom=-2\n",
      "b.cfg:8: layer 2: shortcut adds 32x32 (layer 0) to 16x16: sides must be equal" },
    { NET "[upsample]\n", "b.cfg:5: layer 0: upsamples beyond the network's input" },
    { NET "[maxpool]\nsize=2\npadding=4\n", "b.cfg:5: padding=4: windows of size 2 would lie outside" },
    { NET "[yolo]\nanchors=1,2\nclasses=1\n", "b.cfg:5: layer 0: a [yolo] section follows a [convolutional] one" },
    { NET CONV "[yolo]\nanchors=1,2,3\n", "b.cfg:9: anchors: pairs of width and height expected, 3 numbers found" },
    { NET CONV "[yolo]\nanchors=1,2,3,4\n", "b.cfg:9: num=1, but there are 2 anchors" },
    { NET CONV "[yolo]\nanchors=1,2\nmask=1\n", "b.cfg:11: mask: must be 0 to 0, is 1" },
    { NET CONV "[yolo]\nanchors=1,2\nmask=0,0\n", "b.cfg:9: mask: anchor 0 stands there twice" },
    { NET CONV "[yolo]\nanchors=1,2\nclasses=12\n", "b.cfg:5: layer 0: filters=18 before [yolo] must be 17 = 1 masks * (5 + 12 classes)" },
    { NET CONV "batch_normalize=1\n[yolo]\nanchors=1,2\nclasses=13\n",
      "b.cfg:5: layer 0: the convolution before [yolo] must be without batch_normalize" },
    { NET "[conv]\nfilters=18\n[yolo]\nanchors=1,2\nclasses=13\n",
      "b.cfg:5: layer 0: the convolution before [yolo] must have activation=linear" },
    { NET CONV "[yolo]\nanchors=1,2\nclasses=13\nnew_coords=1\n",
      "b.cfg:5: layer 0: the convolution before [yolo] with new_coords=1 must have activation=logistic" },
    { NET CONV "[yolo]\nanchors=1,2\nclasses=13\nscale_x_y=.9\n", "b.cfg:12: scale_x_y: must be 1 to 4, is 0.9" },
    { NET CONV "[yolo]\nanchors=1,2\nclasses=13\n[route]\nlayers=0\n" CONV "[yolo]\nanchors=1,2,3,4\nnum=2\nclasses=4\n",
      "b.cfg:18: layer 4: classes=4, but 13 in a [yolo] section before" },
    { NET CONV "[yolo]\nanchors=1,2\nclasses=13\n" CONV,
      "b.cfg:12: layer 2: reads layer 1, an output of a [yolo] section, which no other layer may read" },
    { NET CONV "[yolo]\nanchors=1,2\nclasses=13\n[route]\nlayers=0,1\n",
      "b.cfg:12: layer 2: reads layer 1, an output of a [yolo] section, which no other layer may read" },
    { NET "[conv]\nfilters=18\n[yolo]\nnew_coords=1\nanchors=1,2\nclasses=13\n[route]\nlayers=0\n",
      "b.cfg:11: layer 2: reads layer 0, an output of a [yolo] section, which no other layer may read" },
    { NET "[conv]\nfilters=65536\n[conv]\nfilters=65536\n", "b.cfg:7: layer 1: the network has too many parameters" },
};

static void refuses_with_file_and_line(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bads / sizeof *bads; i++) {
        struct darknet_net *net = NULL;
        struct err err = { 0 };

        if (darknet_cfg_parse(bads[i].text, strlen(bads[i].text), "b.cfg", &net, &err) == 0)
            fail_msg("accepted: %s", bads[i].text);
        assert_int_equal(err.code, ERR_INPUT);
        assert_string_equal(err.msg, bads[i].msg);
    }
}

/* Every key that requests another network, other boxes or another loss than ours, with such a value. The error begins
 * with the line and the key. */
static void refuses_each_key_that_changes_a_result(void **state)
{
    static const char *const convolutional[] = {
        "groups=2",   "dilation=2",       "antialiasing=1", "share_index=4", "cbn=1",           "binary=1",
        "xnor=1",     "bin_output=1",     "sway=1",         "rotate=1",      "stretch=1",       "stretch_sway=1",
        "flipped=1",  "dot=.1",           "grad_centr=1",   "reverse=1",     "coordconv=1",     "assisted_excitation=9",
        "stride_x=2", "stride_y=2",       "onlyforward=1",  "dont_update=1", "burnin_update=1", "train_only_bn=1",
        "dontload=1", "dontloadscales=1", "dontsave=1",     "numload=3",     "clip=1",          NULL
    };
    static const char *const shortcut[] = { "weights_type=per_feature", "weights_normalization=softmax", "alpha=.5", "beta=2", NULL };
    static const char *const route[] = { "groups=2", "group_id=1", NULL };
    static const char *const upsample[] = { "scale=2", NULL };
    static const char *const maxpool[] = { "maxpool_depth=1", "out_channels=2",        "antialiasing=1",
                                           "stride_x=2",      "maxpool_zero_nonmax=1", NULL };
    static const char *const yolo[] = { "iou_loss=giou",       "iou_normalizer=.07",
                                        "obj_normalizer=.4",   "cls_normalizer=.5",
                                        "delta_normalizer=.5", "iou_thresh_kind=giou",
                                        "label_smooth_eps=.1", "objectness_smooth=1",
                                        "focal_loss=1",        "counters_per_class=1,2",
                                        "map=a.map",           "embedding_layer=-4",
                                        "nms_kind=greedynms",  NULL };
    static const char *const net[] = { "letter_box=0",     "time_steps=2",        "contrastive=1", "unsupervised=1",
                                       "adversarial_lr=1", "label_smooth_eps=.1", "inputs=3",      NULL };
    static const struct {
        const char *before; /* its last section has the keys */
        int line;
        const char *const *keys;
    } sections[] = { { NET "[conv]\n[convolutional]\n", 7, convolutional },
                     { NET "[conv]\n[shortcut]\nfrom=-1\n", 8, shortcut },
                     { NET "[conv]\n[route]\nlayers=0\n", 8, route },
                     { NET "[conv]\nstride=2\n[upsample]\n", 8, upsample },
                     { NET "[conv]\n[maxpool]\n", 7, maxpool },
                     { NET CONV "[yolo]\nanchors=1,2\nclasses=13\n", 12, yolo },
                     { NET, 5, net } };

    (void)state;
    for (size_t s = 0; s < sizeof sections / sizeof *sections; s++)
        for (int k = 0; sections[s].keys[k]; k++) {
            const char *key = sections[s].keys[k];
            struct darknet_net *parsed = NULL;
            char text[400], begin[100];
            struct err err = { 0 };

            snprintf(text, sizeof text, "%s%s\n%s", sections[s].before, key, sections[s].keys == net ? "[conv]\n" : "");
            snprintf(begin, sizeof begin, "b.cfg:%d: %.*s", sections[s].line, (int)strcspn(key, "="), key);
            if (darknet_cfg_parse(text, strlen(text), "b.cfg", &parsed, &err) == 0)
                fail_msg("accepted: %s", key);
            if (strncmp(err.msg, begin, strlen(begin)) != 0)
                fail_msg("'%s' should begin with '%s'", err.msg, begin);
            assert_non_null(strstr(err.msg, "is not supported"));
        }
}

/* The same keys with their default values, in any spelling. */
static void takes_neutral_values(void **state)
{
    static const char text[] =
        NET "letter_box=1\ntime_steps=1\n[conv]\ngroups=1\ndilation=1.0\nxnor=0\nstride_x=1\nclip=0\nangle=15\n[shortcut]\nfrom=-1\n"
            "weights_type=none\nalpha=1.\n[route]\nlayers=0\ngroups=1\ngroup_id=0\n" CONV
            "[yolo]\nanchors=1,2\nclasses=13\niou_loss=mse\niou_normalizer=1.00\nnms_kind=default\nfocal_loss=0\nmax=200\nresize=1.5\n";
    struct darknet_net *net = NULL;
    struct err err = { 0 };

    (void)state;
    if (darknet_cfg_parse(text, sizeof text - 1, "a.cfg", &net, &err) < 0)
        fail_msg("%s", err.msg);
    assert_string_equal(net->warnings, "a.cfg: ignored, because the job's keys say how to train: resize\n"
                                       "a.cfg: ignored, because they change no result here: max\n");
    darknet_net_free(net);
}

/* Misspelt keys with the suggested key; keys without a similar key. */
static void names_unknown_keys(void **state)
{
    static const struct bad unknown[] = {
        { NET "wdith=32\n[conv]\n", "b.cfg:5: unknown key 'wdith' in [net]; did you mean width" },
        { NET "[conv]\nbatch_normalise=1\n", "b.cfg:6: unknown key 'batch_normalise' in [convolutional]; did you mean batch_normalize" },
        { NET "[conv]\nfilter=4\n", "b.cfg:6: unknown key 'filter' in [convolutional]; did you mean filters" },
        { NET "[conv]\nstop_backward=1\n", "b.cfg:6: unknown key 'stop_backward' in [convolutional]; did you mean stopbackward" },
        { NET "[conv]\n[shortcut]\nfrm=-1\n", "b.cfg:7: unknown key 'frm' in [shortcut]; did you mean from" },
        { NET "[conv]\n[route]\nlayer=0\n", "b.cfg:7: unknown key 'layer' in [route]; did you mean layers" },
        { NET "[conv]\nstride=2\n[upsample]\nstrid=2\n", "b.cfg:8: unknown key 'strid' in [upsample]; did you mean stride" },
        { NET "[conv]\n[maxpool]\nsizes=2\n", "b.cfg:7: unknown key 'sizes' in [maxpool]; did you mean size" },
        { NET CONV "[yolo]\nscale_xy=1.2\n", "b.cfg:10: unknown key 'scale_xy' in [yolo]; did you mean scale_x_y" },
        { NET CONV "[yolo]\nunheard=of\n", "b.cfg:10: unknown key 'unheard' in [yolo]; remove the line" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        struct darknet_net *net = NULL;
        struct err err = { 0 };

        assert_int_equal(darknet_cfg_parse(unknown[i].text, strlen(unknown[i].text), "b.cfg", &net, &err), ERR_INPUT);
        assert_string_equal(err.msg, unknown[i].msg);
    }
}

/* Channels that only one of the two inputs has are left unchanged: darknet's yolov3-tiny-prn. */
static void a_shortcut_of_unequal_channels(void **state)
{
    static const char text[] = NET "[conv]\nfilters=3\n[conv]\nfilters=2\n[shortcut]\nfrom=0\n[conv]\nfilters=5\n[shortcut]\nfrom=0\n";
    struct darknet_net *net = NULL;
    struct err err = { 0 };

    (void)state;
    if (darknet_cfg_parse(text, sizeof text - 1, "a.cfg", &net, &err) < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(net->layers[2].out.c, 2);
    assert_int_equal(net->layers[4].out.c, 5);
    darknet_net_free(net);
}

static void refuses_file(const char *content, const char *said)
{
    struct darknet_net *net;
    char path[TEMP_MAX];
    struct err err;
    int fd = mkstemp(temp_path(path, sizeof path, "detd-cfg-XXXXXX"));
    ssize_t n = write(fd, content, strlen(content));

    assert_int_equal(n, strlen(content));
    close(fd);
    assert_int_equal(darknet_cfg_read(path, &net, &err), ERR_INPUT);
    unlink(path);
    if (!strstr(err.msg, said))
        fail_msg("'%s', not '%s'", err.msg, said);
}

static void refuses_files_that_are_no_text(void **state)
{
    struct darknet_net *net;
    struct err err;

    (void)state;
    assert_int_equal(darknet_cfg_parse("[net]\0", 6, "b.cfg", &net, &err), ERR_INPUT);
    assert_string_equal(err.msg, "b.cfg: not a text file");
    assert_true(darknet_cfg_read("/nonexistent.cfg", &net, &err) < 0);
    assert_int_equal(darknet_cfg_read("/dev/null", &net, &err), ERR_INPUT);
    assert_string_equal(err.msg, "'/dev/null' is not a regular file");
    refuses_file("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 8342\n", "it is a Git LFS pointer: 'git lfs pull'");
    refuses_file("<html><body>404</body></html>\n", "it is a web page (HTML)");
    refuses_file("{ \"model\": 1 }\n", "it is JSON text");
    refuses_file("", "it is empty");
    refuses_file("[net]\nwidth=32x\n[conv]\n", ":2: width: '32x' is not a number");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(yolov3_has_the_published_layers),
        cmocka_unit_test(yolov3_cost_follows_its_size),
        cmocka_unit_test(tiny_has_the_published_layers),
        cmocka_unit_test(spp_has_the_published_layers),
        cmocka_unit_test(classes_rewrite_the_heads),
        cmocka_unit_test(width_scales_hidden_layers_only),
        cmocka_unit_test(a_size_that_does_not_tile_is_refused),
        cmocka_unit_test(an_unknown_preset_is_named),
        cmocka_unit_test(reads_what_darknet_reads),
        cmocka_unit_test(a_head_of_few_words),
        cmocka_unit_test(refuses_with_file_and_line),
        cmocka_unit_test(refuses_each_key_that_changes_a_result),
        cmocka_unit_test(takes_neutral_values),
        cmocka_unit_test(names_unknown_keys),
        cmocka_unit_test(a_shortcut_of_unequal_channels),
        cmocka_unit_test(refuses_files_that_are_no_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

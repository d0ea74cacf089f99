/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/yolo/darknet_net.h - a network of the YOLOv3 family as a list
 * of layers with shapes. A .cfg file (darknet_cfg.h) or a preset (presets.h) describes it; it is checked. Class count,
 * input size and width may be changed. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "worker/ops/map.h"
#include "worker/ops/yolo.h"

struct err;

enum {
    DARKNET_MAX_LAYERS = 1024,
    DARKNET_MAX_SOURCES = 32,
    DARKNET_MAX_SIDE = 8192,
    DARKNET_MAX_FILTERS = 65536,
    DARKNET_MAX_CLASSES = 10000,
    DARKNET_MAX_KERNEL = 64, /* size, stride and padding of a layer */
    DARKNET_MAX_FLOATS = 1 << 30,
};

enum darknet_type { DARKNET_CONV, DARKNET_SHORTCUT, DARKNET_ROUTE, DARKNET_UPSAMPLE, DARKNET_MAXPOOL, DARKNET_YOLO };

struct darknet_shape {
    int c, h, w;
};

/* Members that a type does not use are 0. Layer i reads the output of layer i - 1 (the image for 0) unless sources say
 * otherwise. */
struct darknet_layer {
    enum darknet_type type;
    int line;          /* of its section in the cfg, for messages */
    int filters;       /* conv */
    int size, stride;  /* conv, maxpool; upsample: the factor is stride */
    int pad;           /* conv: on each side; maxpool: sum of both sides */
    bool bn;           /* conv; without it there is a bias */
    enum act_kind act; /* conv, shortcut */
    /* route: all inputs, in order; shortcut: one input; its common channels are added to the previous layer's output */
    int nsources;
    int source[DARKNET_MAX_SOURCES]; /* absolute, below the layer's own index */
    double learning_rate;            /* factor on the network's rate, 1 */
    bool stop_backward;              /* no layer up to this one trains, for any reader */
    struct yolo_head yolo;           /* yolo: gains 1 */
    double jitter;                   /* yolo, for other programs: the job file decides */
    bool random;                     /* yolo: multi-scale training; for other programs too */
    int scale;                       /* input pixels per output pixel */
    struct darknet_shape in, out;    /* per image; `in` of a route is its first source */
};

struct darknet_net {
    int width, height, channels; /* input */
    int nlayers;
    struct darknet_layer *layers;
    int nheads;     /* yolo layers; a net without any is legal here, but not in training */
    int classes;    /* of all heads; 0 without heads */
    char *warnings; /* lines "name:line: text\n"; "" if there are no warnings */
    char *name;     /* of the file or preset, for messages */
};

void darknet_net_free(struct darknet_net *net);
/* Works out all shapes and checks that layers fit together. Called by the parser and by everything below; errors name
 * file and line. */
int darknet_net_shape(struct darknet_net *net, struct err *err);
/* The three functions below leave the net unchanged when they fail. */
/* Sets the class count of every head and the filters of the convolutions before them. */
int darknet_net_set_classes(struct darknet_net *net, int classes, struct err *err);
/* Both sides must be multiples of darknet_net_stride(). Anchors stay, they are in pixels of the input. */
int darknet_net_set_size(struct darknet_net *net, int width, int height, struct err *err);
/* Scales the filters of all convolutions but those before heads: to the nearest multiple of 8, at least 8. */
int darknet_net_set_width(struct darknet_net *net, double factor, struct err *err);

/* width, height of every anchor, in all heads; ERR_INPUT: not as many as the network has, or an invalid side. */
int darknet_net_set_anchors(struct darknet_net *net, const double *sides, int n, struct err *err);

int darknet_net_stride(const struct darknet_net *net);                   /* largest scale of a layer: 32 */
bool darknet_net_is_head_conv(const struct darknet_net *net, int layer); /* a convolution right before a yolo layer */
/* in a .weights file: 0 for all but convolutions */
int64_t darknet_layer_floats(const struct darknet_layer *l);

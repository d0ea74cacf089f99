/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/depth/network.h - the networks of depth models: ResNets that
 * see a picture, a pair of pictures or features, and the decoders on them; their parameters and their order. depth.c
 * has the parts between them (warps, losses). Source: specs featdepth section 1.
 *
 * Names: "depth.encoder.", "pose.encoder." and "extractor.encoder." with torchvision's names of a ResNet behind them;
 * "depth.decoder.", "pose.decoder." and "extractor.decoder." with FeatDepth's. */
#pragma once
#include <stdbool.h>

#include "proto/job/presets.h"
#include "worker/layers/layers.h"
#include "worker/models/resnet.h"

struct err;
struct jobspec;
struct model;

enum {
    DEPTH_SCALES = 4,   /* maps of a decoder, the largest first */
    DEPTH_FEATURES = 5, /* of the stem, and of the four stages */
    CRP_STAGES = 4,
    POSE_CONVS = 2,
    UP_LEVELS = 5,
};

/* A level of the decoder with chained residual pooling, of stage i + 1. */
struct crp_level {
    struct net_conv reduce, iconv, crp[CRP_STAGES], merge, disp;
};

/* A level of a decoder that only enlarges, 0: the last. disp: only in levels with a map. */
struct up_level {
    struct net_conv upconv, iconv, disp;
};

struct depth_network {
    struct model *m;
    enum job_depth kind;
    struct canvas size, pose_size;

    struct resnet encoder;
    bool upconv; /* the decoder is `upconv`, not `crp` */
    struct crp_level crp[DEPTH_SCALES];
    struct up_level up[UP_LEVELS];

    struct resnet pose;
    struct net_conv squeeze, pose_conv[POSE_CONVS], motion;

    struct resnet features; /* for kinds that have it; only the stem if it is frozen */
    struct up_level rebuild[UP_LEVELS];
};

/* Adds all parameters to m. motions: uses of the motion network in a step; frames: number of pictures that features are
 * taken of. Errors name the key, or the part that lacked memory. */
int depth_network_open(struct depth_network *n, struct model *m, const struct jobspec *spec, int motions, int frames, struct err *err);

/* Does it have networks for depth and motion; for features; for pictures from features? */
bool depth_sees_depth(const struct depth_network *n);
bool depth_sees_features(const struct depth_network *n);
bool depth_rebuilds(const struct depth_network *n);

/* Disparities of pictures [n, h, w, 3] (which are dropped), 0 .. 1, f32, the largest first: at h / 2 and w / 2 of the
 * decoder `crp`, at h and w of `upconv`, each half as large as the one before. keys: [2] for every image, for the
 * dropout of the last two stages; not read in TAPE_EVAL. */
void depth_disparities(const struct depth_network *n, struct tape *t, struct value *pictures, const struct philox_key *const *keys,
                       struct value *ret[DEPTH_SCALES]);
/* Two pictures side by side in channels [n, pose h, pose w, 6] (dropped) to [n, 1, 1, POSE_IN], f32. */
struct value *depth_motion(const struct depth_network *n, struct tape *t, struct value *pair);
/* Pictures (dropped) to the first `wanted` features, with their pending operations: 1, or all. */
void depth_features(const struct depth_network *n, struct tape *t, struct value *pictures, int wanted, struct value *ret[DEPTH_FEATURES]);
/* The last features (not dropped) to pictures, 0 .. 1, f32, the largest first: h x w. */
void depth_rebuilt(const struct depth_network *n, struct tape *t, struct value *features, struct value *ret[DEPTH_SCALES]);

/* Visits each convolution that a batch needs. */
int depth_each_conv(const struct depth_network *n, int (*visit)(void *arg, const struct net_use *use, struct err *err), void *arg,
                    struct err *err);

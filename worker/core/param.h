/* SPDX-License-Identifier: Apache-2.0 */ /* worker/core/param.h - one trainable (or running) array of a model, and the
 * derived forms devices keep of it. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "worker/core/tensor.h"

enum param_kind {
    PARAM_CONV,  /* [k][r][s][c] */
    PARAM_BIAS,  /* [k] */
    PARAM_SCALE, /* [k], normalisation gamma */
    PARAM_SHIFT, /* [k], normalisation beta */
    PARAM_MEAN,  /* [k], running mean: no gradient */
    PARAM_VAR,   /* [k], running variance: no gradient */
};

enum param_init {
    INIT_FILL,    /* value everywhere; with a period, at elements first, first + period ... only, and 0 elsewhere */
    INIT_NORMAL,  /* mean 0, standard deviation `value` */
    INIT_UNIFORM, /* -value .. value */
    INIT_GIVEN,   /* `given` */
};

/* Initial values: a function of the job's seed, the name and these fields alone. */
struct param_start {
    enum param_init init;
    double value;
    int first, period;  /* period 0: everywhere */
    const float *given; /* [count], of the model */
};

/* Layout of a parameter in model.safetensors. */
enum param_layout {
    LAYOUT_VECTOR, /* [k] */
    LAYOUT_OIHW,   /* [k][c][r][s] */
    /* [k][c], r = s = 1; inputs of `pixels` pixels: channel by channel in the file, pixel by pixel in memory */
    LAYOUT_FLAT,
    /* of a transposed convolution without overlap: [c][k / 4][2][2], r = s = 1; memory has outputs pixel by pixel */
    LAYOUT_IOHW,
};

struct param {
    char name[96]; /* as in model.safetensors */
    enum param_kind kind;
    /* param_kind_trains(kind); false for a frozen parameter, which keeps its numbers; never set for running
     * statistics */
    bool trainable;
    int k, r, s, c;   /* vectors have r = s = c = 1 */
    size_t count;     /* k * r * s * c */
    float *data;      /* device memory, fp32, KRSC, 64-byte aligned */
    uint64_t version; /* bumped by every writer (optimizer, load, EMA swap); derived forms compare it */
    /* owned by the device (Winograd U, packed panels, bf16 copies ...); freed by ops->param_release */
    void *derived;
    int index; /* position in the model's parameter list */
    int group; /* index in the model's parameter groups */
    struct param_start start;
    enum param_layout layout;
    int pixels; /* for LAYOUT_FLAT */
};

/* Parameters that the optimizer treats alike. */
struct param_group {
    const char *name;
    float lr, decay; /* factors of the job's learning rate and weight decay */
};

/* The default of `trainable`. */
static inline bool param_kind_trains(enum param_kind kind)
{
    return kind != PARAM_MEAN && kind != PARAM_VAR;
}

/* Takes part in gradients and the optimizer. */
static inline bool param_trainable(const struct param *p)
{
    return p->trainable;
}

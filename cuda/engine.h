/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/engine.h - convolutions on one GPU as plans: cuDNN's graph API,
 * cuBLASLt for a convolution that is a matrix product (1x1, stride 1), and the plugin's own kernels for the convolution
 * that reads images (cuda/stem.h).
 *
 * The algorithm for a shape is a pure function of the key, the library versions, the GPU and the plugin. It is the
 * first that the tier's filter allows (specs determinism section 3.3): first among the names in the plugin's table,
 * else in heuristic order. Nothing is measured in a run. Plans are kept per key and listed for the run's identity; a
 * thread of the engine builds the plans that were asked for ahead of time. One engine per struct cuda_device; it owns
 * that stream's workspace. In the tests without a GPU plain loops replace it (tests/stand/emu), except for the plugin's
 * own kernels. */
#pragma once
#include "cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plan;

enum { ENGINE_PLANS = 16384 }; /* kept beyond those of recent steps: some 100 canvases of a Mask R-CNN, 45 KiB each */

enum conv_dir { CONV_FWD, CONV_BWD_DATA, CONV_BWD_WEIGHTS };

/* One convolution. All tensors NHWC in `dtype`, filters KRSC; dense images, pixels *_stride elements apart (a slice of
 * channels has stride > channels). */
struct conv_key {
    enum conv_dir dir;
    enum dtype dtype;
    enum precision precision;
    enum tier tier;
    int n, h, w, c; /* of x */
    int k, r, s;    /* of the filter */
    int stride, pad;
    int x_stride, y_stride; /* of x or dx, of y or dy */
    bool bias;              /* CONV_FWD: y = conv + bias[k] */
    bool add;               /* CONV_BWD_DATA: dx += ... */
};

/* Operands of a key, in device memory:
 *   CONV_FWD          x, w -> y, bias (`dtype`, [k]) where key.bias
 *   CONV_BWD_DATA     y = dy, w -> x = dx
 *   CONV_BWD_WEIGHTS  x, y = dy -> dw: fp32 whatever the dtype, added to where `add`; w is not read
 * The key does not tell whether a weight gradient is added to dw. It is small, so a kernel of the plugin adds it,
 * whichever library computed it. */
struct conv_args {
    void *x;
    const void *w;
    void *y;
    const void *bias;
    float *dw;
    bool add; /* CONV_BWD_WEIGHTS: dw += ... */
};

int engine_open(struct cuda_device *d, struct engine **ret_engine, struct err *err);
void engine_close(struct engine *e);
/* "NVIDIA H100 80GB HBM3, 132 multiprocessors, compute 9.0": the GPU for which measured choices hold. */
void engine_gpu(const struct cuda_device *d, char *ret, size_t size);
/* Queues the convolution on the device's stream; builds the plan first if it does not exist yet. Errors name the shape,
 * and the amount of memory that would fit. */
int engine_conv(struct engine *e, const struct conv_key *key, const struct conv_args *args, struct err *err);
/* The same with a plan that the caller made (cuda/plan.h). */
int engine_run(struct engine *e, struct plan *p, const struct conv_args *args, struct err *err);
/* Begins a step. If there are over ENGINE_PLANS plans, drops plans that were neither asked for nor used since `keep`
 * other steps began. The longest unused go first, until three quarters of ENGINE_PLANS are left. This is rare. The
 * libraries do not say how dropping affects queued work, so the call waits for that work. */
int engine_begin(struct engine *e, int keep, struct err *err);
/* The engine's thread builds the plan; a failure appears when the plan is used. */
int engine_prepare(struct engine *e, const struct conv_key *key, struct err *err);
/* Waits for all plans that were asked for. */
void engine_ready(struct engine *e, struct plan_readiness *ret);
/* All plans, a line each: the key, library, engine and its knobs, notes, workspace. Sorted. Caller frees. */
char *engine_plans(struct engine *e);

/* conv.cu, for plans with a weight gradient in bf16: dst[i] = (add ? dst[i] : 0) + bf16[i]. */
int cuda_cast_add_f32(struct device *dev, float *dst, const void *bf16, size_t n, bool add, struct err *err);

#ifdef __cplusplus
}
#endif

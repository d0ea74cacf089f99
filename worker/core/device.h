/* worker/core/device.h - everything a device can do, as one struct of functions.
 *
 * Ops take one array element per local shard. Shapes may differ between shards; where all shards have one shape and lie
 * contiguous a device may treat them as one batch, as long as the bits of a shard do not depend on its neighbours.
 * Work is queued on the device's stream and an op returns as soon as it is queued (on the CPU: when it is done); host code
 * that reads results calls sync() first. Every pointer to numbers is device memory unless its comment says host; arrays of pointers, of
 * tensors and of structs are host memory and are read before the op returns. Scalars that depend on data stay in device memory.
 * Every `_bwd` op takes beta: 0 = overwrite and never read the destination, 1 = add to it. Shapes are checked once, by
 * the layer that records the op, so ops assert instead of returning errors for shapes.
 *
 * A backend (CPU build, CUDA plugin) can be opened several times: each struct device is one queue of work with scratch memory of its own,
 * used by one thread at a time; memory of one is memory of all. Marks order work between queues.
 *
 * How later floors sit on this struct:
 * - A two-stage detector with data-dependent shapes: a row list is a tensor with static capacity n and a device count;
 *   its ops (proposals, roi_align, matchers) are further rows of this struct whose rows beyond the count are zero. Shapes
 *   differ between shards already.
 * - A network with two encoders and a decoder: parameters are used several times in one forward; the tape counts uses,
 *   conv_bwd_weights is called with beta = 1 from the second use on, and the shard gradient enters the canonical tree once.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/core/param.h"
#include "worker/core/tensor.h"

struct comm;
struct comm_options;
struct err;

#define DEVICE_ABI 8 /* bump on any change to the structs of this file */

/* What the order of additions and the choice of algorithms may depend on; see DESIGN section 6. Contents are per shard in every tier. */
enum tier {
    TIER_OFF,   /* nothing is promised */
    TIER_RERUN, /* the same bits on every rerun with the same number of ranks */
    TIER_WORLD, /* also with another number of ranks: a shard's bits depend on the shard alone */
};

struct device {
    const struct device_ops *ops;
    enum dtype dtype; /* of activations and their gradients: DTYPE_F32 or DTYPE_BF16. Parameters, their gradients and moments are fp32 */
    bool host_memory; /* alloc() gives memory the host can read and write: shared-memory transports need no staging */
    bool pending;     /* convolutions read values with a pending activation; where not, layers have it computed first (act_fwd) */
    bool merges; /* in the tier set last, the *_bwd ops of parameters take one destination for all local shards; see conv_bwd_weights */
    int row; /* bytes that a pixel of activations should be a multiple of: values have gaps after their channels. 0: no gaps are wanted */
};

/* The stride of a value of c channels. Gaps are never written, and nothing depends on what is in them. */
static inline int device_stride(const struct device *dev, int c)
{
    int unit = dev->row / (int)dtype_bytes(dev->dtype);

    return unit > 1 ? (c + unit - 1) / unit * unit : c;
}

/* Pending normalisation + activation of a value: readers see act(fma(x, scale[k], shift[k])), act(t) = t > 0 ? t : slope[k] * t.
 * All three point to c floats in device memory. Spatial padding is zero *after* it. */
struct affine {
    const float *scale, *shift, *slope;
};

/* What an op reads: raw numbers and what is pending on them. act.scale == NULL: nothing is pending. */
struct operand {
    struct tensor x;
    struct affine act;
};

struct conv {
    int stride, pad; /* same in both directions; kernel size and channels come from the parameter */
};

/* Which passes over a convolution will come; each means those before it too, but of data gradients there is one. */
enum conv_passes {
    CONV_FORWARD,
    CONV_WEIGHTS,
    CONV_DATA,     /* dx is overwritten: beta = 0 */
    CONV_DATA_ADD, /* beta = 1: another reader of x has written it before */
};

/* What conv_plan() has come to so far. */
struct conv_readiness {
    int plans, compiled; /* convolutions made ready; of these, by a compiler */
};

enum act_kind { ACT_LINEAR, ACT_LEAKY, ACT_RELU, ACT_LOGISTIC, ACT_TANH };
#define LEAKY_SLOPE 0.1f /* of ACT_LEAKY, darknet's; specs yolov3 section 1.3 */

struct pooling {
    int size, stride;
    int pad_total; /* darknet: sum of both sides; a window starts at i * stride - pad_total / 2 */
};

/* One YOLO head; see specs yolov3 section 4. All lengths in pixels of the network input. */
enum { YOLO_MAX_ANCHORS = 32 };
struct yolo_head {
    int nanchors, mask[YOLO_MAX_ANCHORS]; /* anchors of this head, as indices into anchor[] */
    int ntotal;
    float anchor[YOLO_MAX_ANCHORS][2]; /* all anchors of the network, w and h */
    int classes;
    int net_w, net_h;
    float ignore_thresh, truth_thresh, assign_iou_thresh;
    float box_gain, obj_gain, noobj_gain, cls_gain;
};

/* Ground truth of the b images of one shard as an offset list: image i owns rows offset[i] .. offset[i + 1] - 1. Empty images are legal.
 * Device memory. */
struct box_list {
    const int32_t *offset; /* [b + 1] */
    const int32_t *cls;    /* [rows] */
    const float *box;      /* [rows][4]: centre x, centre y, width, height, divided by the network input's sides */
    int rows;
};

/* Loss terms of a head, summed over the images of a shard, unweighted; YOLO_TOTAL is the optimised objective (weighted by the gains). */
enum yolo_term {
    YOLO_BOX,
    YOLO_OBJ,
    YOLO_NOOBJ,
    YOLO_CLS,
    YOLO_TOTAL,
    YOLO_POSITIVES,
    YOLO_IGNORED,
    YOLO_SUM_IOU,
    YOLO_RECALL50,
    YOLO_RECALL75,
    YOLO_SUM_OBJ_POS,
    YOLO_TERMS
};

/* One candidate box of the decoder: network-input pixels, corner form. */
struct candidate {
    float x1, y1, x2, y2;
    float score; /* objectness * class probability */
    int32_t cls;
    int32_t slot; /* head by head, then anchor, row, column: breaks ties */
};

struct sgd {
    float lr, momentum, decay; /* decay is 0 where it does not apply */
    float scale;               /* multiplies the gradient first: clipping. 1: off */
    float ema_decay;           /* of the item's average, where it has one */
};

/* One parameter of an optimizer step. */
struct sgd_item {
    struct param *param;
    float *momentum;   /* [count] */
    const float *grad; /* [count] */
    float *ema;        /* [count], or NULL: a moving average of the weights is not kept */
    struct sgd sgd;
};

/* Running statistics of one normalisation. */
struct running_item {
    struct param *mean, *var; /* [c] each */
    size_t at;                /* where its batch statistics begin in a shard's record, doubles */
    bool sync;                /* all shards are one batch: from their merged statistics */
};

/* Where sums of [c] doubles go as gradients of a parameter: dst[v][k] = beta * dst[v][k] + (float)sum of shard v. */
struct sums_dest {
    float *const *dst;
    float beta;
};

/* A canonical-tree leaf or subtree over shards [lo, hi). See core/tree.h. */
struct tree_part {
    int lo, hi;
    const float *data;
};

enum precision { PRECISION_FP32, PRECISION_TF32, PRECISION_BF16 }; /* of activations and products; sums are fp32 in all */

struct device_options {
    int threads;     /* CPU: compute threads; 0: as many as the process may use */
    const char *isa; /* CPU only: "avx512", "avx2", "generic"; NULL or "auto": the best this CPU has */
    enum precision precision;
};

/* Work queued on a device up to some moment. The CPU's is passed as soon as it is made. */
struct device_mark;

enum { DEVICE_MAX_VERSIONS = 12 };

/* What a rank says of its device when it starts, and what a run's identity holds. */
struct device_info {
    char name[96], uuid[64]; /* product name; "" where there is no UUID */
    int64_t memory_bytes;    /* all of it */
    int devices;             /* of this backend that the process sees; it uses the first */
    int nversions;           /* "driver" "13.0", "cudnn" "9.19.0" ... */
    struct {
        char name[24], value[64];
    } version[DEVICE_MAX_VERSIONS];
};

struct device_ops {
    unsigned abi; /* stays first; the loader refuses any other number */
    const char *name;
    const char *version; /* DETD_VERSION of the sources it was built from */
    /* 0, or the one sentence why this machine cannot run it: no driver, no GPU, a library that is missing or too old (found, needed). Opens
     * nothing. */
    int (*available)(struct err *err);
    int (*open)(int index, const struct device_options *opt, struct device **ret_dev, struct err *err);
    void (*close)(struct device *dev);
    void (*info)(struct device *dev, struct device_info *ret);
    /* From the next op on. Never while a tape holds records. May change dev->merges. Devices that know one way to compute ignore it. */
    void (*set_tier)(struct device *dev, enum tier tier);
    int (*sync)(struct device *dev, struct err *err);
    /* Marks: mark() notes what is queued on dev so far (a mark may be used again), wait() makes what is queued on dev from now on, on
     * another queue of the same backend, start after it; reach() makes the host wait for it. NULL: out of memory. */
    struct device_mark *(*mark_new)(struct device *dev);
    void (*mark_free)(struct device *dev, struct device_mark *m);
    int (*mark)(struct device *dev, struct device_mark *m, struct err *err);
    int (*wait)(struct device *dev, struct device_mark *m, struct err *err);
    int (*reach)(struct device *dev, struct device_mark *m, struct err *err);
    /* 256-byte aligned device memory (64 on the CPU), zeroed before anything that any queue is given later. NULL: out of memory. */
    void *(*alloc)(struct device *dev, size_t bytes);
    void (*free)(struct device *dev, void *ptr);
    /* Host memory that the device copies from and to without a stop in between (pinned), 64-byte aligned, zeroed. NULL: out of memory. */
    void *(*host_alloc)(struct device *dev, size_t bytes);
    void (*host_free)(struct device *dev, void *ptr);
    /* Any host memory; it may be rewritten as soon as upload() returns. download() waits until the bytes are there. */
    int (*upload)(struct device *dev, void *dst, const void *host, size_t bytes, struct err *err);
    int (*download)(struct device *dev, void *host, const void *src, size_t bytes, struct err *err);
    /* Between host_alloc() memory and device memory, in either direction, or inside device memory: queued; host memory is the device's
     * until sync() or a mark after it is reached. */
    int (*copy_async)(struct device *dev, void *dst, const void *src, size_t bytes, struct err *err);
    int (*zero)(struct device *dev, void *dst, size_t bytes, struct err *err);
    void (*param_release)(struct device *dev, struct param *p); /* frees p->derived */

    /* Collectives over device memory (worker/comm/comm.h), one rank a device: COMM_GRAD is queued on `grad`, COMM_SYNC on `sync`. link_id()
     * makes the text that rank 0 gives to all. Both NULL: ranks of this backend meet in shared memory. */
    int (*link_id)(char *ret, size_t size, struct err *err);
    int (*link_open)(struct device *sync, struct device *grad, const struct comm_options *opt, const char *id, struct comm **ret_comm,
                     struct err *err);

    /* y = x in y's dtype; images on their way in. */
    int (*cast)(struct device *dev, struct tensor *y, const struct tensor *x, int nshards, struct err *err);

    /* A hint: makes ready what a convolution of this shape, into a value of device_stride(), will need in the device's tier, without waiting
     * for it (data of x is NULL). NULL: nothing needs to be made ready. */
    int (*conv_plan)(struct device *dev, const struct tensor *x, const struct conv *cv, const struct param *w, bool bias,
                     enum conv_passes passes, int nshards, struct err *err);
    /* Waits until all is ready that conv_plan() was told of; what cannot be shows when it is computed. NULL where that is. */
    int (*conv_ready)(struct device *dev, struct conv_readiness *ret, struct err *err);
    /* The choices of algorithm made so far, as sorted text lines: part of a run's identity. Host memory, caller frees with free(). NULL:
     * none to make. */
    char *(*plans)(struct device *dev);
    /* conv.c. y = conv(act(x), w) + bias (bias may be NULL). y may be a slice. stats (may be NULL): stats[v] gets, as doubles in device
     * memory, count, mean[k], M2[k] (sum of squared deviations) of y over the shard's pixels: slabs cut by shape, merged pairwise (Chan).
     */
    int (*conv_fwd)(struct device *dev, struct tensor *y, const struct operand *x, const struct conv *cv, struct param *w,
                    const float *bias, double *const *stats, int nshards, struct err *err);
    /* dx (gradient of act(x), i.e. after activation) = beta * dx + conv_transpose(dy, w). */
    int (*conv_bwd_data)(struct device *dev, struct tensor *dx, float beta, const struct tensor *dy, const struct conv *cv, struct param *w,
                         int nshards, struct err *err);
    /* dw[v] (KRSC floats of shard v) = beta * dw[v] + gradient; slabs cut by the shard's shape alone. Where dev->merges, here, in
     * conv_bwd_bias and in norm_bwd_reduce: all entries may be one address, which gets the sum over all local shards, added in an order of the
     * device's choice. */
    int (*conv_bwd_weights)(struct device *dev, float *const *dw, float beta, const struct operand *x, const struct tensor *dy,
                            const struct conv *cv, const struct param *w, int nshards, struct err *err);
    /* db[v][k] = beta * db[v][k] + sum of dy over the shard's pixels, in slabs, pairwise. */
    int (*conv_bwd_bias)(struct device *dev, float *const *db, float beta, const struct tensor *dy, int nshards, struct err *err);

    /* norm.c. From stats ([2c + 1] doubles as conv_fwd writes; one per shard, or nshards times the same pointer for SyncBN): mean, invstd
     * (biased variance, eps inside the root), scale = gamma * invstd, shift = beta - mean * scale (formed in double); each [c] floats per
     * shard. */
    int (*norm_prepare)(struct device *dev, float *const *mean, float *const *invstd, float *const *scale, float *const *shift,
                        const double *const *stats, const float *gamma, const float *beta, float eps, int c, int nshards, struct err *err);
    /* Statistics of y, as conv_fwd's, and what norm_prepare makes of them, for a device on which conv_fwd would read y again for them. NULL:
     * its conv_fwd sees them go by. */
    int (*norm_batch)(struct device *dev, double *const *stats, float *const *mean, float *const *invstd, float *const *scale,
                      float *const *shift, const struct tensor *y, const float *gamma, const float *beta, float eps, int nshards,
                      struct err *err);
    /* As norm_prepare from running statistics, one result for all shards (evaluation, frozen normalisation). */
    int (*norm_prepare_running)(struct device *dev, float *invstd, float *scale, float *shift, const float *mean, const float *var,
                                const float *gamma, const float *beta, float eps, int c, struct err *err);
    /* With dy = da * act'(fma(x, scale, shift)) and xhat = (x - mean) * invstd: sums[v] = [2c] doubles, sum dy then sum dy * xhat, slabs,
     * pairwise. dest: of the former, then of the latter. */
    int (*norm_bwd_reduce)(struct device *dev, double *const *sums, const struct sums_dest dest[2], const struct operand *x,
                           const float *const *mean, const float *const *invstd, const struct tensor *da, int nshards, struct err *err);
    /* dx = scale * (dy - S0/n - xhat * S1/n) with S = sums[v], n = stats[v][0] (over all shards with SyncBN); dx may be da itself.
     * sums == NULL: frozen statistics, dx = scale * dy; mean, invstd and stats are not read. */
    int (*norm_bwd_apply)(struct device *dev, struct tensor *dx, const struct tensor *da, const struct operand *x, const float *const *mean,
                          const float *const *invstd, const double *const *sums, const double *const *stats, int nshards, struct err *err);
    /* SyncBN: dst = the statistics [2c + 1] of all shards merged in tree order (core/tree.h tree_moments()); dst[j] = the tree over
     * rows[.][j]. */
    int (*merge_moments)(struct device *dev, double *dst, const double *const *stats, int nstats, int c, struct err *err);
    int (*merge_sums)(struct device *dev, double *dst, const double *const *rows, int nrows, size_t count, struct err *err);
    /* One update of running statistics, of every item: running = (1 - momentum) * running + momentum * value. The values are mean and
     * M2 / (count - 1) of all shards merged (merge_moments()) where the item is sync, else the means over shards, in tree order, of each
     * shard's. One pixel has no unbiased variance: such a shard is left out of the variances' mean, and where no variance is left (merged:
     * one pixel in all) var keeps its value. stats: a record of each of all V shards, each of at least one pixel; an item's [2c + 1] stand
     * at its place in each. *skip != 0: nothing is written. Bumps the parameters' versions. */
    int (*norm_running)(struct device *dev, const struct running_item *items, int nitems, const double *const *stats, int nstats,
                        float momentum, const int32_t *skip, struct err *err);

    /* act.c, pool.c, resample.c: all read pending values */
    int (*act_fwd)(struct device *dev, enum act_kind kind, struct tensor *y, const struct operand *x, int nshards, struct err *err);
    /* dx = beta * dx + dy * act'(y), the slope expressed by the output y (leaky: y > 0). Materialised values with ACT_LINEAR: plain
     * accumulate. */
    int (*act_bwd)(struct device *dev, enum act_kind kind, struct tensor *dx, float beta, const struct tensor *dy, const struct tensor *y,
                   int nshards, struct err *err);
    int (*add_fwd)(struct device *dev, struct tensor *y, const struct operand *a, const struct operand *b, int nshards, struct err *err);
    int (*maxpool_fwd)(struct device *dev, const struct pooling *p, struct tensor *y, const struct operand *x, int nshards,
                       struct err *err);
    /* First maximum in row-major order of a window wins. dx = beta * dx, then dy of the windows an input won is added one by one in
     * row-major order of the outputs: one owner per input, so overlapping windows need no atomics. */
    int (*maxpool_bwd)(struct device *dev, const struct pooling *p, struct tensor *dx, float beta, const struct tensor *dy,
                       const struct operand *x, int nshards, struct err *err);
    int (*upsample_fwd)(struct device *dev, int factor, struct tensor *y, const struct operand *x, int nshards, struct err *err);
    int (*upsample_bwd)(struct device *dev, int factor, struct tensor *dx, float beta, const struct tensor *dy, int nshards,
                        struct err *err);

    /* yolo.c. dlogits (NULL in validation) = grad_scale * d total / d logits, every element written. terms[v]: [YOLO_TERMS] doubles. */
    int (*yolo_loss)(struct device *dev, const struct yolo_head *head, struct tensor *dlogits, float grad_scale, double *const *terms,
                     const struct tensor *logits, const struct box_list *truth, int nshards, struct err *err);
    /* Candidates with score > conf of image i of one shard, in slot order then class; at most cap, *ret_count is the number found (may pass
     * cap). Host memory; waits. */
    int (*yolo_decode)(struct device *dev, const struct yolo_head *head, const struct tensor *logits, int image, float conf, int first_slot,
                       struct candidate *ret, int cap, int *ret_count, struct err *err);

    /* reduce.c, optimizer.c: flat fp32 arrays */
    /* dst[i] = the canonical tree over `parts` (ascending, adjacent, together one subtree; where they are none, what is left over is added
     * from the right). dst may be one of them. */
    int (*tree_add)(struct device *dev, float *dst, const struct tree_part *parts, int nparts, size_t count, struct err *err);
    /* blocks[j] = sum of squares of g[1024 j .. 1024 j + 1023] (16 virtual lanes, pairwise), as double. */
    int (*sum_squares)(struct device *dev, double *blocks, const float *g, size_t count, struct err *err);
    /* Of every item: m = momentum * m + (scale * g + decay * w); w = w - lr * m; ema = w + ema_decay * (ema - w). *skip != 0: nothing is
     * written. Bumps the parameters' versions. */
    int (*sgd_step)(struct device *dev, const struct sgd_item *items, int nitems, const int32_t *skip, struct err *err);
    /* Evidence hash of `bytes` bytes (determinism 9.2): out[0], out[1] (host) += the two lanes' sums, words counted from first_word. Waits.
     */
    int (*hash)(struct device *dev, uint64_t out[2], const void *data, size_t bytes, uint64_t kappa, uint64_t first_word, struct err *err);
};

/* The one symbol a backend exports. The CPU device is built once per ISA: cpu_backend_avx512(), _avx2(), _generic(). */
const struct device_ops *detd_backend(void);

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/nvcc_bodies.cu - every kernel body as device code: `make
 * check` compiles this file where nvcc exists and links it nowhere. It finds bodies that are valid only in C, and
 * bodies that call functions a GPU does not have. */
#include "worker/kernels/act.h"
#include "worker/kernels/box.h"
#include "proto/hash/hash_keys.h"
#include "worker/kernels/kernel.h"
#include "worker/kernels/mask_bits.h"
#include "worker/kernels/math.h"
#include "worker/kernels/moments.h"
#include "worker/kernels/norm.h"
#include "worker/kernels/optim.h"
#include "worker/kernels/philox.h"
#include "worker/kernels/polygon.h"
#include "worker/kernels/pool.h"
#include "worker/kernels/reduce.h"
#include "worker/kernels/resample.h"
#include "worker/kernels/rcnn.h"
#include "worker/kernels/roi.h"
#include "worker/kernels/rpn.h"
#include "worker/kernels/view.h"
#include "worker/kernels/yolo.h"

__global__ void bodies_view(float *y, size_t *at, const uint8_t *rgb, struct view_colours colours)
{
    y[0] = view_colour(&colours, rgb, 1);
    at[0] = view_quarter(1, 2, 3, 3);
}

__global__ void bodies_math(float *y, double *d, const float *x)
{
    y[0] = math_exp(x[0]);
    y[1] = math_log(x[1]);
    y[2] = math_log1p(x[2]);
    y[3] = math_sigmoid(x[3]);
    y[4] = math_tanh(x[4]);
    y[5] = math_bce(x[5], x[6]);
    d[0] = math_exp64(d[1]);
    d[2] = math_log64(d[3]);
    d[4] = math_pow64(d[5], d[6]);
}

__global__ void bodies_polygon(int *row, const double *xy)
{
    struct polygon_edge e = polygon_edge(xy, xy + 2);
    int first, last;

    polygon_columns(&e, 28, &first, &last);
    for (int c = first; c <= last; c++)
        row[c] = polygon_row(&e, c, 28);
}

__global__ void bodies_act(float *y, const float *x, struct affine p, int kind, float beta)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = act_value((enum act_kind)kind, act_pending(x[i], p.scale[i], p.shift[i], p.slope[i]));

    y[i] = act_store(beta, &y[i], act_grad((enum act_kind)kind, x[i], v));
}

__global__ void bodies_norm(float *y, double *stats, const float *x, const float *da, struct affine p, const float *mean,
                            const float *invstd)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, per = norm_slab_pixels(64);
    struct norm_channel n = norm_channel(stats[0], stats[1], x[0], x[1], 1e-5f);
    struct moments a = { stats[0], stats[1], stats[2] }, b = { stats[3], stats[4], stats[5] };
    float dy = norm_dy(da[i], x[i], n.scale, n.shift, p.slope[i]);

    norm_slab(y + 2 * i, x + i, 64, da + i, 64, 0, per, p.scale[i], p.shift[i], p.slope[i], mean[i], invstd[i]);
    y[i] = norm_dx(dy, norm_xhat(x[i], n.mean, n.invstd), n.scale, y[2 * i], y[2 * i + 1]);
    y[i] = norm_running_value(y[i], norm_unbiased(moments_merge(a, b).m2, a.count), 0.03f);
}

__global__ void bodies_pool(float *y, float *dx, const float *dy, struct pooling p, struct maxpool_plane m, int factor)
{
    int oy = blockIdx.y, ox = blockIdx.x * blockDim.x + threadIdx.x, oh = maxpool_out(m.h, &p), ow = maxpool_out(m.w, &p), win;

    y[oy * ow + ox] = maxpool_element(&p, &m, oy, ox, &win);
    dx[oy * m.w + ox] = maxpool_grad(&p, &m, dy, m.stride, oh, ow, oy, ox, dx[oy * m.w + ox]);
    dx[win] = maxpool4_grad(y[0], y[1], y[2], y[3], ox & 3, dy[ox], dx[win]);
    dx[win] += upsample_grad(dy, m.stride, ow, factor, oy, ox);
}

__global__ void bodies_roi(float *y, float *dx, const float *x, struct roi_align roi, const float *box, struct roi_table t, int h, int w)
{
    int row = blockIdx.x, i = threadIdx.y, j = threadIdx.x, level = roi_level(&roi, box + 4 * row);
    struct roi_axis a = roi_axis(&roi, box[4 * row], box[4 * row + 2], roi.scale[level], w);
    struct roi_view v = roi_view(&t, row);

    roi_bands(&t, row, ROI_X)[j] = roi_band(&roi, &a, j, roi_weights(&t, row, ROI_X));
    if (roi_touches(&t.place[row], level, 0, i, h, j, w))
        y[row] = roi_value(&v, i, j, x, w, 1);
    dx[i * w + j] = roi_gradient(&v, roi.pool, i, j, y, 1, dx[i * w + j]);
}

__global__ void bodies_yolo(double *terms, float *dz, const float *z, struct yolo_head head, struct canvas net, struct box_list list,
                            int32_t *owner, uint32_t *bits, struct candidate *ret)
{
    int slot = blockIdx.x * blockDim.x + threadIdx.x, image = blockIdx.y, gh = net.h / 32, gw = net.w / 32;
    struct yolo_truth truth = yolo_truth(&list, image);
    const float *box = truth.box + 4 * threadIdx.x;
    int best = yolo_best_anchor(&head, net, box[2], box[3]), kind = yolo_claim(&head, net, box, best, 0);
    struct box b = yolo_box_pixels(&head, z, yolo_cell(slot, gh, gw, net));
    struct candidate c = { b.x1, b.y1, b.x2, b.y2, yolo_score(math_sigmoid(z[4]), z[5]), 0, slot };

    atomicMax(&owner[yolo_slot(box, 0, gh, gw)], yolo_owner(kind, (int)threadIdx.x));
    yolo_slot_loss(terms, dz, 1.0f, &head, z, yolo_cell(slot, gh, gw, net), &truth, owner[slot], bits);
    ret[slot] = c;
}

__global__ void bodies_flat(float *w, float *m, const float *g, size_t count, struct sgd s, struct adam a, struct clip *clip,
                            const struct tree_part *parts, int nparts, double *blocks, uint64_t *sums)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t counter[4] = { (uint32_t)i, 1, 2, 3 }, key[2] = { 4, 5 }, word[4];

    philox4x32(counter, key, word);
    w[i] = tree_element(parts, nparts, i) + philox_to_uniform(word[0]);
    sgd_element(&w[i], &m[i], g[i], 0.1f, 0.01f, &s);
    adam_element(&w[i], &m[i], &m[i + count], g[i], 0.1f, 0.01f, &a);
    adamw_element(&w[i], &m[i], &m[i + count], g[i], 0.1f, 0.01f, &a);
    *clip = clip_of(blocks[i], 1.0, 3.0);
    blocks[i] = sum_squares_block(g + i * SUM_BLOCK, count);
    sums[i] = hash_word(hash_product(word[1], HASH_KEY[i]), 7, i, HASH_MUL_0);
}

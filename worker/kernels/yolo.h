/* SPDX-License-Identifier: Apache-2.0 */ /* worker/kernels/yolo.h - one YOLO head: decoding, target assignment and loss
 * of one slot (anchor position, row, column). Rule `darknet` with all options, specs yolov3 sections 3, 4.1, 4.3, 4.5,
 * 4.6. Logits are NHWC; channel of anchor position a is a * (5 + classes) + k, k = 0 x, 1 y, 2 w, 3 h, 4 objectness, 5
 * ... classes. Lengths are divided by the network input's sides. scale_xy and new_coords: AlexeyAB/darknet 59596d7,
 * src/yolo_layer.c (get_yolo_box, delta_yolo_box, delta_yolo_class). With new_coords darknet's convolution in front has
 * a logistic activation; here its outputs stay logits and the head applies that activation. */
#pragma once
#include <stdbool.h>

#include "worker/ops/yolo.h"
#include "worker/kernels/box.h"
#include "worker/kernels/math.h"

enum {
    YOLO_EXTRA = 1, /* a match by assign_iou_thresh */
    YOLO_BEST = 2,  /* the best anchor of all: beats an extra match in the same slot, in any file order */
    /* owner word: kind << 28 | row of the image + 1; the maximum is the winner, so order does not matter */
    YOLO_KIND_SHIFT = 28,
    /* slots that form one chain of loss terms; slabs of an image add pairwise, then its images, in double */
    YOLO_SLAB = 64
};

/* Place of a slot. Slots of an image are numbered anchor position, row, column. */
struct yolo_cell {
    int a, row, col, gh, gw; /* gh x gw cells */
    struct canvas net;       /* size of the network's input */
};

KERNEL_FN struct yolo_cell yolo_cell(int slot, int gh, int gw, struct canvas net)
{
    struct yolo_cell c;

    c.a = slot / (gh * gw);
    c.row = slot / gw % gh;
    c.col = slot % gw;
    c.gh = gh;
    c.gw = gw;
    c.net = net;
    return c;
}

/* Cell of a coordinate g = x * cells: 0 .. cells - 1 also for numbers outside (a centre may be exactly 1, or read as 1)
 * and NaN. */
KERNEL_FN int yolo_cell_index(float g, int cells)
{
    float last = (float)(cells - 1);

    if (!(g > 0.0f))
        return 0;
    return g < last ? (int)g : cells - 1;
}

KERNEL_FN float yolo_clamp01(float x)
{
    return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
}

/* Width of anchor i; anchors are pixels of the network input. */
KERNEL_FN float yolo_anchor_w(const struct yolo_head *head, struct canvas net, int i)
{
    return head->anchor[i][0] / (float)net.w;
}

KERNEL_FN float yolo_anchor_h(const struct yolo_head *head, struct canvas net, int i)
{
    return head->anchor[i][1] / (float)net.h;
}

/* Centre of a box within its cell: 0 .. 1, with scale_xy above 1 a margin more on both sides. */
KERNEL_FN float yolo_offset(const struct yolo_head *head, float z)
{
    return head->scale_xy * math_sigmoid(z) - 0.5f * (head->scale_xy - 1.0f);
}

/* Side of a box, as a factor of its anchor's. exp is cut at e^10 so that wild logits stay finite. */
KERNEL_FN float yolo_stretch(const struct yolo_head *head, float z)
{
    float p;

    if (!head->new_coords)
        return math_exp(z > 10.0f ? 10.0f : z);
    p = math_sigmoid(z);
    return 4.0f * (p * p);
}

/* Decodes the box of a slot from its logits. */
KERNEL_FN struct box yolo_box(const struct yolo_head *head, const float *z, struct yolo_cell c)
{
    int n = head->mask[c.a];

    return box_of_centre((yolo_offset(head, z[0]) + (float)c.col) / (float)c.gw, (yolo_offset(head, z[1]) + (float)c.row) / (float)c.gh,
                         yolo_anchor_w(head, c.net, n) * yolo_stretch(head, z[2]),
                         yolo_anchor_h(head, c.net, n) * yolo_stretch(head, z[3]));
}

/* The anchor of the whole network that fits the shape best; ties: the lowest. */
KERNEL_FN int yolo_best_anchor(const struct yolo_head *head, struct canvas net, float w, float h)
{
    int best = 0;
    float best_iou = -1.0f;

    for (int i = 0; i < head->ntotal; i++) {
        float iou = box_shape_iou(w, h, yolo_anchor_w(head, net, i), yolo_anchor_h(head, net, i));

        if (iou > best_iou) {
            best_iou = iou;
            best = i;
        }
    }
    return best;
}

/* How a box [cx, cy, w, h] claims anchor position a of its cell: 0 (not), YOLO_EXTRA or YOLO_BEST. best:
 * yolo_best_anchor() of it. */
KERNEL_FN int yolo_claim(const struct yolo_head *head, struct canvas net, const float *box, int best, int a)
{
    int n = head->mask[a];

    if (n == best)
        return YOLO_BEST;
    return box_shape_iou(box[2], box[3], yolo_anchor_w(head, net, n), yolo_anchor_h(head, net, n)) > head->assign_iou_thresh ? YOLO_EXTRA
                                                                                                                             : 0;
}

/* The slot of an image that a box claims at anchor position a. */
KERNEL_FN int yolo_slot(const float *box, int a, int gh, int gw)
{
    return (a * gh + yolo_cell_index(box[1] * (float)gh, gh)) * gw + yolo_cell_index(box[0] * (float)gw, gw);
}

KERNEL_FN int32_t yolo_owner(int kind, int row)
{
    return (int32_t)((uint32_t)kind << YOLO_KIND_SHIFT) + row + 1;
}

KERNEL_FN int yolo_owner_row(int32_t owner)
{
    return (owner & ((1 << YOLO_KIND_SHIFT) - 1)) - 1;
}

/* Ground truth of one image: rows first .. first + count - 1 of the box list. */
struct yolo_truth {
    const float *box;   /* [count][4] */
    const int32_t *cls; /* [count] */
    int count;
};

KERNEL_FN struct yolo_truth yolo_truth(const struct box_list *list, int image)
{
    struct yolo_truth t;
    int first = list->offset[image];

    t.box = list->box + (size_t)first * 4;
    t.cls = list->cls + first;
    t.count = list->offset[image + 1] - first;
    return t;
}

KERNEL_FN struct box yolo_truth_box(const float *box)
{
    return box_of_centre(box[0], box[1], box[2], box[3]);
}

/* The row of the image's box that overlaps the prediction most; -1 if no box overlaps it. */
KERNEL_FN int yolo_best_truth(const struct yolo_truth *t, struct box pred, float *ret_iou)
{
    int best = -1;

    *ret_iou = 0.0f;
    for (int i = 0; i < t->count; i++) {
        float iou = box_iou(pred, yolo_truth_box(t->box + (size_t)i * 4));

        if (iou > *ret_iou) {
            *ret_iou = iou;
            best = i;
        }
    }
    return best;
}

/* Loss of a logit with the wanted logistic `target`: cross-entropy, or half the squared difference with new_coords. */
KERNEL_FN float yolo_logit_loss(const struct yolo_head *head, float z, float target)
{
    float d;

    if (!head->new_coords)
        return math_bce(z, target);
    d = math_sigmoid(z) - target;
    return 0.5f * (d * d);
}

/* Its derivative by z. */
KERNEL_FN float yolo_logit_slope(const struct yolo_head *head, float z, float target)
{
    float p = math_sigmoid(z);

    return head->new_coords ? (p - target) * p * (1.0f - p) : p - target;
}

/* Target of the logistic of x or y, for a centre t (0 .. 1) of its cell. The loss counts scale_xy times, so that its
 * slope is yolo_offset() - t, as in darknet. */
KERNEL_FN float yolo_centre_target(const struct yolo_head *head, float t)
{
    return (t + 0.5f * (head->scale_xy - 1.0f)) / head->scale_xy;
}

/* Adds the loss of w or h and returns its slope: half the squared difference of logarithms, of square roots with
 * new_coords. The side should be `wanted` times the anchor's. */
KERNEL_FN float yolo_side_loss(float *loss, const struct yolo_head *head, float z, float wanted)
{
    float p, d;

    if (!head->new_coords) {
        d = z - math_log(wanted);
        *loss += 0.5f * (d * d);
        return d;
    }
    p = math_sigmoid(z);
    d = p - sqrtf(wanted / 4.0f);
    *loss += 0.5f * (d * d);
    return d * p * (1.0f - p);
}

/* Coordinate terms of a positive slot: returns the loss, writes the four slopes (unscaled). */
KERNEL_FN float yolo_box_loss(float dz[4], const struct yolo_head *head, const float *z, const float *box, struct yolo_cell c)
{
    int n = head->mask[c.a];
    float m = 2.0f - box[2] * box[3]; /* small boxes count up to twice */
    float tx = yolo_centre_target(head, yolo_clamp01(box[0] * (float)c.gw - (float)c.col));
    float ty = yolo_centre_target(head, yolo_clamp01(box[1] * (float)c.gh - (float)c.row));
    float loss = head->scale_xy * yolo_logit_loss(head, z[0], tx) + head->scale_xy * yolo_logit_loss(head, z[1], ty);

    dz[0] = m * (head->scale_xy * yolo_logit_slope(head, z[0], tx));
    dz[1] = m * (head->scale_xy * yolo_logit_slope(head, z[1], ty));
    dz[2] = m * yolo_side_loss(&loss, head, z[2], box[2] / yolo_anchor_w(head, c.net, n));
    dz[3] = m * yolo_side_loss(&loss, head, z[3], box[3] / yolo_anchor_h(head, c.net, n));
    return m * loss;
}

/* The classes a positive slot should show: bits of all boxes that own it, or (bits NULL) one class. */
struct yolo_wanted {
    const uint32_t *bits;
    int cls;
};

KERNEL_FN float yolo_class_target(struct yolo_wanted wanted, int k)
{
    bool on = wanted.bits ? (wanted.bits[k / 32] >> (k % 32) & 1u) != 0 : k == wanted.cls;

    return on ? 1.0f : 0.0f;
}

KERNEL_FN float yolo_class_weight(const struct yolo_head *head, int k)
{
    return head->class_weight ? head->class_weight[k] : 1.0f;
}

/* Loss of class k with weight w. */
KERNEL_FN double yolo_class_term(const struct yolo_head *head, float w, float z, float target)
{
    return (double)w * (double)yolo_logit_loss(head, z, target);
}

KERNEL_FN float yolo_class_slope(const struct yolo_head *head, float gain, float w, float z, float target)
{
    return gain * w * yolo_logit_slope(head, z, target);
}

/* Class terms of a positive slot; dz and z point to the first class. dz may be NULL. */
KERNEL_FN double yolo_class_loss(float *dz, float gain, const float *z, const struct yolo_head *head, struct yolo_wanted wanted)
{
    double sum = 0.0;

    for (int k = 0; k < head->classes; k++) {
        float t = yolo_class_target(wanted, k), w = yolo_class_weight(head, k);

        sum += yolo_class_term(head, w, z[k], t);
        if (dz)
            dz[k] = yolo_class_slope(head, gain, w, z[k], t);
    }
    return sum;
}

/* A slot that answers for `box`, which its prediction overlaps by iou: adds all terms, writes the slopes of all but the
 * classes. k: the sum of the classes' losses. dz may be NULL. */
KERNEL_FN void yolo_positive_loss(double terms[YOLO_TERMS], float dz[5], float grad_scale, const struct yolo_head *head, const float *z,
                                  struct yolo_cell c, const float *box, float iou, double k)
{
    float dbox[4], sigma = math_sigmoid(z[4]);
    double b = (double)yolo_box_loss(dbox, head, z, box, c), o = (double)yolo_logit_loss(head, z[4], 1.0f);

    terms[YOLO_BOX] += b;
    terms[YOLO_OBJ] += o;
    terms[YOLO_CLS] += k;
    terms[YOLO_TOTAL] += (double)head->box_gain * b + (double)head->obj_gain * o + (double)head->cls_gain * k;
    terms[YOLO_POSITIVES] += 1.0;
    terms[YOLO_SUM_IOU] += (double)iou;
    terms[YOLO_RECALL50] += iou > 0.5f ? 1.0 : 0.0;
    terms[YOLO_RECALL75] += iou > 0.75f ? 1.0 : 0.0;
    terms[YOLO_SUM_OBJ_POS] += (double)sigma;
    if (!dz)
        return;
    for (int i = 0; i < 4; i++)
        dz[i] = grad_scale * head->box_gain * dbox[i];
    dz[4] = grad_scale * head->obj_gain * yolo_logit_slope(head, z[4], 1.0f);
}

/* A slot that answers for no box: objectness costs, unless the prediction is good enough to be ignored. Returns its
 * slope; those of the box and the classes are 0. */
KERNEL_FN float yolo_negative_loss(double terms[YOLO_TERMS], float grad_scale, const struct yolo_head *head, const float *z, bool ignored)
{
    double o = ignored ? 0.0 : (double)yolo_logit_loss(head, z[4], 0.0f);

    terms[YOLO_NOOBJ] += o;
    terms[YOLO_TOTAL] += (double)head->noobj_gain * o;
    terms[YOLO_IGNORED] += ignored ? 1.0 : 0.0;
    return ignored ? 0.0f : grad_scale * head->noobj_gain * yolo_logit_slope(head, z[4], 0.0f);
}

/* The box that a slot answers for: row is -1 (no box) or the row of its box in the image, which its prediction overlaps
 * by iou. */
struct yolo_answer {
    int row;
    float iou;
    struct yolo_wanted wanted; /* if there is a row */
    bool ignored;              /* if there is no row */
};

/* owner: 0 or the winning claim; bits: classes of the claims of the winning kind. A slot without an owner answers for a
 * box alone if its prediction overlaps that box by more than truth_thresh; if by more than ignore_thresh, it costs
 * nothing. */
KERNEL_FN struct yolo_answer yolo_answer(const struct yolo_head *head, const float *z, struct yolo_cell c, const struct yolo_truth *truth,
                                         int32_t owner, const uint32_t *bits)
{
    struct box pred = yolo_box(head, z, c);
    struct yolo_answer a;

    a.row = yolo_best_truth(truth, pred, &a.iou);
    a.ignored = a.iou > head->ignore_thresh;
    a.wanted.bits = owner != 0 ? bits : NULL;
    a.wanted.cls = -1;
    if (owner != 0) {
        a.row = yolo_owner_row(owner);
        a.iou = box_iou(pred, yolo_truth_box(truth->box + (size_t)a.row * 4));
    } else if (!(a.row >= 0 && a.iou > head->truth_thresh)) {
        a.row = -1;
    }
    if (a.row >= 0)
        a.wanted.cls = truth->cls[a.row];
    return a;
}

/* One slot: adds its loss terms and writes all 5 + classes gradients (dz may be NULL). z: the slot's logits; owner and
 * bits: see yolo_answer(). */
KERNEL_FN void yolo_slot_loss(double terms[YOLO_TERMS], float *dz, float grad_scale, const struct yolo_head *head, const float *z,
                              struct yolo_cell c, const struct yolo_truth *truth, int32_t owner, const uint32_t *bits)
{
    struct yolo_answer a = yolo_answer(head, z, c, truth, owner, bits);
    float slope;
    double k;

    if (a.row >= 0) {
        k = yolo_class_loss(dz ? dz + 5 : dz, grad_scale * head->cls_gain, z + 5, head, a.wanted);
        yolo_positive_loss(terms, dz, grad_scale, head, z, c, truth->box + (size_t)a.row * 4, a.iou, k);
        return;
    }
    slope = yolo_negative_loss(terms, grad_scale, head, z, a.ignored);
    for (int i = 0; dz && i < 5 + head->classes; i++)
        dz[i] = i == 4 ? slope : 0.0f;
}

/* Score of one class; never more than obj. */
KERNEL_FN float yolo_score(float obj, float class_logit)
{
    return obj * math_sigmoid(class_logit);
}

/* The slot's box in pixels of the network input. */
KERNEL_FN struct box yolo_box_pixels(const struct yolo_head *head, const float *z, struct yolo_cell c)
{
    struct box b = yolo_box(head, z, c);

    b.x1 *= (float)c.net.w;
    b.x2 *= (float)c.net.w;
    b.y1 *= (float)c.net.h;
    b.y2 *= (float)c.net.h;
    return b;
}

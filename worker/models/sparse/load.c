#include "worker/models/sparse/load.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/core/safetensors.h"
#include "worker/kernels/math.h"
#include "worker/models/arrays.h"
#include "worker/models/model.h"
#include "worker/models/registry.h"
#include "worker/models/sparse/network.h"
#include "worker/models/sparse/sparse.h"
#include "worker/models/weights.h"

struct load {
    struct arrays_file f;
    const struct sparse_network *n;
    int proposals, classes; /* their numbers in the file; 0: the file has no such arrays */
    bool lost_proposals, lost_classes;
};

/* ---- names ---- */

/* Beginnings of names in a stage, and mmdetection's. */
static const struct {
    const char *ours, *theirs;
} beginnings[] = {
    { "self_attn.", "attention.attn." },
    { "inst_interact.dynamic_layer.", "instance_interactive_conv.dynamic_layer." },
    { "inst_interact.norm1.", "instance_interactive_conv.norm_in." },
    { "inst_interact.norm2.", "instance_interactive_conv.norm_out." },
    { "inst_interact.out_layer.", "instance_interactive_conv.fc_layer." },
    { "inst_interact.norm3.", "instance_interactive_conv.fc_norm." },
    { "norm1.", "attention_norm." },
    { "norm2.", "instance_interactive_conv_norm." },
    { "norm3.", "ffn_norm." },
    { "linear1.", "ffn.layers.0.0." },
    { "linear2.", "ffn.layers.1." },
    { "cls_module.", "cls_fcs." },
    { "reg_module.", "reg_fcs." },
    { "class_logits.", "fc_cls." },
    { "bboxes_delta.", "fc_reg." },
};

static bool spell_mm(const struct rcnn_named *a, char *buf, size_t size)
{
    char ours[sizeof a->p->name];
    const char *boxes = "init_proposal_boxes.";

    if (a->part.place == (enum rcnn_place)SPARSE_PROPOSALS) {
        snprintf(buf, size, "rpn_head.%s", strncmp(a->p->name, boxes, strlen(boxes)) ? a->p->name : "init_proposal_bboxes.weight");
        return true;
    }
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++) {
        size_t len = (size_t)snprintf(ours, sizeof ours, "head.head_series.%d.%s", a->part.stage, beginnings[i].ours);

        if (strncmp(a->p->name, ours, len) != 0)
            continue;
        snprintf(buf, size, "roi_head.bbox_head.%d.%s%s", a->part.stage, beginnings[i].theirs, a->p->name + len);
        return true;
    }
    return false;
}

static bool spell(enum rcnn_spelling spelling, const struct rcnn_named *a, char *buf, size_t size)
{
    if (a->part.place < RCNN_PLACES)
        return rcnn_spell(spelling, &a->part, a->array, buf, size);
    if (spelling == RCNN_MM)
        return spell_mm(a, buf, size);
    snprintf(buf, size, "%s", a->p->name);
    return spelling == RCNN_D2;
}

static const char *group(const struct rcnn_named *a)
{
    static const char *const stages[SET_MAX_STAGES] = { "stage 1", "stage 2", "stage 3", "stage 4",  "stage 5",  "stage 6",
                                                        "stage 7", "stage 8", "stage 9", "stage 10", "stage 11", "stage 12" };

    if (a->part.place < RCNN_PLACES)
        return rcnn_group(a->part.place);
    return a->part.place == (enum rcnn_place)SPARSE_PROPOSALS ? "the proposals" : stages[a->part.stage];
}

/* ---- from files ---- */

/* The first side of a parameter's array in the file; 0: not there. */
static int side_of(const struct load *l, const struct param *p)
{
    const struct st_array *a = arrays_find(&l->f, &l->f.named[p->index]);

    return a && a->ndims > 0 ? (int)a->shape[0] : 0;
}

/* The first stage that the file has; stage 0 if it has none of them. */
static const struct sparse_stage *stage_of(const struct load *l)
{
    for (int i = 0; i < l->n->nstages; i++)
        if (side_of(l, l->n->stage[i].logits.bias) > 0)
            return &l->n->stage[i];
    return l->n->stage;
}

static int check_size(const struct load *l, const char *key, const struct param *p, struct err *err)
{
    int theirs = side_of(l, p);

    if (theirs == 0 || theirs == p->k)
        return 0;
    return err_field(err, ERR_DATA, key, "%s: the file has %d, the job %d", key, theirs, p->k);
}

static int check(struct arrays_file *f, struct err *err)
{
    struct load *l = (struct load *)f;
    const struct sparse_stage *first = stage_of(l);
    const char *heads = safetensors_meta(f->file, SPARSE_TRAIT_HEADS);
    int rc = check_size(l, "model.fpn_channels", l->n->front.lateral[0].w, err);

    if (rc >= 0)
        rc = check_size(l, "model.dynamic_channels", first->inner[0].gamma, err);
    if (rc >= 0)
        rc = check_size(l, "model.ffn_channels", first->wide.w, err);
    if (rc >= 0 && heads && strtol(heads, NULL, 10) != l->n->heads)
        rc = err_field(err, ERR_DATA, SPARSE_TRAIT_HEADS, "%s: the file has %.20s, the job %d", SPARSE_TRAIT_HEADS, heads, l->n->heads);
    l->proposals = side_of(l, l->n->boxes);
    l->classes = side_of(l, first->logits.bias);
    return rc;
}

static int put(struct arrays_file *f, const struct rcnn_named *a, const struct st_array *in, struct err *err)
{
    struct load *l = (struct load *)f;
    bool proposals = a->part.place == (enum rcnn_place)SPARSE_PROPOSALS && l->proposals != l->n->proposals;
    bool classes = a->part.place == (enum rcnn_place)SPARSE_CLASSES && l->classes != sparse_classes(f->m);

    l->lost_proposals |= proposals;
    l->lost_classes |= classes;
    return proposals || classes ? ARRAYS_LEFT_OUT : weights_put_array(f->m, a->p, in, false, err);
}

/* With other limits of deltas the stages silently compute something else. Files of other programs do not tell their
 * limits: the defaults of the program are assumed. */
static void say_clamp(const struct load *l)
{
    const char *told = safetensors_meta(l->f.file, SPARSE_TRAIT_CLAMP), *word = safetensors_meta(l->f.file, SPARSE_TRAIT_FLOOR);
    bool mm = l->f.spelling == RCNN_MM && !safetensors_meta(l->f.file, SPARSE_TRAIT_HEADS), ours;
    double theirs = told ? strtod(told, NULL) : mm ? SPARSE_MM_CLAMP : SPARSE_USUAL_CLAMP, clamp = sparse_clamp(l->f.m, &ours);
    bool floor = word ? strcmp(word, "true") == 0 : mm;

    if (fabs(theirs - clamp) > 1e-6)
        weights_say(l->f.m, "; its %s is %.16g, the job's is %.16g", SPARSE_TRAIT_CLAMP, theirs, clamp);
    if (floor != ours)
        weights_say(l->f.m, "; its %s is %s, the job's is %s", SPARSE_TRAIT_FLOOR, floor ? "true" : "false", ours ? "true" : "false");
}

static void say(const struct arrays_file *f)
{
    const struct load *l = (const struct load *)f;

    if (l->classes)
        say_clamp(l);
    if (l->lost_classes)
        weights_say(f->m, "; left out, as the file is of %d classes and the job of %d: the class scores", l->classes, sparse_classes(f->m));
    if (l->lost_proposals)
        weights_say(f->m, "; left out, as the file has %d and the job %d: the proposals", l->proposals, l->n->proposals);
}

static const struct arrays_family family = {
    .spellings = RCNN_MM + 1, .spell = spell, .group = group, .check = check, .put = put, .say = say
};

int sparse_load(struct model *m, const struct jobspec *spec, struct model_classes classes, struct err *err)
{
    const struct sparse_network *n = sparse_network_of(m);
    struct load l = { .f = { .of = &family, .m = m, .named = n->front.named, .n = n->front.nnamed, .spec = spec }, .n = n };

    (void)classes;
    return arrays_load(&l.f, err);
}

/* ---- to files ---- */

const char *const sparse_dialects[] = { "detectron2", "mmdetection", NULL };

int sparse_export_as(struct model *m, int dialect, struct model_classes classes, struct st_array **ret_arrays, size_t *ret_n,
                     struct err *err)
{
    const struct pyramid *p = &sparse_network_of(m)->front;
    const struct arrays_export x = { &family, m, p->named, p->nnamed, dialect == SPARSE_DIALECT_MM ? RCNN_MM : RCNN_D2, NULL, NULL };

    (void)classes;
    return arrays_export(&x, ret_arrays, ret_n, err);
}

/* Settings of each program for bodies that are not torchvision's. */
static const char *const msra[] = {
    "INPUT.FORMAT BGR, MODEL.PIXEL_MEAN [103.53, 116.28, 123.675], MODEL.PIXEL_STD [1, 1, 1], MODEL.RESNETS.STRIDE_IN_1X1 True",
    "mean [103.53, 116.28, 123.675], std [1, 1, 1], pictures not turned to RGB, backbone of style caffe",
};

void sparse_export_told(const struct model *m, int dialect, char *ret, size_t size)
{
    const char *name = sparse_dialects[dialect];
    bool mm = dialect == SPARSE_DIALECT_MM, floor, body = sparse_network_of(m)->front.colours.swap;
    double clamp = sparse_clamp(m, &floor), theirs = mm ? SPARSE_MM_CLAMP : SPARSE_USUAL_CLAMP;
    char limits[120] = "";

    if (mm && (fabs(clamp - theirs) > 1e-6 || !floor))
        snprintf(limits, sizeof limits, "wh_ratio_clip %.9g of the box coders%s", math_exp64(-clamp),
                 floor ? "" : ", for growing sides alone");
    else if (!mm && (fabs(clamp - theirs) > 1e-6 || floor))
        snprintf(limits, sizeof limits, "scale_clamp %.16g of the stages%s", clamp, floor ? ", for shrinking sides too" : "");
    if (!body && !*limits)
        snprintf(ret, size, "%s's defaults are the job's: colours, strides, limits of box deltas", name);
    else
        snprintf(ret, size, "%s is to be set up as the job was: %s%s%s", name, body ? msra[mm] : "", body && *limits ? "; " : "", limits);
}

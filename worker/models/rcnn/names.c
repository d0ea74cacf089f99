#include "worker/models/rcnn/names.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdio.h>
#include <string.h>

static const char *const norm_array[] = {
    [RCNN_GAMMA] = "weight", [RCNN_BETA] = "bias", [RCNN_MEAN] = "running_mean", [RCNN_VAR] = "running_var"
};

static bool is_norm(enum rcnn_array array)
{
    return array >= RCNN_GAMMA;
}

static bool in_backbone(enum rcnn_place place)
{
    return place == RCNN_STEM || place == RCNN_BLOCK || place == RCNN_SHORTCUT;
}

/* ---- torchvision ---- */

static void tv_backbone(const struct rcnn_part *p, bool norm, char *buf, size_t size)
{
    if (p->place == RCNN_STEM)
        snprintf(buf, size, "%s1", norm ? "bn" : "conv");
    else if (p->place == RCNN_SHORTCUT)
        snprintf(buf, size, "layer%d.%d.downsample.%d", p->stage + 1, p->block, norm ? 1 : 0);
    else
        snprintf(buf, size, "layer%d.%d.%s%d", p->stage + 1, p->block, norm ? "bn" : "conv", p->i + 1);
}

static void tv_head(const struct rcnn_part *p, bool old, char *buf, size_t size)
{
    switch (p->place) {
    case RCNN_LATERAL:
    case RCNN_OUTPUT:
        snprintf(buf, size, "backbone.fpn.%s_blocks.%d%s", p->place == RCNN_LATERAL ? "inner" : "layer", p->i, old ? "" : ".0");
        break;
    case RCNN_RPN:
        snprintf(buf, size, "rpn.head.conv%s", old ? "" : ".0.0");
        break;
    case RCNN_OBJECTNESS:
        snprintf(buf, size, "rpn.head.cls_logits");
        break;
    case RCNN_DELTAS:
        snprintf(buf, size, "rpn.head.bbox_pred");
        break;
    case RCNN_FC:
        snprintf(buf, size, "roi_heads.box_head.fc%d", p->i + 6);
        break;
    case RCNN_CLASSES:
        snprintf(buf, size, "roi_heads.box_predictor.cls_score");
        break;
    case RCNN_BOXES:
        snprintf(buf, size, "roi_heads.box_predictor.bbox_pred");
        break;
    case RCNN_MASK_CONV:
        if (old)
            snprintf(buf, size, "roi_heads.mask_head.mask_fcn%d", p->i + 1);
        else
            snprintf(buf, size, "roi_heads.mask_head.%d.0", p->i);
        break;
    case RCNN_DECONV:
        snprintf(buf, size, "roi_heads.mask_predictor.conv5_mask");
        break;
    default:
        snprintf(buf, size, "roi_heads.mask_predictor.mask_fcn_logits");
    }
}

/* ---- detectron2 ---- */

static void d2_backbone(const struct rcnn_part *p, bool norm, char *buf, size_t size)
{
    const char *end = norm ? ".norm" : "";

    if (p->place == RCNN_STEM)
        snprintf(buf, size, "stem.conv1%s", end);
    else if (p->place == RCNN_SHORTCUT)
        snprintf(buf, size, "res%d.%d.shortcut%s", p->stage + 2, p->block, end);
    else
        snprintf(buf, size, "res%d.%d.conv%d%s", p->stage + 2, p->block, p->i + 1, end);
}

static void d2_head(const struct rcnn_part *p, char *buf, size_t size)
{
    switch (p->place) {
    case RCNN_LATERAL:
    case RCNN_OUTPUT:
        snprintf(buf, size, "backbone.fpn_%s%d", p->place == RCNN_LATERAL ? "lateral" : "output", p->i + 2);
        break;
    case RCNN_RPN:
        snprintf(buf, size, "proposal_generator.rpn_head.conv");
        break;
    case RCNN_OBJECTNESS:
        snprintf(buf, size, "proposal_generator.rpn_head.objectness_logits");
        break;
    case RCNN_DELTAS:
        snprintf(buf, size, "proposal_generator.rpn_head.anchor_deltas");
        break;
    case RCNN_FC:
        snprintf(buf, size, "roi_heads.box_head.fc%d", p->i + 1);
        break;
    case RCNN_CLASSES:
        snprintf(buf, size, "roi_heads.box_predictor.cls_score");
        break;
    case RCNN_BOXES:
        snprintf(buf, size, "roi_heads.box_predictor.bbox_pred");
        break;
    case RCNN_MASK_CONV:
        snprintf(buf, size, "roi_heads.mask_head.mask_fcn%d", p->i + 1);
        break;
    case RCNN_DECONV:
        snprintf(buf, size, "roi_heads.mask_head.deconv");
        break;
    default:
        snprintf(buf, size, "roi_heads.mask_head.predictor");
    }
}

/* "res2_0_branch2a_w", "res2_0_branch2a_bn_s". */
static bool caffe2(const struct rcnn_part *p, enum rcnn_array array, char *buf, size_t size)
{
    const char *end = array == RCNN_WEIGHT ? "w" : array == RCNN_GAMMA ? "bn_s" : array == RCNN_BETA ? "bn_b" : NULL;

    if (!end || !in_backbone(p->place))
        return false;
    if (p->place == RCNN_STEM)
        snprintf(buf, size, "%sconv1_%s", array == RCNN_WEIGHT ? "" : "res_", end);
    else if (p->place == RCNN_SHORTCUT)
        snprintf(buf, size, "res%d_%d_branch1_%s", p->stage + 2, p->block, end);
    else
        snprintf(buf, size, "res%d_%d_branch2%c_%s", p->stage + 2, p->block, 'a' + p->i, end);
    return true;
}

/* ---- all ---- */

/* Without ".weight" and the like. */
static void spell_part(enum rcnn_spelling spelling, const struct rcnn_part *p, bool norm, char *buf, size_t size)
{
    bool d2 = spelling == RCNN_D2 || spelling == RCNN_D2_BODY, whole = spelling == RCNN_TV || spelling == RCNN_TV_OLD;
    size_t used = 0;

    if (!in_backbone(p->place)) {
        if (d2)
            d2_head(p, buf, size);
        else
            tv_head(p, spelling == RCNN_TV_OLD, buf, size);
        return;
    }
    *buf = '\0';
    if (whole || spelling == RCNN_D2)
        used = (size_t)snprintf(buf, size, "backbone.%s.", whole ? "body" : "bottom_up");
    if (d2)
        d2_backbone(p, norm, buf + used, size - used);
    else
        tv_backbone(p, norm, buf + used, size - used);
}

bool rcnn_spell(enum rcnn_spelling spelling, const struct rcnn_part *p, enum rcnn_array array, char *buf, size_t size)
{
    bool body = spelling == RCNN_TV_BODY || spelling == RCNN_D2_BODY;
    size_t used;

    if (spelling == RCNN_CAFFE2)
        return caffe2(p, array, buf, size);
    if (body && !in_backbone(p->place))
        return false;
    spell_part(spelling, p, is_norm(array), buf, size);
    used = strlen(buf);
    snprintf(buf + used, size - used, ".%s", is_norm(array) ? norm_array[array] : array == RCNN_WEIGHT ? "weight" : "bias");
    return true;
}

void rcnn_spell_norm(enum rcnn_spelling spelling, const struct rcnn_part *p, char *buf, size_t size)
{
    spell_part(spelling, p, true, buf, size);
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);

    return n >= m && strcmp(text + n - m, end) == 0;
}

bool rcnn_is_idle(const char *name)
{
    static const char *const whole[] = { "fc.weight", "fc.bias",  "pixel_mean",     "pixel_std",    "pred_w",        "pred_b",
                                         "fc1000_w",  "fc1000_b", "stem.fc.weight", "stem.fc.bias", "linear.weight", "linear.bias" };

    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (strcmp(name, whole[i]) == 0)
            return true;
    return ends_with(name, ".num_batches_tracked") || ends_with(name, "_momentum") || strstr(name, "anchor_generator.cell_anchors");
}

const char *rcnn_group(enum rcnn_place place)
{
    switch (place) {
    case RCNN_STEM:
    case RCNN_BLOCK:
    case RCNN_SHORTCUT:
        return "the backbone";
    case RCNN_LATERAL:
    case RCNN_OUTPUT:
        return "the feature pyramid";
    case RCNN_RPN:
    case RCNN_OBJECTNESS:
    case RCNN_DELTAS:
        return "the RPN";
    case RCNN_FC:
        return "the box head";
    case RCNN_CLASSES:
    case RCNN_BOXES:
        return "the box predictor";
    case RCNN_MASK_CONV:
    case RCNN_DECONV:
        return "the mask head";
    case RCNN_PREDICTOR:
        break;
    }
    return "the mask predictor";
}

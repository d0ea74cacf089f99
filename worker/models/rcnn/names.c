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

/* A name in the heads. The part's i is added to `number`; COUNTED_NOT: the name has no number. */
struct head_name {
    const char *before;
    int number;
    const char *behind;
};

enum { COUNTED_NOT = -1 };

static void put_head(const struct head_name *h, int i, char *buf, size_t size)
{
    if (h->number == COUNTED_NOT)
        snprintf(buf, size, "%s", h->before);
    else
        snprintf(buf, size, "%s%d%s", h->before, h->number + i, h->behind);
}

static const struct head_name tv_heads[] = {
    [RCNN_LATERAL] = { "backbone.fpn.inner_blocks.", 0, ".0" },
    [RCNN_OUTPUT] = { "backbone.fpn.layer_blocks.", 0, ".0" },
    [RCNN_RPN] = { "rpn.head.conv.0.0", COUNTED_NOT, "" },
    [RCNN_OBJECTNESS] = { "rpn.head.cls_logits", COUNTED_NOT, "" },
    [RCNN_DELTAS] = { "rpn.head.bbox_pred", COUNTED_NOT, "" },
    [RCNN_FC] = { "roi_heads.box_head.fc", 6, "" },
    [RCNN_CLASSES] = { "roi_heads.box_predictor.cls_score", COUNTED_NOT, "" },
    [RCNN_BOXES] = { "roi_heads.box_predictor.bbox_pred", COUNTED_NOT, "" },
    [RCNN_MASK_CONV] = { "roi_heads.mask_head.", 0, ".0" },
    [RCNN_DECONV] = { "roi_heads.mask_predictor.conv5_mask", COUNTED_NOT, "" },
    [RCNN_PREDICTOR] = { "roi_heads.mask_predictor.mask_fcn_logits", COUNTED_NOT, "" },
};

/* Only the old names that differ. */
static const struct head_name tv_old_heads[RCNN_PREDICTOR + 1] = {
    [RCNN_LATERAL] = { "backbone.fpn.inner_blocks.", 0, "" },
    [RCNN_OUTPUT] = { "backbone.fpn.layer_blocks.", 0, "" },
    [RCNN_RPN] = { "rpn.head.conv", COUNTED_NOT, "" },
    [RCNN_MASK_CONV] = { "roi_heads.mask_head.mask_fcn", 1, "" },
};

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

static const struct head_name d2_heads[] = {
    [RCNN_LATERAL] = { "backbone.fpn_lateral", 2, "" },
    [RCNN_OUTPUT] = { "backbone.fpn_output", 2, "" },
    [RCNN_RPN] = { "proposal_generator.rpn_head.conv", COUNTED_NOT, "" },
    [RCNN_OBJECTNESS] = { "proposal_generator.rpn_head.objectness_logits", COUNTED_NOT, "" },
    [RCNN_DELTAS] = { "proposal_generator.rpn_head.anchor_deltas", COUNTED_NOT, "" },
    [RCNN_FC] = { "roi_heads.box_head.fc", 1, "" },
    [RCNN_CLASSES] = { "roi_heads.box_predictor.cls_score", COUNTED_NOT, "" },
    [RCNN_BOXES] = { "roi_heads.box_predictor.bbox_pred", COUNTED_NOT, "" },
    [RCNN_MASK_CONV] = { "roi_heads.mask_head.mask_fcn", 1, "" },
    [RCNN_DECONV] = { "roi_heads.mask_head.deconv", COUNTED_NOT, "" },
    [RCNN_PREDICTOR] = { "roi_heads.mask_head.predictor", COUNTED_NOT, "" },
};

/* Only the feature pyramid. */
static const struct head_name mm_heads[] = {
    [RCNN_LATERAL] = { "neck.lateral_convs.", 0, ".conv" },
    [RCNN_OUTPUT] = { "neck.fpn_convs.", 0, ".conv" },
};

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

/* The name without ".weight" and the like. */
static void spell_part(enum rcnn_spelling spelling, const struct rcnn_part *p, bool norm, char *buf, size_t size)
{
    bool d2 = spelling == RCNN_D2 || spelling == RCNN_D2_BODY, whole = spelling == RCNN_TV || spelling == RCNN_TV_OLD;
    size_t used = 0;

    if (!in_backbone(p->place)) {
        bool old = spelling == RCNN_TV_OLD && tv_old_heads[p->place].before;
        const struct head_name *heads = d2 ? d2_heads : spelling == RCNN_MM ? mm_heads : old ? tv_old_heads : tv_heads;

        put_head(&heads[p->place], p->i, buf, size);
        return;
    }
    *buf = '\0';
    if (whole || spelling == RCNN_D2 || spelling == RCNN_MM)
        used = (size_t)snprintf(buf, size, "backbone.%s", whole ? "body." : d2 ? "bottom_up." : "");
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
    if (!in_backbone(p->place) && (body || (spelling == RCNN_MM && p->place > RCNN_OUTPUT)))
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
    return ends_with(name, ".num_batches_tracked") || ends_with(name, "_momentum") || strncmp(name, "criterion.", 10) == 0 ||
           strstr(name, "anchor_generator.cell_anchors");
}

const char *rcnn_group(enum rcnn_place place)
{
    static const char *const groups[] = {
        [RCNN_STEM] = "the backbone",
        [RCNN_BLOCK] = "the backbone",
        [RCNN_SHORTCUT] = "the backbone",
        [RCNN_LATERAL] = "the feature pyramid",
        [RCNN_OUTPUT] = "the feature pyramid",
        [RCNN_RPN] = "the RPN",
        [RCNN_OBJECTNESS] = "the RPN",
        [RCNN_DELTAS] = "the RPN",
        [RCNN_FC] = "the box head",
        [RCNN_CLASSES] = "the box predictor",
        [RCNN_BOXES] = "the box predictor",
        [RCNN_MASK_CONV] = "the mask head",
        [RCNN_DECONV] = "the mask head",
        [RCNN_PREDICTOR] = "the mask predictor",
    };

    return groups[place];
}

/* worker/models/rcnn/network.h - the convolutions of Faster and Mask R-CNN: ResNet, feature pyramid, RPN, heads; their parameters and how they follow each
 * other. What stands between them (anchors, proposals, losses) is rcnn.c's. Source: specs rcnn sections 2, 3.2, 4.2, 5.1. */
#pragma once
#include <stdbool.h>

#include "worker/layers/layers.h"
#include "worker/models/rcnn/names.h"

struct err;
struct jobspec;
struct model;

enum { RCNN_LEVELS = 5 /* P2 .. P6 */, RCNN_POOLED = 4 /* P2 .. P5 */, RCNN_STAGES = 4, RCNN_MAX_BLOCKS = 23, RCNN_MASK_CONVS = 4 };
enum { RCNN_RATIOS = 3, RCNN_BOX_POOL = 7, RCNN_USUAL_POOL = 14 /* of masks; older files do not tell theirs */ };

/* A convolution and what follows it: a bias or a normalisation. */
struct rcnn_conv {
    struct param *w, *bias; /* NULL: it is not there, has none */
    int norm;               /* index in model.norms, or -1 */
    struct conv cv;
    struct rcnn_part part;
};

struct rcnn_block {
    struct rcnn_conv conv[3], shortcut;
    int nconvs;
};

struct rcnn_network {
    struct model *m;
    struct view_colours colours;
    struct rcnn_conv stem;
    int nblocks[RCNN_STAGES];
    struct rcnn_block block[RCNN_STAGES][RCNN_MAX_BLOCKS];
    struct rcnn_conv lateral[RCNN_POOLED], output[RCNN_POOLED]; /* of C2 .. C5 */
    struct rcnn_conv rpn, objectness, deltas;
    struct rcnn_conv fc1, fc2, cls, box;
    struct rcnn_conv mask[RCNN_MASK_CONVS], deconv, predictor; /* of mask models */
    bool masks;
    int mask_pool;            /* pixels along either axis of what the mask head reads of a region; it makes twice as many */
    struct rcnn_named *named; /* [m->nparams], by param.index: what each parameter is */
    int nnamed;
};

/* How many columns the last layers have, which depends on the flavor. */
struct rcnn_columns {
    int cls, box, mask;
};

/* Adds all parameters to m, in the spelling of the job's flavor. Errors name what lacked memory. */
int rcnn_network_open(struct rcnn_network *n, struct model *m, const struct jobspec *spec, const struct rcnn_columns *columns,
                      struct err *err);
void rcnn_network_close(struct rcnn_network *n);

/* Pictures to P2 .. P6. size: [shards] device memory, [n][2] height and width of each picture. */
void rcnn_pyramid(struct rcnn_network *n, struct tape *t, const struct tensor *images, const int32_t *const *size,
                  struct value *ret[RCNN_LEVELS]);
/* What the RPN makes of every level, f32. */
void rcnn_proposal_head(struct rcnn_network *n, struct tape *t, struct value *const p[RCNN_LEVELS], struct value *ret_logits[RCNN_LEVELS],
                        struct value *ret_deltas[RCNN_LEVELS]);
/* Pooled features [cap, 7, 7, c], which are dropped, to logits and deltas [cap, 1, 1, columns], f32. */
void rcnn_box_head(struct rcnn_network *n, struct tape *t, struct value *pooled, struct value **ret_logits, struct value **ret_deltas);
/* [cap, mask_pool, mask_pool, c], dropped, to [cap, 2 * mask_pool, 2 * mask_pool, channels], f32. */
struct value *rcnn_mask_head(struct rcnn_network *n, struct tape *t, struct value *pooled);

/* Calls visit for each convolution that a batch of such shards needs: its input's sides, 0 images for the rows of regions. passes: as plan's conv.
 * Canvas { 0, 0 }: of the heads, whose inputs are regions, alone. */
struct rcnn_use {
    const struct rcnn_conv *conv;
    int h, w;  /* of its input */
    bool rows; /* its images are regions: of the mask head where `mask` */
    bool mask;
    bool picture; /* reads the pictures themselves */
    bool last;    /* nobody reads its input later: backward it is the first to write that gradient */
};
int rcnn_each_conv(const struct rcnn_network *n, struct canvas canvas, int (*visit)(void *arg, const struct rcnn_use *use, struct err *err),
                   void *arg, struct err *err);

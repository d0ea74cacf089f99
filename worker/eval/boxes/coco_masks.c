#include "worker/eval/boxes/coco_masks.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdlib.h>

#include "proto/err.h"
#include "proto/grow.h"
#include "worker/eval/masks/mask_words.h"
#include "worker/mask/rle.h"

struct coco_masks {
    const struct eval_split *split;
    struct mask_store store;
    struct mask_words *dets, *truths; /* of one picture */
    size_t dets_room, truths_room;
    int32_t *place; /* [split->ntruths]: index in `truths` of each of the picture's truths */
    uint8_t *found; /* [split->nclasses]: 1 if the picture has a detection of the class */
    struct rle rle; /* scratch */
};

static int no_memory(struct err *err)
{
    return err_set(err, -ENOMEM, "COCO evaluation of masks: out of memory");
}

int coco_masks_open(const struct eval_split *split, struct coco_masks **ret, struct err *err)
{
    struct coco_masks *m = calloc(1, sizeof *m);

    if (m) {
        m->split = split;
        m->place = calloc(split->ntruths + 1, sizeof *m->place);
        m->found = calloc((size_t)split->nclasses + 1, 1);
    }
    if (!m || !m->place || !m->found) {
        coco_masks_close(m);
        return no_memory(err);
    }
    *ret = m;
    return 0;
}

void coco_masks_close(struct coco_masks *m)
{
    if (!m)
        return;
    free(m->store.word);
    free(m->dets);
    free(m->truths);
    free(m->place);
    free(m->found);
    rle_free(&m->rle);
    free(m);
}

static int read_truths(struct coco_masks *m, const struct truth *const *truths, size_t n, struct err *err)
{
    const struct eval_masks *masks = m->split->masks;
    int rc = 0;

    for (size_t i = 0; i < n && rc >= 0; i++) {
        size_t k = (size_t)(truths[i] - m->split->truths);

        if (!m->found[truths[i]->cls])
            continue;
        m->place[k] = (int32_t)i;
        rc = masks->read(masks->of, k, &m->rle, err);
        if (rc >= 0)
            rc = mask_words_of_rle(&m->store, &m->rle, &m->truths[i], err);
    }
    return rc;
}

static double area(void *of, size_t det)
{
    return (double)((const struct coco_masks *)of)->dets[det].area;
}

static double overlap(void *of, size_t det, size_t truth)
{
    const struct coco_masks *m = of;
    const struct mask_words *d = &m->dets[det], *t = &m->truths[m->place[truth]];
    int64_t common = mask_words_common(&m->store, d, t), all = d->area;

    if (common == 0)
        return 0;
    if (!m->split->truths[truth].crowd)
        all += t->area - common;
    return (double)common / (double)all;
}

int coco_masks_begin(struct coco_masks *m, const struct result *r, const struct truth *const *truths, size_t ntruths,
                     struct coco_measure *ret, struct err *err)
{
    int rc = 0;

    m->store.used = 0;
    if (!GROW(m->dets, m->dets_room, r->n) || !GROW(m->truths, m->truths_room, ntruths))
        return no_memory(err);
    for (int i = 0; i < r->n && rc >= 0; i++) {
        m->found[r->boxes[i].cls] = 1;
        rc = mask_words_of_result(&m->store, &r->masks[i], &m->dets[i], err);
    }
    if (rc >= 0)
        rc = read_truths(m, truths, ntruths, err);
    for (int i = 0; i < r->n; i++)
        m->found[r->boxes[i].cls] = 0;
    *ret = (struct coco_measure){ m, area, overlap };
    return rc;
}

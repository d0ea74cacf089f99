#include "worker/models/objects.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>

#include "worker/data/make/batch.h"
#include "worker/data/sample/instances.h"
#include "worker/models/model.h"

void objects_places(struct objects_places *ret)
{
    const struct batch_form *f = task_instances.form;

    ret->image = batch_array_of(f, "image");
    ret->size = batch_array_of(f, "size");
    ret->truth = batch_list_of(f, "truth");
    ret->cls = batch_array_of(f, "truth.class");
    ret->box = batch_array_of(f, "truth.box");
    ret->polygon = batch_list_of(f, "polygon");
    ret->point = batch_list_of(f, "point");
    ret->xy = batch_array_of(f, "point.xy");
    ret->run = batch_list_of(f, "run");
    ret->length = batch_array_of(f, "run.length");
}

void objects_read(const struct objects_places *p, const struct batch *b, bool losses, struct objects *ret)
{
    assert(b->nshards <= JOB_MAX_SHARDS);
    *ret = (struct objects){ 0 };
    for (int s = 0; s < b->nshards; s++) {
        const struct shard_batch *shard = &b->shard[s];

        ret->picture[s] = batch_tensor(b->form, shard, p->image);
        ret->size[s] = shard->array[p->size];
        ret->images[s] = (struct rcnn_images){ shard->n, shard->canvas, ret->size[s] };
        ret->total += shard->n;
        if (!losses)
            continue;
        ret->truth[s] = (struct rcnn_truth){ shard->offset[p->truth], shard->array[p->cls], shard->array[p->box], shard->rows[p->truth] };
        ret->outlines[s] = (struct rcnn_outlines){ shard->offset[p->polygon], shard->offset[p->point], shard->array[p->xy],
                                                   shard->offset[p->run], shard->array[p->length] };
    }
}

static void to_picture(const struct candidate *c, const int32_t size[2], const struct model_picture *picture, bool cut, double box[4])
{
    double sx = (double)picture->w / (double)size[1], sy = (double)picture->h / (double)size[0];

    box[0] = (double)c->x1 * sx;
    box[1] = (double)c->y1 * sy;
    box[2] = (double)c->x2 * sx;
    box[3] = (double)c->y2 * sy;
    for (int i = 0; i < 4 && cut; i++) {
        double most = i % 2 ? picture->h : picture->w;

        box[i] = box[i] < 0 ? 0 : box[i] > most ? most : box[i];
    }
}

int objects_found(struct candidate *c, struct detection *ret, int n, const int32_t size[2], const struct model_picture *picture, bool cut)
{
    int kept = 0;

    for (int i = 0; i < n; i++) {
        double box[4];

        to_picture(&c[i], size, picture, cut, box);
        if (!(box[2] > box[0]) || !(box[3] > box[1]))
            continue;
        ret[kept] = (struct detection){ .image = picture->index,
                                        .cls = c[i].cls,
                                        .slot = c[i].slot,
                                        .score = (double)c[i].score,
                                        .box = { box[0], box[1], box[2] - box[0], box[3] - box[1] } };
        c[kept++] = c[i];
    }
    return kept;
}

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/assign.c - matches predictions with the truth: one problem for
 * each stage and image. */
#include "worker/kernels/assign.h"

#include <errno.h>

#include "worker/cpu/cpu.h"
#include "worker/cpu/work.h"

struct match_args {
    const struct set_head *head;
    const struct set_match *ret;
    const struct tensor *const *logits;
    const float *const *const *box;
    const struct rcnn_images *images;
    const struct rcnn_truth *truth;
    size_t nimages, room; /* images of all shards; numbers of a thread's working memory */
    int64_t *memory;
};

static void match_image(void *arg, size_t index, int thread)
{
    const struct match_args *a = arg;
    int stage = (int)(index / a->nimages), image, v = shard_of_image(a->images, index % a->nimages, &image);
    const struct set_view s = set_view(a->head, stage, &a->images[v], &a->truth[v], &a->ret[v], &a->logits[stage][v], a->box[stage][v]);
    struct assign p =
        assign_in(a->memory + (size_t)thread * a->room, a->head->proposals, s.truth.offset[image + 1] - s.truth.offset[image]);

    s.match.broken[image] = assign_costs(&p, &s, a->head, image, 0, 1);
    assign_image(&p, &s, a->head, image, 0, 1);
}

int cpu_set_match(struct device *dev, const struct set_head *head, const struct set_match *ret, const struct tensor *const *logits,
                  const float *const *const *box, const struct rcnn_images *images, const struct rcnn_truth *truth, int nshards,
                  struct err *err)
{
    struct match_args a = { head, ret, logits, box, images, truth, count_images(images, nshards), 0, NULL };
    int most = 0;

    for (int v = 0; v < nshards; v++)
        for (int i = 0; i < images[v].n; i++) {
            int count = truth[v].offset[i + 1] - truth[v].offset[i];

            most = count > most ? count : most;
        }
    a.room = assign_room(1, (size_t)head->proposals, (size_t)most);
    a.memory = cpu_scratch(dev, (size_t)threads_count(cpu_threads(dev)) * a.room * sizeof *a.memory, err);
    if (!a.memory)
        return -ENOMEM;
    threads_each(cpu_threads(dev), (size_t)head->stages * a.nimages, match_image, &a);
    return 0;
}

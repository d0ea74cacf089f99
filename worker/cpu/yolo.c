/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/yolo.c - loss and decoding of a YOLO head. An image is the unit
 * of work: first its claims, then its slots, in file order. */
#include "worker/kernels/yolo.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "worker/core/tree.h"
#include "worker/cpu/cpu.h"
#include "worker/cpu/elem.h"
#include "worker/cpu/wide.h"
#include "worker/kernels/reduce.h"

struct loss_args {
    const struct yolo_head *head;
    const struct canvas *net; /* [nshards] */
    struct tensor *dlogits;
    float grad_scale;
    const struct tensor *logits;
    const struct box_list *truth;
    int nshards;
    double *terms;   /* [images of all shards][YOLO_TERMS] */
    int32_t *claims; /* per thread: owner [slots], then class bits [slots][nwords] */
    size_t claims_per_thread;
};

static int slots_of(const struct yolo_head *head, const struct tensor *t)
{
    return head->nanchors * t->h * t->w;
}

static int class_words(const struct yolo_head *head)
{
    return (head->classes + 31) / 32;
}

/* Finds shard and image of a unit of work. */
static int find_shard(const struct loss_args *a, size_t index, int *ret_image)
{
    int v = 0;

    for (; index >= (size_t)a->logits[v].n; v++)
        index -= (size_t)a->logits[v].n;
    *ret_image = (int)index;
    return v;
}

/* Finds the owner of each slot: the highest claim. */
static void claim_slots(const struct yolo_head *head, struct canvas net, int32_t *owner, const struct yolo_truth *truth, int gh, int gw)
{
    for (int t = 0; t < truth->count; t++) {
        const float *box = truth->box + (size_t)t * 4;
        int best = yolo_best_anchor(head, net, box[2], box[3]);

        for (int a = 0; a < head->nanchors; a++) {
            int kind = yolo_claim(head, net, box, best, a), slot = yolo_slot(box, a, gh, gw);

            if (kind && yolo_owner(kind, t) > owner[slot])
                owner[slot] = yolo_owner(kind, t);
        }
    }
}

/* The classes of a slot: those of every claim of the winning kind. A class out of range is ignored. */
static void unite_classes(const struct yolo_head *head, struct canvas net, uint32_t *bits, const int32_t *owner,
                          const struct yolo_truth *truth, int gh, int gw)
{
    int nwords = class_words(head);

    for (int t = 0; t < truth->count; t++) {
        const float *box = truth->box + (size_t)t * 4;
        int best = yolo_best_anchor(head, net, box[2], box[3]), cls = truth->cls[t];

        for (int a = 0; a < head->nanchors && cls >= 0 && cls < head->classes; a++) {
            int kind = yolo_claim(head, net, box, best, a), slot = yolo_slot(box, a, gh, gw);

            if (kind && owner[slot] >> YOLO_KIND_SHIFT == kind)
                bits[(size_t)slot * (size_t)nwords + (size_t)cls / 32] |= 1u << (cls % 32);
        }
    }
}

/* Computes one slab of slots in order. logits and dlogits are those of the image. */
static void slab_loss(double terms[YOLO_TERMS], const struct loss_args *a, struct canvas net, const struct tensor *z, int image,
                      struct tensor *dz, const struct yolo_truth *truth, const int32_t *owner, const uint32_t *bits, int from, int to)
{
    int step = 5 + a->head->classes, nwords = class_words(a->head);

    for (int s = from; s < to; s++) {
        struct yolo_cell c = yolo_cell(s, z->h, z->w, net);
        size_t pixel = ((size_t)image * (size_t)z->h + (size_t)c.row) * (size_t)z->w + (size_t)c.col, first = (size_t)c.a * (size_t)step;
        float *grad = dz ? (float *)dz->data + pixel * (size_t)dz->stride + first : NULL;

        yolo_slot_loss(terms, grad, a->grad_scale, a->head, (const float *)z->data + pixel * (size_t)z->stride + first, c, truth, owner[s],
                       bits + (size_t)s * (size_t)nwords);
    }
}

/* Sums of terms wait for their sibling, as in tree_sum(). */
struct term_tree {
    double sum[TREE_DEPTH][YOLO_TERMS];
    int depth, leaves;
};

static void add_terms(double *to, const double *from)
{
    for (int i = 0; i < YOLO_TERMS; i++)
        to[i] += from[i];
}

static double *next_leaf(struct term_tree *t)
{
    memset(t->sum[t->depth], 0, sizeof(t->sum[0]));
    t->leaves++;
    return t->sum[t->depth++];
}

static void fold_leaf(struct term_tree *t)
{
    for (int below = t->leaves; below % 2 == 0; below /= 2, t->depth--)
        add_terms(t->sum[t->depth - 2], t->sum[t->depth - 1]);
}

static const double *close_tree(struct term_tree *t)
{
    for (; t->depth > 1; t->depth--)
        add_terms(t->sum[t->depth - 2], t->sum[t->depth - 1]);
    return t->sum[0];
}

static void image_loss(void *arg, size_t index, int thread)
{
    const struct loss_args *a = arg;
    int image, v = find_shard(a, index, &image), slots = slots_of(a->head, &a->logits[v]);
    const struct tensor *z = &a->logits[v];
    struct yolo_truth truth = yolo_truth(&a->truth[v], image);
    int32_t *owner = a->claims + (size_t)thread * a->claims_per_thread;
    uint32_t *bits = (uint32_t *)owner + slots;
    struct term_tree tree = { .depth = 0, .leaves = 0 };

    memset(owner, 0, (size_t)slots * (1 + (size_t)class_words(a->head)) * sizeof(*owner));
    claim_slots(a->head, a->net[v], owner, &truth, z->h, z->w);
    unite_classes(a->head, a->net[v], bits, owner, &truth, z->h, z->w);
    for (int s = 0; s < slots; s += YOLO_SLAB) {
        slab_loss(next_leaf(&tree), a, a->net[v], z, image, a->dlogits ? &a->dlogits[v] : NULL, &truth, owner, bits, s,
                  s + YOLO_SLAB < slots ? s + YOLO_SLAB : slots);
        fold_leaf(&tree);
    }
    memcpy(a->terms + index * YOLO_TERMS, close_tree(&tree), sizeof(tree.sum[0]));
}

static int loss_of(struct device *dev, const struct yolo_head *head, const struct canvas *net, struct tensor *dlogits, float grad_scale,
                   double *const *terms, const struct tensor *logits, const struct box_list *truth, int nshards, struct err *err)
{
    struct loss_args a = { head, net, dlogits, grad_scale, logits, truth, nshards, NULL, NULL, 0 };
    size_t images = 0, first = 0, threads = (size_t)threads_count(cpu_threads(dev));

    for (int v = 0; v < nshards; v++) {
        size_t need = (size_t)slots_of(head, &logits[v]) * (1 + (size_t)class_words(head));

        images += (size_t)logits[v].n;
        a.claims_per_thread = need > a.claims_per_thread ? need : a.claims_per_thread;
    }
    a.terms = cpu_scratch(dev, images * YOLO_TERMS * sizeof(double) + threads * a.claims_per_thread * sizeof(*a.claims), err);
    if (!a.terms)
        return -ENOMEM;
    a.claims = (void *)(a.terms + images * YOLO_TERMS);
    threads_each(cpu_threads(dev), images, image_loss, &a);
    for (int v = 0; v < nshards; first += (size_t)logits[v++].n)
        for (int i = 0; i < YOLO_TERMS; i++)
            terms[v][i] = tree_sum(a.terms + first * YOLO_TERMS + i, YOLO_TERMS, logits[v].n);
    return 0;
}

int cpu_yolo_loss(struct device *dev, const struct yolo_head *head, const struct canvas *net, struct tensor *dlogits, float grad_scale,
                  double *const *terms, const struct tensor *logits, const struct box_list *truth, int nshards, struct err *err)
{
    struct wide w[] = { { dlogits, sizeof *dlogits, false, NULL }, { logits, sizeof *logits, true, NULL } };
    int rc;

    if (logits[0].dtype != DTYPE_BF16)
        return loss_of(dev, head, net, dlogits, grad_scale, terms, logits, truth, nshards, err);
    rc = cpu_widen(dev, w, 2, nshards, err);
    if (rc >= 0)
        rc = loss_of(dev, head, net, w[0].as, grad_scale, terms, w[1].as, truth, nshards, err);
    if (rc >= 0)
        cpu_narrow(dev, w, nshards);
    return rc;
}

/* The candidates of a slot, in order of class. */
static int decode_slot(const struct yolo_head *head, const void *z, bool half, struct yolo_cell c, float conf, int slot,
                       struct candidate *ret, int cap)
{
    float obj = math_sigmoid(elem_get(z, 4, half)), at[4];
    struct box b;
    int n = 0;

    if (!(obj > conf))
        return 0;
    for (int i = 0; i < 4; i++)
        at[i] = elem_get(z, i, half);
    b = yolo_box_pixels(head, at, c);
    for (int k = 0; k < head->classes; k++) {
        float score = yolo_score(obj, elem_get(z, 5 + k, half));

        if (!(score > conf))
            continue;
        if (n < cap)
            ret[n] = (struct candidate){ b.x1, b.y1, b.x2, b.y2, score, k, slot };
        n++;
    }
    return n;
}

int cpu_yolo_decode(struct device *dev, const struct yolo_head *head, struct canvas net, const struct tensor *logits, int image, float conf,
                    int first_slot, struct candidate *ret, int cap, int *ret_count, struct err *err)
{
    int found = 0, step = 5 + head->classes;
    bool half = logits->dtype == DTYPE_BF16;

    (void)dev, (void)err;
    assert(image >= 0 && image < logits->n && logits->c == head->nanchors * step);
    for (int s = 0; s < slots_of(head, logits); s++) {
        struct yolo_cell c = yolo_cell(s, logits->h, logits->w, net);
        size_t pixel = ((size_t)image * (size_t)logits->h + (size_t)c.row) * (size_t)logits->w + (size_t)c.col;
        const void *z = elem_at(elem_row(logits, pixel, half), c.a * step, half);
        int room = found < cap ? cap - found : 0;

        found += decode_slot(head, z, half, c, conf, first_slot + s, room ? ret + found : ret, room);
    }
    *ret_count = found;
    return 0;
}

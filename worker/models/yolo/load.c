#include "worker/models/yolo/load.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/core/safetensors.h"
#include "worker/models/registry.h"
#include "worker/models/weights.h"
#include "worker/models/yolo/darknet_net.h"
#include "worker/models/yolo/darknet_weights.h"
#include "worker/models/yolo/yolov3.h"

const struct rename yolo_renames[] = {
    { "module_list.#.conv_#.weight", "module_list.#.Conv2d.weight" },
    { "module_list.#.conv_#.bias", "module_list.#.Conv2d.bias" },
    { "module_list.#.batch_norm_#.weight", "module_list.#.BatchNorm2d.weight" },
    { "module_list.#.batch_norm_#.bias", "module_list.#.BatchNorm2d.bias" },
    { "module_list.#.batch_norm_#.running_mean", "module_list.#.BatchNorm2d.running_mean" },
    { "module_list.#.batch_norm_#.running_var", "module_list.#.BatchNorm2d.running_var" },
    { NULL, NULL },
};

/* Names look like "module_list.N.conv_N.weight". */
int yolo_layer(const struct param *p)
{
    int layer = 0;

    sscanf(p->name, "module_list.%d.", &layer);
    return layer;
}

/* ---- the report of loading ---- */

/* The next convolution from layer i on with loaded == is. The number of layers: no such convolution. */
static int next_layer(const struct model *m, const bool *loaded, int i, bool is)
{
    const struct darknet_net *net = yolov3_net(m);

    while (i < net->nlayers && (net->layers[i].type != DARKNET_CONV || loaded[yolov3_conv(m, i)->weight->index] != is))
        i++;
    return i;
}

/* Lists "0-14, 18": the convolutions with loaded == is. Returns whether there are any. */
static bool say_layers(struct model *m, const bool *loaded, bool is, const char *before)
{
    int nlayers = yolov3_net(m)->nlayers, end, last;
    bool any = false;

    for (int from = next_layer(m, loaded, 0, is); from < nlayers; from = next_layer(m, loaded, end, is)) {
        end = next_layer(m, loaded, from, !is);
        last = from;
        for (int i = from; i < end; i = next_layer(m, loaded, i + 1, is))
            last = i;
        weights_say(m, last > from ? "%s %d-%d" : "%s %d", any ? "," : before, from, last);
        any = true;
    }
    return any;
}

static void describe(struct model *m, const char *path, const bool *loaded)
{
    int n = 0;

    for (int i = 0; i < m->nparams; i++)
        n += loaded[i];
    say_layers(m, loaded, true, "model.init: loaded layers");
    weights_say(m, " of %d from '%.200s' (%d of %d arrays)", yolov3_net(m)->nlayers, path, n, m->nparams);
    say_layers(m, loaded, false, "; left out: layers");
}

/* ---- darknet .weights ---- */

static void block_free(struct darknet_block *b)
{
    free(b->bias);
    free(b->scale);
    free(b->mean);
    free(b->var);
    free(b->weights);
}

static int block_get(struct model *m, int layer, struct darknet_block *b, struct err *err)
{
    const struct yolov3_conv *p = yolov3_conv(m, layer);

    b->layer = layer;
    b->filters = p->weight->k;
    b->channels = p->weight->c;
    b->size = p->weight->r;
    if (darknet_net_is_head_conv(yolov3_net(m), layer))
        b->anchors = yolov3_net(m)->layers[layer + 1].yolo.nanchors;
    b->bias = weights_get(m, p->gamma ? p->beta : p->bias, err);
    b->scale = weights_get(m, p->gamma, err);
    b->mean = weights_get(m, p->mean, err);
    b->var = weights_get(m, p->var, err);
    b->weights = weights_get(m, p->weight, err);
    return b->bias && b->weights && (!p->gamma || (b->scale && b->mean && b->var)) ? 0 : err->code;
}

static int block_put(struct model *m, const struct darknet_block *b, struct err *err)
{
    const struct yolov3_conv *p = yolov3_conv(m, b->layer);
    int rc = weights_put(m, p->gamma ? p->beta : p->bias, b->bias, err);

    if (rc >= 0 && p->gamma)
        rc = weights_put(m, p->gamma, b->scale, err);
    if (rc >= 0 && p->gamma)
        rc = weights_put(m, p->mean, b->mean, err);
    if (rc >= 0 && p->gamma)
        rc = weights_put(m, p->var, b->var, err);
    return rc < 0 ? rc : weights_put(m, p->weight, b->weights, err);
}

static void mark(bool *loaded, const struct yolov3_conv *c)
{
    const struct param *all[] = { c->weight, c->bias, c->gamma, c->beta, c->mean, c->var };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i])
            loaded[all[i]->index] = true;
}

/* blocks has room for all convolutions. */
static int load_blocks(struct model *m, const char *path, int load_until, struct darknet_block *blocks, bool *loaded, struct err *err)
{
    const struct darknet_net *net = yolov3_net(m);
    struct darknet_weights_info info;
    size_t n = 0;
    int rc = 0;

    for (int i = 0; i < net->nlayers && rc >= 0; i++)
        if (net->layers[i].type == DARKNET_CONV)
            rc = block_get(m, i, &blocks[n++], err);
    if (rc >= 0)
        rc = darknet_weights_load(path, blocks, n, load_until, &info, err);
    for (size_t i = 0; rc >= 0 && i < n; i++) {
        if (!blocks[i].loaded)
            continue;
        rc = block_put(m, &blocks[i], err);
        mark(loaded, yolov3_conv(m, blocks[i].layer));
    }
    if (rc < 0)
        return rc;
    describe(m, path, loaded);
    if (info.classes > 0)
        weights_say(m, "; the file is of %d classes, the job of %d", info.classes, net->classes);
    else if (load_until < 0 && !blocks[n - 1].loaded)
        weights_say(m, "; there the file ends");
    if (info.note[0])
        weights_say(m, "; %s", info.note);
    return 0;
}

static int load_weights(struct model *m, const char *path, int load_until, bool *loaded, struct err *err)
{
    int nlayers = yolov3_net(m)->nlayers;
    struct darknet_block *blocks = calloc((size_t)nlayers, sizeof *blocks);
    int rc = blocks ? load_blocks(m, path, load_until, blocks, loaded, err) : err_set(err, ERR_DEVICE, "out of memory");

    for (int i = 0; blocks && i < nlayers; i++)
        block_free(&blocks[i]);
    free(blocks);
    if (rc < 0)
        err_prefix(err, "model.init");
    return rc;
}

/* ---- .safetensors ---- */

struct taking {
    const struct darknet_net *net;
    int load_until; /* -1: all */
    int classes;    /* class count of the file's heads if these are left out, else 0 */
};

static bool in_front(void *arg, const struct param *p)
{
    const struct taking *t = arg;

    return t->load_until < 0 || yolo_layer(p) < t->load_until;
}

/* True if the array belongs to a head convolution and fits another class count, the same in all heads. */
static bool of_other_classes(void *arg, const struct param *p, const struct st_array *theirs)
{
    struct taking *t = arg;
    int layer = yolo_layer(p), anchors = darknet_net_is_head_conv(t->net, layer) ? t->net->layers[layer + 1].yolo.nanchors : 0;
    int64_t ours[4], classes;
    int ndims = weights_shape(p, ours);

    if (anchors == 0 || theirs->ndims != ndims || theirs->shape[0] % anchors != 0)
        return false;
    classes = theirs->shape[0] / anchors - 5;
    if (classes < 1 || classes > DARKNET_MAX_CLASSES || classes == t->net->classes || (t->classes > 0 && classes != t->classes))
        return false;
    for (int i = 1; i < ndims; i++)
        if (theirs->shape[i] != ours[i])
            return false;
    t->classes = (int)classes;
    return true;
}

/* Adds advice for an array that is missing or has another shape. */
static void add_hint(const struct param *bad, struct err *err)
{
    int layer = yolo_layer(bad), code = err->code;
    struct err why = *err;

    if (layer > 0)
        err_set(err, code, "%s: another network or model.width? model.load_until=%d takes the layers in front of it", why.msg, layer);
    else
        err_set(err, code, "%s: another network or model.width", why.msg);
}

static int load_safetensors(struct model *m, const char *path, int load_until, bool *loaded, struct err *err)
{
    struct taking t = { .net = yolov3_net(m), .load_until = load_until };
    const struct weights_wanted wanted = { .renames = yolo_renames, .wants = in_front, .of_other_classes = of_other_classes, .arg = &t };
    struct weights_taken taken = { .loaded = loaded };
    int rc = weights_take(m, path, &wanted, &taken, err);

    if (rc >= 0 && taken.n == 0)
        rc = err_set(err, ERR_DATA, "nothing is loaded: no convolution stands before layer %d (model.load_until)", load_until);
    if (rc < 0) {
        if (taken.bad)
            add_hint(taken.bad, err);
        err_prefix(err, "model.init '%.200s'", path);
        return rc;
    }
    describe(m, path, loaded);
    if (t.classes > 0)
        weights_say(m, "; the file is of %d classes, the job of %d", t.classes, t.net->classes);
    weights_say_homeless(m, taken.homeless);
    weights_say_prefix(m, taken.prefix);
    return 0;
}

int yolo_load(struct model *m, const struct jobspec *spec, struct model_classes classes, struct err *err)
{
    const char *path = spec->model_init;
    size_t len = strlen(path);
    bool *loaded = calloc((size_t)m->nparams, sizeof *loaded);
    int rc;

    (void)classes;
    if (!loaded)
        return err_set(err, ERR_DEVICE, "out of memory");
    if (len < 12 || strcmp(path + len - 12, ".safetensors") != 0)
        rc = load_weights(m, path, (int)spec->model_load_until, loaded, err);
    else
        rc = load_safetensors(m, path, (int)spec->model_load_until, loaded, err);
    free(loaded);
    return rc;
}

#include "worker/models/model_io.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/core/safetensors.h"
#include "worker/models/yolo/darknet_net.h"
#include "worker/models/yolo/darknet_weights.h"
#include "worker/models/model.h"
#include "worker/models/yolo/yolov3.h"

enum { SHAPE_BYTES = 8 * 24 };

/* to[k][c][r][s] = from[k][r][s][c], or back. */
static void krsc_to_oihw(const struct param *p, const float *from, float *to)
{
    for (int k = 0; k < p->k; k++)
        for (int y = 0; y < p->r; y++)
            for (int x = 0; x < p->s; x++)
                for (int c = 0; c < p->c; c++)
                    to[(((size_t)k * p->c + c) * p->r + y) * p->s + x] = from[(((size_t)k * p->r + y) * p->s + x) * p->c + c];
}

static void oihw_to_krsc(const struct param *p, const float *from, float *to)
{
    for (int k = 0; k < p->k; k++)
        for (int y = 0; y < p->r; y++)
            for (int x = 0; x < p->s; x++)
                for (int c = 0; c < p->c; c++)
                    to[(((size_t)k * p->r + y) * p->s + x) * p->c + c] = from[(((size_t)k * p->c + c) * p->r + y) * p->s + x];
}

/* The shape as stored: [k, c, r, s], vectors [k]. */
static int stored_shape(const struct param *p, int64_t shape[4])
{
    shape[0] = p->k;
    if (p->kind != PARAM_CONV)
        return 1;
    shape[1] = p->c;
    shape[2] = p->r;
    shape[3] = p->s;
    return 4;
}

static int upload(struct model *m, struct param *p, const float *krsc, struct err *err)
{
    int rc = m->dev->ops->upload(m->dev, p->data, krsc, p->count * sizeof *krsc, err);

    p->version++;
    return rc;
}

/* "[255, 1024, 1, 1]" */
static const char *shape_text(int ndims, const int64_t *shape, char text[SHAPE_BYTES])
{
    int at = snprintf(text, SHAPE_BYTES, "[");

    for (int i = 0; i < ndims; i++)
        at += snprintf(text + at, SHAPE_BYTES - (size_t)at, "%s%lld", i ? ", " : "", (long long)shape[i]);
    snprintf(text + at, SHAPE_BYTES - (size_t)at, "]");
    return text;
}

static int import_one(struct model *m, struct param *p, const struct st_array *a, struct err *err)
{
    char theirs[SHAPE_BYTES], ours[SHAPE_BYTES];
    int64_t want[4];
    int ndims = stored_shape(p, want), rc;
    float *stored, *krsc;

    if (a->ndims != ndims || memcmp(a->shape, want, (size_t)ndims * sizeof *want) != 0)
        return err_set(err, ERR_CORRUPT, "%s is %s in the file and %s in the model", p->name, shape_text(a->ndims, a->shape, theirs),
                       shape_text(ndims, want, ours));
    stored = malloc(p->count * sizeof *stored);
    krsc = malloc(p->count * sizeof *krsc);
    rc = stored && krsc ? safetensors_f32(a, stored, err) : err_set(err, ERR_DEVICE, "out of memory: %s", p->name);
    if (rc >= 0) {
        oihw_to_krsc(p, stored, krsc);
        rc = upload(m, p, krsc, err);
    }
    free(stored);
    free(krsc);
    return rc;
}

/* "module_list.N.…": N. */
static int layer_of(const struct param *p)
{
    int layer = 0;

    sscanf(p->name, "module_list.%d.", &layer);
    return layer;
}

/* loaded: [nparams], set for what was in the file. *ret_bad: what the error is about. */
static int import(struct model *m, const struct safetensors *file, int load_until, bool *loaded, const struct param **ret_bad,
                  struct err *err)
{
    for (int i = 0; i < m->nparams; i++) {
        struct param *p = m->params[i];
        const struct st_array *a = safetensors_find(file, p->name);
        int rc;

        if (load_until >= 0 && layer_of(p) >= load_until)
            continue;
        *ret_bad = p;
        if (!a)
            return err_set(err, ERR_CORRUPT, "%s is not in the file", p->name);
        rc = import_one(m, p, a, err);
        if (rc < 0)
            return rc;
        loaded[i] = true;
    }
    return 0;
}

int model_import(struct model *m, const struct safetensors *file, struct err *err)
{
    bool *loaded = calloc((size_t)m->nparams, sizeof *loaded);
    const struct param *bad;
    int rc = loaded ? import(m, file, -1, loaded, &bad, err) : err_set(err, ERR_DEVICE, "out of memory");

    free(loaded);
    return rc;
}

/* ---- what was loaded ---- */

static void add(struct model *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct model *m, const char *fmt, ...)
{
    size_t at = strlen(m->loaded);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(m->loaded + at, sizeof m->loaded - at, fmt, ap);
    va_end(ap);
}

/* The next convolution from layer i on that is loaded, or is not; the number of layers where there is none. */
static int next_layer(const struct model *m, const bool *loaded, int i, bool is)
{
    const struct darknet_net *net = yolov3_net(m);

    while (i < net->nlayers && (net->layers[i].type != DARKNET_CONV || loaded[yolov3_conv(m, i)->weight->index] != is))
        i++;
    return i;
}

/* ", all but layers 15 to 18, 22": runs of convolutions. */
static void add_left_out(struct model *m, const bool *loaded)
{
    int nlayers = yolov3_net(m)->nlayers, end, last;
    const char *before = ", all but layers";

    for (int from = next_layer(m, loaded, 0, false); from < nlayers; from = next_layer(m, loaded, end, false)) {
        end = next_layer(m, loaded, from, true);
        last = from;
        for (int i = from; i < end; i = next_layer(m, loaded, i + 1, false))
            last = i;
        add(m, last > from ? "%s %d to %d" : "%s %d", before, from, last);
        before = ",";
    }
}

/* Into m->loaded. */
static void describe(struct model *m, const char *path, const bool *loaded)
{
    int n = 0;

    for (int i = 0; i < m->nparams; i++)
        n += loaded[i];
    snprintf(m->loaded, sizeof m->loaded, "model.init '%.200s': %d of %d arrays loaded", path, n, m->nparams);
    add_left_out(m, loaded);
}

/* ---- darknet .weights ---- */

static float *host_copy(struct model *m, const struct param *p, struct err *err)
{
    float *w = p ? malloc(p->count * sizeof *w) : NULL;

    if (p && (!w || m->dev->ops->download(m->dev, w, p->data, p->count * sizeof *w, err) < 0)) {
        free(w);
        err_set(err, ERR_DEVICE, "out of memory: %s", p->name);
        return NULL;
    }
    return w;
}

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
    b->bias = host_copy(m, p->gamma ? p->beta : p->bias, err);
    b->scale = host_copy(m, p->gamma, err);
    b->mean = host_copy(m, p->mean, err);
    b->var = host_copy(m, p->var, err);
    b->weights = host_copy(m, p->weight, err);
    return b->bias && b->weights && (!p->gamma || (b->scale && b->mean && b->var)) ? 0 : err->code;
}

static int block_put(struct model *m, const struct darknet_block *b, struct err *err)
{
    const struct yolov3_conv *p = yolov3_conv(m, b->layer);
    int rc = upload(m, p->gamma ? p->beta : p->bias, b->bias, err);

    if (rc >= 0 && p->gamma)
        rc = upload(m, p->gamma, b->scale, err);
    if (rc >= 0 && p->gamma)
        rc = upload(m, p->mean, b->mean, err);
    if (rc >= 0 && p->gamma)
        rc = upload(m, p->var, b->var, err);
    return rc < 0 ? rc : upload(m, p->weight, b->weights, err);
}

static void mark(bool *loaded, const struct yolov3_conv *c)
{
    const struct param *all[] = { c->weight, c->bias, c->gamma, c->beta, c->mean, c->var };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i])
            loaded[all[i]->index] = true;
}

/* blocks: room for all convolutions. */
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
        add(m, "; the file is of %d classes, the job of %d", info.classes, net->classes);
    if (info.note[0])
        add(m, "; %s", info.note);
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

/* What is damage in a checkpoint is a wrong file here, which no attempt repairs. */
static int wrong_file(const struct model *m, const char *path, const struct param *bad, struct err *err)
{
    int layer = bad ? layer_of(bad) : 0, code = err->code == ERR_CORRUPT ? ERR_DATA : err->code;
    const char *guess = darknet_net_is_head_conv(yolov3_net(m), layer) ? "another class count" : "another network or model.width";
    struct err why = *err;

    if (bad && layer > 0)
        return err_set(err, code, "model.init '%.200s': %s: %s? model.load_until=%d takes the layers in front of it", path, why.msg, guess,
                       layer);
    return err_set(err, code, "model.init '%.200s': %s%s%s", path, why.msg, bad ? ": " : "", bad ? guess : "");
}

static int load_safetensors(struct model *m, const char *path, int load_until, bool *loaded, struct err *err)
{
    const struct param *bad = NULL;
    struct safetensors *file;
    size_t known = 0;
    int rc = safetensors_open(path, &file, err);

    if (rc < 0)
        return wrong_file(m, path, NULL, err);
    rc = import(m, file, load_until, loaded, &bad, err);
    for (int i = 0; i < m->nparams; i++)
        known += safetensors_find(file, m->params[i]->name) != NULL;
    if (rc >= 0)
        describe(m, path, loaded);
    if (rc >= 0 && safetensors_count(file) > known)
        add(m, "; arrays of the file without a place in the model: %zu", safetensors_count(file) - known);
    safetensors_close(file);
    return rc < 0 ? wrong_file(m, path, bad, err) : 0;
}

int model_load(struct model *m, const char *path, int load_until, struct err *err)
{
    size_t len = strlen(path);
    bool *loaded = calloc((size_t)m->nparams, sizeof *loaded);
    int rc;

    if (!loaded)
        return err_set(err, ERR_DEVICE, "out of memory");
    if (len < 12 || strcmp(path + len - 12, ".safetensors") != 0)
        rc = load_weights(m, path, load_until, loaded, err);
    else
        rc = load_safetensors(m, path, load_until, loaded, err);
    free(loaded);
    return rc;
}

/* ---- export ---- */

static int export_one(struct model *m, const struct param *p, struct st_array *a, struct err *err)
{
    float *krsc = host_copy(m, p, err), *stored = malloc(p->count * sizeof *stored);

    if (!krsc || !stored) {
        free(krsc);
        free(stored);
        return err_set(err, ERR_DEVICE, "out of memory: %s", p->name);
    }
    krsc_to_oihw(p, krsc, stored);
    free(krsc);
    a->name = p->name;
    a->dtype = ST_F32;
    a->ndims = stored_shape(p, a->shape);
    a->data = stored;
    return 0;
}

int model_export(struct model *m, struct st_array **ret_arrays, struct err *err)
{
    struct st_array *a = calloc((size_t)m->nparams, sizeof *a);
    int rc = a ? 0 : err_set(err, ERR_DEVICE, "out of memory");

    for (int i = 0; i < m->nparams && rc >= 0; i++)
        rc = export_one(m, m->params[i], &a[i], err);
    if (rc < 0) {
        model_export_free(m, a);
        return rc;
    }
    *ret_arrays = a;
    return 0;
}

void model_export_free(struct model *m, struct st_array *arrays)
{
    for (int i = 0; arrays && i < m->nparams; i++)
        free((void *)arrays[i].data);
    free(arrays);
}

#include "worker/models/model_io.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/core/safetensors.h"
#include "worker/models/darknet_net.h"
#include "worker/models/darknet_weights.h"
#include "worker/models/model.h"
#include "worker/models/yolov3.h"

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

static int import_one(struct model *m, struct param *p, const struct st_array *a, struct err *err)
{
    int64_t want[4];
    int ndims = stored_shape(p, want), rc;
    float *stored, *krsc;

    if (a->ndims != ndims || memcmp(a->shape, want, (size_t)ndims * sizeof *want) != 0)
        return err_set(err, ERR_CORRUPT, "%s: the file's shape differs from the model's (%d outputs of %d channels, %dx%d)", p->name, p->k,
                       p->c, p->r, p->s);
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

int model_import(struct model *m, const struct safetensors *file, int load_until, struct err *err)
{
    for (int i = 0; i < m->nparams; i++) {
        struct param *p = m->params[i];
        const struct st_array *a = safetensors_find(file, p->name);
        int rc;

        if (load_until >= 0 && layer_of(p) >= load_until)
            continue;
        if (!a)
            return err_set(err, ERR_CORRUPT, "%s is not in the file", p->name);
        rc = import_one(m, p, a, err);
        if (rc < 0)
            return rc;
    }
    return 0;
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

static int load_weights(struct model *m, const char *path, int load_until, struct err *err)
{
    const struct darknet_net *net = yolov3_net(m);
    struct darknet_block *blocks = calloc((size_t)net->nlayers, sizeof *blocks);
    struct darknet_weights_info info;
    size_t n = 0;
    int rc = blocks ? 0 : err_set(err, ERR_DEVICE, "out of memory");

    for (int i = 0; i < net->nlayers && rc >= 0; i++)
        if (net->layers[i].type == DARKNET_CONV)
            rc = block_get(m, i, &blocks[n++], err);
    if (rc >= 0)
        rc = darknet_weights_load(path, blocks, n, load_until, &info, err);
    for (size_t i = 0; rc >= 0 && i < info.nloaded; i++)
        rc = block_put(m, &blocks[i], err);
    for (size_t i = 0; i < n; i++)
        block_free(&blocks[i]);
    free(blocks);
    return rc < 0 ? rc : 0;
}

int model_load(struct model *m, const char *path, int load_until, struct err *err)
{
    size_t len = strlen(path);
    struct safetensors *file;
    int rc;

    if (len < 12 || strcmp(path + len - 12, ".safetensors") != 0)
        return load_weights(m, path, load_until, err);
    rc = safetensors_open(path, &file, err);
    if (rc < 0)
        return rc;
    rc = model_import(m, file, load_until, err);
    safetensors_close(file);
    if (rc < 0)
        err_prefix(err, "model.init '%s'", path);
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

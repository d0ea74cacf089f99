#include "worker/models/yolo/darknet_write.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/host/sha256.h"
#include "worker/core/file.h"
#include "worker/models/model.h"
#include "worker/models/weights.h"
#include "worker/models/yolo/darknet_net.h"
#include "worker/models/yolo/yolov3.h"

static const char *const activations[] = { "linear", "leaky", "relu", "logistic", "tanh" }; /* in the order of enum act_kind */

/* The first line of every .cfg written here. Any other .cfg is not replaced. */
static const char own[] = "# detd: a trained network\n";
enum { CFG_BYTES = 64 << 20, HASH_LINE = sizeof "# weights \n" - 1 + 2 * SHA256_BYTES };

/* ---- .cfg ---- */

static void put_conv(struct file_out *o, const struct darknet_layer *l, struct err *err)
{
    file_out_printf(o, err, "[convolutional]\n");
    if (l->bn)
        file_out_printf(o, err, "batch_normalize=1\n");
    file_out_printf(o, err, "filters=%d\nsize=%d\nstride=%d\n", l->filters, l->size, l->stride);
    if (l->pad == l->size / 2)
        file_out_printf(o, err, "pad=1\n");
    else
        file_out_printf(o, err, "padding=%d\n", l->pad);
    file_out_printf(o, err, "activation=%s\n", activations[l->act]);
}

static void put_route(struct file_out *o, const struct darknet_layer *l, struct err *err)
{
    file_out_printf(o, err, "[route]\nlayers=");
    for (int i = 0; i < l->nsources; i++)
        file_out_printf(o, err, "%s%d", i ? "," : "", l->source[i]);
    file_out_printf(o, err, "\n");
}

static void put_yolo(struct file_out *o, const struct darknet_layer *l, struct err *err)
{
    const struct yolo_head *y = &l->yolo;

    file_out_printf(o, err, "[yolo]\nmask=");
    for (int i = 0; i < y->nanchors; i++)
        file_out_printf(o, err, "%s%d", i ? "," : "", y->mask[i]);
    file_out_printf(o, err, "\nanchors=");
    for (int i = 0; i < y->ntotal; i++)
        file_out_printf(o, err, "%s%.9g,%.9g", i ? ", " : "", (double)y->anchor[i][0], (double)y->anchor[i][1]);
    file_out_printf(o, err, "\nclasses=%d\nnum=%d\njitter=%.9g\nignore_thresh=%.9g\ntruth_thresh=%.9g\nrandom=%d\n", y->classes, y->ntotal,
                    l->jitter, (double)y->ignore_thresh, (double)y->truth_thresh, l->random);
    if (y->assign_iou_thresh < 1)
        file_out_printf(o, err, "iou_thresh=%.9g\n", (double)y->assign_iou_thresh);
    if (y->scale_xy != 1)
        file_out_printf(o, err, "scale_x_y=%.9g\n", (double)y->scale_xy);
    if (y->new_coords)
        file_out_printf(o, err, "new_coords=1\n");
}

static void put_layer(struct file_out *o, const struct darknet_layer *l, int index, struct err *err)
{
    switch (l->type) {
    case DARKNET_CONV:
        put_conv(o, l, err);
        break;
    case DARKNET_SHORTCUT:
        file_out_printf(o, err, "[shortcut]\nfrom=%d\nactivation=%s\n", l->source[0] - index, activations[l->act]);
        break;
    case DARKNET_ROUTE:
        put_route(o, l, err);
        break;
    case DARKNET_UPSAMPLE:
        file_out_printf(o, err, "[upsample]\nstride=%d\n", l->stride);
        break;
    case DARKNET_MAXPOOL:
        file_out_printf(o, err, "[maxpool]\nsize=%d\nstride=%d\n", l->size, l->stride);
        if (l->pad != l->size - 1)
            file_out_printf(o, err, "padding=%d\n", l->pad);
        break;
    case DARKNET_YOLO:
        put_yolo(o, l, err);
        break;
    }
    if (l->learning_rate != 1)
        file_out_printf(o, err, "learning_rate=%.17g\n", l->learning_rate);
    if (l->stop_backward)
        file_out_printf(o, err, "stopbackward=1\n");
}

/* Writes the layers, and a [net] section to look at pictures one by one. It leaves out a job's decisions about
 * training. The commit reports errors. */
static void darknet_write_cfg(struct file_out *out, const struct darknet_net *net, struct err *err)
{
    file_out_printf(out, err, "%s[net]\nbatch=1\nsubdivisions=1\nwidth=%d\nheight=%d\nchannels=%d\n", own, net->width, net->height,
                    net->channels);
    for (int i = 0; i < net->nlayers; i++) {
        file_out_printf(out, err, "\n# layer %d\n", i);
        put_layer(out, &net->layers[i], i, err);
    }
}

/* ---- .weights ---- */

static int put_array(struct file_out *o, struct model *m, const struct param *p, struct err *err)
{
    float *stored = p ? weights_get_stored(m, p, err) : NULL;
    int rc = !p ? 0 : stored ? file_out_write(o, stored, p->count * sizeof *stored, err) : err->code;

    free(stored);
    return rc;
}

static int put_block(struct file_out *o, struct model *m, const struct yolov3_conv *c, struct err *err)
{
    const struct param *order[] = { c->gamma ? c->beta : c->bias, c->gamma, c->mean, c->var, c->weight };
    int rc = 0;

    for (size_t i = 0; i < sizeof order / sizeof *order && rc >= 0; i++)
        rc = put_array(o, m, order[i], err);
    return rc;
}

/* Writes version 0.2.0, then every convolution's numbers. seen: number of trained images. */
static int darknet_write_weights(struct file_out *out, struct model *m, int64_t seen, struct err *err)
{
    static const int32_t version[3] = { 0, 2, 0 };
    const struct darknet_net *net = yolov3_net(m);
    int rc = file_out_write(out, version, sizeof version, err);

    if (rc >= 0)
        rc = file_out_write(out, &seen, sizeof seen, err);
    for (int i = 0; i < net->nlayers && rc >= 0; i++)
        if (net->layers[i].type == DARKNET_CONV)
            rc = put_block(out, m, yolov3_conv(m, i), err);
    return rc;
}

/* ---- both ---- */

static bool is_own_cfg(const char *path)
{
    struct file_map m;
    struct err ignored;
    bool is;

    if (file_map_open(path, CFG_BYTES, &m, &ignored) < 0)
        return false;
    is = m.size >= sizeof own - 1 && memcmp(m.data, own, sizeof own - 1) == 0;
    file_map_close(&m);
    return is;
}

/* Puts FILE.cfg for FILE.weights into ret. */
static int name_cfg(const char *path, char ret[PATH_MAX], struct err *err)
{
    static const char end[] = ".weights";
    size_t len = strlen(path), stem = len - (sizeof end - 1);

    if (len < sizeof end || strcmp(path + stem, end) != 0 || len + 1 > PATH_MAX)
        return err_set(err, ERR_INPUT, "'%.200s' should end in .weights: its .cfg is written beside it", path);
    snprintf(ret, PATH_MAX, "%.*s.cfg", (int)stem, path);
    return 0;
}

/* The last line of the .cfg identifies its .weights by hash. */
static void hash_line(const unsigned char hash[SHA256_BYTES], char ret[HASH_LINE + 1])
{
    int n = snprintf(ret, HASH_LINE + 1, "# weights ");

    for (int i = 0; i < SHA256_BYTES; i++)
        n += snprintf(ret + n, HASH_LINE + 1 - (size_t)n, "%02x", hash[i]);
    ret[n] = '\n';
    ret[n + 1] = '\0';
}

static bool ends_in_hash_of(const struct file_map *cfg, const struct file_map *weights)
{
    unsigned char hash[SHA256_BYTES];
    char line[HASH_LINE + 1];

    sha256(weights->data, weights->size, hash);
    hash_line(hash, line);
    return cfg->size > HASH_LINE && memcmp(cfg->data + cfg->size - HASH_LINE, line, HASH_LINE) == 0;
}

/* A .weights has no room for a mark. The .cfg beside it has the hash. */
static bool is_own_weights(const char *path)
{
    struct file_map cfg, weights;
    struct err ignored;
    char beside[PATH_MAX];
    bool is = false;

    if (name_cfg(path, beside, &ignored) < 0 || !is_own_cfg(beside) || file_map_open(beside, CFG_BYTES, &cfg, &ignored) < 0)
        return false;
    if (file_map_open(path, SIZE_MAX, &weights, &ignored) == 0) {
        is = ends_in_hash_of(&cfg, &weights);
        file_map_close(&weights);
    }
    file_map_close(&cfg);
    return is;
}

/* Both files are open. The .weights is published first, so that the hash never stands beside an older .weights. */
static int write_both(struct file_out *cfg, struct file_out *weights, struct model *m, int64_t seen, struct err *err)
{
    unsigned char hash[SHA256_BYTES];
    char line[HASH_LINE + 1];
    int rc = darknet_write_weights(weights, m, seen, err);

    if (rc >= 0)
        rc = file_out_hash(weights, hash, err);
    if (rc >= 0) {
        hash_line(hash, line);
        darknet_write_cfg(cfg, yolov3_net(m), err);
        file_out_printf(cfg, err, "\n%s", line);
        rc = file_out_commit(weights, err);
    } else {
        file_out_abort(weights);
    }
    if (rc >= 0)
        return file_out_commit(cfg, err);
    file_out_abort(cfg);
    return rc;
}

int darknet_write_pair(struct model *m, const char *path, int64_t seen, struct err *err)
{
    struct file_out *cfg = NULL, *weights;
    char beside[PATH_MAX];
    int rc = name_cfg(path, beside, err);

    if (rc >= 0)
        rc = file_out_open_named(beside, is_own_cfg, &cfg, err);
    if (rc >= 0)
        rc = file_out_open_named(path, is_own_weights, &weights, err);
    if (rc >= 0)
        return write_both(cfg, weights, m, seen, err);
    file_out_abort(cfg);
    return rc;
}

#include "worker/models/yolo/presets.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/models/yolo/darknet_cfg.h"

static const char anchors_full[] = "10,13, 16,30, 33,23, 30,61, 62,45, 59,119, 116,90, 156,198, 373,326";
static const char anchors_tiny[] = "10,14, 23,27, 37,58, 81,82, 135,169, 344,319";

static void put_net(FILE *o, int side)
{
    fprintf(o, "[net]\nwidth=%d\nheight=%d\nchannels=3\n", side, side);
}

static void put_conv(FILE *o, int filters, int size, int stride)
{
    fprintf(o, "[convolutional]\nbatch_normalize=1\nfilters=%d\nsize=%d\nstride=%d\npad=1\nactivation=leaky\n", filters, size, stride);
}

static void put_maxpool(FILE *o, int size, int stride)
{
    fprintf(o, "[maxpool]\nsize=%d\nstride=%d\n", size, stride);
}

static void put_route(FILE *o, const char *layers)
{
    fprintf(o, "[route]\nlayers=%s\n", layers);
}

static void put_head(FILE *o, const char *mask, const char *anchors, int num)
{
    fputs("[convolutional]\nfilters=255\nsize=1\nstride=1\npad=1\nactivation=linear\n", o);
    fprintf(o, "[yolo]\nmask=%s\nanchors=%s\nnum=%d\nclasses=80\n", mask, anchors, num);
    fputs("jitter=.3\nignore_thresh=.7\ntruth_thresh=1\nrandom=1\n", o);
}

/* Halves the resolution. Then `blocks` residual blocks: 1x1 to half the channels, 3x3 back, plus the block's input. */
static void put_stage(FILE *o, int filters, int blocks)
{
    put_conv(o, filters, 3, 2);
    for (int i = 0; i < blocks; i++) {
        put_conv(o, filters / 2, 1, 1);
        put_conv(o, filters, 3, 1);
        fputs("[shortcut]\nfrom=-3\nactivation=linear\n", o);
    }
}

/* `pairs` of convolutions: 1x1 to `filters`, 3x3 to twice as many. */
static void put_pairs(FILE *o, int filters, int pairs)
{
    for (int i = 0; i < pairs; i++) {
        put_conv(o, filters, 1, 1);
        put_conv(o, 2 * filters, 3, 1);
    }
}

/* Joins pools of three sizes with the unpooled map. */
static void put_pyramid(FILE *o)
{
    put_maxpool(o, 5, 1);
    put_route(o, "-2");
    put_maxpool(o, 9, 1);
    put_route(o, "-4");
    put_maxpool(o, 13, 1);
    put_route(o, "-1,-3,-5,-6");
}

/* Begins at the branch four layers back, enlarges it to the finer map of layer `skip`, and adds the next head. */
static void put_finer_head(FILE *o, int filters, const char *skip, const char *mask)
{
    put_route(o, "-4");
    put_conv(o, filters, 1, 1);
    fputs("[upsample]\nstride=2\n", o);
    put_route(o, skip);
    put_pairs(o, filters, 3);
    put_head(o, mask, anchors_full, 9);
}

static void put_yolov3(FILE *o, int pyramid)
{
    put_net(o, 608);
    put_conv(o, 32, 3, 1);
    put_stage(o, 64, 1);
    put_stage(o, 128, 2);
    put_stage(o, 256, 8);
    put_stage(o, 512, 8);
    put_stage(o, 1024, 4);
    put_pairs(o, 512, 1);
    put_conv(o, 512, 1, 1);
    if (pyramid) {
        put_pyramid(o);
        put_conv(o, 512, 1, 1);
    }
    put_conv(o, 1024, 3, 1);
    put_pairs(o, 512, 1);
    put_head(o, "6,7,8", anchors_full, 9);
    put_finer_head(o, 256, "-1,61", "3,4,5");
    put_finer_head(o, 128, "-1,36", "0,1,2");
}

/* The second head has anchors 0,1,2, so that each anchor is in one head. The public pretrained weights were trained
 * with 1,2,3 and need their own cfg. */
static void put_tiny(FILE *o)
{
    put_net(o, 416);
    for (int filters = 16; filters <= 512; filters *= 2) {
        put_conv(o, filters, 3, 1);
        put_maxpool(o, 2, filters < 512 ? 2 : 1);
    }
    put_conv(o, 1024, 3, 1);
    put_pairs(o, 256, 1);
    put_head(o, "3,4,5", anchors_tiny, 6);
    put_route(o, "-4");
    put_conv(o, 128, 1, 1);
    fputs("[upsample]\nstride=2\n", o);
    put_route(o, "-1,8");
    put_conv(o, 256, 3, 1);
    put_head(o, "0,1,2", anchors_tiny, 6);
}

static int put_preset(FILE *o, const char *name)
{
    if (strcmp(name, "yolov3") == 0)
        put_yolov3(o, 0);
    else if (strcmp(name, "yolov3_spp") == 0)
        put_yolov3(o, 1);
    else if (strcmp(name, "yolov3_tiny") == 0)
        put_tiny(o);
    else
        return ERR_NOTFOUND;
    return 0;
}

/* The text, malloc'ed; the caller frees it. Returns ERR_NOTFOUND for an unknown name, or -ENOMEM. */
static int preset_cfg(const char *name, char **ret_text, struct err *err)
{
    char *text = NULL;
    size_t size = 0;
    FILE *o = open_memstream(&text, &size);
    int rc = o ? put_preset(o, name) : -ENOMEM;

    if (o && fclose(o) != 0)
        rc = -ENOMEM;
    if (rc == 0) {
        *ret_text = text;
        return 0;
    }
    free(text);
    if (rc == ERR_NOTFOUND)
        return err_set(err, rc, "no preset '%s'; there are yolov3, yolov3_tiny, yolov3_spp", name);
    return err_set(err, rc, "preset '%s': out of memory", name);
}

int preset_net(const char *name, struct darknet_net **ret_net, struct err *err)
{
    char *text = NULL;
    int rc = preset_cfg(name, &text, err);

    if (text) {
        rc = darknet_cfg_parse(text, strlen(text), name, ret_net, err);
        free(text);
    }
    if (rc == 0)
        (*ret_net)->warnings[0] = '\0'; /* warnings are of keys for other programs, which export writes */
    return rc;
}

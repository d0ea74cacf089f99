#include "worker/models/depth/load.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/core/safetensors.h"
#include "worker/models/depth/depth.h"
#include "worker/models/depth/network.h"
#include "worker/models/weights.h"

enum { NAME_BYTES = 160, SPELLINGS = 3, PICTURE_CHANNELS = 3 };

/* A network and the prefixes of its parameters, here and in files. "": a file of a ResNet alone. */
struct part {
    const char *ours, *theirs[SPELLINGS];
    const char *key; /* the key of its own file, besides model.init */
    const char *what;
};
static const struct part parts[] = {
    { "depth.encoder.", { "depth.encoder.", "DepthEncoder.encoder.", "" }, "model.init_depth", "the ResNet of depth" },
    { "depth.decoder.", { "depth.decoder.", "DepthDecoder." }, "model.init_depth", "the decoder of depth" },
    { "pose.encoder.", { "pose.encoder.", "PoseEncoder.encoder.", "" }, "model.init_pose", "the ResNet of motion" },
    { "pose.decoder.", { "pose.decoder.", "PoseDecoder." }, "model.init_pose", "the decoder of motion" },
    { "extractor.encoder.", { "extractor.encoder.", "Encoder.encoder.", "" }, "model.init_extractor", "the ResNet of features" },
    { "extractor.decoder.", { "extractor.decoder.", "Decoder." }, "model.init_extractor", "the decoder of features" },
};
enum { PARTS = sizeof parts / sizeof *parts };

struct load {
    struct model *m;
    const struct depth_network *n;
    const struct safetensors *file;
    const char *key, *path;
    bool taken[PARTS]; /* loaded from some file */
};

static bool is_of(const struct param *p, const struct part *part)
{
    return strncmp(p->name, part->ours, strlen(part->ours)) == 0;
}

static const struct st_array *array_of(const struct load *l, const struct param *p, const struct part *part, const char *theirs)
{
    char name[NAME_BYTES];

    snprintf(name, sizeof name, "%s%s", theirs, p->name + strlen(part->ours));
    return safetensors_find(l->file, name);
}

/* A file of a ResNet alone is for the network that model.init_... names. For model.init it is the depth encoder, or the
 * encoder of features in a network that rebuilds pictures. */
static bool may_be_bare(const struct load *l, const struct part *part)
{
    if (strcmp(l->key, "model.init") != 0)
        return true;
    return strcmp(part->key, "model.init_depth") == 0 || (strcmp(part->key, "model.init_extractor") == 0 && depth_rebuilds(l->n));
}

/* The prefix with the most arrays in the file. NULL: the file has no array of this part. */
static const char *spelling_of(const struct load *l, const struct part *part)
{
    const char *best = NULL;
    int most = 0;

    for (int s = 0; s < SPELLINGS && part->theirs[s]; s++) {
        int have = 0;

        for (int i = 0; i < l->m->nparams && (part->theirs[s][0] || may_be_bare(l, part)); i++)
            have += is_of(l->m->params[i], part) && array_of(l, l->m->params[i], part, part->theirs[s]) != NULL;
        if (have > most) {
            most = have;
            best = part->theirs[s];
        }
    }
    return best;
}

/* Makes a stem for two pictures from a stem for one: each picture gets the same weights, halved. */
static int put_doubled(struct load *l, struct param *p, const struct st_array *a, struct err *err)
{
    size_t pixels = (size_t)p->r * (size_t)p->s, group = PICTURE_CHANNELS * pixels, n = (size_t)p->k * group;
    float *one = malloc(n * sizeof *one), *two = malloc(2 * n * sizeof *two);
    int rc = one && two ? safetensors_f32(a, one, err) : err_set(err, ERR_DEVICE, "out of memory: %s", p->name);

    for (size_t i = 0; rc >= 0 && i < 2 * n; i++)
        two[i] = one[i / (2 * group) * group + i % group] / 2;
    if (rc >= 0)
        rc = weights_put_stored(l->m, p, two, false, err);
    free(one);
    free(two);
    return rc;
}

static bool is_single_stem(const struct param *p, const struct st_array *a)
{
    return p->c == 2 * PICTURE_CHANNELS && a->ndims == 4 && a->shape[0] == p->k && a->shape[1] == PICTURE_CHANNELS && a->shape[2] == p->r &&
           a->shape[3] == p->s;
}

static int put_part(struct load *l, int which, int *ret_n, struct err *err)
{
    const struct part *part = &parts[which];
    const char *theirs = spelling_of(l, part);

    for (int i = 0; i < l->m->nparams && theirs; i++) {
        struct param *p = l->m->params[i];
        const struct st_array *a = is_of(p, part) ? array_of(l, p, part, theirs) : NULL;
        int rc;

        if (!is_of(p, part))
            continue;
        if (!a)
            return err_set(err, ERR_DATA, "%s%s is not in the file, which has others of %s", theirs, p->name + strlen(part->ours),
                           part->what);
        rc = is_single_stem(p, a) ? put_doubled(l, p, a, err) : weights_put_array(l->m, p, a, false, err);
        if (rc < 0)
            return rc;
        (*ret_n)++;
    }
    l->taken[which] = l->taken[which] || theirs;
    return 0;
}

static bool is_built(const struct load *l, const struct part *part)
{
    for (int i = 0; i < l->m->nparams; i++)
        if (is_of(l->m->params[i], part))
            return true;
    return false;
}

/* Lists the networks without weights from a file. */
static void say_missing(const struct load *l)
{
    const char *before = "; of random weights: ";

    for (int i = 0; i < PARTS; i++) {
        if (l->taken[i] || !is_built(l, &parts[i]))
            continue;
        weights_say(l->m, "%s%s", before, parts[i].what);
        before = ", ";
    }
}

static int load_file(struct load *l, struct err *err)
{
    int n = 0, rc = 0;

    for (int i = 0; i < PARTS && rc >= 0; i++)
        if (strcmp(l->key, "model.init") == 0 || strcmp(l->key, parts[i].key) == 0)
            rc = put_part(l, i, &n, err);
    if (rc >= 0 && n == 0)
        rc = err_set(err, ERR_DATA, "the file has no array of this network");
    if (rc >= 0)
        weights_say(l->m, "%s%s '%.200s': %d of %d arrays loaded", l->m->loaded[0] ? "; " : "", l->key, l->path, n, l->m->nparams);
    return rc;
}

static int load_one(struct load *l, const struct jobspec_init *init, struct err *err)
{
    struct safetensors *file;
    const char *prefix;
    int rc = weights_open(init->path, &file, &prefix, err);

    if (rc >= 0) {
        l->file = file;
        l->key = init->key;
        l->path = init->path;
        rc = load_file(l, err);
        weights_say_prefix(l->m, prefix);
        safetensors_close(file);
    }
    if (rc == ERR_CORRUPT)
        rc = err->code = ERR_DATA;
    if (rc < 0)
        err_prefix(err, "%s '%.200s'", init->key, init->path);
    return rc;
}

int depth_load(struct model *m, const struct jobspec *spec, struct model_classes classes, struct err *err)
{
    struct load l = { .m = m, .n = depth_network_of(m) };
    struct jobspec_init init[JOB_MAX_INITS];
    int n = jobspec_inits(spec, init), rc = 0;

    (void)classes;
    for (int i = 0; i < n && rc >= 0; i++)
        rc = load_one(&l, &init[i], err);
    if (rc < 0)
        return rc;
    for (int i = 0; i < PARTS && l.n->kind == JOB_DEPTH_FEATURES; i++)
        if (strcmp(parts[i].ours, "extractor.encoder.") == 0 && !l.taken[i])
            return err_field(err, ERR_DATA, "model.init_extractor",
                             "model.init_extractor: no file has %s, and features of random weights are of no use", parts[i].what);
    say_missing(&l);
    return 0;
}

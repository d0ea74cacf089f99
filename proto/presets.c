#include "proto/presets.h"

#include <stddef.h>
#include <string.h>

#define X(name, images) static const struct job_family name##_family = { #name, images };
JOB_FAMILIES(X)
#undef X

#define X(name, family, size) { #name, &family##_family, size },
static const struct job_preset rows[] = { JOB_PRESETS(X) };
#undef X

const struct job_presets job_presets = { rows, sizeof rows / sizeof *rows, &yolo_family };

const struct job_preset *job_preset_find(const struct job_presets *presets, const char *name)
{
    for (int i = 0; i < presets->n; i++)
        if (strcmp(presets->row[i].name, name) == 0)
            return &presets->row[i];
    return NULL;
}

bool job_preset_masks(const struct job_preset *p)
{
    return p && strncmp(p->name, "mask_", 5) == 0;
}

/* specs rcnn section 7; statistics that are no network's own only work frozen, and small shards make poor ones. The rate falls where it does in both
 * programs: after 60000 and 80000 of 90000 steps, after 16 and 22 of 26 epochs. */
const struct job_default job_defaults[] = {
    { "rcnn", "model.freeze_bn", "false", "true", NULL, 0 },
    { "rcnn", "model.freeze_at", "0", "2", NULL, 0 },
    { "rcnn", "model.bn_momentum", "0.1", NULL, NULL, 0 },
    { "rcnn", "train.lr", "0.02", NULL, NULL, 16 },
    { "rcnn", "train.weight_decay", "0.0001", NULL, NULL, 0 },
    { "rcnn", "train.warmup", "\"linear\"", NULL, NULL, 0 },
    { "rcnn", "train.lr_steps", "[0.66666667, 0.88888889]", NULL, "[0.61538462, 0.84615385]", 0 },
    { "rcnn", "val.batch", "1", NULL, NULL, 0 },
    { "rcnn", "val.conf", "0.05", NULL, NULL, 0 },
    { "rcnn", "val.nms", "0.5", NULL, NULL, 0 },
    { NULL, NULL, NULL, NULL, NULL, 0 },
};

const struct job_default *job_default_find(const struct job_family *family, const char *key)
{
    for (const struct job_default *d = job_defaults; family && d->family; d++)
        if (strcmp(d->family, family->name) == 0 && strcmp(d->key, key) == 0)
            return d;
    return NULL;
}

/* proto/presets.h - networks by name: which family of models each is of, and what defaults of job keys depend on them. How they are built stands in
 * worker/models/registry.h. */
#pragma once

struct job_family {
    const char *name;
    int shard_images; /* so many at least has a shard of the default of train.shards */
};

struct job_preset {
    const char *name;
    const struct job_family *family;
    int size; /* default of model.size, pixels */
};

struct job_presets {
    const struct job_preset *row;
    int n;
    const struct job_family *cfg; /* the family that model.cfg describes; NULL: none here */
};

/* X(name, least images of a shard) */
#define JOB_FAMILIES(X) X(yolo, 4)
/* X(name, family, size) */
#define JOB_PRESETS(X)        \
    X(yolov3, yolo, 416)      \
    X(yolov3_tiny, yolo, 416) \
    X(yolov3_spp, yolo, 416)

/* "yolov3|yolov3_tiny|..." */
#define JOB_PRESET_WORD(name, family, size) "|" #name
#define JOB_PRESET_WORDS                    (&JOB_PRESETS(JOB_PRESET_WORD)[1])

/* Those above. */
extern const struct job_presets job_presets;

/* NULL: there is none of that name. */
const struct job_preset *job_preset_find(const struct job_presets *presets, const char *name);

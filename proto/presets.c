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

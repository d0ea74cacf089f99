#include "worker/data/sample/frames.h"

/* clang-format off */
#define PICTURES(name) { name, DTYPE_U8, BATCH_IMAGES, true, 3 }
#define SOURCE(n) PICTURES("source" #n), PICTURES("seen" #n)
#define CAMERAS { "camera", DTYPE_F32, BATCH_IMAGES, false, 4 }, { "stereo", DTYPE_F32, BATCH_IMAGES, false, 1 }
/* clang-format on */

static const struct batch_form forms[FRAMES_MAX_SOURCES + 1] = {
    { .narrays = 4, .array = { PICTURES("picture"), PICTURES("seen"), CAMERAS } },
    { .narrays = 6, .array = { PICTURES("picture"), PICTURES("seen"), SOURCE(0), CAMERAS } },
    { .narrays = 8, .array = { PICTURES("picture"), PICTURES("seen"), SOURCE(0), SOURCE(1), CAMERAS } },
    { .narrays = 10, .array = { PICTURES("picture"), PICTURES("seen"), SOURCE(0), SOURCE(1), SOURCE(2), CAMERAS } },
};

const struct batch_form *frames_form(int nsources)
{
    return &forms[nsources];
}

int frames_sources(const struct jobspec *spec, int ret[FRAMES_MAX_SOURCES])
{
    const struct jobspec_list *l = &spec->data_sources;
    bool none = l->n == 1 && l->v[0] == 0;
    int n = 0;

    if (job_preset_depth(spec->preset) == JOB_DEPTH_AUTOENCODER)
        return 0;
    for (int i = 0; i < l->n && !none && n < FRAMES_MAX_SOURCES; i++)
        ret[n++] = (int)l->v[i] * (int)spec->data_stride;
    if (spec->data_stereo && n < FRAMES_MAX_SOURCES)
        ret[n++] = FRAMES_STEREO;
    return n;
}

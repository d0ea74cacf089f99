#include "worker/eval/results.h"

#include <inttypes.h>

#include "proto/err.h"
#include "worker/core/file.h"

static int check_images(const struct detection *dets, size_t n, int nimages, struct err *err)
{
    for (size_t i = 0; i < n; i++)
        if (dets[i].image >= nimages)
            return err_set(err, ERR_INPUT, "detection %zu: image %d of %d", i, dets[i].image, nimages);
    return 0;
}

/* 9 digits bring every float back exactly, so that a score computed from the file is the one that was reported. */
static void put(struct file_out *o, const struct detection *d, int64_t image_id, int64_t category_id, const char *before)
{
    file_out_printf(o, NULL, "%s{\"image_id\":%" PRId64 ",\"category_id\":%" PRId64 ",\"bbox\":[%.9g,%.9g,%.9g,%.9g],\"score\":%.9g}",
                    before, image_id, category_id, d->box[0], d->box[1], d->box[2], d->box[3], d->score);
}

int results_write(const char *path, const struct detection *dets, size_t ndets, const int64_t *image_ids, int nimages,
                  const int64_t *category_ids, int nclasses, struct err *err)
{
    struct file_out *o;
    int rc = detections_check(dets, ndets, nclasses, err);

    if (rc == 0)
        rc = check_images(dets, ndets, nimages, err);
    if (rc < 0)
        return rc;
    rc = file_out_open(path, &o, err);
    if (rc < 0)
        return rc;
    file_out_write(o, "[", 1, NULL);
    for (size_t i = 0; i < ndets; i++)
        put(o, &dets[i], image_ids[dets[i].image], category_ids[dets[i].cls], i ? ",\n" : "\n");
    file_out_write(o, "\n]\n", 3, NULL);
    return file_out_commit(o, err); /* tells the first failure of all writes */
}

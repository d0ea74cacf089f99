#include "worker/eval/results_file.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "proto/clean.h"
#include "proto/err.h"
#include "worker/core/file.h"
#include "worker/mask/rle.h"

static int check_images(const struct detection *dets, size_t n, int nimages, struct err *err)
{
    for (size_t i = 0; i < n; i++)
        if (dets[i].image >= nimages)
            return err_set(err, ERR_INPUT, "detection %zu: image %d of %d", i, dets[i].image, nimages);
    return 0;
}

/* The name as JSON text; the caller frees it. NULL: out of memory. */
static char *quoted(const char *name)
{
    json_t *text = clean_string(name);
    char *json = text ? json_dumps(text, JSON_ENCODE_ANY) : NULL;

    json_decref(text);
    return json;
}

/* Texts that results_is_own() looks for. */
static const char empty[] = "[\n]\n", begin[] = "[\n{\"image_id\":", name_key[] = ",\"file_name\":";

int results_mask_make(const struct result_mask *m, int w, int h, struct rle *scratch, struct results_mask *ret, struct err *err)
{
    int rc = rle_from_crop(scratch, h, w, &(struct rle_crop){ m->x, m->y, m->w, m->h, m->bits }, err);
    char *counts;

    if (rc < 0)
        return rc;
    counts = malloc(scratch->n * RLE_TEXT_MOST + 1);
    if (!counts)
        return err_set(err, -ENOMEM, "results: out of memory");
    counts[rle_to_text(scratch, counts)] = '\0';
    *ret = (struct results_mask){ w, h, counts };
    return 0;
}

/* Escapes backslashes, the only characters of the counts that JSON does not take as they are. */
static void put_mask(struct file_out *o, const struct results_mask *m)
{
    const char *from = m->counts, *to;

    file_out_printf(o, NULL, "\"segmentation\":{\"size\":[%d,%d],\"counts\":\"", m->h, m->w);
    for (; (to = strchr(from, '\\')); from = to + 1) {
        file_out_write(o, from, (size_t)(to - from), NULL);
        file_out_write(o, "\\\\", 2, NULL);
    }
    file_out_write(o, from, strlen(from), NULL);
    file_out_write(o, "\"}", 2, NULL);
}

/* 9 digits restore every float exactly, so that a score computed from the file equals the reported one. */
static int put(struct file_out *o, const struct detection *d, const struct results_mask *mask, const struct results_images *images,
               int64_t category_id, struct err *err)
{
    char *name = quoted(images->name[d->image]);

    if (!name)
        return err_set(err, -ENOMEM, "results: out of memory");
    file_out_printf(o, NULL, "{\"image_id\":%" PRId64 "%s%s,\"category_id\":%" PRId64 ",", images->id[d->image], name_key, name,
                    category_id);
    free(name);
    if (mask)
        put_mask(o, mask);
    else
        file_out_printf(o, NULL, "\"bbox\":[%.9g,%.9g,%.9g,%.9g]", d->box[0], d->box[1], d->box[2], d->box[3]);
    file_out_printf(o, NULL, ",\"score\":%.9g}", d->score);
    return 0;
}

/* masks is NULL for boxes. */
static int write_all(const char *path, const struct detection *dets, const struct results_mask *masks, size_t ndets,
                     const struct results_images *images, const int64_t *category_ids, int nclasses, struct err *err)
{
    struct file_out *o;
    int rc = detections_check(dets, ndets, nclasses, err);

    if (rc == 0)
        rc = check_images(dets, ndets, images->n, err);
    if (rc < 0)
        return rc;
    rc = file_out_open_named(path, results_is_own, &o, err);
    if (rc < 0)
        return rc;
    file_out_write(o, "[", 1, NULL);
    for (size_t i = 0; i < ndets && rc == 0; i++) {
        file_out_printf(o, NULL, i ? ",\n" : "\n");
        rc = put(o, &dets[i], masks ? &masks[i] : NULL, images, category_ids[dets[i].cls], err);
    }
    if (rc < 0) {
        file_out_abort(o);
        return rc;
    }
    file_out_write(o, "\n]\n", 3, NULL);
    return file_out_commit(o, err); /* reports the first failure of all writes */
}

int results_write(const char *path, const struct detection *dets, size_t ndets, const struct results_images *images,
                  const int64_t *category_ids, int nclasses, struct err *err)
{
    return write_all(path, dets, NULL, ndets, images, category_ids, nclasses, err);
}

int results_write_masks(const char *path, const struct detection *dets, const struct results_mask *masks, size_t ndets,
                        const struct results_images *images, const int64_t *category_ids, int nclasses, struct err *err)
{
    return write_all(path, dets, masks, ndets, images, category_ids, nclasses, err);
}

static bool starts_with(const struct file_map *m, size_t at, const char *text)
{
    return m->size - at >= strlen(text) && memcmp(m->data + at, text, strlen(text)) == 0;
}

bool results_is_own(const char *path)
{
    struct file_map m;
    struct err ignored;
    size_t at = strlen(begin);
    bool is;

    if (file_map_open(path, SIZE_MAX, &m, &ignored) < 0)
        return false;
    is = starts_with(&m, 0, begin);
    while (is && at < m.size && (m.data[at] == '-' || (m.data[at] >= '0' && m.data[at] <= '9')))
        at++;
    is = is ? starts_with(&m, at, name_key) : m.size == strlen(empty) && starts_with(&m, 0, empty);
    file_map_close(&m);
    return is;
}

#include "worker/report/val_picture.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/host/pictures.h"
#include "worker/data/set/dataset.h"
#include "worker/data/image/image.h"
#include "worker/eval/depth/depth_picture.h"
#include "worker/eval/result.h"

/* ---- files ---- */

/* The number of `names` with a step above `step` and not above `limit`. */
static int newer(struct dirent *const *names, int n, int64_t step, int64_t limit)
{
    int count = 0;

    for (int i = 0; i < n; i++) {
        int64_t other = pictures_step(names[i]->d_name);

        count += other > step && other <= limit;
    }
    return count;
}

/* Unfinished files have another ending. */
static int is_ours(const struct dirent *e)
{
    return strncmp(e->d_name, "val-step-", 9) == 0;
}

/* Removes old pictures. A picture that cannot be removed stays. */
static void tidy(const char *folder, int64_t step)
{
    struct dirent **names = NULL;
    int n = scandir(folder, &names, is_ours, NULL);
    char path[PATH_MAX + NAME_MAX];

    for (int i = 0; i < n; i++) {
        int64_t of = pictures_step(names[i]->d_name);

        if (of >= 0 && of <= step && newer(names, n, of, step) < PICTURES_KEPT)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
        unlink(path);
    }
    for (int i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

/* ---- the picture ---- */

/* A picture of [2 * h][w][3]: the image above its depth. The caller frees it. */
static int compose(const struct image *img, const struct result_map *m, uint8_t **ret, struct err *err)
{
    size_t bytes = (size_t)img->w * (size_t)img->h * 3;
    uint8_t *both;
    int rc;

    if (m->w != img->w || m->h != img->h)
        return err_set(err, ERR_INPUT, "depth of %d x %d pixels of a picture of %d x %d", m->w, m->h, img->w, img->h);
    both = malloc(2 * bytes);
    if (!both)
        return err_set(err, -ENOMEM, "out of memory: a picture of validation");
    memcpy(both, img->rgb, bytes);
    rc = depth_colours(m, both + bytes, err);
    if (rc < 0)
        free(both);
    else
        *ret = both;
    return rc;
}

static int write_both(const char *path, struct decoder *dec, const struct dataset *d, int image, const struct result *r, struct err *err)
{
    char file[DATASET_MAX_PATH];
    struct image img;
    uint8_t *both = NULL;
    int rc = image_read(dec, dataset_path(d, image, file), &img, err);

    if (rc >= 0)
        rc = compose(&img, &r->depth, &both, err);
    if (rc >= 0)
        rc = image_write_png(path, both, img.w, 2 * img.h, err);
    free(both);
    return rc;
}

int val_picture_write(const char *job_dir, int64_t step, const struct dataset *d, int image, const struct result *r, struct err *err)
{
    char folder[PATH_MAX], path[PATH_MAX + NAME_MAX];
    int n = snprintf(folder, sizeof folder, "%s/%s", job_dir, PICTURES_FOLDER), rc = result_depth_check(r, err);
    struct decoder *dec = NULL;

    if (rc < 0)
        return rc;
    if (n < 0 || (size_t)n >= sizeof folder)
        return err_set(err, ERR_INPUT, "%.200s...: path too long", job_dir);
    if (mkdir(folder, 0777) < 0 && errno != EEXIST)
        return err_sys(err, "folder '%s'", folder);
    tidy(folder, step);
    snprintf(path, sizeof path, "%s/" PICTURES_NAME, folder, (long long)step);
    dec = decoder_new();
    rc = dec ? write_both(path, dec, d, image, r, err) : err_set(err, -ENOMEM, "out of memory: a picture of validation");
    decoder_free(dec);
    if (rc >= 0)
        tidy(folder, step);
    return rc;
}

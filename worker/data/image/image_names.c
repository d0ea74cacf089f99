#include "worker/data/image/image_names.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "proto/err.h"
#include "proto/grow.h"

const char *image_name_ending(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');

    return dot && dot > name ? dot : path + strlen(path);
}

bool image_name_is_picture(const char *path)
{
    static const char *const endings[] = { "jpg",  "jpeg", "jpe", "jfif", "mpo",  "png",  "apng", "bmp", "dib", "webp", "tif",
                                           "tiff", "gif",  "dng", "pfm",  "heic", "heif", "avif", "jp2", "j2k", "jxl",  "pgm",
                                           "ppm",  "pbm",  "pnm", "tga",  "exr",  "hdr",  "psd",  "cr2", "nef", "arw",  "ico" };
    const char *ending = image_name_ending(path);

    for (size_t i = 0; *ending && i < sizeof endings / sizeof *endings; i++)
        if (strcasecmp(ending + 1, endings[i]) == 0)
            return true;
    return false;
}

/* ---- folders ---- */

void image_names_free(struct image_names *names)
{
    for (size_t i = 0; i < names->n; i++)
        free(names->file[i]);
    free(names->file);
    free(names->folder);
    free(names->other);
    *names = (struct image_names){ 0 };
}

/* True if the entry is a folder or a link to one. Most file systems give the kind with the name, so stat() is rarely
 * called. */
static bool is_folder(int folder, const struct dirent *e)
{
    struct stat st;

    if (e->d_type != DT_UNKNOWN && e->d_type != DT_LNK)
        return e->d_type == DT_DIR;
    return fstatat(folder, e->d_name, &st, 0) == 0 && S_ISDIR(st.st_mode);
}

static int keep_other(struct image_names *names, const char *file)
{
    char *copy;

    names->others++;
    if (names->other && strcmp(file, names->other) >= 0)
        return 0;
    copy = strdup(file);
    if (!copy)
        return -ENOMEM;
    free(names->other);
    names->other = copy;
    return 0;
}

static int keep(struct image_names *names, const char *file)
{
    if (!GROW(names->file, names->room, names->n + 1))
        return -ENOMEM;
    names->file[names->n] = strdup(file);
    if (!names->file[names->n])
        return -ENOMEM;
    names->n++;
    return 0;
}

/* Compares the name of `file` without its ending with len bytes of `stem`. */
static int by_stem(const char *file, const char *stem, size_t len)
{
    size_t n = (size_t)(image_name_ending(file) - file);
    int order = memcmp(file, stem, n < len ? n : len);

    return order ? order : (n > len) - (n < len);
}

static int by_name(const void *a, const void *b)
{
    const char *x = *(char *const *)a, *y = *(char *const *)b;
    int order = by_stem(x, y, (size_t)(image_name_ending(y) - y));

    return order ? order : strcmp(x, y);
}

static int read_folder(struct image_names *names, DIR *dir)
{
    struct dirent *e;
    int rc = 0;

    while (rc == 0 && (e = readdir(dir))) {
        if (e->d_name[0] == '.' || is_folder(dirfd(dir), e))
            continue;
        rc = image_name_is_picture(e->d_name) ? keep(names, e->d_name) : keep_other(names, e->d_name);
    }
    if (names->n > 0)
        qsort(names->file, names->n, sizeof *names->file, by_name);
    return rc;
}

int image_names_list(struct image_names *names, const char *folder, struct err *err)
{
    DIR *dir;
    int rc;

    if (names->folder && strcmp(names->folder, folder) == 0)
        return 0;
    image_names_free(names);
    dir = opendir(folder);
    if (!dir)
        return err_sys(err, "open '%s'", folder);
    names->folder = strdup(folder);
    rc = names->folder ? read_folder(names, dir) : -ENOMEM;
    closedir(dir);
    if (rc == 0)
        return 0;
    image_names_free(names);
    return err_set(err, -ENOMEM, "%s: no memory for its files", folder);
}

size_t image_names_find(const struct image_names *names, const char *stem, size_t *ret_first)
{
    size_t len = strlen(stem), lo = 0, hi = names->n, n = 0;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (by_stem(names->file[mid], stem, len) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    *ret_first = lo;
    while (lo + n < names->n && by_stem(names->file[lo + n], stem, len) == 0)
        n++;
    return n;
}

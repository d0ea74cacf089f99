#include "worker/data/read/labels/label_paths.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/err.h"
#include "proto/grow.h"
#include "worker/data/image/image_names.h"

enum { SCAN_MAX_DEPTH = 32 }; /* limit of nested folders; links may form a loop */

/* ".." after a link is not the folder that contains the link, so such a path must not be shortened. */
static bool is_link(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

/* Appends one name to a path; ".." removes the last name, if that is safe. */
static bool put_name(char *path, size_t *used, const char *name, size_t len)
{
    bool absolute = path[0] == '/';

    if (len == 0 || (len == 1 && name[0] == '.'))
        return true;
    if (len == 2 && name[0] == '.' && name[1] == '.' && *used > (absolute ? 1 : 0)) {
        const char *slash = memrchr(path, '/', *used), *last = slash ? slash + 1 : path;

        if (strcmp(last, "..") != 0 && !is_link(path)) {
            *used = slash && slash > path ? (size_t)(slash - path) : absolute ? 1 : 0;
            path[*used] = '\0';
            return true;
        }
    }
    if (len == 2 && name[0] == '.' && name[1] == '.' && absolute && *used == 1)
        return true; /* the root has no parent */
    if (*used + 1 + len + 1 > DATASET_MAX_PATH)
        return false;
    if (*used > 0 && path[*used - 1] != '/')
        path[(*used)++] = '/';
    memcpy(path + *used, name, len);
    *used += len;
    path[*used] = '\0';
    return true;
}

static bool put_path(char *path, size_t *used, const char *more)
{
    while (*more) {
        size_t len = strcspn(more, "/");

        if (!put_name(path, used, more, len))
            return false;
        more += len + (more[len] == '/');
    }
    return true;
}

bool label_path(const char *folder, const char *path, char ret[DATASET_MAX_PATH])
{
    const char *from = path[0] == '/' ? "/" : folder;
    size_t used = 0;

    ret[0] = '\0';
    if (from[0] == '/') {
        memcpy(ret, "/", 2);
        used = 1;
    }
    if (!put_path(ret, &used, from) || !put_path(ret, &used, path))
        return false;
    if (used == 0)
        memcpy(ret, ".", 2);
    return true;
}

void label_path_folder(const char *path, char ret[DATASET_MAX_PATH])
{
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) : 0;

    if (!slash)
        memcpy(ret, ".", 2);
    else
        snprintf(ret, DATASET_MAX_PATH, "%.*s", len > 0 ? (int)len : 1, path);
}

void label_path_stem(const char *path, char ret[DATASET_MAX_PATH])
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

    snprintf(ret, DATASET_MAX_PATH, "%.*s", (int)(image_name_ending(path) - name), name);
}

bool label_path_beside(const char *picture, char ret[DATASET_MAX_PATH])
{
    int n = snprintf(ret, DATASET_MAX_PATH, "%.*s.txt", (int)(image_name_ending(picture) - picture), picture);

    return n > 0 && n < DATASET_MAX_PATH;
}

bool label_path_rule(const char *picture, char ret[DATASET_MAX_PATH])
{
    const char *found = NULL, *rest = NULL, *at = picture;
    int n;

    for (const char *slash; (slash = strchr(at, '/')); at = slash + 1) {
        size_t len = (size_t)(slash - at);

        if ((len == 6 && memcmp(at, "images", 6) == 0) || (len == 10 && memcmp(at, "JPEGImages", 10) == 0)) {
            found = at;
            rest = slash;
        }
    }
    if (!found)
        return false;
    n = snprintf(ret, DATASET_MAX_PATH, "%.*slabels%.*s.txt", (int)(found - picture), picture, (int)(image_name_ending(rest) - rest), rest);
    return n > 0 && n < DATASET_MAX_PATH;
}

int label_path_common(const char *a, int folder, const char *b)
{
    int end = 0;

    for (int i = 0; i < folder && a[i] == b[i]; i++)
        if (b[i + 1] == '/' && (i + 1 == folder || a[i + 1] == '/'))
            end = i + 1;
    return end;
}

/* ---- folders ---- */

struct found_files {
    char **path;
    size_t n, room;
};

static int keep(struct found_files *f, const char *path, struct err *err)
{
    if (!GROW(f->path, f->room, f->n + 1) || !(f->path[f->n] = strdup(path)))
        return err_set(err, -ENOMEM, "%s: no memory", path);
    return ++f->n > DATASET_MAX_IMAGES ? err_set(err, ERR_DATA, "%s: more than %d files", path, DATASET_MAX_IMAGES) : 0;
}

/* Follows links, so the type in a directory entry is not enough. */
static bool is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int list(const char *folder, bool inside, int depth, bool (*is_wanted)(const char *path), struct found_files *found, struct err *err)
{
    char path[DATASET_MAX_PATH];
    struct dirent *entry;
    DIR *dir = opendir(folder);
    int rc = 0;

    if (!dir)
        return err_sys(err, "open '%s'", folder);
    while (rc == 0 && (entry = readdir(dir))) {
        if (entry->d_name[0] == '.')
            continue;
        if (!label_path(folder, entry->d_name, path))
            rc = err_set(err, ERR_DATA, "%.300s/%.100s: path too long", folder, entry->d_name);
        else if (is_folder(path) && inside)
            rc = depth < SCAN_MAX_DEPTH ? list(path, true, depth + 1, is_wanted, found, err)
                                        : err_set(err, ERR_DATA, "%.400s: folders lie more than %d deep", path, SCAN_MAX_DEPTH);
        else if (is_wanted(path) && !is_folder(path))
            rc = keep(found, path, err);
    }
    closedir(dir);
    return rc;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int label_paths_scan(const char *folder, bool inside, bool (*is_wanted)(const char *path), label_found_fn *found, void *arg,
                     struct err *err)
{
    struct found_files f = { 0 };
    int rc = list(folder, inside, 0, is_wanted, &f, err);

    if (f.n > 0)
        qsort(f.path, f.n, sizeof *f.path, by_bytes);
    for (size_t i = 0; i < f.n && rc == 0; i++)
        rc = found(arg, f.path[i], err);
    for (size_t i = 0; i < f.n; i++)
        free(f.path[i]);
    free(f.path);
    return rc;
}

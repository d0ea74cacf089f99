#include "worker/predict/outputs.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <limits.h>
#include <search.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/err.h"
#include "worker/core/file.h"
#include "worker/data/image/image.h"
#include "worker/eval/results_file.h"
#include "worker/eval/depth/trajectory.h"
#include "worker/predict/asked.h"

enum { PATH_BYTES = PATH_MAX + NAME_MAX, STEM_BYTES = NAME_MAX - 48 }; /* room for a number, .png and a temporary suffix */

struct identity {
    dev_t dev;
    ino_t ino;
};

struct outputs {
    const char *dir;
    char results[OUTPUTS_FILES][PATH_BYTES], picture[PATH_BYTES];
    void *inputs; /* tree of struct identity: the input files. Links are never written to */
    void *given;  /* tree of names in use */
};

static int compare_identities(const void *a, const void *b)
{
    const struct identity *x = a, *y = b;

    if (x->dev != y->dev)
        return x->dev < y->dev ? -1 : 1;
    return x->ino < y->ino ? -1 : x->ino > y->ino;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

static int add_input(struct outputs *o, const struct stat *st, struct err *err)
{
    struct identity *id = malloc(sizeof *id), **node;

    if (!id)
        return err_set(err, ERR_DEVICE, "out of memory");
    *id = (struct identity){ st->st_dev, st->st_ino };
    node = tsearch(id, &o->inputs, compare_identities);
    if (!node || *node != id)
        free(id);
    return node ? 0 : err_set(err, ERR_DEVICE, "out of memory");
}

static int add_inputs(struct outputs *o, const struct asked *inputs, struct err *err)
{
    struct stat st;
    int rc = 0;

    for (int i = 0; i < inputs->n && rc >= 0; i++)
        if (stat(inputs->picture[i].path, &st) == 0)
            rc = add_input(o, &st, err);
    return rc;
}

static bool is_input(const struct outputs *o, const struct stat *st)
{
    struct identity id = { st->st_dev, st->st_ino };

    return tfind(&id, &o->inputs, compare_identities) != NULL;
}

/* Returns 1 if a file may be put there, 0 if a link or another file of the user is there. */
static int may_write(const struct outputs *o, const char *path, file_is_own *is_own, struct err *err)
{
    struct stat st;
    int rc;

    if (lstat(path, &st) == 0 && (S_ISLNK(st.st_mode) || is_input(o, &st)))
        return 0;
    rc = file_may_replace(path, is_own, err);
    return rc == ERR_INPUT ? 0 : rc < 0 ? rc : 1;
}

static const struct {
    const char *name;
    file_is_own *is_own;
} files[OUTPUTS_FILES] = { [OUTPUTS_BOXES] = { "results.json", results_is_own },
                           [OUTPUTS_MASKS] = { "results_segm.json", results_is_own },
                           [OUTPUTS_TUM] = { "trajectory.txt", trajectory_is_own },
                           [OUTPUTS_KITTI] = { "trajectory_kitti.txt", trajectory_is_own } };

static int check_results(const struct outputs *o, enum outputs_file file, struct err *err)
{
    const char *path = o->results[file];
    int rc = may_write(o, path, files[file].is_own, err);

    if (rc == 0)
        return err_set(err, ERR_INPUT, "'%s' is there and would be lost: it is a picture given, or not of an earlier predict", path);
    return rc < 0 ? rc : 0;
}

static int make_folder(const char *dir, struct err *err)
{
    struct stat st;

    if (mkdir(dir, 0777) == 0)
        return 0;
    if (errno != EEXIST || stat(dir, &st) < 0)
        return err_sys(err, "folder '%s'", dir);
    return S_ISDIR(st.st_mode) ? 0 : err_set(err, -ENOTDIR, "'%s' is not a folder", dir);
}

int outputs_open(const char *dir, const struct asked *inputs, struct outputs **ret_out, struct err *err)
{
    struct outputs *o = calloc(1, sizeof *o);
    int rc = o ? add_inputs(o, inputs, err) : err_set(err, ERR_DEVICE, "out of memory");

    if (rc >= 0)
        rc = make_folder(dir, err);
    if (rc >= 0) {
        o->dir = dir;
        for (int k = 0; k < OUTPUTS_FILES && rc >= 0; k++) {
            snprintf(o->results[k], sizeof o->results[k], "%s/%s", dir, files[k].name);
            rc = k <= OUTPUTS_MASKS ? check_results(o, (enum outputs_file)k, err) : 0;
        }
    }
    if (rc < 0)
        outputs_close(o);
    else
        *ret_out = o;
    return rc;
}

void outputs_close(struct outputs *o)
{
    if (!o)
        return;
    tdestroy(o->inputs, free);
    tdestroy(o->given, free);
    free(o);
}

int outputs_results(const struct outputs *o, enum outputs_file file, const char **ret_path, struct err *err)
{
    int rc = check_results(o, file, err);

    if (rc >= 0)
        *ret_path = o->results[file];
    return rc;
}

/* Length of the name without its extension, cut between UTF-8 sequences. */
static int stem_length(const char *base)
{
    const char *dot = strrchr(base, '.');
    size_t n = dot && dot != base ? (size_t)(dot - base) : strlen(base);

    if (n <= STEM_BYTES)
        return (int)n;
    n = STEM_BYTES;
    while (n > 1 && ((unsigned char)base[n] & 0xc0) == 0x80)
        n--;
    return (int)n;
}

static int give_away(struct outputs *o, struct err *err)
{
    char *name = strdup(o->picture);

    if (!name || !tsearch(name, &o->given, compare_names)) {
        free(name);
        return err_set(err, ERR_DEVICE, "out of memory");
    }
    return 0;
}

/* Returns 1 if a picture may be put at o->picture, else 0. */
static int is_free(const struct outputs *o, struct err *err)
{
    return tfind(o->picture, &o->given, compare_names) ? 0 : may_write(o, o->picture, image_is_own_png, err);
}

/* Makes the folders of DIR/place, up to its last slash. */
static int make_folders(struct outputs *o, const char *place, struct err *err)
{
    int rc = 0;

    for (const char *slash = place; rc >= 0 && (slash = strchr(slash, '/')); slash++) {
        snprintf(o->picture, sizeof o->picture, "%s/%.*s", o->dir, (int)(slash - place), place);
        rc = make_folder(o->picture, err);
    }
    return rc;
}

/* Puts the name into o->picture. Number 1 is left out. */
static void name_picture(struct outputs *o, const char *place, const char *suffix, int number)
{
    const char *slash = strrchr(place, '/'), *base = slash ? slash + 1 : place;
    int stem = stem_length(base), folder = (int)(base - place);
    char counted[16] = "";

    if (number > 1)
        snprintf(counted, sizeof counted, "-%d", number);
    snprintf(o->picture, sizeof o->picture, "%s/%.*s%.*s%s%s.png", o->dir, folder, place, stem, base, suffix, counted);
}

int outputs_picture(struct outputs *o, const char *place, const char *suffix, const char **ret_path, struct err *err)
{
    int rc = make_folders(o, place, err);

    if (rc < 0)
        return rc;
    name_picture(o, place, suffix, 1);
    for (int i = 2; (rc = is_free(o, err)) == 0; i++) {
        if (i == INT_MAX)
            return err_set(err, ERR_STATE, "no name is free for '%s' in '%s'", place, o->dir);
        name_picture(o, place, suffix, i);
    }
    if (rc > 0)
        rc = give_away(o, err);
    if (rc >= 0)
        *ret_path = o->picture;
    return rc;
}

void outputs_forget(struct outputs *o, const char *place, const char *suffix)
{
    struct err ignored;

    name_picture(o, place, suffix, 1);
    if (is_free(o, &ignored) == 1)
        unlink(o->picture);
}

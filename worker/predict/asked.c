#include "worker/predict/asked.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/grow.h"
#include "worker/data/read/check.h"
#include "worker/data/read/coco/coco.h"
#include "worker/data/read/foreign.h"
#include "worker/data/image/image_names.h"
#include "worker/data/read/labels/labels.h"
#include "worker/data/set/problems.h"
#include "worker/data/set/views.h"
#include "worker/predict/network.h"

enum { LINE_BYTES = PATH_MAX + 1, FOLDERS_DEEP = 100 };

/* A growing list of pictures, and their common folder. */
struct finder {
    struct asked *a;
    size_t room;
    char *common; /* absolute, without a slash at its end; NULL: no picture yet */
    FILE *list;
    int deep;        /* depth of the folder in reading */
    struct stat out; /* the output folder; st_nlink 0: it does not exist */
};

static int no_memory(struct err *err)
{
    return err_set(err, ERR_DEVICE, "out of memory: a list of pictures");
}

/* ---- names ---- */

/* Makes a path absolute and removes ".", ".." and double slashes, without looking at the disk. The caller frees. NULL:
 * out of memory. */
static char *absolute(const char *path)
{
    char here[PATH_MAX] = "", *to, *full;
    size_t n = 0;

    if (path[0] != '/' && !getcwd(here, sizeof here))
        here[0] = '\0';
    full = malloc(strlen(here) + strlen(path) + 3);
    to = full ? malloc(strlen(here) + strlen(path) + 3) : NULL;
    if (!to) {
        free(full);
        return NULL;
    }
    sprintf(full, "%s/%s", here, path);
    for (const char *at = full; *at;) {
        size_t len = strcspn(at += strspn(at, "/"), "/");

        if (len == 2 && strncmp(at, "..", 2) == 0) {
            while (n > 0 && to[--n] != '/')
                ;
        } else if (len > 0 && !(len == 1 && *at == '.')) {
            to[n++] = '/';
            memcpy(to + n, at, len);
            n += len;
        }
        at += len;
    }
    to[n] = '\0';
    free(full);
    return to;
}

/* Shortens the common folder to contain `folder`, which is taken. */
static void narrow(struct finder *f, char *folder)
{
    size_t n = 0, whole = 0;

    if (!f->common) {
        f->common = folder;
        return;
    }
    for (;; n++) {
        bool ends = !f->common[n] || f->common[n] == '/', its = !folder[n] || folder[n] == '/';

        if (ends && its)
            whole = n;
        if (f->common[n] != folder[n] || !f->common[n])
            break;
    }
    f->common[whole] = '\0';
    free(folder);
}

/* ---- by name ---- */

static int add(struct finder *f, const char *path, struct err *err)
{
    struct asked *a = f->a;
    struct asked_picture p;

    if (a->n == ASKED_MAX)
        return err_set(err, ERR_INPUT, "more than %d pictures", ASKED_MAX);
    if (!GROW(a->picture, f->room, a->n + 1))
        return no_memory(err);
    p = (struct asked_picture){ .path = strdup(path), .name = strdup(path), .place = absolute(path), .id = a->n + 1 };
    a->picture[a->n++] = p;
    return p.path && p.name && p.place ? 0 : no_memory(err);
}

/* Adds a picture by its name; the common folder then contains its folder. */
static int add_file(struct finder *f, const char *path, struct err *err)
{
    int rc = add(f, path, err);
    char *folder = rc < 0 ? NULL : strdup(f->a->picture[f->a->n - 1].place), *slash;

    if (rc >= 0 && !folder)
        return no_memory(err);
    if (rc < 0)
        return rc;
    slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
    narrow(f, folder);
    return 0;
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int not_hidden(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

static int walk(struct finder *f, const char *folder, struct err *err);

static int walk_entry(struct finder *f, const char *folder, const char *name, struct err *err)
{
    const char *slash = folder[strlen(folder) - 1] == '/' ? "" : "/";
    char path[PATH_MAX];
    struct stat st, link;

    if (snprintf(path, sizeof path, "%s%s%s", folder, slash, name) >= (int)sizeof path)
        return err_set(err, ERR_INPUT, "'%.100s...': the path is too long", path);
    if (lstat(path, &link) < 0 || stat(path, &st) < 0 || !S_ISDIR(st.st_mode))
        return image_name_is_picture(name) ? add(f, path, err) : 0;
    if (S_ISLNK(link.st_mode) || (f->out.st_nlink && st.st_dev == f->out.st_dev && st.st_ino == f->out.st_ino))
        return 0;
    return walk(f, path, err);
}

static int walk(struct finder *f, const char *folder, struct err *err)
{
    struct dirent **entry = NULL;
    int n, rc;

    if (f->deep == FOLDERS_DEEP)
        return err_set(err, ERR_INPUT, "'%.200s...': more than %d folders in each other", folder, FOLDERS_DEEP);
    n = scandir(folder, &entry, not_hidden, by_bytes);
    rc = n < 0 ? err_sys(err, "folder '%.200s'", folder) : 0;
    f->deep++;
    for (int i = 0; i < n; i++) {
        if (rc >= 0)
            rc = walk_entry(f, folder, entry[i]->d_name, err);
        free(entry[i]);
    }
    free(entry);
    f->deep--;
    return rc;
}

static int add_folder(struct finder *f, const char *path, struct err *err)
{
    int before = f->a->n, rc = walk(f, path, err);
    char *folder;

    if (rc < 0)
        return rc;
    if (f->a->n == before) { /* reading it reports the error later */
        rc = add_file(f, path, err);
        if (rc >= 0)
            f->a->picture[before].folder = true;
        return rc;
    }
    folder = absolute(path);
    if (!folder)
        return no_memory(err);
    narrow(f, folder);
    return 0;
}

static int add_path(struct finder *f, const char *path, struct err *err)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? add_folder(f, path, err) : add_file(f, path, err);
}

static int add_pattern(struct finder *f, const char *pattern, struct err *err)
{
    glob_t found = { 0 };
    int rc = glob(pattern, GLOB_NOCHECK, NULL, &found);

    if (rc == GLOB_NOSPACE) {
        rc = no_memory(err);
    } else if (rc != 0) {
        rc = err_set(err, ERR_INPUT, "'%.200s': no such picture, and the pattern cannot be read", pattern);
    } else {
        for (size_t i = 0; i < found.gl_pathc && rc >= 0; i++)
            rc = add_path(f, found.gl_pathv[i], err);
    }
    globfree(&found);
    return rc;
}

/* The name in a line of a list: without the line's end, also that of Windows, and without a byte order mark in the
 * first line. */
static char *name_of(char *line, bool first)
{
    static const char mark[] = "\xef\xbb\xbf";

    line[strcspn(line, "\n")] = '\0';
    if (*line && line[strlen(line) - 1] == '\r')
        line[strlen(line) - 1] = '\0';
    return first && strncmp(line, mark, sizeof mark - 1) == 0 ? line + sizeof mark - 1 : line;
}

static int add_list(struct finder *f, struct err *err)
{
    char *line = malloc(LINE_BYTES + 1), *name;
    int rc = line ? 0 : no_memory(err);

    for (int64_t k = 1; rc >= 0 && fgets(line, LINE_BYTES + 1, f->list); k++) {
        size_t n = strlen(line);

        if (n == 0 || (line[n - 1] != '\n' && !feof(f->list)))
            rc = err_set(err, ERR_INPUT, "line %lld of the list is no name of a picture: it is too long, or holds a zero", (long long)k);
        if (rc >= 0 && *(name = name_of(line, k == 1)))
            rc = add_path(f, name, err);
    }
    if (rc >= 0 && ferror(f->list))
        rc = err_sys(err, "the list of pictures");
    free(line);
    return rc;
}

static int add_argument(struct finder *f, const char *arg, struct err *err)
{
    struct stat st;

    if (strcmp(arg, "-") == 0)
        return add_list(f, err);
    if (lstat(arg, &st) < 0 && strpbrk(arg, "*?["))
        return add_pattern(f, arg, err);
    return add_path(f, arg, err);
}

/* ---- both ---- */

void asked_free(struct asked *a)
{
    if (!a)
        return;
    for (int i = 0; i < a->n; i++) {
        free(a->picture[i].path);
        free(a->picture[i].name);
        free(a->picture[i].place);
    }
    free(a->picture);
    free(a->category);
    free(a);
}

static int asked_new(const struct network *net, struct asked **ret, struct err *err)
{
    struct asked *a = calloc(1, sizeof *a);

    if (a)
        a->category = calloc((size_t)net->classes.n + 1, sizeof *a->category);
    if (!a || !a->category) {
        free(a);
        return no_memory(err);
    }
    for (int c = 0; c < net->classes.n; c++)
        a->category[c] = net->classes.id[c];
    *ret = a;
    return 0;
}

/* Cuts the common folder off the places. Frees f, except for the pictures: these become *ret if there is no error. */
static int finish(struct finder *f, int rc, struct asked **ret, struct err *err)
{
    if (rc >= 0 && f->a->n == 0)
        rc = err_set(err, ERR_INPUT, "no picture is given: the list is empty");
    for (int i = 0; i < f->a->n && rc >= 0; i++) {
        char *place = f->a->picture[i].place;
        size_t n = strlen(f->common) + 1;

        memmove(place, place + n, strlen(place) + 1 - n);
    }
    free(f->common);
    if (rc < 0)
        asked_free(f->a);
    else
        *ret = f->a;
    return rc;
}

int asked_of_files(char *const *paths, int n, const struct network *net, struct asked **ret, struct err *err)
{
    struct finder f = { 0 };
    int rc = asked_new(net, &f.a, err);

    if (rc < 0)
        return rc;
    for (int i = 0; i < n && rc >= 0; i++)
        rc = add_file(&f, paths[i], err);
    return finish(&f, rc, ret, err);
}

int asked_by_name(char *const *args, int nargs, FILE *list, const char *out_dir, const struct network *net, struct asked **ret,
                  struct err *err)
{
    struct finder f = { .list = list };
    int rc = asked_new(net, &f.a, err);

    if (rc < 0)
        return rc;
    f.a->upright = true;
    if (stat(out_dir, &f.out) < 0)
        f.out.st_nlink = 0;
    for (int i = 0; i < nargs && rc >= 0; i++)
        rc = add_argument(&f, args[i], err);
    return finish(&f, rc, ret, err);
}

/* ---- a data set ---- */

/* Takes the images of a set; of frames only the targets. */
static int take_images(struct asked *a, const struct dataset *d, struct err *err)
{
    char path[DATASET_MAX_PATH + DATASET_MAX_PATH], below[DATASET_MAX_PATH + 1], *place;
    int n = d->views ? d->views->n : d->nimages;

    a->of_set = true;
    a->picture = calloc((size_t)n + 1, sizeof *a->picture);
    if (!a->picture)
        return no_memory(err);
    for (int i = 0; i < n; i++) {
        const struct dataset_image *im = &d->images[i];

        snprintf(path, sizeof path, "%s/%s", d->folder, im->file);
        snprintf(below, sizeof below, "/%s", im->file);
        place = absolute(below);
        if (place)
            memmove(place, place + 1, strlen(place));
        a->picture[a->n++] = (struct asked_picture){ strdup(path), strdup(im->file), place, im->id, im->w, im->h, false };
        if (!a->picture[i].path || !a->picture[i].name || !place)
            return no_memory(err);
    }
    return 0;
}

/* Finds the classes' ids in the file by their names. */
static int take_categories(struct asked *a, const struct dataset *d, const struct class_list *classes, FILE *out, struct err *err)
{
    int found = 0;

    for (int c = 0; c < classes->n; c++) {
        a->category[c] = ASKED_NONE;
        for (int k = 0; k < d->nclasses && a->category[c] == ASKED_NONE; k++)
            if (strcmp(d->classes[k].name, classes->name[c]) == 0)
                a->category[c] = d->classes[k].id;
        found += a->category[c] != ASKED_NONE;
    }
    if (found == 0)
        return err_set(err, ERR_INPUT, "%s: no category of it is a class of the job, such as '%.60s'", d->source, classes->name[0]);
    for (int c = 0; c < classes->n; c++)
        if (a->category[c] == ASKED_NONE)
            fprintf(out, "%s has no category '%s': detections of it are left out\n", d->source, classes->name[c]);
    return 0;
}

int asked_of_file(const struct check_options *set, const struct network *net, FILE *out, struct asked **ret, struct err *err)
{
    const struct coco_options o = { set->annotations, set->images, BAD_SKIP, .upright = set->upright, .unlabelled = true };
    struct problems *problems = calloc(1, sizeof *problems);
    struct dataset *d = NULL;
    struct asked *a = NULL;
    int rc = !problems ? no_memory(err) : set->labels ? labels_read(set->labels, problems, &d, err) : coco_read(&o, problems, &d, err);

    if (problems && (rc < 0 || d->nimages == 0) && foreign_tell(set->annotations, problems, err) < 0)
        rc = err->code;
    if (rc >= 0)
        rc = asked_new(net, &a, err);
    if (rc >= 0) {
        a->upright = set->upright;
        rc = take_images(a, d, err);
    }
    if (rc >= 0 && a->n == 0)
        rc = problems->count > 0 ? err_set(err, ERR_INPUT, "%s: no image of it can be used: %lld bad records, the first: %s",
                                           set->annotations, (long long)problems->count, problems->text[0])
                                 : err_set(err, ERR_INPUT, "%s: no images", set->annotations);
    if (rc >= 0)
        rc = take_categories(a, d, &net->classes, out, err);
    if (rc >= 0 && problems->count > 0)
        fprintf(out, "%s: %lld bad records, the first: %s\n", set->annotations, (long long)problems->count, problems->text[0]);
    for (int i = 0; rc >= 0 && i < problems->notes_kept; i++)
        fprintf(out, "%s\n", problems->note[i]);
    free(problems);
    dataset_free(d);
    if (rc < 0)
        asked_free(a);
    else
        *ret = a;
    return rc;
}

int asked_of_set(const struct dataset *set, const struct network *net, struct asked **ret, struct err *err)
{
    struct asked *a = NULL;
    int rc = asked_new(net, &a, err);

    if (rc >= 0) {
        a->upright = set->upright;
        rc = take_images(a, set, err);
    }
    if (rc < 0)
        asked_free(a);
    else
        *ret = a;
    return rc;
}

#include <dirent.h> /* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/host/folder.h"
#include "proto/grow.h"
#include "worker/checkpoint/manifest.h"

enum { PATH_BYTES = CKPT_PATH_BYTES, STEP_DIGITS = 15 };

#define TMP       ".tmp-step-"
#define PUBLISHED "step-"
#define BAD       ".bad"

/* ---- folders ---- */

static int too_long(const char *dir, struct err *err)
{
    return err_set(err, -ENAMETOOLONG, "'%.200s...': the path is too long", dir);
}

static int step_path(char ret[PATH_BYTES], const char *dir, const char *before, int64_t step, const char *after, struct err *err)
{
    int n = snprintf(ret, PATH_BYTES, "%s/%s%lld%s", dir, before, (long long)step, after);

    return n < PATH_BYTES ? 0 : too_long(dir, err);
}

int ckpt_path(const char *dir, int64_t step, char *ret, size_t size, struct err *err)
{
    int n = snprintf(ret, size, "%s/" PUBLISHED "%lld", dir, (long long)step);

    return n >= 0 && (size_t)n < size ? 0 : too_long(dir, err);
}

/* Removes a folder and the files in it. Returns 0 if the folder does not exist. */
static int remove_folder(const char *path, struct err *err)
{
    DIR *d = opendir(path);
    struct dirent *e;
    int rc = 0;

    if (!d && errno == ENOTDIR && unlink(path) == 0)
        return 0;
    if (!d)
        return errno == ENOENT ? 0 : err_sys(err, "remove '%s'", path);
    while (rc == 0 && (e = readdir(d)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && unlinkat(dirfd(d), e->d_name, 0) < 0)
            rc = err_sys(err, "remove '%s/%s'", path, e->d_name);
    closedir(d);
    if (rc == 0 && rmdir(path) < 0)
        rc = err_sys(err, "remove '%s'", path);
    return rc;
}

static int move_folder(const char *dir, const char *from, const char *to, struct err *err)
{
    if (rename(from, to) < 0)
        return err_sys(err, "rename '%s' to '%s'", from, to);
    return folder_sync(dir, err);
}

/* Keeps only the last damaged checkpoint of a step. */
int ckpt_set_aside(const char *dir, int64_t step, struct err *err)
{
    char from[PATH_BYTES], to[PATH_BYTES];
    int rc = step_path(from, dir, PUBLISHED, step, "", err);

    if (rc == 0)
        rc = step_path(to, dir, PUBLISHED, step, BAD, err);
    if (rc == 0)
        rc = remove_folder(to, err);
    if (rc == 0)
        rc = move_folder(dir, from, to, err);
    return rc;
}

/* The step in a folder's name, which must be `before` and digits, nothing else. -1: the name has another form. */
static int64_t step_of(const char *name, const char *before)
{
    const char *digits = name + strlen(before);
    size_t n;

    if (strncmp(name, before, strlen(before)) != 0)
        return -1;
    n = strspn(digits, "0123456789");
    return n > 0 && n <= STEP_DIGITS && !digits[n] && digits[0] != '0' ? strtoll(digits, NULL, 10) : -1;
}

static int descending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x < y) - (x > y);
}

/* Steps of all folders named before<n>, newest first. The caller frees *ret_steps. A missing dir gives an empty
 * list. */
static int list_steps(const char *dir, const char *before, int64_t **ret_steps, size_t *ret_count, struct err *err)
{
    DIR *d = opendir(dir);
    int64_t *steps = NULL, step;
    size_t n = 0, room = 0;
    struct dirent *e;

    *ret_steps = NULL;
    *ret_count = 0;
    if (!d)
        return errno == ENOENT ? 0 : err_sys(err, "list '%s'", dir);
    while ((e = readdir(d))) {
        if ((step = step_of(e->d_name, before)) < 0)
            continue;
        if (!GROW(steps, room, n + 1)) {
            free(steps);
            closedir(d);
            return err_set(err, -ENOMEM, "list '%s': out of memory", dir);
        }
        steps[n++] = step;
    }
    closedir(d);
    if (n)
        qsort(steps, n, sizeof(*steps), descending);
    *ret_steps = steps;
    *ret_count = n;
    return 0;
}

/* ---- writing ---- */

/* Looks for a good checkpoint of this step. Returns 1 and its size, or 0 when the name is free: a damaged one is set
 * aside. */
static int settle_existing(const char *dir, int64_t step, const struct ckpt_identity *id, int64_t *ret_bytes, struct err *err)
{
    char folder[PATH_BYTES];
    struct manifest m;
    int rc = step_path(folder, dir, PUBLISHED, step, "", err);

    if (rc < 0)
        return rc;
    if (access(folder, F_OK) < 0)
        return errno == ENOENT ? 0 : err_sys(err, "look for '%s'", folder);
    rc = manifest_verify(folder, step, id, &m, err);
    if (rc == ERR_CORRUPT)
        return ckpt_set_aside(dir, step, err);
    if (rc < 0)
        return rc;
    *ret_bytes = m.bytes;
    return 1;
}

static int make_folder(const char *path, struct err *err)
{
    return mkdir(path, 0777) == 0 || errno == EEXIST ? 0 : err_sys(err, "make folder '%s'", path);
}

static int write_files(const char *folder, const struct ckpt_part *const part[CKPT_FILES], struct err *err)
{
    int rc = 0;

    for (int f = 0; rc == 0 && f < CKPT_FILES; f++) {
        char path[PATH_BYTES];

        rc = manifest_path(path, folder, manifest_file(f), err);
        if (rc == 0)
            rc = safetensors_write(path, part[f]->arrays, part[f]->narrays, part[f]->meta, part[f]->nmeta, err);
    }
    return rc;
}

int ckpt_write(const char *dir, int64_t step, const struct ckpt_identity *id, const struct ckpt_part *model, const struct ckpt_part *state,
               int64_t *ret_bytes, struct err *err)
{
    const struct ckpt_part *const part[CKPT_FILES] = { model, state };
    char tmp[PATH_BYTES];
    struct err ignored;
    int rc;

    if (step < 1)
        return err_set(err, ERR_INPUT, "checkpoint of step %lld: steps count from 1", (long long)step);
    rc = folder_make(dir, 0777, err);
    if (rc == 0)
        rc = settle_existing(dir, step, id, ret_bytes, err);
    if (rc != 0)
        return rc;
    rc = step_path(tmp, dir, TMP, step, "", err);
    if (rc == 0)
        rc = remove_folder(tmp, err);
    if (rc == 0)
        rc = make_folder(tmp, err);
    if (rc < 0)
        return rc;
    rc = write_files(tmp, part, err);
    if (rc == 0)
        rc = manifest_write(tmp, step, id, ret_bytes, err);
    if (rc < 0)
        remove_folder(tmp, &ignored); /* a full disk gets its space back; the caller reports the first error */
    return rc;
}

int ckpt_publish(const char *dir, int64_t step, struct err *err)
{
    char tmp[PATH_BYTES], folder[PATH_BYTES];
    int rc = step_path(tmp, dir, TMP, step, "", err);

    if (rc == 0)
        rc = step_path(folder, dir, PUBLISHED, step, "", err);
    if (rc == 0)
        rc = folder_sync(tmp, err);
    if (rc == 0)
        rc = move_folder(dir, tmp, folder, err);
    return rc;
}

/* Renames the folder first: a half deleted checkpoint must not look like a damaged one. */
static int discard(const char *dir, int64_t step, struct err *err)
{
    char folder[PATH_BYTES], tmp[PATH_BYTES];
    int rc = step_path(folder, dir, PUBLISHED, step, "", err);

    if (rc == 0)
        rc = step_path(tmp, dir, TMP, step, "", err);
    if (rc == 0)
        rc = remove_folder(tmp, err);
    if (rc == 0)
        rc = move_folder(dir, folder, tmp, err);
    if (rc == 0)
        rc = remove_folder(tmp, err);
    return rc;
}

static bool is_due(struct ckpt_due due, int64_t step)
{
    return step == due.last || (due.every > 0 && step % due.every == 0);
}

int ckpt_prune(const char *dir, int keep, int64_t best, struct ckpt_due due, struct err *err)
{
    int left[2] = { keep, keep }; /* still to keep: [0] not due, [1] due */
    bool wants_shared = due.shared != NULL;
    int64_t *steps;
    size_t n;
    int rc = list_steps(dir, PUBLISHED, &steps, &n, err);

    for (size_t i = 0; rc == 0 && i < n; i++) { /* newest first */
        bool shared = wants_shared && due.shared(due.arg, steps[i]);

        wants_shared = wants_shared && !shared;
        if (left[is_due(due, steps[i])]-- <= 0 && steps[i] != best && !shared)
            rc = discard(dir, steps[i], err);
    }
    free(steps);
    return rc;
}

int ckpt_drop_after(const char *dir, int64_t step, struct err *err)
{
    int64_t *steps;
    size_t n;
    int rc = list_steps(dir, PUBLISHED, &steps, &n, err);

    for (size_t i = 0; rc == 0 && i < n && steps[i] > step; i++)
        rc = discard(dir, steps[i], err);
    free(steps);
    return rc;
}

/* ---- the best one ---- */

bool ckpt_has_best(const char *dir)
{
    char path[PATH_BYTES];

    return snprintf(path, sizeof path, "%s/../best/.", dir) < PATH_BYTES && access(path, F_OK) == 0;
}

int ckpt_link_best(const char *dir, int64_t step, struct err *err)
{
    char path[PATH_BYTES], tmp[PATH_BYTES], target[64], there[sizeof target];
    const char *name = strrchr(dir, '/');
    ssize_t n;

    if (snprintf(path, sizeof path, "%s/../best", dir) >= PATH_BYTES || snprintf(tmp, sizeof tmp, "%s/../.tmp-best", dir) >= PATH_BYTES)
        return too_long(dir, err);
    if (snprintf(target, sizeof target, "%s/" PUBLISHED "%lld", name ? name + 1 : dir, (long long)step) >= (int)sizeof target)
        return too_long(dir, err);
    n = readlink(path, there, sizeof there);
    if (n == (ssize_t)strlen(target) && memcmp(there, target, (size_t)n) == 0)
        return 0;
    unlink(tmp);
    if (symlink(target, tmp) < 0 || rename(tmp, path) < 0) {
        int rc = err_sys(err, "link '%s'", path);

        unlink(tmp);
        return rc;
    }
    return 0;
}

/* ---- reading ---- */

static int clear_left_over(const char *dir, struct err *err)
{
    char tmp[PATH_BYTES];
    int64_t *steps;
    size_t n;
    int rc = list_steps(dir, TMP, &steps, &n, err);

    if (rc < 0)
        return rc;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = step_path(tmp, dir, TMP, steps[i], "", err);
        if (rc == 0)
            rc = remove_folder(tmp, err);
    }
    free(steps);
    return rc;
}

/* Verifies one checkpoint. Returns 1 if it is good, 0 if it was damaged and is now set aside. */
static int consider(const char *dir, int64_t step, const struct ckpt_identity *id, ckpt_tell *tell, void *arg, struct err *err)
{
    char folder[PATH_BYTES], text[sizeof(err->msg) + 64];
    struct manifest m;
    int rc = step_path(folder, dir, PUBLISHED, step, "", err);

    if (rc == 0)
        rc = manifest_verify(folder, step, id, &m, err);
    if (rc == 0)
        return 1;
    if (rc != ERR_CORRUPT)
        return rc;
    snprintf(text, sizeof(text), "checkpoint of step %lld is damaged: %s", (long long)step, err->msg);
    if (tell)
        tell(arg, text);
    return ckpt_set_aside(dir, step, err);
}

int ckpt_pick(const char *dir, const struct ckpt_identity *id, ckpt_tell *tell, void *arg, int64_t *ret_step, struct err *err)
{
    struct err local = { 0 };
    int64_t *steps = NULL, found = 0;
    size_t n = 0;
    int rc;

    err = err ? err : &local;
    rc = clear_left_over(dir, err);
    if (rc == 0)
        rc = list_steps(dir, PUBLISHED, &steps, &n, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = consider(dir, steps[i], id, tell, arg, err);
        if (rc == 1)
            found = steps[i];
    }
    free(steps);
    if (rc >= 0 && found > 0)
        rc = folder_sync(dir, err); /* its publisher may have been killed before the name was durable */
    if (rc < 0)
        return rc;
    *ret_step = found;
    return 0;
}

int ckpt_newest(const char *dir, const struct ckpt_identity *id, int64_t most, int64_t *ret_step, struct err *err)
{
    char folder[PATH_BYTES];
    int64_t *steps = NULL, found = 0;
    struct manifest m;
    size_t n = 0;
    int rc = list_steps(dir, PUBLISHED, &steps, &n, err);

    for (size_t i = 0; rc == 0 && i < n && found == 0; i++) {
        if (steps[i] > most)
            continue;
        rc = step_path(folder, dir, PUBLISHED, steps[i], "", err);
        if (rc == 0)
            rc = manifest_verify(folder, steps[i], id, &m, err);
        if (rc == 0)
            found = steps[i];
        rc = rc == ERR_CORRUPT ? 0 : rc;
    }
    free(steps);
    *ret_step = found;
    return rc;
}

int ckpt_open(const char *dir, int64_t step, const struct ckpt_identity *id, struct ckpt **ret_ckpt, struct err *err)
{
    char folder[PATH_BYTES], path[PATH_BYTES];
    struct manifest m;
    struct ckpt *c;
    int rc = step_path(folder, dir, PUBLISHED, step, "", err);

    if (rc == 0)
        rc = manifest_verify(folder, step, id, &m, err);
    if (rc < 0)
        return rc;
    c = calloc(1, sizeof(*c));
    if (!c)
        return err_set(err, -ENOMEM, "open '%s': out of memory", folder);
    *c = (struct ckpt){ .step = step, .bytes = m.bytes, .id = m.id };
    rc = manifest_path(path, folder, manifest_file(CKPT_MODEL), err);
    if (rc == 0)
        rc = safetensors_open(path, &c->model, err);
    if (rc == 0)
        rc = manifest_path(path, folder, manifest_file(CKPT_STATE), err);
    if (rc == 0)
        rc = safetensors_open(path, &c->state, err);
    if (rc < 0) {
        ckpt_close(c);
        return rc;
    }
    *ret_ckpt = c;
    return 0;
}

void ckpt_close(struct ckpt *c)
{
    if (!c)
        return;
    if (c->model)
        safetensors_close(c->model);
    if (c->state)
        safetensors_close(c->state);
    free(c);
}

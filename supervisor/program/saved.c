#include "supervisor/program/saved.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/host/folder.h"
#include "proto/host/wipe.h"

static const char file[] = "published", fresh[] = "published.new";
enum { ENTRIES = 100000 /* of a folder that are looked at */, PIECE = 1000 };

/* ---- the file ---- */

static bool read_one(const json_t *one, struct saved_one *ret)
{
    const json_t *value = json_object_get(one, "value"), *step = json_object_get(one, "step");
    const char *path = json_string_value(json_object_get(one, "path"));

    *ret = (struct saved_one){ .step = json_integer_value(step),
                               .bytes = json_integer_value(json_object_get(one, "bytes")),
                               .changed = json_number_value(json_object_get(one, "changed")),
                               .value = json_is_number(value) ? json_number_value(value) : NAN,
                               .best = json_is_true(json_object_get(one, "best")) };
    return json_is_integer(step) && path && snprintf(ret->path, sizeof ret->path, "%s", path) < (int)sizeof ret->path;
}

int saved_open(struct saved *s, struct err *err)
{
    int fd = open(file, O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    bool good = true;

    if (!f)
        return err_sys(err, "open '%s'", file);
    *s = (struct saved){ .all = malloc(SAVED_MAX * sizeof *s->all) };
    while (good && s->all && s->n < SAVED_MAX) {
        json_t *one = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL);

        good = one && read_one(one, &s->all[s->n]);
        s->n += good;
        json_decref(one);
    }
    fclose(f);
    return s->all ? 0 : err_set(err, -ENOMEM, "out of memory");
}

void saved_close(struct saved *s)
{
    free(s->all);
    *s = (struct saved){ 0 };
}

static bool write_one(FILE *f, const struct saved_one *one)
{
    json_t *json =
        json_pack("{s:I, s:s, s:I, s:f, s:o, s:b}", "step", (json_int_t)one->step, "path", one->path, "bytes", (json_int_t)one->bytes,
                  "changed", one->changed, "value", isfinite(one->value) ? json_real(one->value) : json_null(), "best", (int)one->best);
    bool good = json && json_dumpf(json, f, JSON_COMPACT | JSON_REAL_PRECISION(17)) == 0 && fputc('\n', f) >= 0;

    json_decref(json);
    return good;
}

static int write_all(const struct saved *s, struct err *err)
{
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    bool good = f;
    int rc;

    for (int i = 0; good && i < s->n; i++)
        good = write_one(f, &s->all[i]);
    if (!good || fflush(f) != 0 || fsync(fd) < 0 || rename(fresh, file) < 0)
        rc = err_sys(err, "write '%s'", file);
    else
        rc = folder_sync(".", err);
    if (f)
        fclose(f);
    return rc;
}

int64_t saved_newest(void)
{
    struct saved s;
    struct err err;
    int64_t step;

    if (access(file, F_OK) < 0 || saved_open(&s, &err) < 0)
        return -1;
    step = s.n > 0 ? s.all[s.n - 1].step : 0;
    saved_close(&s);
    return step;
}

/* ---- on the disk ---- */

int saved_measure(struct saved_one *one, struct err *err)
{
    char *const paths[] = { one->path, NULL };
    struct stat st;
    FTS *all = stat(one->path, &st) < 0 ? NULL : fts_open(paths, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, NULL);
    const FTSENT *entry;

    if (!all)
        return err_sys(err, "checkpoint '%.200s'", one->path);
    one->bytes = 0;
    one->changed = 0;
    for (int n = 0; n < ENTRIES && (entry = fts_read(all)); n++) {
        const struct timespec *when = &entry->fts_statp->st_mtim;
        double changed = (double)when->tv_sec + 1e-9 * (double)when->tv_nsec;

        if (entry->fts_info == FTS_F)
            one->bytes += entry->fts_statp->st_size;
        if ((entry->fts_info == FTS_F || entry->fts_info == FTS_D) && changed > one->changed)
            one->changed = changed;
    }
    fts_close(all);
    return 0;
}

static bool is_there(const struct saved_one *one)
{
    struct saved_one now = *one;
    struct err err;

    return saved_measure(&now, &err) == 0 && now.bytes == one->bytes && now.changed == one->changed;
}

/* ---- changes ---- */

int saved_rewind(struct saved *s, struct err *err)
{
    int n = s->n;

    while (s->n > 0 && !is_there(&s->all[s->n - 1]))
        s->n--;
    return n == s->n ? 0 : write_all(s, err);
}

int saved_add(struct saved *s, const struct saved_one *one, struct err *err)
{
    while (s->n > 0 && s->all[s->n - 1].step >= one->step)
        s->n--;
    if (s->n == SAVED_MAX)
        memmove(s->all, s->all + 1, (size_t)--s->n * sizeof *s->all);
    s->all[s->n++] = *one;
    return write_all(s, err);
}

bool saved_is_best(const struct saved *s, double value, bool lower)
{
    for (int i = 0; i < s->n; i++)
        if (!isnan(s->all[i].value) && !(lower ? value < s->all[i].value : value > s->all[i].value))
            return false;
    return !isnan(value);
}

/* Whether it lies below the job's own folder of checkpoints: then it is ours to remove. */
static bool is_ours(const char *path, const char *job_dir)
{
    char below[PATH_MAX + 16];
    int n = snprintf(below, sizeof below, "%s/checkpoints/", job_dir);

    return strncmp(path, below, (size_t)n) == 0 && path[n] && !strstr(path + n - 1, "/../") && !strstr(path + n - 1, "/./") &&
           strcmp(path + strlen(path) - 3, "/..") != 0;
}

static int remove_one(const struct saved_one *one, const char *job_dir, struct err *err)
{
    int rc = 1;

    while (is_ours(one->path, job_dir) && rc > 0)
        rc = wipe_folder(one->path, PIECE, err);
    return rc < 0 ? rc : 0;
}

int saved_prune(struct saved *s, const char *job_dir, int keep, struct err *err)
{
    int best = -1, kept = 0, rc = 0;

    if (s->n <= keep)
        return 0;
    for (int i = 0; i < s->n; i++)
        best = s->all[i].best ? i : best;
    for (int i = 0, n = s->n; i < n; i++) {
        bool again = false;

        for (int k = i + 1; k < n; k++) /* a program may write each one to the same place */
            again = again || strcmp(s->all[k].path, s->all[i].path) == 0;
        again = again || (best >= 0 && strcmp(s->all[best].path, s->all[i].path) == 0);
        if (i >= n - keep || i == best)
            s->all[kept++] = s->all[i];
        else if (!again && remove_one(&s->all[i], job_dir, err) < 0)
            rc = err->code;
    }
    s->n = kept;
    return write_all(s, err) < 0 ? err->code : rc;
}

#include "worker/modes/checkedfiles.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/core/file.h"
#include "worker/data/set/dataset.h"
#include "worker/data/read/labels/label_paths.h"

enum { BYTES_MAX = 16 << 20 };

struct list {
    struct file_out *out;
    int64_t start_ns;
    size_t bytes;
    int rc;
    struct err *err;
};

static void put(struct list *l, const char *path, int64_t size, int64_t mtime_ns)
{
    char head[48];
    int n = snprintf(head, sizeof head, "%" PRId64 " %" PRId64 " ", size, mtime_ns);

    if (l->rc < 0)
        return;
    if (mtime_ns >= l->start_ns)
        l->rc = err_set(l->err, ERR_STATE, "'%s' was changed while it was checked", path);
    else if ((l->bytes += (size_t)n + strlen(path) + 1) > BYTES_MAX)
        l->rc = err_set(l->err, ERR_INPUT, "too many files to remember a check");
    else if (file_out_write(l->out, head, (size_t)n, l->err) < 0 || file_out_write(l->out, path, strlen(path) + 1, l->err) < 0)
        l->rc = l->err->code;
}

static void put_now(struct list *l, const char *path)
{
    struct stat st;

    if (l->rc == 0 && stat(path, &st) < 0)
        l->rc = err_sys(l->err, "'%s'", path);
    else if (l->rc == 0)
        put(l, path, (int64_t)st.st_size, (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec);
}

/* Adds the folder of a file, unless it is `last`, that of the file before. Its time changes when files are added or
 * removed. */
static void put_folder(struct list *l, const char *path, char last[DATASET_MAX_PATH])
{
    char folder[DATASET_MAX_PATH];

    label_path_folder(path, folder);
    if (strcmp(folder, last) == 0)
        return;
    memcpy(last, folder, sizeof folder);
    put_now(l, folder);
}

static void put_set(struct list *l, const struct dataset *d)
{
    char path[DATASET_MAX_PATH], of_labels[DATASET_MAX_PATH] = "", of_images[DATASET_MAX_PATH] = "";

    put_now(l, *d->folder ? d->folder : "/");
    if (d->source_bytes > 0)
        put(l, d->source, d->source_bytes, d->source_mtime_ns);
    for (int i = 0; i < d->nfiles; i++) {
        put(l, d->files[i].path, d->files[i].size_bytes, d->files[i].mtime_ns);
        put_folder(l, d->files[i].path, of_labels);
    }
    for (int i = 0; i < d->nimages; i++)
        put_folder(l, dataset_path(d, i, path), of_images);
    for (int i = 0; d->views && i < d->views->nfiles; i++)
        if (snprintf(path, sizeof path, "%s/%s", d->folder, d->views->files[i].file) < (int)sizeof path)
            put_now(l, path);
}

/* "SIZE MTIME_NS /..." */
static bool is_list(const char *path)
{
    FILE *f = fopen(path, "re");
    long long size, mtime_ns;
    char slash = '\0';
    bool ret = f && fscanf(f, "%lld %lld %c", &size, &mtime_ns, &slash) == 3 && slash == '/';

    if (f)
        fclose(f);
    return ret;
}

int checkedfiles_write(const char *path, const struct jobspec *spec, const struct dataset *train, const struct dataset *val,
                       int64_t start_ns, struct err *err)
{
    struct list l = { .start_ns = start_ns, .err = err };
    const char *key, *named;
    int rc = file_out_open_named(path, is_list, &l.out, err);

    if (rc < 0)
        return rc;
    for (size_t i = 0; jobspec_next_path(spec, &i, &key, &named);)
        put_now(&l, named);
    put_set(&l, train);
    if (val)
        put_set(&l, val);
    if (l.rc < 0) {
        file_out_abort(l.out);
        return l.rc;
    }
    return file_out_commit(l.out, err);
}

#include "client/jobs/checked.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/hash/hash.h"
#include "proto/job/jobspec.h"

/* ---- the place of entries ---- */

/* A folder of another user, as root's HOME may be under sudo, is left alone. */
static bool make_ours(const char *folder)
{
    struct stat st;

    if (mkdir(folder, 0700) < 0 && errno != EEXIST)
        return false;
    return stat(folder, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid();
}

static bool find_folder(char folder[PATH_MAX])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const bool xdg = cache && cache[0] == '/';
    int n = xdg ? snprintf(folder, PATH_MAX, "%s", cache) : home && home[0] == '/' ? snprintf(folder, PATH_MAX, "%s/.cache", home) : -1;

    for (const char *const *more = (const char *const[]){ "", "/detd", "/checks", NULL }; *more; more++) {
        if (n < 0 || n + strlen(*more) >= PATH_MAX)
            return false;
        n += sprintf(folder + n, "%s", *more);
        if (!make_ours(folder))
            return false;
    }
    return true;
}

/* The keys that a check depends on. Keys of augmentation, steps or rates do not count. */
static json_t *looked_at(const struct jobspec *s)
{
    json_t *all = jobspec_json(s), *data = json_object_get(all, "data"), *train = json_object_get(all, "train"), *ret;

    json_object_del(data, "augment");
    json_object_del(data, "workers");
    ret = json_pack("{s:O?, s:O?, s:O?, s:O?, s:O?}", "data", data, "model", json_object_get(all, "model"), "freeze",
                    json_object_get(train, "freeze"), "class_weights", json_object_get(train, "class_weights"), "max_det",
                    json_object_get(json_object_get(all, "val"), "max_det"));
    json_decref(all);
    return ret;
}

bool checked_path(const struct jobspec *s, const char *worker, char ret_path[PATH_MAX])
{
    char folder[PATH_MAX], hex[33], *text, *whole = NULL;
    json_t *job = looked_at(s);
    struct stat st;
    int n = -1;

    text = job ? json_dumps(job, JSON_SORT_KEYS | JSON_COMPACT) : NULL;
    if (text && stat(worker, &st) == 0 && find_folder(folder) &&
        asprintf(&whole, "%s %lld %lld.%09ld %s", worker, (long long)st.st_size, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, text) >=
            0) {
        hash_hex(hash_bytes(whole, strlen(whole), 0), hex);
        n = snprintf(ret_path, PATH_MAX, "%s/%s", folder, hex);
        free(whole);
    }
    free(text);
    json_decref(job);
    return n > 0 && n < PATH_MAX;
}

/* ---- the content of an entry ---- */

/* record: "SIZE MTIME_NS PATH". */
static bool is_as_it_was(const char *record)
{
    long long size, mtime_ns;
    struct stat st;
    int at = 0;

    return sscanf(record, "%lld %lld %n", &size, &mtime_ns, &at) == 2 && at > 0 && stat(record + at, &st) == 0 && st.st_size == size &&
           (long long)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec == mtime_ns;
}

bool checked_still(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), records = 0;
    FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
    char *record = NULL;
    struct stat st;
    size_t size = 0;
    bool good = f && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= CHECKED_MAX_BYTES;

    while (good && getdelim(&record, &size, '\0', f) > 0) {
        good = is_as_it_was(record);
        records++;
    }
    free(record);
    if (f)
        fclose(f);
    else if (fd >= 0)
        close(fd);
    return good && records > 0;
}

/* ---- the number of entries ---- */

struct entry {
    char name[NAME_MAX + 1];
    struct timespec used;
    off_t bytes;
};

static int newest_first(const void *a, const void *b)
{
    const struct timespec *x = &((const struct entry *)a)->used, *y = &((const struct entry *)b)->used;

    return x->tv_sec != y->tv_sec ? (x->tv_sec < y->tv_sec) - (x->tv_sec > y->tv_sec)
                                  : (x->tv_nsec < y->tv_nsec) - (x->tv_nsec > y->tv_nsec);
}

/* Lists the files of the folder, at most n. */
static int list(DIR *dir, struct entry *e, int n)
{
    struct dirent *d;
    struct stat st;
    int found = 0;

    while (found < n && (d = readdir(dir)))
        if (fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode)) {
            snprintf(e[found].name, sizeof e[found].name, "%s", d->d_name);
            e[found].used = st.st_mtim;
            e[found++].bytes = st.st_size;
        }
    return found;
}

void checked_prune(const char *path)
{
    enum { LISTED = 4 * CHECKED_MAX };
    struct entry *e = calloc(LISTED, sizeof *e);
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX];
    off_t bytes = 0;
    DIR *dir;
    int n = 0;

    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    dir = e ? opendir(folder) : NULL;
    if (dir)
        n = list(dir, e, LISTED);
    if (n > 0)
        qsort(e, (size_t)n, sizeof *e, newest_first);
    for (int i = 0; i < n; i++) {
        bytes += e[i].bytes;
        if (i >= CHECKED_MAX || bytes > CHECKED_MAX_BYTES)
            unlinkat(dirfd(dir), e[i].name, 0);
    }
    if (dir)
        closedir(dir);
    free(e);
}

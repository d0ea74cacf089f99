#include "cuda/search.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/err.h"

#ifdef __aarch64__
#define MULTIARCH "aarch64-linux-gnu"
#define TARGET    "targets/sbsa-linux/lib"
#else
#define MULTIARCH "x86_64-linux-gnu"
#define TARGET    "targets/x86_64-linux/lib"
#endif
#define WHEELS "/nvidia/*/lib"

enum { PATTERN_BYTES = 1024 };

/* Folders, as patterns. One with a variable is below the variable's value, and used only if that is set. Among versions
 * the highest name comes first. */
static const struct {
    const char *variable, *pattern;
} places[] = {
    { "CUDA_HOME", "/lib64" },
    { "CUDA_HOME", "/" TARGET },
    { "CUDA_HOME", "/lib" },
    { "CUDA_PATH", "/lib64" },
    { "CUDA_PATH", "/" TARGET },
    { "CUDA_PATH", "/lib" },
    { NULL, "/usr/local/cuda/lib64" },
    { NULL, "/usr/local/cuda/" TARGET },
    { NULL, "/usr/local/cuda-*/lib64" },
    { NULL, "/usr/local/cuda-*/" TARGET },
    { NULL, "/usr/lib/" MULTIARCH },
    { NULL, "/usr/lib64" },
    { NULL, "/usr/local/lib" },
    { "VIRTUAL_ENV", "/lib/python3*/site-packages" WHEELS },
    { "CONDA_PREFIX", "/lib" },
    { "CONDA_PREFIX", "/lib/python3*/site-packages" WHEELS },
    { "HOME", "/.local/lib/python3*/site-packages" WHEELS },
    { NULL, "/usr/local/lib/python3*/dist-packages" WHEELS },
    { NULL, "/usr/local/lib/python3*/site-packages" WHEELS },
    { NULL, "/usr/lib/python3*/dist-packages" WHEELS },
    { NULL, "/usr/lib/python3*/site-packages" WHEELS },
    { NULL, "/opt/*/lib" },
    { NULL, "/opt/*/lib/python3*/site-packages" WHEELS },
    /* Virtual environments in a folder of /opt, only by their usual names: other folders there may hold a data set. */
    { NULL, "/opt/.venv/lib/python3*/site-packages" WHEELS },
    { NULL, "/opt/*/.venv/lib/python3*/site-packages" WHEELS },
    { NULL, "/opt/*/venv/lib/python3*/site-packages" WHEELS },
    { NULL, "/opt/*/env/lib/python3*/site-packages" WHEELS },
    { NULL, "/opt/*/envs/*/lib/python3*/site-packages" WHEELS },
};

/* A search: the wanted library, and the versions that were refused. */
struct search {
    const struct library *lib;
    struct library_found *ret;
    bool done;
    char refused[256]; /* "8.9.2 in /x/libcudnn.so.8, ..." */
};

void library_version_text(long version, char *ret, size_t size)
{
    if (version >= 10000)
        snprintf(ret, size, "%ld.%ld.%ld", version / 10000, version / 100 % 100, version % 100);
    else
        snprintf(ret, size, "%ld.%ld.%ld", version / 1000, version / 100 % 10, version % 100);
}

static void refuse(struct search *s, const char *what, const char *path)
{
    size_t used = strlen(s->refused);

    if (path[0] == '/' && strstr(s->refused, path))
        return;
    snprintf(s->refused + used, sizeof s->refused - used, "%s%.60s in %.100s", used ? ", " : "", what, path);
}

/* The path of the library that the linker opened. */
static void path_of(void *handle, const char *fallback, char *ret, size_t size)
{
    struct link_map *map = NULL;

    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || !map || !map->l_name || !map->l_name[0])
        snprintf(ret, size, "%s", fallback);
    else
        snprintf(ret, size, "%s", map->l_name);
}

/* file: a path, or a bare name for the linker's search. */
static void try_file(struct search *s, const char *file)
{
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL), *symbol;
    char text[64];
    long version;

    if (!handle) {
        if (strchr(file, '/'))
            refuse(s, "a file that cannot be loaded", file);
        return;
    }
    path_of(handle, file, s->ret->path, sizeof s->ret->path);
    symbol = dlsym(handle, s->lib->version_symbol);
    version = symbol ? s->lib->version(symbol) : 0;
    if (version >= s->lib->minimum) {
        s->ret->handle = handle;
        s->ret->version = version;
        s->done = true;
        return;
    }
    library_version_text(version, text, sizeof text);
    refuse(s, symbol ? text : "a file without a version", s->ret->path);
    dlclose(handle);
}

static void try_folder(struct search *s, const char *folder)
{
    char path[LIBRARY_PATH_BYTES];

    for (int i = 0; i < SONAMES_MAX && s->lib->soname[i] && !s->done; i++)
        if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, s->lib->soname[i]) < sizeof path && access(path, R_OK) == 0)
            try_file(s, path);
}

static void try_pattern(struct search *s, const char *pattern)
{
    glob_t g = { 0 };

    if (glob(pattern, 0, NULL, &g) == 0)
        for (size_t i = g.gl_pathc; i > 0 && !s->done; i--)
            try_folder(s, g.gl_pathv[i - 1]);
    globfree(&g);
}

/* Quotes a folder's name for a pattern, so that its stars and brackets are literal. Returns false if it is too long. */
static bool quote(char *ret, size_t size, const char *folder)
{
    size_t used = 0;

    for (; *folder; folder++) {
        if (used + 3 > size)
            return false;
        if (strchr("*?[\\", *folder))
            ret[used++] = '\\';
        ret[used++] = *folder;
    }
    ret[used] = '\0';
    return true;
}

/* Searches a folder `base` with a pattern appended. */
static void try_below(struct search *s, const char *base, const char *below)
{
    char pattern[PATTERN_BYTES];
    size_t used;

    if (!quote(pattern, sizeof pattern, base))
        return;
    used = strlen(pattern);
    if ((size_t)snprintf(pattern + used, sizeof pattern - used, "%s", below) < sizeof pattern - used)
        try_pattern(s, pattern);
}

/* Searches the folders of DETD_CUDA_PATH, and toolkits or trees of wheels below them. */
static void try_own(struct search *s)
{
    static const char *const below[] = { "", "/lib64", "/lib", "/*/lib" };
    const char *list = getenv("DETD_CUDA_PATH");
    char folder[LIBRARY_PATH_BYTES];

    while (list && *list) {
        size_t n = strcspn(list, ":");

        if (n > 0 && n < sizeof folder) {
            memcpy(folder, list, n);
            folder[n] = '\0';
            for (size_t i = 0; i < sizeof below / sizeof *below && !s->done; i++)
                try_below(s, folder, below[i]);
        }
        list += n + (list[n] == ':');
    }
}

static void try_places(struct search *s)
{
    for (size_t i = 0; i < sizeof places / sizeof *places && !s->done; i++) {
        const char *base = places[i].variable ? getenv(places[i].variable) : "";

        if (base && (!places[i].variable || base[0] == '/'))
            try_below(s, base, places[i].pattern);
    }
}

int library_find(const struct library *lib, struct library_found *ret, struct err *err)
{
    struct library_found found = { 0 };
    struct search s = { .lib = lib, .ret = &found };
    char needed[64];

    try_own(&s);
    for (int i = 0; i < SONAMES_MAX && lib->soname[i] && !s.done; i++)
        try_file(&s, lib->soname[i]);
    if (!s.done)
        try_places(&s);
    if (s.done) {
        *ret = found;
        return 0;
    }
    library_version_text(lib->minimum, needed, sizeof needed);
    if (s.refused[0])
        return err_set(err, ERR_UNSUPPORTED, "%s %s or newer is needed; found: %s (DETD_CUDA_PATH names the folder of another)", lib->name,
                       needed, s.refused);
    return err_set(err, ERR_UNSUPPORTED,
                   "%s %s or newer is needed and was not found (%s): not on the linker's path, in CUDA_HOME, /usr/local/cuda, the system's "
                   "folders or Python's wheels; DETD_CUDA_PATH names its folder (LD_LIBRARY_PATH is not passed on to ranks)",
                   lib->name, needed, lib->soname[0]);
}

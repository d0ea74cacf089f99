/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/search.h - finds a shared library where toolkits, distributions and
 * Python put it, and takes the first that is new enough.
 *
 * In this order: DETD_CUDA_PATH (folders, ':' between them), the dynamic linker's own way, CUDA_HOME and CUDA_PATH,
 * /usr/local/cuda*, the folders of the distribution, Python wheels (nvidia/<library>/lib and nvidia/cu13/lib of
 * VIRTUAL_ENV, CONDA_PREFIX, ~/.local, the system's Python, and environments of /opt: /opt/X, /opt/X/.venv, venv or
 * env, /opt/X/envs/Y). */
#pragma once
#include <stddef.h>

struct err;

enum { SONAMES_MAX = 3, LIBRARY_PATH_BYTES = 512 };

struct library {
    const char *name;                /* as people write it: "cuDNN" */
    const char *soname[SONAMES_MAX]; /* best first, NULL where there are fewer */
    const char *version_symbol;      /* the function that returns the version */
    long (*version)(void *symbol);   /* calls it: 10000 * major + 100 * minor + patch */
    long minimum;
};

struct library_found {
    void *handle; /* of dlopen() */
    long version;
    char path[LIBRARY_PATH_BYTES];
};

/* The caller keeps the handle, or gives it to dlclose(). ERR_UNSUPPORTED: the text names the libraries found and their
 * places, the version needed, and the remedy. */
int library_find(const struct library *lib, struct library_found *ret, struct err *err);
/* "9.19.0". Versions below 10000 have the old form 1000 * major + 100 * minor + patch. */
void library_version_text(long version, char *ret, size_t size);

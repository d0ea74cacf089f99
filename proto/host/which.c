#include "proto/host/which.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool which_is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool is_program(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static bool join(char ret[PATH_MAX], const char *folder, size_t len, const char *name)
{
    return snprintf(ret, PATH_MAX, "%.*s%s%s", (int)len, folder, len > 0 ? "/" : "", name) < PATH_MAX && is_program(ret);
}

bool which_find(const char *name, const char *folder, const char *path, char ret[PATH_MAX])
{
    if (strchr(name, '/'))
        return join(ret, folder, name[0] == '/' ? 0 : strlen(folder), name);
    for (size_t len; path && *path; path += len + (path[len] == ':')) {
        len = strcspn(path, ":");
        if (len > 0 && join(ret, path, len, name))
            return true;
    }
    return false;
}

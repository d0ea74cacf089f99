#include "proto/host/pictures.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static const char before[] = "val-step-", behind[] = ".png";

int64_t pictures_step(const char *name)
{
    int64_t step = 0;
    int digits = 0;

    if (strncmp(name, before, sizeof before - 1) != 0)
        return -1;
    for (name += sizeof before - 1; *name >= '0' && *name <= '9' && digits < 18; name++, digits++)
        step = step * 10 + (*name - '0');
    return digits > 0 && strcmp(name, behind) == 0 ? step : -1;
}

int64_t pictures_newest(const char *job_dir, char *ret, size_t size)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", job_dir, PICTURES_FOLDER);
    DIR *dir = n > 0 && (size_t)n < sizeof path ? opendir(path) : NULL;
    int64_t newest = -1, step;

    for (struct dirent *e; dir && (e = readdir(dir));)
        if ((step = pictures_step(e->d_name)) > newest)
            newest = step;
    if (dir)
        closedir(dir);
    if (newest < 0)
        return -1;
    n = snprintf(ret, size, "%s/" PICTURES_NAME, path, (long long)newest);
    return n > 0 && (size_t)n < size ? newest : -1;
}

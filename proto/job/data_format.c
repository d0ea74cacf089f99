#include "proto/job/data_format.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stddef.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

const char *data_format(const char *path, const char *like)
{
    static const char *const endings[][2] = { { ".json", "coco" }, { ".yaml", "yolo" }, { ".yml", "yolo" }, { ".data", "darknet" } };
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    struct stat st;

    if (strcmp(like, "frames") == 0 || strcmp(like, "kitti") == 0)
        return like;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return strcmp(like, "coco") == 0 ? "voc" : like;
    for (size_t i = 0; dot && i < sizeof endings / sizeof *endings; i++)
        if (strcasecmp(dot, endings[i][0]) == 0)
            return endings[i][1];
    return like;
}

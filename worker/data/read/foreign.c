#include "worker/data/read/foreign.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/err.h"
#include "worker/data/set/dataset.h"
#include "worker/data/read/labels/label_paths.h"
#include "worker/data/set/problems.h"
#include "worker/data/text/text_lines.h"

enum { LOOK_BYTES = 64 << 10, WORDS = 3 };

/* A file is this tool's if it begins with `begin` and has all `words` in its first bytes. */
static const struct tool {
    const char *begin, *words[WORDS], *text;
} tools[] = {
    { "{",
      { "\"_via_img_metadata\"" },
      "a project of VIA (VGG Image Annotator), which is not read; export annotations there as \"COCO format\"" },
    { "{",
      { "\"_via_settings\"" },
      "a project of VIA (VGG Image Annotator), which is not read; export annotations there as \"COCO format\"" },
    { "{",
      { "\"regions\"", "\"shape_attributes\"" },
      "VIA's own JSON (VGG Image Annotator), which is not read; export annotations there as \"COCO format\"" },
    { "{",
      { "\"shapes\"", "\"shape_type\"" },
      "a file of labelme, which is not read; labelme2coco makes COCO JSON of a folder of such files" },
    { "{",
      { "\"shapes\"", "\"imagePath\"" },
      "a file of labelme, which is not read; labelme2coco makes COCO JSON of a folder of such files" },
    { "{", { "\"classTitle\"", "\"geometryType\"" }, "a file of Supervisely, which is not read; export the project there as COCO" },
    { "[",
      { "\"annotations\"", "\"result\"", "\"data\"" },
      "Label Studio's own JSON, which is not read; export the project there as \"COCO\" or \"YOLO\"" },
    { "[",
      { "\"annotation_id\"", "\"annotator\"" },
      "Label Studio's own JSON, which is not read; export the project there as \"COCO\" or \"YOLO\"" },
    { "[",
      { "\"image\"", "\"coordinates\"" },
      "CreateML's JSON, which is not read; export the data set as COCO, for example from Roboflow" },
    { "<", { "<annotations>", "<meta>" }, "CVAT's own XML, which is not read; export the task there as \"COCO 1.0\"" },
    { "<",
      { "<annotation>", "<imagesize>" },
      "XML of the LabelMe web tool, which is not read; convert it to COCO JSON, for example with datumaro" },
};

static bool fits(const struct tool *t, const char *text)
{
    const char *begin = text + text_mark(text, strlen(text));

    begin += strspn(begin, " \t\r\n");
    if (*begin != *t->begin)
        return false;
    for (int i = 0; i < WORDS && t->words[i]; i++)
        if (!strstr(text, t->words[i]))
            return false;
    return true;
}

/* The first bytes of a file as text that ends with NUL, or NULL. The caller frees it. */
static char *look(const char *path)
{
    char *text = calloc(1, LOOK_BYTES + 1);
    int fd = text ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    ssize_t n = fd < 0 ? -1 : read(fd, text, LOOK_BYTES);

    if (fd >= 0)
        close(fd);
    if (n > 0)
        return text;
    free(text);
    return NULL;
}

static int tell_file(const char *path, struct problems *problems, struct err *err)
{
    char *text = look(path);
    int rc = 0;

    for (size_t i = 0; text && rc == 0 && i < sizeof tools / sizeof *tools; i++)
        if (fits(&tools[i], text)) {
            problems_forget(problems);
            rc = err_set(err, ERR_DATA, "%s: %s", path, tools[i].text);
        }
    free(text);
    return rc;
}

static bool may_be_one(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot && (strcasecmp(dot, ".json") == 0 || strcasecmp(dot, ".xml") == 0);
}

/* Ends the scan at the first file. */
static int take_first(void *arg, const char *path, struct err *err)
{
    (void)err;
    snprintf(arg, DATASET_MAX_PATH, "%s", path);
    return 1;
}

int foreign_tell(const char *path, struct problems *problems, struct err *err)
{
    char first[DATASET_MAX_PATH] = "";
    struct err ignored;
    struct stat st;

    if (stat(path, &st) < 0)
        return 0;
    if (S_ISREG(st.st_mode))
        return tell_file(path, problems, err);
    if (!S_ISDIR(st.st_mode) || label_paths_scan(path, false, may_be_one, take_first, first, &ignored) != 1)
        return 0;
    return tell_file(first, problems, err);
}

#include "supervisor/ranks/errorfile.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/clean.h"
#include "proto/err.h"

enum { MAX_BYTES = 256 << 10, LINES = 3, NAME = 64 };

void errorfile_name(int attempt, int rank, char *ret, size_t size)
{
    snprintf(ret, size, "errors/attempt-%d-rank-%d.json", attempt, rank);
}

int errorfile_prepare(int attempt, int nranks, struct err *err)
{
    char name[NAME];

    if (mkdir("errors", 0700) < 0 && errno != EEXIST)
        return err_sys(err, "make folder 'errors'");
    for (int i = 0; i < nranks; i++) {
        errorfile_name(attempt, i, name, sizeof name);
        unlink(name);
    }
    return 0;
}

/* The file belongs to the program: it may be anything. */
static json_t *load(const char *name)
{
    int fd = open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;
    bool good = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= MAX_BYTES;
    json_t *root = good ? json_loadfd(fd, 0, NULL) : NULL;

    if (fd >= 0)
        close(fd);
    return root;
}

/* The last lines of the text that are not empty, with " | " between them. */
static void last_lines(const char *text, char *ret, size_t size)
{
    size_t len = strlen(text), room = size - 4 - 2 * LINES, from;
    char *out = ret;

    while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == ' '))
        len--;
    from = len;
    for (int lines = 0; from > 0 && len - from < room; from--)
        if (text[from - 1] == '\n' && ++lines == LINES)
            break;
    for (; from < len && out + 4 < ret + size; from++)
        if (text[from] != '\n')
            *out++ = text[from];
        else if (out > ret)
            out += sprintf(out, " | ");
    *out = '\0';
}

static double read_one(const char *name, char *ret, size_t size)
{
    json_t *root = load(name), *message = json_object_get(root, "message"), *extra = json_object_get(message, "extraInfo");
    json_t *when = json_object_get(extra, "timestamp");
    const char *text = json_string_value(json_is_object(message) ? json_object_get(message, "message") : message);
    double at = json_is_number(when)   ? json_number_value(when)
                : json_is_string(when) ? strtod(json_string_value(when), NULL) /* torch writes a string */
                                       : INFINITY;
    char raw[2000];

    ret[0] = '\0';
    if (text) {
        last_lines(text, raw, size < sizeof raw ? size : sizeof raw);
        clean_copy(ret, size, raw);
    }
    json_decref(root);
    return at;
}

int errorfile_read(int attempt, int nranks, int first, char *ret, size_t size)
{
    char name[NAME], text[1000];
    double oldest = INFINITY;
    int found = -1;

    ret[0] = '\0';
    for (int i = 0; i < nranks; i++) {
        double at;

        errorfile_name(attempt, i, name, sizeof name);
        at = read_one(name, text, sizeof text < size ? sizeof text : size);
        if (!text[0] || (found >= 0 && at >= oldest && (i != first || oldest < INFINITY)))
            continue;
        found = i;
        oldest = at;
        snprintf(ret, size, "%s", text);
    }
    return found;
}

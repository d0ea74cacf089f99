#include "worker/data/read/frames/poses.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/data/text/text_lines.h"

enum { LINE_BYTES = 1024 };
/* How far columns of a rotation may be from length 1 and right angles, since files have few digits. */
static const double crooked = 1e-2;

static bool is_rotation(const double p[POSES_NUMBERS])
{
    for (int a = 0; a < 3; a++)
        for (int b = a; b < 3; b++)
            if (!(fabs(p[a] * p[b] + p[4 + a] * p[4 + b] + p[8 + a] * p[8 + b] - (a == b)) <= crooked))
                return false;
    return true;
}

/* Reads a line of n bytes. */
static int read_line(const char *path, size_t number, const char *bytes, size_t n, double ret[POSES_NUMBERS], struct err *err)
{
    char line[LINE_BYTES], *at = line, *end;

    if (n >= sizeof line)
        return err_set(err, ERR_DATA, "%s:%zu: the line is longer than %d bytes", path, number, LINE_BYTES - 1);
    memcpy(line, bytes, n);
    line[n] = '\0';
    for (int i = 0; i < POSES_NUMBERS; i++, at = end) {
        ret[i] = strtod(at, &end);
        if (end == at || !isfinite(ret[i]))
            return err_set(err, ERR_DATA, "%s:%zu: number %d of 12 is missing or no finite number", path, number, i + 1);
    }
    if (strspn(at, " \t\r") != strlen(at))
        return err_set(err, ERR_DATA, "%s:%zu: more than 12 numbers", path, number);
    if (!is_rotation(ret))
        return err_set(err, ERR_DATA, "%s:%zu: the first three columns are no rotation", path, number);
    return 0;
}

static size_t count_lines(const char *bytes, size_t len)
{
    size_t n = len > 0 && bytes[len - 1] != '\n';

    for (size_t i = 0; i < len; i++)
        n += bytes[i] == '\n';
    return n;
}

static int read_lines(const char *path, const char *bytes, size_t len, struct poses *ret, struct err *err)
{
    const char *at = bytes + text_mark(bytes, len), *end = bytes + len;
    int rc = 0;

    while (at < end && rc >= 0) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));

        if (!stop)
            stop = end;
        rc = read_line(path, ret->n + 1, at, (size_t)(stop - at), ret->pose[ret->n], err);
        ret->n++;
        at = stop + 1;
    }
    return rc;
}

int poses_parse(const char *name, const char *bytes, size_t len, struct poses *ret, struct err *err)
{
    int rc;

    *ret = (struct poses){ 0, calloc(count_lines(bytes, len) + 1, sizeof *ret->pose) };
    rc = ret->pose ? read_lines(name, bytes, len, ret, err) : err_set(err, -ENOMEM, "%s: out of memory", name);
    if (rc < 0)
        poses_free(ret);
    return rc;
}

void poses_free(struct poses *p)
{
    free(p->pose);
    *p = (struct poses){ 0 };
}

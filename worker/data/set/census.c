#include "worker/data/set/census.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "worker/data/set/dataset.h"

enum { NAME_BYTES = CENSUS_NAME, END_BYTES = 48 /* room for ", and N more classes" */ };

static int64_t objects_of(const struct dataset *d, int cls)
{
    int64_t n = 0;

    for (int64_t k = 0; k < d->offset[d->nimages]; k++)
        n += d->boxes[k].cls == cls && !d->boxes[k].crowd;
    return n;
}

char *census_name(const char *name, char buf[CENSUS_NAME])
{
    snprintf(buf, NAME_BYTES, "%s", name);
    for (unsigned char *p = (unsigned char *)buf; *p; p++) {
        if (*p == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0) /* control characters U+0080 .. U+009F in UTF-8 */
            memmove(p, p + 1, strlen((char *)p));
        if (*p < ' ' || *p == 0x7f || (*p >= 0x80 && *p < 0xa0 && (p == (unsigned char *)buf || p[-1] < 0x80)))
            *p = '?';
    }
    return buf;
}

static int frames_alone(const struct views *v)
{
    int n = 0;

    for (int i = 0; i < v->n && v->keeps_alone; i++)
        n += views_alone(v, i);
    return n;
}

bool census_lossless(const struct dataset *d, const char *best, char *buf, size_t size)
{
    if (!d->views || d->views->n == 0 || frames_alone(d->views) < d->views->n)
        return false;
    snprintf(buf, size, "no frame has all of its neighbours: a validation has no loss%s",
             strcmp(best, "loss") != 0      ? ""
             : views_measured(d->views) > 0 ? " to choose the best checkpoint by; checkpoint.best=abs_rel chooses by depth"
                                            : " to choose the best checkpoint by");
    return true;
}

/* A data set of frames: the size of the first, the number of other sizes, and the facts of its targets. */
static char *frames_text(const struct dataset *d, char *buf, size_t size)
{
    const struct views *v = d->views;
    int w = d->images[0].w, h = d->images[0].h, other = 0, alone = frames_alone(v), used;

    for (int i = 0; i < d->nimages; i++)
        other += d->images[i].w != w || d->images[i].h != h;
    used = snprintf(buf, size, "%d target%s with %d source%s each, of %d frames, %d x %d", v->n, v->n == 1 ? "" : "s", v->nsources,
                    v->nsources == 1 ? "" : "s", d->nimages, w, h);
    if (other)
        used += snprintf(buf + used, size - (size_t)used, " and %d of other sizes", other);
    if (v->dropped)
        used += snprintf(buf + used, size - (size_t)used, "; %lld left out that lack a neighbour", (long long)v->dropped);
    if (v->repeated)
        used += snprintf(buf + used, size - (size_t)used, "; %lld lack a neighbour, and are used in its place", (long long)v->repeated);
    if (alone)
        used += snprintf(buf + used, size - (size_t)used, "; %d lack a neighbour: scored, but without losses", alone);
    snprintf(buf + used, size - (size_t)used, "; %d with measured depth", views_measured(v));
    return buf;
}

char *census_text(const struct dataset *d, int left_out, char *buf, size_t size)
{
    char name[NAME_BYTES];
    size_t used = 0;
    int k = 0;

    if (d->views)
        return frames_text(d, buf, size);
    *buf = '\0';
    if (left_out > 0)
        snprintf(buf, size, "%d image%s without an object to train on %s left out; ", left_out, left_out == 1 ? "" : "s",
                 left_out == 1 ? "is" : "are");
    used = strlen(buf);
    snprintf(buf + used, size - used, "objects by class:");
    for (used = strlen(buf); k < d->nclasses && used + NAME_BYTES + 24 + END_BYTES < size; k++) {
        census_name(d->classes[k].name, name);
        used += (size_t)snprintf(buf + used, size - used, "%s %s %lld", k ? "," : "", name, (long long)objects_of(d, k));
    }
    if (k < d->nclasses)
        snprintf(buf + used, size - used, ", and %d more classes", d->nclasses - k);
    return buf;
}

bool census_crowded(const struct dataset *d, const struct census_limit *limit, char *buf, size_t size)
{
    int64_t most = limit->objects;
    int images = 0, which = -1;
    char name[NAME_BYTES];

    for (int i = 0; i < d->nimages && !d->views; i++) {
        int64_t n = 0;

        for (int64_t k = d->offset[i]; k < d->offset[i + 1]; k++)
            n += !d->boxes[k].crowd;
        images += n > limit->objects;
        which = n > most ? i : which;
        most = n > most ? n : most;
    }
    if (images == 0)
        return false;
    snprintf(buf, size, "%d of %d images have more objects than %s, %lld, which then %s; the most are %lld, in '%s': %s=%lld would %s",
             images, d->nimages, limit->key, (long long)limit->objects, limit->surplus, (long long)most,
             census_name(d->images[which].file, name), limit->key, (long long)most, limit->higher);
    return true;
}

#include "worker/data/set/views.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdlib.h>

void views_free(struct views *v)
{
    if (!v)
        return;
    for (int i = 0; i < v->nfiles; i++)
        free(v->files[i].file);
    free(v->files);
    free(v->lasers);
    free(v->view);
    free(v);
}

int views_measured(const struct views *v)
{
    int n = 0;

    for (int i = 0; i < v->n; i++)
        n += v->view[i].depth >= 0;
    return n;
}

bool views_alone(const struct views *v, int target)
{
    for (int k = 0; k < v->nsources; k++)
        if (v->view[target].source[k] == target)
            return true;
    return false;
}

void views_spare(const struct views *v, int nimages, bool *ret)
{
    for (int i = 0; i < nimages; i++)
        ret[i] = v->keeps_alone && i >= v->n;
    for (int i = 0; i < v->n; i++)
        for (int k = 0; k < v->nsources && v->view[i].depth < 0; k++)
            ret[v->view[i].source[k]] = false;
}

/* True if the target stays. If v keeps targets alone, a flawed source counts as missing. */
static bool whole(struct views *v, int target, char *const *flaw)
{
    bool good = !flaw[target];

    for (int k = 0; k < v->nsources; k++) {
        int32_t *source = &v->view[target].source[k];

        if (flaw[*source] && v->keeps_alone)
            *source = target;
        good = good && !flaw[*source];
    }
    return good;
}

/* Drops the files of measured depth of dropped targets, since they may be unread. place: the new index of each file, or
 * -1. */
static void drop_depth(struct views *v, const int32_t *place)
{
    int left = 0;

    for (int i = 0; i < v->nfiles; i++)
        if (place[i] < 0)
            free(v->files[i].file);
        else
            v->files[left++] = v->files[i];
    v->nfiles = left;
    for (int i = 0; i < v->n; i++)
        if (v->view[i].depth >= 0)
            v->view[i].depth = place[v->view[i].depth];
}

int views_drop(struct views *v, int nimages, char *const *flaw, int32_t *ret_place)
{
    int32_t *file = malloc(((size_t)v->nfiles + 1) * sizeof *file);
    int targets = 0, files = 0, left;

    if (!file)
        return -ENOMEM;
    for (int i = 0; i < nimages; i++)
        ret_place[i] = -1;
    for (int i = 0; i < v->nfiles; i++)
        file[i] = 0;
    for (int i = 0; i < v->n; i++)
        if (v->view[i].depth >= 0)
            file[v->view[i].depth] = -1;
    for (int i = 0; i < v->n; i++)
        if (whole(v, i, flaw)) {
            ret_place[i] = targets;
            if (v->view[i].depth >= 0)
                file[v->view[i].depth] = 0;
            v->view[targets++] = v->view[i];
        }
    v->n = left = targets;
    for (int i = 0; i < v->nfiles; i++)
        file[i] = file[i] < 0 ? -1 : files++;
    drop_depth(v, file);
    free(file);
    /* a dropped target may still be a neighbour: -2 until all are known, so that they keep their order */
    for (int i = 0; i < targets; i++)
        for (int k = 0; k < v->nsources; k++) {
            int32_t *place = &ret_place[v->view[i].source[k]];

            *place = *place < 0 ? -2 : *place;
        }
    for (int i = 0; i < nimages; i++)
        if (ret_place[i] == -2)
            ret_place[i] = left++;
    for (int i = 0; i < targets; i++)
        for (int k = 0; k < v->nsources; k++)
            v->view[i].source[k] = ret_place[v->view[i].source[k]];
    return left;
}

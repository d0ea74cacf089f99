#include "worker/data/read/survey_boxes.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/data/set/census.h"
#include "worker/data/set/dataset.h"
#include "worker/data/read/survey.h"

static const double nearly = 0.95, whole = 0.99;

enum { LOOK_BACK = 1000 }; /* limit of boxes compared with one box, so that every file is checked in short time */

static int by_left(const void *a, const void *b)
{
    const struct dataset_box *x = *(const struct dataset_box *const *)a, *y = *(const struct dataset_box *const *)b;

    if (x->x != y->x)
        return x->x < y->x ? -1 : 1;
    return (x > y) - (x < y);
}

static double overlap(const struct dataset_box *a, const struct dataset_box *b)
{
    double w = fmin(a->x + a->w, b->x + b->w) - fmax(a->x, b->x), h = fmin(a->y + a->h, b->y + b->h) - fmax(a->y, b->y);
    double common = w > 0 && h > 0 ? w * h : 0;

    return common / (a->w * a->h + b->w * b->h - common);
}

/* The last box before place k, in the order of left sides, that nearly equals box k. NULL: no such box. Such boxes
 * share .95 of their widths, which bounds the search. */
static const struct dataset_box *twin(const struct dataset_box *const *box, int k)
{
    for (int i = k - 1; i >= 0 && k - i <= LOOK_BACK && box[k]->x - box[i]->x <= (1 - nearly) / nearly * box[k]->w; i--)
        if (overlap(box[i], box[k]) >= nearly)
            return box[i];
    return NULL;
}

/* "annotation 7, 'cat' [1, 2, 3, 4]"; labels in separate files have no ids. */
static void put_box(const struct dataset *d, const struct dataset_box *b, FILE *out)
{
    char name[CENSUS_NAME];

    if (d->nfiles == 0)
        fprintf(out, "annotation %lld, ", (long long)b->id);
    fprintf(out, "'%s' [%g, %g, %g, %g]", census_name(d->classes[b->cls].name, name), b->told[0], b->told[1], b->told[2], b->told[3]);
}

static void put_image(const struct dataset *d, const char *split, int i, FILE *out)
{
    char name[CENSUS_NAME];

    fprintf(out, "%s: image %lld ('%s') ", split, (long long)d->images[i].id, census_name(d->images[i].file, name));
}

static bool same_told(const struct dataset_box *a, const struct dataset_box *b)
{
    for (int i = 0; i < 4; i++)
        if (a->told[i] != b->told[i])
            return false;
    return true;
}

static void tell_pair(const struct dataset *d, const char *split, int i, const struct dataset_box *a, const struct dataset_box *b,
                      FILE *out)
{
    const struct dataset_box *first = a < b ? a : b, *second = a < b ? b : a;

    put_image(d, split, i, out);
    if (a->cls == b->cls && same_told(a, b))
        fputs("has a box twice: ", out);
    else
        fprintf(out, "has two boxes with an IoU of %.2f: ", overlap(a, b));
    put_box(d, first, out);
    fputs(" and ", out);
    put_box(d, second, out);
    fputs("\n", out);
}

/* box has room for the boxes of a picture. Returns found plus the pairs of picture i. */
static int64_t pairs_of(const struct dataset *d, const char *split, int i, const struct dataset_box **box, int64_t found, FILE *out)
{
    int n = 0;

    for (int64_t k = d->offset[i]; k < d->offset[i + 1]; k++)
        if (!d->boxes[k].crowd)
            box[n++] = &d->boxes[k];
    if (n > 1)
        qsort(box, (size_t)n, sizeof *box, by_left);
    for (int k = 1; k < n; k++) {
        const struct dataset_box *other = twin(box, k);

        if (other && found++ < SURVEY_LINES)
            tell_pair(d, split, i, other, box[k], out);
    }
    return found;
}

static int64_t whole_of(const struct dataset *d, const char *split, int i, int64_t found, FILE *out)
{
    const double pixels = (double)d->images[i].w * d->images[i].h;

    for (int64_t k = d->offset[i]; k < d->offset[i + 1]; k++) {
        const struct dataset_box *b = &d->boxes[k];

        if (b->crowd || b->w * b->h < whole * pixels || found++ >= SURVEY_LINES)
            continue;
        put_image(d, split, i, out);
        fputs("has a box of the whole picture: ", out);
        put_box(d, b, out);
        fputs("\n", out);
    }
    return found;
}

int survey_boxes(const struct dataset *d, const char *split, FILE *out, int64_t *ret_twice, int64_t *ret_whole, struct err *err)
{
    const struct dataset_box **box = malloc(((size_t)d->max_boxes + 1) * sizeof *box);
    int64_t twice = 0, all = 0;

    if (!box)
        return err_set(err, -ENOMEM, "%s: no memory", d->source);
    for (int i = 0; i < d->nimages; i++)
        twice = pairs_of(d, split, i, box, twice, out);
    for (int i = 0; i < d->nimages; i++)
        all = whole_of(d, split, i, all, out);
    free(box);
    *ret_twice = twice;
    *ret_whole = all;
    return 0;
}

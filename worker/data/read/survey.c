#include "worker/data/read/survey.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/data/set/census.h"
#include "worker/data/set/dataset.h"
#include "worker/data/read/likeness.h"
#include "worker/data/read/survey_boxes.h"

/* ---- sizes ---- */

enum { SMALL, MEDIUM, LARGE, SIZES };
static const double size_ends[LARGE] = { 32 * 32, 96 * 96 }; /* COCO's limits, in square pixels */

static int size_of(const struct dataset_box *b)
{
    int size = SMALL;

    while (size < LARGE && b->area >= size_ends[size])
        size++;
    return size;
}

/* Omits classes without an object. */
static int tell_sizes(const struct dataset *d, const char *split, FILE *out, struct err *err)
{
    int64_t(*n)[SIZES] = calloc((size_t)d->nclasses + 1, sizeof *n), *all = n ? n[d->nclasses] : NULL;
    char name[CENSUS_NAME];
    const char *before = "; ";
    int told = 0, more = 0;

    if (!n)
        return err_set(err, -ENOMEM, "%s: no memory", d->source);
    for (int64_t k = 0; k < d->offset[d->nimages]; k++)
        if (!d->boxes[k].crowd) {
            n[d->boxes[k].cls][size_of(&d->boxes[k])]++;
            all[size_of(&d->boxes[k])]++;
        }
    fprintf(out, "%s: objects by size, below 32 x 32, below 96 x 96, above: small %lld, medium %lld, large %lld", split,
            (long long)all[SMALL], (long long)all[MEDIUM], (long long)all[LARGE]);
    for (int c = 0; c < d->nclasses && d->nclasses > 1; c++) {
        if (n[c][SMALL] + n[c][MEDIUM] + n[c][LARGE] == 0)
            continue;
        if (told++ < 8 * SURVEY_LINES)
            fprintf(out, "%s%s %lld/%lld/%lld", before, census_name(d->classes[c].name, name), (long long)n[c][SMALL],
                    (long long)n[c][MEDIUM], (long long)n[c][LARGE]);
        else
            more++;
        before = ", ";
    }
    if (more)
        fprintf(out, ", and %d more classes", more);
    fputs("\n", out);
    free(n);
    return 0;
}

static void tell_empty(const struct dataset *d, const char *split, FILE *out)
{
    int empty = 0;

    for (int i = 0; i < d->nimages; i++)
        empty += d->offset[i] == d->offset[i + 1];
    if (empty == 0)
        return;
    fprintf(out, "%s: %d of %d images have no box", split, empty, d->nimages);
    if (d->unlabelled)
        fprintf(out, "; %lld have no file of labels", (long long)d->unlabelled);
    fputs("\n", out);
}

static void tell_turned(const struct dataset *d, const char *split, bool upright, FILE *out)
{
    const struct dataset_image *first = NULL;
    int turned = 0;

    for (int i = 0; i < d->nimages; i++)
        if (d->images[i].orientation > 1) {
            first = first ? first : &d->images[i];
            turned++;
        }
    if (turned)
        fprintf(out, "%s: %d image%s an EXIF orientation, which is %sapplied; the first is '%s', orientation %d\n", split, turned,
                turned == 1 ? " carries" : "s carry", upright ? "" : "not ", first->file, first->orientation);
}

/* ---- the same bytes ---- */

struct content {
    struct hash128 hash;
    int32_t image;
    bool val;
};

static int by_content(const void *a, const void *b)
{
    const struct content *x = a, *y = b;
    int order = memcmp(&x->hash, &y->hash, sizeof x->hash);

    if (order == 0)
        order = x->val - y->val;
    return order ? order : (x->image > y->image) - (x->image < y->image);
}

/* All images of both sets, sorted by content, then in the order of the sets. val may be NULL. */
static struct content *contents(const struct dataset *train, const struct dataset *val, struct err *err)
{
    size_t n = (size_t)train->nimages + (val ? (size_t)val->nimages : 0);
    struct content *c = calloc(n + 1, sizeof *c);

    if (!c) {
        err_set(err, -ENOMEM, "%s: no memory", train->source);
        return NULL;
    }
    for (int i = 0; i < train->nimages; i++)
        c[i] = (struct content){ train->images[i].hash, i, false };
    for (int i = 0; val && i < val->nimages; i++)
        c[train->nimages + i] = (struct content){ val->images[i].hash, i, true };
    if (n > 0)
        qsort(c, n, sizeof *c, by_content);
    return c;
}

static void tell_rest(const char *split, int found, const char *what, FILE *out)
{
    if (found > SURVEY_LINES)
        fprintf(out, "%s: ... and %d more %s\n", split, found - SURVEY_LINES, what);
}

/* A hash of the picture's boxes, in any order. */
static uint64_t boxes_hash(const struct dataset *d, int image)
{
    uint64_t sum = 0;

    for (int64_t k = d->offset[image]; k < d->offset[image + 1]; k++)
        sum += hash_fold_u64(hash_bytes(d->boxes[k].told, sizeof d->boxes[k].told, 0), (uint64_t)d->boxes[k].cls).lane[0];
    return sum;
}

static const char *other_boxes(const struct dataset *a, int i, const struct dataset *b, int k)
{
    return boxes_hash(a, i) == boxes_hash(b, k) ? "" : ", but their boxes differ";
}

static int tell_doubles(const struct dataset *d, const char *split, FILE *out, int64_t *ret_found, struct err *err)
{
    struct content *c = contents(d, NULL, err);
    int found = 0;

    if (!c)
        return err->code;
    for (int i = 1, first = 0; i < d->nimages; i++) {
        const struct dataset_image *a = &d->images[c[first].image], *b = &d->images[c[i].image];

        if (memcmp(&c[i].hash, &c[first].hash, sizeof c->hash) != 0) {
            first = i;
            continue;
        }
        if (found++ >= SURVEY_LINES)
            continue;
        if (strcmp(a->file, b->file) == 0)
            fprintf(out, "%s: images %lld and %lld are both '%s': objects of one are background in the other\n", split, (long long)a->id,
                    (long long)b->id, a->file);
        else
            fprintf(out, "%s: images %lld ('%s') and %lld ('%s') are the same bytes%s\n", split, (long long)a->id, a->file,
                    (long long)b->id, b->file, other_boxes(d, c[first].image, d, c[i].image));
    }
    tell_rest(split, found, "images that are the same bytes as another", out);
    free(c);
    *ret_found = found;
    return 0;
}

static void tell_summary(const char *split, int64_t twice, int64_t whole, int64_t doubles, FILE *out)
{
    const struct {
        int64_t n;
        const char *what;
    } rows[] = { { twice, "boxes nearly twice" },
                 { whole, "boxes of the whole picture" },
                 { doubles, "pictures with the bytes of another" } };
    const char *before = "possible mistakes: ";

    if (twice + whole + doubles == 0)
        return;
    fprintf(out, "%s: ", split);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].n) {
            fprintf(out, "%s%lld %s", before, (long long)rows[i].n, rows[i].what);
            before = ", ";
        }
    fputs("\n", out);
}

int survey_split(const struct dataset *d, const char *split, bool upright, FILE *facts, FILE *warnings, struct err *err)
{
    int64_t twice = 0, whole = 0, doubles = 0;
    int rc;

    if (d->views)
        return 0;
    rc = tell_sizes(d, split, facts, err);
    tell_empty(d, split, facts);
    tell_turned(d, split, upright, warnings);
    if (rc >= 0)
        rc = survey_boxes(d, split, warnings, &twice, &whole, err);
    if (rc >= 0)
        rc = tell_doubles(d, split, warnings, &doubles, err);
    if (rc >= 0)
        tell_summary(split, twice, whole, doubles, warnings);
    return rc;
}

/* Compares all frames, also those that are only neighbours of targets. */
static void tell_frames(const struct dataset *train, const struct dataset *val, const struct content *c, FILE *out)
{
    const struct content *of_train = NULL;
    int found = 0, first = val->nimages;

    for (int i = 0; i < train->nimages + val->nimages; i++) {
        if (!c[i].val) {
            of_train = &c[i];
        } else if (of_train && memcmp(&c[i].hash, &of_train->hash, sizeof c->hash) == 0) {
            first = c[i].image < first ? c[i].image : first;
            found++;
        }
    }
    if (found > 0)
        fprintf(out, "val: %d of its %d frames are the same bytes as frames of train, which flatters its losses; the first is '%s'\n",
                found, val->nimages, val->images[first].file);
}

/* The first picture of train that looks like this one without being equal to it. -1: no such picture. */
static int alike(const struct dataset *train, const struct dataset_image *im)
{
    for (int i = 0; i < train->nimages; i++)
        if (likeness_near(train->images[i].likeness, im->likeness) && memcmp(&train->images[i].hash, &im->hash, sizeof im->hash) != 0)
            return i;
    return -1;
}

static void tell_alike(const struct dataset *train, const struct dataset *val, FILE *out)
{
    int found = 0;

    if ((int64_t)train->nimages * val->nimages > SURVEY_PAIRS) {
        fprintf(out, "val: too many pictures to search for near duplicates of pictures of train\n");
        return;
    }
    for (int i = 0; i < val->nimages; i++) {
        const struct dataset_image *a = &val->images[i];
        int k = alike(train, a);

        if (k >= 0 && found++ < SURVEY_LINES)
            fprintf(out, "val: '%s' nearly equals '%s' of train\n", a->file, train->images[k].file);
    }
    tell_rest("val", found, "images that nearly equal one of train", out);
}

int survey_common(const struct dataset *train, const struct dataset *val, FILE *out, struct err *err)
{
    struct content *c = contents(train, val, err);
    int found = 0, n = train->nimages + val->nimages;

    if (!c)
        return err->code;
    if (val->views) {
        tell_frames(train, val, c, out);
        free(c);
        return 0;
    }
    for (int i = 1, first = 0; i < n; i++) {
        const struct dataset_image *b = &val->images[c[i].val ? c[i].image : 0], *a = &train->images[c[first].val ? 0 : c[first].image];

        if (memcmp(&c[i].hash, &c[first].hash, sizeof c->hash) != 0)
            first = i;
        else if (c[i].val && !c[first].val && found++ < SURVEY_LINES)
            fprintf(out, "val: image %lld ('%s') is the same bytes as image %lld ('%s') of train%s\n", (long long)b->id, b->file,
                    (long long)a->id, a->file, other_boxes(train, c[first].image, val, c[i].image));
    }
    tell_rest("val", found, "images that are trained on, too", out);
    tell_alike(train, val, out);
    free(c);
    return 0;
}

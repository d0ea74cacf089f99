#include "worker/data/read/coco/coco_keys.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "proto/near.h"
#include "worker/data/set/census.h"
#include "worker/data/set/problems.h"

static const char *const place_name[] = {
    [COCO_FILE] = "top level", [COCO_IMAGES] = "images", [COCO_ANNOTATIONS] = "annotations", [COCO_CATEGORIES] = "categories"
};

/* The keys that are read, by place. */
static const char *const read_keys[][10] = {
    [COCO_FILE] = { "images", "annotations", "categories", NULL },
    [COCO_IMAGES] = { "id", "file_name", "width", "height", NULL },
    [COCO_ANNOTATIONS] = { "id", "image_id", "category_id", "bbox", "area", "iscrowd", "ignore", "segmentation", NULL },
    [COCO_CATEGORIES] = { "id", "name", NULL },
};

/* Keys that other tools use and this one ignores. */
static const struct obeyed {
    enum coco_place place;
    const char *name, *what;
} obeyed[] = {
    { COCO_IMAGES, "neg_category_ids", "LVIS scores a picture only for categories listed there; here each picture is labelled for all" },
    { COCO_IMAGES, "not_exhaustive_category_ids", "LVIS forgives detections of these categories; here each picture is labelled for all" },
    { COCO_ANNOTATIONS, "bbox_mode", "each bbox is read as x, y, width, height; bbox_mode is ignored" },
};

static const struct obeyed *obeyed_by_others(enum coco_place place, const char *name)
{
    for (size_t i = 0; i < sizeof obeyed / sizeof *obeyed; i++)
        if (obeyed[i].place == place && strcmp(obeyed[i].name, name) == 0)
            return &obeyed[i];
    return NULL;
}

/* The key meant by a misspelt one, or NULL. */
static const char *meant(enum coco_place place, const char *name)
{
    for (const char *const *key = read_keys[place]; *key; key++)
        if (near_misspelt(name, *key))
            return *key;
    return NULL;
}

/* Keys of COCO's own files. */
static bool is_of_coco(enum coco_place place, const char *name)
{
    static const char *const names[] = { "info",          "licenses",  "type",          "license", "flickr_url", "coco_url",
                                         "date_captured", "keypoints", "num_keypoints", "caption", "skeleton",   "supercategory" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return place == COCO_CATEGORIES && strcmp(name, "color") == 0;
}

void coco_keys_see(struct coco_keys *k, enum coco_place place, const char *name, int64_t at)
{
    unsigned full = k->nharmless < COCO_KEYS_HARMLESS ? k->nharmless : COCO_KEYS_HARMLESS;
    bool tell;

    if (!*name || strlen(name) >= COCO_KEY_MAX || is_of_coco(place, name))
        return;
    for (unsigned i = 0; i < full; i++)
        if (k->harmless[i].place == place && strcmp(k->harmless[i].name, name) == 0)
            return;
    for (int i = 0; i < k->ntold; i++)
        if (k->told[i].place == place && strcmp(k->told[i].name, name) == 0) {
            k->told[i].count++;
            return;
        }
    tell = obeyed_by_others(place, name) || meant(place, name);
    if (tell && k->ntold < COCO_KEYS_TOLD) {
        k->told[k->ntold] = (struct coco_key){ place, "", 1, at };
        snprintf(k->told[k->ntold++].name, COCO_KEY_MAX, "%s", name);
    } else {
        k->harmless[k->nharmless % COCO_KEYS_HARMLESS].place = place;
        snprintf(k->harmless[k->nharmless++ % COCO_KEYS_HARMLESS].name, COCO_KEY_MAX, "%s", name);
    }
}

const char *coco_keys_like(const struct coco_keys *k, const char *name)
{
    for (int i = 0; i < k->ntold; i++)
        if (k->told[i].place == COCO_FILE && near_misspelt(k->told[i].name, name))
            return k->told[i].name;
    return NULL;
}

static long long line_at(const char *bytes, int64_t at)
{
    long long line = 1;

    for (int64_t i = 0; i < at; i++)
        line += bytes[i] == '\n';
    return line;
}

void coco_keys_tell(const struct coco_keys *k, const char *bytes, struct problems *problems)
{
    for (int i = 0; i < k->ntold; i++) {
        const struct coco_key *key = &k->told[i];
        const struct obeyed *other = obeyed_by_others(key->place, key->name);
        char name[CENSUS_NAME];

        census_name(key->name, name);
        if (other)
            problems_note(problems, "%s: key \"%s\" is not read (%lld times, first in line %lld): %s", place_name[key->place], name,
                          (long long)key->count, line_at(bytes, key->at), other->what);
        else
            problems_note(problems, "%s: key \"%s\" is not read (%lld times, first in line %lld); did you mean \"%s\"?",
                          place_name[key->place], name, (long long)key->count, line_at(bytes, key->at), meant(key->place, key->name));
    }
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/proto/job/job_file.h - small job files, and access to their
 * members. Include it after cmocka.h. */
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "tests/stand/harness.h"

#define MINIMAL                                                                                                     \
    "{\"model\":{\"preset\":\"yolov3_tiny\"},\"data\":{\"train\":{\"annotations\":\"a.json\",\"images\":\"img\"}}," \
    "\"train\":{\"steps\":4000,\"batch\":16}}"

/* The minimal job, with `set` ("key=value;key=value") applied. */
static inline json_t *job(const char *set)
{
    json_t *root = json_loads(MINIMAL, 0, NULL);
    char copy[512], *save = NULL;
    struct err err = { 0 };

    assert_non_null(root);
    snprintf(copy, sizeof copy, "%s", set);
    for (char *one = strtok_r(copy, ";", &save); one; one = strtok_r(NULL, ";", &save))
        if (jobspec_override(root, one, &err) < 0)
            fail_msg("override %s: %s", one, err.msg);
    return root;
}

static inline struct jobspec *good(const char *set)
{
    json_t *root = job(set);
    struct jobspec *s = NULL;
    struct err err = { 0 };

    if (jobspec_parse(root, &s, &err) < 0)
        fail_msg("%s: %s", set, err.msg);
    json_decref(root);
    return s;
}

/* The member at "a.b.c", or NULL. */
static inline const json_t *at(const json_t *object, const char *path)
{
    char copy[96], *save = NULL;

    snprintf(copy, sizeof copy, "%s", path);
    for (char *name = strtok_r(copy, ".", &save); name; name = strtok_r(NULL, ".", &save))
        object = json_object_get(object, name);
    return object;
}

static inline void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

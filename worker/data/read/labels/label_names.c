#include "worker/data/read/labels/label_names.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/grow.h"
#include "proto/hash/hash.h"
#include "worker/data/set/dataset.h"

void label_names_free(struct label_names *names)
{
    for (int i = 0; i < names->n; i++)
        free(names->name[i]);
    free(names->name);
    idmap_free(&names->by_name);
    *names = (struct label_names){ 0 };
}

/* The key of a known name, or a free key for a new one. */
static int64_t key_of(const struct label_names *names, const char *name, int *ret_number)
{
    int64_t key = (int64_t)(hash_bytes(name, strlen(name), 0).lane[0] >> 1);

    for (;; key++) {
        *ret_number = idmap_get(&names->by_name, key);
        if (*ret_number < 0 || strcmp(names->name[*ret_number], name) == 0)
            return key;
    }
}

int label_names_find(const struct label_names *names, const char *name)
{
    int number;

    key_of(names, name, &number);
    return number;
}

int label_names_add(struct label_names *names, const char *path, const char *name, struct err *err)
{
    int number;
    int64_t key = key_of(names, name, &number);

    if (number >= 0)
        return number;
    if (names->n == DATASET_MAX_CLASSES)
        return err_set(err, ERR_DATA, "%s: more than %d classes", path, DATASET_MAX_CLASSES);
    if (!GROW(names->name, names->room, names->n + 1))
        return err_set(err, -ENOMEM, "%s: no memory", path);
    names->name[names->n] = strdup(name);
    if (!names->name[names->n] || idmap_put(&names->by_name, key, names->n) < 0) {
        free(names->name[names->n]);
        return err_set(err, -ENOMEM, "%s: no memory", path);
    }
    return names->n++;
}

int label_names_add_line(struct label_names *names, const char *path, const struct text_line *line, struct err *err)
{
    char name[LABEL_NAME_MAX + 1];

    if (line->len == 0 || line->len > LABEL_NAME_MAX)
        return err_set(err, ERR_DATA, "%s, line %lld: the name of a class has 1 to %d bytes", path, (long long)line->number,
                       LABEL_NAME_MAX);
    memcpy(name, line->text, line->len);
    name[line->len] = '\0';
    if (label_names_find(names, name) >= 0)
        return err_set(err, ERR_DATA, "%s, line %lld: '%.80s' is there twice", path, (long long)line->number, name);
    return label_names_add(names, path, name, err);
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int label_names_sort(struct label_names *names, int32_t *ret_place)
{
    char **sorted = malloc(((size_t)names->n + 1) * sizeof *sorted);
    struct idmap by_name = { 0 };
    int rc = sorted ? 0 : -ENOMEM;

    if (names->n > 0 && sorted) {
        memcpy(sorted, names->name, (size_t)names->n * sizeof *sorted);
        qsort(sorted, (size_t)names->n, sizeof *sorted, by_bytes);
    }
    for (int i = 0; i < names->n && rc == 0; i++) {
        int number;
        int64_t key = key_of(names, sorted[i], &number);

        ret_place[number] = i;
        rc = idmap_put(&by_name, key, i);
    }
    if (rc < 0) {
        free(sorted);
        idmap_free(&by_name);
        return rc;
    }
    free(names->name);
    idmap_free(&names->by_name);
    names->name = sorted;
    names->room = names->n;
    names->by_name = by_name;
    return 0;
}

int label_names_parse(struct label_names *names, const char *path, const void *bytes, size_t size, struct err *err)
{
    struct text_lines l;
    struct text_line line;
    int rc;

    text_lines_open(&l, path, bytes, size);
    while ((rc = text_lines_next(&l, &line, err)) > 0)
        if ((rc = label_names_add_line(names, path, &line, err)) < 0)
            return rc;
    return rc == 0 && names->n == 0 ? err_set(err, ERR_DATA, "%s: there is no name of a class", path) : rc;
}

#include "worker/models/classes.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/core/safetensors.h"
#include "worker/data/set/dataset.h"
#include "worker/models/registry.h"
#include "worker/models/weights.h"

char *classes_text(const struct dataset *d)
{
    json_t *list = json_array();
    char *text;

    for (int i = 0; i < d->nclasses; i++)
        json_array_append_new(list, json_pack("{s:I,s:s}", "id", (json_int_t)d->classes[i].id, "name", d->classes[i].name));
    text = json_dumps(list, JSON_COMPACT);
    json_decref(list);
    return text;
}

int classes_read(const char *text, bool none, struct class_list *c, struct err *err)
{
    json_t *item;
    size_t i;

    c->root = text ? json_loads(text, 0, NULL) : NULL;
    if (!json_is_array(c->root) || (json_array_size(c->root) == 0 && !none) || json_array_size(c->root) > JOB_MAX_BYTES)
        return err_set(err, ERR_CORRUPT, "model.safetensors names no classes");
    c->n = (int)json_array_size(c->root);
    c->id = calloc((size_t)c->n + 1, sizeof *c->id);
    c->name = calloc((size_t)c->n + 1, sizeof *c->name);
    if (!c->id || !c->name)
        return err_set(err, ERR_DEVICE, "out of memory");
    json_array_foreach (c->root, i, item) {
        c->id[i] = json_integer_value(json_object_get(item, "id"));
        c->name[i] = json_string_value(json_object_get(item, "name"));
        if (!c->name[i])
            return err_set(err, ERR_CORRUPT, "model.safetensors: class %zu has no name", i);
    }
    return 0;
}

void classes_free(struct class_list *c)
{
    free(c->id);
    free(c->name);
    json_decref(c->root);
}

void classes_compare(struct model *m, const char *path, struct model_classes classes)
{
    struct safetensors *file = NULL;
    struct class_list theirs = { 0 };
    struct err none;
    int first = -1, n = 0;

    if (!classes.all || safetensors_open(path, &file, &none) < 0)
        return;
    if (classes_read(safetensors_meta(file, CLASSES_META), false, &theirs, &none) >= 0 && theirs.n == classes.n)
        for (int i = theirs.n - 1; i >= 0; i--)
            if (strcmp(theirs.name[i], classes.all[i].name) != 0) {
                first = i;
                n++;
            }
    if (n)
        weights_say(
            m, "; classes are matched by their order, and %d of %d have another name in the file: the first is '%.60s' there, '%.60s' here",
            n, classes.n, theirs.name[first], classes.all[first].name);
    classes_free(&theirs);
    safetensors_close(file);
}

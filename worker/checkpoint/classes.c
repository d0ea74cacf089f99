#include "worker/checkpoint/classes.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdlib.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/data/set/dataset.h"

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

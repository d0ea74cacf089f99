#include "worker/models/class_weights.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/near.h"
#include "worker/data/set/dataset.h"

static const char key[] = "train.class_weights";

static int refuse_unknown(const char *name, struct model_classes classes, struct err *err)
{
    unsigned bound = near_bound(name);
    const char *near = NULL;

    for (int k = 0; k < classes.n; k++) {
        unsigned far = near_distance(name, classes.all[k].name);

        if (far < bound) {
            bound = far;
            near = classes.all[k].name;
        }
    }
    if (near)
        return err_field(err, ERR_INPUT, key, "%s: the data set has no category '%.80s'; did you mean '%.80s'?", key, name, near);
    return err_field(err, ERR_INPUT, key, "%s: the data set has no category '%.80s'; detctl check lists them", key, name);
}

static int weigh(float *of, const char *name, double weight, struct model_classes classes, struct err *err)
{
    int n = 0;

    for (int k = 0; k < classes.n; k++)
        if (strcmp(classes.all[k].name, name) == 0) {
            of[k] = (float)weight;
            n++;
        }
    if (n > 1)
        return err_field(err, ERR_INPUT, key, "%s: %d categories of the data set are called '%.80s'", key, n, name);
    return n == 1 ? 0 : refuse_unknown(name, classes, err);
}

static int weigh_all(float *of, const json_t *weights, struct model_classes classes, struct err *err)
{
    const char *name;
    json_t *weight;
    int rc = 0;

    for (int k = 0; k < classes.n; k++)
        of[k] = 1;
    json_object_foreach ((json_t *)weights, name, weight) {
        if (rc >= 0)
            rc = weigh(of, name, json_number_value(weight), classes, err);
    }
    return rc;
}

int class_weights_put(struct model *m, const json_t *weights, struct model_classes classes, struct err *err)
{
    size_t bytes = (size_t)classes.n * sizeof(float);
    float *of;
    int rc;

    if (json_object_size(weights) == 0 || !classes.all || classes.n == 0)
        return 0;
    of = malloc(bytes);
    m->class_weight = of ? m->dev->ops->alloc(m->dev, bytes) : NULL;
    rc = m->class_weight ? weigh_all(of, weights, classes, err) : err_set(err, ERR_DEVICE, "out of memory: %s", key);
    if (rc >= 0)
        rc = m->dev->ops->upload(m->dev, m->class_weight, of, bytes, err);
    free(of);
    return rc;
}

#include "client/base/checkpoint.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "client/base/print.h"

static bool is_step(const json_t *checkpoint, const char *text)
{
    char *end;
    long long step = strtoll(text, &end, 10);

    return *text && !*end && int_of(checkpoint, "step") == step;
}

/* Several may be marked as best: each was the best when it was written. */
const json_t *checkpoint_find(const json_t *checkpoints, const char *which)
{
    const json_t *c, *newest = NULL;
    const char *text = which ? which : "";
    bool best = strcmp(text, "best") == 0 || !*text;
    size_t i;

    json_array_foreach (checkpoints, i, c) {
        if (!json_is_true(json_object_get(c, "there")))
            continue;
        if ((best && json_is_true(json_object_get(c, "best"))) || strcmp(text, "last") == 0 || is_step(c, text))
            return c;
        newest = newest ? newest : c;
    }
    return *text ? NULL : newest;
}

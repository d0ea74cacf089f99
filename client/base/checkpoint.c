#include "client/base/checkpoint.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/base/print.h"

void checkpoints_look(json_t *job)
{
    json_t *c, *checkpoints = json_object_get(job, "checkpoints");
    const struct passwd *me = json_array_size(checkpoints) ? getpwuid(geteuid()) : NULL;
    char path[PATH_MAX + 64];
    size_t i;

    if (!me || strcmp(text_of(job, "user"), me->pw_name) != 0)
        return;
    json_array_foreach (checkpoints, i, c) {
        if (strcmp(text_of(job, "kind"), "program") == 0)
            snprintf(path, sizeof path, "%s", text_of(c, "path"));
        else
            snprintf(path, sizeof path, "%s/checkpoints/step-%lld", text_of(job, "dir"), int_of(c, "step"));
        if (access(path, F_OK) < 0 && errno == ENOENT)
            json_object_set_new(c, "there", json_false());
    }
}

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

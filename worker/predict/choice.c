#include "worker/predict/choice.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/err.h"
#include "worker/checkpoint/ckpt.h"
#include "worker/checkpoint/state.h"

enum { PATH_BYTES = 4096 + 64 };

/* The step in a folder's name, or -1. */
static int64_t step_of(const char *name)
{
    char *end;
    long long n;

    if (strncmp(name, "step-", 5) != 0)
        return -1;
    n = strtoll(name + 5, &end, 10);
    return *end ? -1 : n;
}

/* *ret_step is -1 if there is no checkpoint. */
static int newest(const char *dir, int64_t *ret_step, struct err *err)
{
    DIR *d = opendir(dir);
    int64_t best = -1;

    if (!d && errno != ENOENT)
        return err_sys(err, "open '%s'", dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        int64_t n = step_of(e->d_name);

        best = n > best ? n : best;
    }
    if (d)
        closedir(d);
    *ret_step = best;
    return 0;
}

static bool there(const char *dir, int64_t step)
{
    char path[PATH_BYTES];

    return snprintf(path, sizeof path, "%s/step-%lld", dir, (long long)step) < (int)sizeof path && access(path, F_OK) == 0;
}

/* The step with the best validation, which the newest checkpoint remembers. Returns false if there was no validation,
 * or if the checkpoint cannot be read: opening it later reports that. */
static bool best_of(const char *dir, int64_t last, struct state_best *ret)
{
    struct ckpt *c;
    struct err ignored;
    bool known;

    if (ckpt_open(dir, last, NULL, &c, &ignored) < 0)
        return false;
    known = state_best(c->state, ret) && ret->step > 0;
    ckpt_close(c);
    return known;
}

static void choose_best(const char *dir, int64_t last, struct choice *ret)
{
    struct state_best best = { 0 };
    char what[96];
    int n;

    ret->step = last;
    if (!best_of(dir, last, &best)) {
        snprintf(ret->why, sizeof ret->why, "the newest; no checkpoint was validated");
        return;
    }
    if (*best.metric)
        snprintf(what, sizeof what, "the best %s", best.metric);
    else
        snprintf(what, sizeof what, "the lowest validation loss");
    if (!there(dir, best.step)) { /* validated, but never saved */
        snprintf(ret->why, sizeof ret->why, "the newest; step %lld had %s, and has no checkpoint", (long long)best.step, what);
        return;
    }
    ret->step = best.step;
    n = snprintf(ret->why, sizeof ret->why, "%s, %.6g", what, best.value);
    if (best.step != last)
        snprintf(ret->why + n, sizeof ret->why - (size_t)n, "; the newest is of step %lld", (long long)last);
}

static int choose_step(const char *dir, const char *asked, int64_t last, struct choice *ret, struct err *err)
{
    char *end;

    errno = 0;
    ret->step = strtoll(asked, &end, 10);
    if (*asked == '\0' || *end || errno)
        return err_set(err, ERR_INPUT, "--checkpoint must be a step, best or last, is '%s'", asked);
    if (!there(dir, ret->step))
        return err_set(err, ERR_NOTFOUND, "'%s' holds no checkpoint of step %s; the newest is that of step %lld", dir, asked,
                       (long long)last);
    snprintf(ret->why, sizeof ret->why, "as asked for");
    return 0;
}

int choice_make(const char *dir, const char *asked, struct choice *ret, struct err *err)
{
    int64_t last = -1;
    int rc = newest(dir, &last, err);

    if (rc < 0)
        return rc;
    if (last < 0)
        return err_set(err, ERR_NOTFOUND, "'%s' holds no checkpoint yet", dir);
    if (strcmp(asked, "best") == 0) {
        choose_best(dir, last, ret);
    } else if (strcmp(asked, "last") == 0) {
        ret->step = last;
        snprintf(ret->why, sizeof ret->why, "the newest");
    } else {
        return choose_step(dir, asked, last, ret, err);
    }
    return 0;
}

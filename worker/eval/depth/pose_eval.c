#include "worker/eval/depth/pose_eval.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/grow.h"
#include "worker/eval/depth/ate.h"

/* The record of the motion from an image to its next frame; it is sent to rank 0. */
struct pose_record {
    int64_t image;
    double motion[RESULT_POSE];
};

struct pose_eval {
    struct evaluator base;
    const struct eval_poses *poses; /* NULL: no poses */
    int nimages;
    struct pose_record *records; /* [n] */
    size_t n, room;
};

static struct pose_eval *self(const struct evaluator *e)
{
    return (struct pose_eval *)e;
}

static void pose_close(struct evaluator *e)
{
    free(self(e)->records);
    free(e);
}

static int no_memory(struct err *err)
{
    return err_set(err, -ENOMEM, "pose evaluation: out of memory");
}

static int pose_open(const struct eval_split *split, struct evaluator **ret, struct err *err)
{
    struct pose_eval *e = calloc(1, sizeof *e);

    if (!e)
        return no_memory(err);
    e->base.ops = &depth_poses;
    e->poses = split->poses;
    e->nimages = split->nimages;
    *ret = &e->base;
    return 0;
}

static int keep(struct pose_eval *e, int image, const float pose[RESULT_POSE], struct err *err)
{
    struct pose_record *r;

    if (!GROW(e->records, e->room, e->n + 1))
        return no_memory(err);
    r = &e->records[e->n++];
    r->image = image;
    for (int i = 0; i < RESULT_POSE; i++)
        r->motion[i] = (double)pose[i];
    return 0;
}

static int pose_add(struct evaluator *base, const struct result *r, struct err *err)
{
    struct pose_eval *e = self(base);

    if (r->kind != RESULT_DEPTH)
        return err_set(err, ERR_INPUT, "a result without depth");
    if (r->image < 0 || r->image >= e->nimages)
        return err_set(err, ERR_INPUT, "poses of picture %d, of %d", r->image, e->nimages);
    if (!e->poses)
        return 0;
    if (e->poses->view < 0 || e->poses->view >= r->nviews)
        return err_set(err, ERR_INPUT, "picture %d: no motion to view %d, of %d", r->image, e->poses->view, r->nviews);
    return keep(e, r->image, r->views[e->poses->view].pose, err);
}

static const void *pose_pack(const struct evaluator *e, size_t *ret_bytes)
{
    *ret_bytes = self(e)->n * sizeof *self(e)->records;
    return self(e)->records;
}

/* ---- snippets ---- */

/* The true and the predicted motions of the snippet that begins at image. Returns false if a frame or a pose is
 * missing. */
static bool snippet(const struct eval_poses *p, const struct pose_record *const *of, int nimages, int image,
                    double truth[ATE_MOTIONS][RESULT_POSE], double predicted[ATE_MOTIONS][RESULT_POSE])
{
    for (int k = 0; k < ATE_MOTIONS; k++) {
        int next;

        if (image < 0 || image >= nimages || !of[image] || !p->motion(p->of, image, truth[k], &next))
            return false;
        memcpy(predicted[k], of[image]->motion, sizeof predicted[k]);
        image = next;
    }
    return true;
}

/* of [nimages]: the record of each image, or NULL. error [nimages]. Returns the number of snippets. */
static size_t all_snippets(const struct pose_eval *e, const struct pose_record *const *of, double *error)
{
    double truth[ATE_MOTIONS][RESULT_POSE], predicted[ATE_MOTIONS][RESULT_POSE];
    size_t n = 0;

    for (int i = 0; i < e->nimages; i++)
        if (snippet(e->poses, of, e->nimages, i, truth, predicted))
            error[n++] = ate_of(truth, predicted);
    return n;
}

static int tell(const double *error, size_t n, struct metrics *ret, struct err *err)
{
    double mean = 0, square = 0;
    int rc;

    for (size_t i = 0; i < n; i++)
        mean += error[i] / (double)n;
    for (size_t i = 0; i < n; i++)
        square += (error[i] - mean) * (error[i] - mean) / (double)n;
    rc = metrics_add(ret, "ate", n ? mean : (double)NAN, err);
    return rc < 0 ? rc : metrics_add(ret, "ate_std", n ? sqrt(square) : (double)NAN, err);
}

static int pose_scores(const struct evaluator *base, void *records, size_t bytes, struct metrics *ret, struct err *err)
{
    const struct pose_eval *e = self(base);
    const struct pose_record **of;
    struct pose_record *r = records;
    double *error;
    int rc;

    if (!e->poses)
        return 0;
    of = calloc((size_t)e->nimages + 1, sizeof *of);
    error = calloc((size_t)e->nimages + 1, sizeof *error);
    for (size_t i = 0; of && i < bytes / sizeof *r; i++)
        of[r[i].image] = &r[i];
    rc = of && error ? tell(error, all_snippets(e, of, error), ret, err) : no_memory(err);
    free(of);
    free(error);
    return rc;
}

const struct evaluator_ops depth_poses = { "poses", pose_open, pose_add, pose_pack, pose_scores, pose_close };

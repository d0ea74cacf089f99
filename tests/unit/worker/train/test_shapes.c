/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/train/test_shapes.c - uses: proto trainer cpu
 * The canvas of a step; and every shape is announced once to a device that plans, before it is computed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "proto/tier.h"
#include "worker/data/set/dataset.h"
#include "worker/data/sample/boxes.h"
#include "worker/models/model.h"
#include "worker/ops/families.h"
#include "worker/report/progress.h"
#include "worker/report/report.h"
#include "worker/train/control.h"
#include "worker/train/course.h"
#include "worker/train/machine.h"
#include "worker/train/shapes.h"

/* A device that answers only for tiers and readiness, and a model that records the announced shapes. */
static enum tier tier;
static char told[2000];

static void set_tier(struct device *dev, enum tier to)
{
    (void)dev;
    tier = to;
}

static int ready(struct device *dev, struct plan_readiness *ret, struct err *err)
{
    (void)dev, (void)err;
    ret->plans++;
    return 0;
}

static int told_of(struct model *m, enum tape_mode mode, int n, int nshards, struct canvas canvas, struct err *err)
{
    size_t used = strlen(told);

    (void)m, (void)err;
    snprintf(told + used, sizeof told - used, "%s %s %dx%d %dx%d\n", mode == TAPE_TRAIN ? "train" : "val", tier_name(tier), nshards, n,
             canvas.w, canvas.h);
    return 0;
}

static const struct device_ops ops = { .name = "gpu", .set_tier = set_tier };
static int begins, kept_for;

static int begin(struct device *dev, int keep, struct err *err)
{
    (void)dev, (void)err;
    begins++;
    kept_for = keep;
    return 0;
}

static const struct plan_ops plan = { .ready = ready, .begin = begin };
static const struct families computes = { .plan = &plan };
static const struct model_ops model_ops = { .plan = told_of };
static struct device device = { .ops = &ops, .on = &computes };
static struct model model = { .ops = &model_ops };

struct job {
    struct jobspec spec;
    struct course course;
    struct control control;
    struct machine machine;
    struct dataset val_set;
    struct task *train, *val;
    struct shapes *shapes;
};

static void open_job(struct job *j, int rank, int val_images)
{
    const struct task_options train = { &j->spec, true, { 96, 192 }, 32, 0 }, val = { &j->spec, false, { 96, 192 }, 32, 0 };
    static const struct dataset train_set;
    struct shapes_options o = { &j->machine, &model, &j->course, &j->control, NULL, NULL, 8, 0 };
    struct err err;

    j->spec.train_batch = 24;
    j->spec.train_seed = 1;
    course_init(&j->course, &j->spec, rank, 3);
    control_init(&j->control, NULL, 10, 1000, TIER_RERUN);
    j->machine.dev = &device;
    assert_int_equal(progress_open(-1, &j->machine.progress, &err), 0);
    assert_int_equal(report_open(-1, rank, rank, 3, &j->machine.report, &err), 0);
    assert_int_equal(task_boxes.open(&train_set, &train, &j->train, &err), 0);
    o.train = j->train;
    if (val_images > 0) {
        j->val_set.nimages = val_images;
        assert_int_equal(task_boxes.open(&j->val_set, &val, &j->val, &err), 0);
        o.val = j->val;
    }
    j->shapes = shapes_new(&o);
    assert_non_null(j->shapes);
}

static const char *told_before(struct job *j, int64_t step)
{
    struct err err;

    told[0] = '\0';
    set_tier(&device, control_tier_at(&j->control, step));
    assert_int_equal(shapes_ready(j->shapes, step, &err), 0);
    assert_int_equal(tier, control_tier_at(&j->control, step));
    return told;
}

static void close_job(struct job *j)
{
    shapes_free(j->shapes);
    task_free(j->train);
    task_free(j->val);
    progress_close(j->machine.progress);
    report_close(j->machine.report);
}

/* Rank 1 of 3 has shards 2 .. 4 of 8: with two waves it has one shard, then two together. */
static void shapes_are_told_once(void **state)
{
    struct job j = { .spec = { .train_steps = 100, .train_shards = 8, .train_waves = 2 } };

    (void)state;
    open_job(&j, 1, 13);
    assert_int_equal(j.course.mine.lo, 2);
    assert_int_equal(j.course.mine.hi, 5);
    assert_string_equal(told_before(&j, 1), "train rerun 1x3 192x96\ntrain rerun 2x3 192x96\nval rerun 1x5 192x96\n");
    assert_string_equal(told_before(&j, 2), "");
    control_tier(&j.control, 11, TIER_WORLD);
    assert_string_equal(told_before(&j, 5), "train world 1x3 192x96\ntrain world 2x3 192x96\nval world 1x5 192x96\n");
    assert_string_equal(told_before(&j, 11), "");
    close_job(&j);
}

/* Whole validation shards go to rank 0, the last to rank 1; rank 2 has no shard. */
static void validation_is_told_to_who_has_it(void **state)
{
    static const char *const want[] = { "val rerun 1x8 192x96\n", "val rerun 1x5 192x96\n", "" };

    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        struct job j = { .spec = { .train_steps = 10, .train_shards = 8, .train_waves = 1 } };

        open_job(&j, rank, 13);
        assert_string_equal(strchr(told_before(&j, 1), '\n') + 1, want[rank]);
        close_job(&j);
    }
}

/* ---- canvases that follow from pictures ---- */

enum { PICTURES = 11, SIDES = 3 };

static struct canvas side_of(int32_t sample)
{
    return (struct canvas){ 32, 32 * (1 + sample % SIDES) };
}

static struct canvas of_first_picture(const struct task *t, int64_t step, const struct draw *draw, int n)
{
    (void)t, (void)step, (void)n;
    return draw ? side_of(draw[0].sample) : (struct canvas){ 0 };
}

static const struct task_ops by_pictures = { .canvas = of_first_picture };

/* All announcements from step 1 up to and including `step`. */
struct heard {
    char text[20000];
};

static void hear(struct heard *h, struct job *j, int64_t step)
{
    const char *now = told_before(j, step);

    assert_true(strlen(h->text) + strlen(now) < sizeof h->text);
    strcat(h->text, now);
}

static bool heard(const struct heard *h, const char *mode, const char *in_tier, int shards, int images, struct canvas c)
{
    char line[80];

    snprintf(line, sizeof line, "%s %s %dx%d %dx%d\n", mode, in_tier, shards, images, c.w, c.h);
    return strstr(h->text, line) != NULL;
}

static void open_pictures(struct job *j, struct task *task, int rank)
{
    open_job(j, rank, 0);
    task_free(j->train);
    *task = (struct task){ .ops = &by_pictures, .seed = 5, .samples = PICTURES };
    j->train = task;
    shapes_free(j->shapes);
    j->shapes = shapes_new(&(struct shapes_options){ &j->machine, &model, &j->course, &j->control, task, task, 4, j->spec.val_every });
    assert_non_null(j->shapes);
}

static void close_pictures(struct job *j)
{
    j->train = NULL;
    close_job(j);
}

/* Announced in the last steps; a device that drops plans must keep the plans of these steps. */
static bool heard_since(const struct heard *h, int64_t step, const char *mode, const char *in_tier, int images, struct canvas c)
{
    for (int64_t s = step > 8 ? step - 8 : 1; s <= step; s++)
        if (heard(&h[s], mode, in_tier, 1, images, c))
            return true;
    return false;
}

/* Rank 1 of 3 has shards 2 .. 4 of 8, each in a wave of its own. Its canvases are announced eight steps before they
 * come, even if the device knows them. Canvases of validation are announced at the start and eight steps before each
 * validation: shard 1 of three, with pictures 4 .. 7. If a new tier comes, all are announced again. */
static void canvases_of_pictures_are_told_ahead(void **state)
{
    struct job j = { .spec = { .train_steps = 60, .train_shards = 8, .train_waves = 3, .val_every = 20 } };
    static struct heard h[61];
    struct sampler *sampler;
    struct task task;
    struct err err;

    (void)state;
    open_pictures(&j, &task, 1);
    assert_int_equal(task_sampler(&task, j.course.images, &sampler, &err), 0);
    begins = 0;
    for (int64_t step = 1; step <= 60; step++) {
        const char *in_tier = step >= 30 ? "world" : "rerun";

        if (step == 25)
            control_tier(&j.control, 30, TIER_WORLD);
        hear(&h[step], &j, step);
        for (int v = 2; v < 5; v++)
            assert_true(heard_since(h, step, "train", in_tier, 3, side_of(sampler_at(sampler, stream_position(step, 24, 8, v, 0)).sample)));
        if (step % 20 == 0)
            assert_true(heard_since(h, step, "val", in_tier, 4, side_of(4)));
    }
    assert_true(heard(&h[1], "val", "rerun", 1, 4, side_of(4)) && heard(&h[25], "val", "world", 1, 4, side_of(4)));
    assert_int_equal(begins, 60 - 2); /* except for calls that announce everything */
    assert_int_equal(kept_for, 8);
    for (int step = 2; step <= 60; step++) {
        size_t len = strlen(h[step].text);

        assert_true(step == 25 || (len > 0) == (step <= 52));
        assert_true(step == 25 || len <= SIDES * strlen("train rerun 1x3 32x32\n") + strlen("val rerun 1x4 64x32\n")); /* each once */
    }
    sampler_free(sampler);
    close_pictures(&j);
}

/* Three shards at once: neighbours with the same canvas together; shapes that do not depend on a canvas are announced
 * for all three. */
static void shards_of_several_canvases(void **state)
{
    struct job j = { .spec = { .train_steps = 40, .train_shards = 8, .train_waves = 1 } };
    static struct heard h;
    struct sampler *sampler;
    struct task task;
    bool mixed = false;
    struct err err;

    (void)state;
    open_pictures(&j, &task, 1);
    assert_int_equal(task_sampler(&task, j.course.images, &sampler, &err), 0);
    for (int64_t step = 1; step <= 40; step++) {
        struct canvas c[3];

        hear(&h, &j, step);
        for (int v = 0; v < 3; v++)
            c[v] = side_of(sampler_at(sampler, stream_position(step, 24, 8, 2 + v, 0)).sample);
        if (canvas_equal(c[0], c[1]) && canvas_equal(c[1], c[2])) {
            assert_true(heard(&h, "train", "rerun", 3, 3, c[0]));
            continue;
        }
        mixed = true;
        assert_true(heard(&h, "train", "rerun", canvas_equal(c[0], c[1]) ? 2 : 1, 3, c[0]));
        assert_true(heard(&h, "train", "rerun", canvas_equal(c[1], c[2]) ? 2 : 1, 3, c[2]));
        assert_true(heard(&h, "train", "rerun", 3, 3, (struct canvas){ 0 }));
    }
    assert_true(mixed);
    sampler_free(sampler);
    close_pictures(&j);
}

static void canvases_keep_their_ratio(void **state)
{
    struct job j = { .spec = { .train_steps = 2000,
                               .train_shards = 8,
                               .train_waves = 1,
                               .data_augment_multiscale = true,
                               .data_augment_size_min = 128,
                               .data_augment_size_max = 256 } };
    int largest = 0, smallest = 1000;

    (void)state;
    open_job(&j, 2, 0);
    for (int step = 1; step <= 1900; step++) {
        struct canvas c = j.train->ops->canvas(j.train, step, NULL, 0);

        assert_true(c.w % 32 == 0 && c.h % 32 == 0 && c.w >= 2 * c.h - 32 && c.w <= 2 * c.h + 32);
        largest = c.w > largest ? c.w : largest;
        smallest = c.w < smallest ? c.w : smallest;
    }
    assert_int_equal(smallest, 128);
    assert_int_equal(largest, 256);
    told_before(&j, 1);
    for (int w = 128; w <= 256; w += 32) {
        char want[40];

        snprintf(want, sizeof want, " %dx", w);
        assert_non_null(strstr(told, want));
        assert_null(strstr(strstr(told, want) + 1, want));
    }
    close_job(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_are_told_once),
        cmocka_unit_test(validation_is_told_to_who_has_it),
        cmocka_unit_test(canvases_of_pictures_are_told_ahead),
        cmocka_unit_test(shards_of_several_canvases),
        cmocka_unit_test(canvases_keep_their_ratio),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

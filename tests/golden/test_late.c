/* SPDX-License-Identifier: Apache-2.0 */ /* tests/golden/test_late.c
 * uses: proto supervisor worker/backend trainer cpu
 * Losses and gradients are checked a step late, while the next step is at work. They are still reported as they are,
 * also by a rank that fails or stops, and no value is lost when a job is saved, continues or ends. */
#include "tests/golden/job.h"

#include <math.h>
#include <signal.h>
#include <time.h>

#include "supervisor/ranks/watch.h"
#include "tests/stand/harness.h"
#include "tests/stand/toy/registry.h"
#include "worker/core/safetensors.h"
#include "worker/optim/schedule.h"

enum {
    BATCH = 8,
    SHARDS = 4,
    PER_SHARD = BATCH / SHARDS,
    SLOW_MS = 50,
    PATIENCE_MS = 60000
}; /* the patience is for a rank that is stuck */

/* The failures of a run; steps count from 1, 0: never. */
static struct plan {
    int64_t loss_step; /* shard loss_shard has a loss that is not finite */
    int loss_shard;
    unsigned gradient_steps; /* bit s: no gradient of step s is finite */
    int64_t data_step;       /* rank data_rank has no data */
    int data_rank;
    int stop_call; /* rank 1 stops when it takes its losses for the call-th time */
    bool slow;     /* losses are taken only after the gradients under way have arrived */
} plan;

static struct seen {
    int32_t image[PER_SHARD]; /* of the loss that is not finite */
} * seen;                     /* shared with the ranks */

static int this_rank, calls;

/* ---- the toy, and its failures ---- */

static int late_make(struct task *base, struct hand *hand, int64_t step, struct draw draw, struct canvas canvas, const struct sample *ret,
                     struct err *err)
{
    if (step > 0 && step == plan.data_step && this_rank == plan.data_rank)
        return err_set(err, ERR_DATA, "the pictures of step %lld are lost", (long long)step);
    return toy_make(base, hand, step, draw, canvas, ret, err);
}

static int late_task_open(const struct dataset *d, const struct task_options *opt, struct task **ret_task, struct err *err)
{
    static const struct task_ops ops = { toy_canvas, late_make, toy_task_free };
    int rc = toy_task_open(d, opt, ret_task, err);

    if (rc >= 0)
        (*ret_task)->ops = &ops;
    return rc;
}

static int late_forward(struct model *m, struct tape *t, const struct batch *b, const struct model_want *want, struct err *err)
{
    struct model_want mine = *want;
    int rc;

    if (b->step > 0 && plan.gradient_steps >> b->step & 1)
        mine.images_of_step = 0; /* the seed is infinite */
    rc = toy_forward(m, t, b, &mine, err);
    for (int s = 0; s < b->nshards && rc >= 0; s++)
        if (b->step > 0 && b->step == plan.loss_step && b->shard[s].shard == plan.loss_shard) {
            want->raw[s][RIGHT] = NAN;
            memcpy(seen->image, b->shard[s].index, sizeof seen->image);
        }
    return rc;
}

static void late_sum_terms(const struct model *m, const double *raw, int images, double *ret)
{
    if (this_rank == 1 && ++calls == plan.stop_call)
        raise(SIGSTOP);
    if (plan.slow)
        nanosleep(&(struct timespec){ 0, SLOW_MS * 1000000 }, NULL);
    toy_sum_terms(m, raw, images, ret);
}

/* late_forward() spoils the number that is the third numerator. */
static void late_explain(const struct model *m, const double *terms, char *ret, size_t size)
{
    (void)m;
    if (isnan(terms[4]) && !isnan(terms[2]))
        snprintf(ret, size, "the right head is broken; lower train.lr");
}

static int late_open(const struct jobspec *spec, int classes, struct device *dev, struct model **ret_model, struct err *err)
{
    static struct model_ops ops;
    int rc = toy_open(spec, classes, dev, ret_model, err);

    if (rc < 0)
        return rc;
    ops = *(*ret_model)->ops;
    ops.forward = late_forward;
    ops.sum_terms = late_sum_terms;
    ops.explain = late_explain;
    (*ret_model)->ops = &ops;
    return 0;
}

static const struct task_kind late_pairs = { "pairs", &toy_form, late_task_open, NULL };
static const struct model_family late = {
    .name = "toy", .task = &late_pairs, .needs = NEEDS_conv | NEEDS_norm | NEEDS_map, .evaluators = toy_evaluators, .open = late_open
};
static const struct model_family *const late_families[] = { &late };
static const struct model_registry late_models = { &toy_presets, late_families, 1 };

/* ---- jobs ---- */

/* Each step has a rate of its own. */
static struct jobspec *spec_of(int steps, int log_every, int save_every)
{
    json_t *json = json_pack("{s:{s:s},s:{s:{s:s,s:s}},s:{s:i,s:i,s:i,s:s,s:s,s:f,s:i,s:i},s:{s:i,s:i}}", "model", "preset", "toy", "data",
                             "train", "annotations", "tests/golden/shapes/train.json", "images", "tests/golden/shapes/images", "train",
                             "steps", steps, "batch", BATCH, "shards", SHARDS, "optimizer", "adamw", "schedule", "poly", "lr", 0.01,
                             "burn_in", 0, "log_every", log_every, "checkpoint", "every", save_every, "keep", 99);
    struct jobspec *spec;
    struct err err = { 0 };

    if (!json || jobspec_parse_for(&toy_presets, json, false, &spec, &err) < 0)
        fail_msg("%s", err.msg);
    json_decref(json);
    return spec;
}

struct ranks {
    int n;
    pid_t pid[2];
    struct progress *page[2];
    char dir[128];
};

static void start(struct ranks *r, const struct jobspec *spec, const char *job, int n)
{
    int fd = memfd_create("test-job", MFD_CLOEXEC);

    *r = (struct ranks){ .n = n };
    job_folder(job, r->dir);
    for (int i = 0; i < n; i++) {
        int page = memfd_create("test-page", 0);

        assert_int_equal(ftruncate(page, PROGRESS_BYTES), 0);
        r->page[i] = mmap(NULL, PROGRESS_BYTES, PROT_READ, MAP_SHARED, page, 0);
        assert_true(r->page[i] != MAP_FAILED);
        fflush(stdout);
        r->pid[i] = fork();
        assert_true(r->pid[i] >= 0);
        if (r->pid[i] == 0) {
            struct trainer_options opt = { .job_dir = r->dir,
                                           .rank = i,
                                           .nranks = n,
                                           .local_rank = i,
                                           .attempt = 1,
                                           .control_fd = -1,
                                           .comm_fd = n > 1 ? fd : -1,
                                           .progress_fd = page };

            this_rank = i;
            be_rank(spec, &opt);
        }
        close(page);
    }
    close(fd);
}

/* All ranks end, with or without an error. */
static void end(struct ranks *r, bool well)
{
    for (int i = 0; i < r->n; i++) {
        int status;

        assert_int_equal(waitpid(r->pid[i], &status, 0), r->pid[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == !well);
        munmap(r->page[i], PROGRESS_BYTES);
    }
}

static void train(const struct jobspec *spec, const char *job, int n, bool well, char ret_dir[128])
{
    struct ranks r;

    start(&r, spec, job, n);
    end(&r, well);
    memcpy(ret_dir, r.dir, sizeof r.dir);
}

/* The reports of a rank of a kind, in order. Caller drops it. */
static json_t *told(const char *dir, int rank, const char *type)
{
    json_t *all = reports_of(dir, rank), *found = json_array(), *msg;
    size_t i;

    json_array_foreach (all, i, msg)
        if (strcmp(text_of(msg, "type"), type) == 0)
            json_array_append(found, msg);
    json_decref(all);
    return found;
}

static void check_end(const char *dir, int rank, const char *class, const char *reason)
{
    json_t *ends = told(dir, rank, "end"), *last = json_array_get(ends, 0);

    assert_int_equal(json_array_size(ends), 1);
    assert_string_equal(text_of(last, "outcome"), "failed");
    assert_string_equal(text_of(last, "class"), class);
    if (!strstr(text_of(last, "reason"), reason))
        fail_msg("'%s' instead of '%s'", text_of(last, "reason"), reason);
    json_decref(ends);
}

static bool is_saved(const char *dir, int step)
{
    char path[192];

    snprintf(path, sizeof path, "%s/checkpoints/step-%d", dir, step);
    return access(path, F_OK) == 0;
}

/* ---- losses that are not finite ---- */

/* "step 2: loss term 'count' of shard 3 is not finite (learning rate 0.0075; images train-0004.png, train-0001.png):
 * the right head is broken; lower train.lr" */
static void blamed(const struct jobspec *spec, char *ret, size_t size)
{
    int at = snprintf(ret, size, "step %lld: loss term 'count' of shard %d is not finite (learning rate %g; images ",
                      (long long)plan.loss_step, plan.loss_shard, (double)schedule_lr(spec, plan.loss_step));

    for (int i = 0; i < PER_SHARD; i++)
        at += snprintf(ret + at, size - (size_t)at, "%strain-%04d.png", i ? ", " : "", seen->image[i] + 1);
    snprintf(ret + at, size - (size_t)at, "): the right head is broken; lower train.lr");
}

/* All ranks report it. The failing step has no row and no checkpoint; the earlier steps have, the last in a shorter
 * window. */
static void check_loss_found(int64_t step, int log_every, int save_every)
{
    struct jobspec *spec = spec_of(4, log_every, save_every);
    size_t windows = ((size_t)step - 1 + (size_t)log_every - 1) / (size_t)log_every;
    char dir[128], job[32], want[256];

    plan = (struct plan){ .loss_step = step, .loss_shard = 3 };
    for (int n = 1; n <= 2; n++) {
        json_t *rows;

        snprintf(job, sizeof job, "loss-%d-%d-%d-%d", (int)step, log_every, save_every, n);
        train(spec, job, n, false, dir);
        blamed(spec, want, sizeof want);
        for (int i = 0; i < n; i++)
            check_end(dir, i, "nonfinite", want);
        rows = told(dir, 0, "loss");
        assert_int_equal(json_array_size(rows), windows);
        assert_int_equal(json_integer_value(json_object_get(json_array_get(rows, windows - 1), "step")), step - 1);
        json_decref(rows);
        for (int s = 1; s <= 4; s++)
            assert_true(is_saved(dir, s) == (s < step && s % save_every == 0));
    }
    jobspec_free(spec);
}

static void the_loss_of_a_step_is_told_as_its_own(void **state)
{
    (void)state;
    check_loss_found(2, 9, 9); /* found in the step behind it */
    check_loss_found(2, 1, 9); /* before its row */
    check_loss_found(2, 9, 2); /* before its checkpoint */
    check_loss_found(3, 2, 2);
    check_loss_found(4, 9, 9); /* before the end */
}

/* A rank without data has no time to ask others. Each rank knows the losses of its own shards, and a data error must
 * not hide an earlier loss. */
static void lost_data_hides_no_loss(void **state)
{
    struct jobspec *spec = spec_of(4, 9, 9);
    char dir[128], want[256];

    (void)state;
    plan = (struct plan){ .loss_step = 2, .loss_shard = 3, .data_step = 3 };
    train(spec, "lost", 1, false, dir);
    blamed(spec, want, sizeof want);
    check_end(dir, 0, "nonfinite", want);
    for (int i = 0; i < 4; i++) { /* rank 1 has shard 3 */
        char job[32];

        plan.data_rank = i % 2;
        spec->model_sync_bn = i / 2; /* the other rank fails in the waves, or behind them */
        snprintf(job, sizeof job, "lost-%d", i);
        train(spec, job, 2, false, dir);
        blamed(spec, want, sizeof want);
        check_end(dir, 1, "nonfinite", want);
        if (plan.data_rank == 0)
            check_end(dir, 0, "data", "the pictures of step 3 are lost");
    }
    plan = (struct plan){ .data_step = 3 };
    train(spec, "lost-alone", 2, false, dir);
    check_end(dir, 0, "data", "the pictures of step 3 are lost");
    jobspec_free(spec);
}

/* ---- windows ---- */

/* A row's terms as [num, den] pairs are the sums of the rows of its steps. */
static void check_window(const json_t *rows, const json_t *steps, size_t at, int from, int to)
{
    const json_t *have = json_array_get(rows, at), *terms = json_object_get(have, "terms");

    assert_int_equal(int_of(have, "step"), to);
    for (int k = 0; k < 3; k++)
        for (size_t part = 0; part < 2; part++) {
            double sum = 0;

            for (int s = from; s <= to; s++) {
                const json_t *row = json_array_get(steps, (size_t)s - 1);

                assert_int_equal(int_of(row, "step"), s);
                sum += json_number_value(json_array_get(json_object_get(json_object_get(row, "terms"), toy_terms[k].name), part));
            }
            assert_true(json_number_value(json_array_get(json_object_get(terms, toy_terms[k].name), part)) == sum);
        }
}

/* Windows of three steps, over a checkpoint after the fourth, from which the job continues. */
static void a_window_has_all_of_its_steps(void **state)
{
    struct jobspec *each = spec_of(8, 1, 9), *three = spec_of(8, 3, 4);
    char dir[128], cmd[256];
    json_t *steps, *rows;

    (void)state;
    plan = (struct plan){ 0 };
    train(each, "each", 1, true, dir);
    steps = told(dir, 0, "loss");
    for (int resumed = 0; resumed < 2; resumed++) {
        train(three, "three", 2, true, dir);
        rows = told(dir, 0, "loss");
        assert_int_equal(json_array_size(rows), 3 - resumed);
        if (!resumed)
            check_window(rows, steps, 0, 1, 3);
        check_window(rows, steps, 1 - (size_t)resumed, 4, 6);
        check_window(rows, steps, 2 - (size_t)resumed, 7, 8);
        json_decref(rows);
        snprintf(cmd, sizeof cmd, "rm -r '%s/checkpoints/step-8'", dir);
        assert_int_equal(system(cmd), 0);
    }
    json_decref(steps);
    jobspec_free(each);
    jobspec_free(three);
}

/* Eight steps of a window are trained before the job continues: they count for its losses, but not for the speed of the
 * ninth. */
static void a_rate_is_of_the_images_since_the_job_goes_on(void **state)
{
    struct jobspec *spec = spec_of(9, 9, 8);
    const struct st_array *counters;
    struct safetensors *f;
    char dir[128], path[256];
    struct err err;
    json_t *rows;

    (void)state;
    plan = (struct plan){ 0 };
    train(spec, "rate", 1, true, dir);
    snprintf(path, sizeof path, "%s/checkpoints/step-8/state.safetensors", dir);
    assert_int_equal(safetensors_open(path, &f, &err), 0);
    counters = safetensors_find(f, "counters");
    assert_int_equal(((const int64_t *)counters->data)[0], 8 * BATCH); /* images of the window */
    safetensors_close(f);
    snprintf(path, sizeof path, "rm -r '%s/checkpoints/step-9'", dir);
    assert_int_equal(system(path), 0);
    plan.slow = true; /* so the ninth cannot be faster than this */
    train(spec, "rate", 1, true, dir);
    rows = told(dir, 0, "loss");
    assert_true(json_number_value(json_object_get(json_array_get(rows, 0), "images_per_s")) <= BATCH * 1000.0 / (SHARDS * SLOW_MS));
    json_decref(rows);
    jobspec_free(spec);
}

/* ---- skipped steps ---- */

static void check_skips(const char *dir, const char *steps)
{
    json_t *events = told(dir, 0, "event"), *e;
    char have[32] = "", text[64];
    size_t i;

    json_array_foreach (events, i, e)
        for (int s = 1; s <= 9; s++) {
            snprintf(text, sizeof text, "step %d: the gradient is not finite, the step is skipped", s);
            if (strcmp(text_of(e, "text"), text) == 0)
                snprintf(have + strlen(have), sizeof have - strlen(have), "%d ", s);
        }
    json_decref(events);
    assert_string_equal(have, steps);
}

static void skipped_steps_are_counted_in_a_row(void **state)
{
    struct jobspec *spec = spec_of(9, 9, 3); /* only every third step is settled for another reason */
    char dir[128], cmd[256];

    (void)state;
    plan = (struct plan){ .gradient_steps = 1 << 2 | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 8 };
    train(spec, "skips", 2, true, dir);
    check_skips(dir, "2 3 5 6 8 ");
    plan = (struct plan){ .gradient_steps = 1 << 2 | 1 << 3 | 1 << 4, .slow = true }; /* the next gradient has no such parameter */
    train(spec, "skips-3", 2, false, dir);
    check_skips(dir, "2 3 ");
    for (int rank = 0; rank < 2; rank++)
        check_end(dir, rank, "nonfinite", "step 4: the gradient is not finite, 3 steps in a row; the first such parameter is 'left'");
    snprintf(cmd, sizeof cmd, "%s/checkpoints/step-3", dir); /* the job resumes from here; two were skipped before it */
    assert_int_equal(access(cmd, F_OK), 0);
    train(spec, "skips-3", 1, false, dir);
    check_skips(dir, "");
    check_end(dir, 0, "nonfinite", "step 4: the gradient is not finite, 3 steps in a row");
    jobspec_free(spec);
}

static double most_moved(const char *dir, const char *name, int from, int to)
{
    struct safetensors *f[2];
    double most = 0;

    for (int i = 0; i < 2; i++) {
        struct err err = { 0 };
        char path[192];

        snprintf(path, sizeof path, "%s/checkpoints/step-%d/model.safetensors", dir, i ? to : from);
        if (safetensors_open(path, &f[i], &err) < 0)
            fail_msg("%s", err.msg);
    }
    const struct st_array *a = safetensors_find(f[0], name), *b = safetensors_find(f[1], name);

    for (size_t i = 0; i < (size_t)st_bytes(a) / sizeof(float); i++)
        most = fmax(most, fabs((double)((const float *)b->data)[i] - (double)((const float *)a->data)[i]));
    safetensors_close(f[0]);
    safetensors_close(f[1]);
    return most;
}

/* The first step that moves a weight is Adam's second: the moments of one gradient, unbiased as if of two. Heads have
 * twice the rate and no decay. */
static void a_skipped_step_is_a_step_of_adam(void **state)
{
    struct jobspec *spec = spec_of(4, 1, 1);
    double b1 = spec->train_beta1, b2 = spec->train_beta2, want;
    char dir[128];

    (void)state;
    plan = (struct plan){ .gradient_steps = 1 << 1 };
    train(spec, "adam", 1, true, dir);
    check_skips(dir, "1 ");
    want = 2 * (double)schedule_lr(spec, 2) * (1 - b1) / (1 - b1 * b1) / sqrt((1 - b2) / (1 - b2 * b2));
    assert_true(fabs(most_moved(dir, "class", 1, 2) / want - 1) < 1e-4);
    jobspec_free(spec);
}

/* ---- a rank that stops ---- */

static unsigned entered(const struct progress *page)
{
    return (unsigned)(atomic_load(&page->collective[CHANNEL_SYNC]) >> 32);
}

/* Rank 0 comes into the gather that rank 1 has not entered. */
static void wait_for_waiter(const struct ranks *r)
{
    const struct timespec moment = { 0, 1000000 };
    int status;

    assert_int_equal(waitpid(r->pid[1], &status, WUNTRACED), r->pid[1]);
    assert_true(WIFSTOPPED(status));
    for (int ms = 0; entered(r->page[0]) != entered(r->page[1]) + 1; ms++) {
        if (ms == PATIENCE_MS)
            fail_msg("rank 0 entered %u, rank 1 %u", entered(r->page[0]), entered(r->page[1]));
        nanosleep(&moment, NULL);
    }
}

/* The verdict for these pages when no rank advances any more, but so many ranks send heartbeats; the clock is made
 * up. */
static void judged(const struct ranks *r, int beating, const char *text)
{
    struct watch *w = watch_new(2);
    struct watch_verdict v = { .rank = -1 };

    for (int s = 0; s < 100 && v.rank < 0; s++) {
        struct watch_page pages[2];

        for (int i = 0; i < 2; i++) {
            watch_read(r->page[i], &pages[i]);
            pages[i].heartbeat = i < beating ? (uint64_t)s : 0;
        }
        watch_look(w, pages, s, &v);
    }
    watch_free(w);
    assert_int_equal(v.rank, 1);
    if (strncmp(v.text, text, strlen(text)) != 0 || !strstr(v.text, "; rank 0 waits in reduce"))
        fail_msg("'%s' instead of '%s'", v.text, text);
}

static void who_stops_is_told_and_not_who_waits(void **state)
{
    struct jobspec *spec = spec_of(2, 2, 9);

    (void)state;
    for (int settled = 0; settled < 2; settled++) { /* rank 1 takes the losses of two shards in the second step, and behind it */
        struct ranks r;

        plan = (struct plan){ .stop_call = settled ? 3 : 1 };
        start(&r, spec, settled ? "stops-behind" : "stops", 2);
        wait_for_waiter(&r);
        judged(&r, 1,
               settled ? "rank 1 hangs in phase reduce at step 2: no sign of life for 20 s"
                       : "rank 1 hangs in phase reduce at step 1: no sign of life for 20 s");
        judged(&r, 2,
               settled ? "rank 1 hangs in phase reduce at step 2: no progress for 45 s"
                       : "rank 1 hangs in phase reduce at step 1: no progress for 45 s");
        kill(r.pid[1], SIGCONT);
        end(&r, true);
    }
    jobspec_free(spec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_loss_of_a_step_is_told_as_its_own), cmocka_unit_test(lost_data_hides_no_loss),
        cmocka_unit_test(a_window_has_all_of_its_steps),         cmocka_unit_test(a_rate_is_of_the_images_since_the_job_goes_on),
        cmocka_unit_test(skipped_steps_are_counted_in_a_row),    cmocka_unit_test(a_skipped_step_is_a_step_of_adam),
        cmocka_unit_test(who_stops_is_told_and_not_who_waits),
    };

    job_models = &late_models;
    seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return cmocka_run_group_tests_name("late", tests, make_root, remove_root);
}

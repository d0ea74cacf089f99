/* SPDX-License-Identifier: Apache-2.0 */ /* uses: proto worker/backend trainer cpu
 * tests/golden/test_trainer.c - the trainer against PyTorch (make_trainer.py): weights, averages, running statistics
 * and logged losses after every step, from picture files to checkpoints, on one rank and on two. */
#include <math.h>

#include "tests/golden/job.h"
#include "worker/core/safetensors.h"
#include "worker/checkpoint/ckpt.h"

enum { SKETCH = 16 };

/* Relative to a tensor's largest step. The worst seen is 7e-5, after the first step, which is so small that the
 * weights' last bits show. A rate, decay, momentum or scale that is wrong in one place shows as percents. */
static const double TOLERANCE = 2e-4;

static struct safetensors *open_file(const char *name)
{
    char path[128];
    struct safetensors *f;
    struct err err;

    snprintf(path, sizeof path, GOLDEN "/%s.safetensors", name);
    if (safetensors_open(path, &f, &err) < 0)
        fail_msg("%s", err.msg);
    return f;
}

static float *numbers(const struct st_array *a)
{
    float *ret = malloc(st_count(a) * sizeof *ret);
    struct err err;

    assert_non_null(ret);
    assert_int_equal(safetensors_f32(a, ret, &err), 0);
    return ret;
}

/* The same as sketch() of make_trainer.py: every element counts in one of sixteen sums. */
static void add_sketch(const float *x, size_t n, double sign, double ret[SKETCH])
{
    for (size_t e = 0; e < n; e++)
        ret[e % SKETCH] += (uint32_t)(e * 2654435761u) >> 31 ? -sign * (double)x[e] : sign * (double)x[e];
}

/* The state keeps convolutions as the device does, outputs by rows, columns, channels; `like` has the order of
 * files. */
static void to_file_order(const struct st_array *like, float *x)
{
    size_t k = (size_t)like->shape[0], c = (size_t)like->shape[1], pixels = (size_t)(like->shape[2] * like->shape[3]), n = k * c * pixels;
    float *copy = malloc(n * sizeof *copy);

    assert_non_null(copy);
    memcpy(copy, x, n * sizeof *copy);
    for (size_t i = 0; i < n; i++)
        x[i] = copy[(i / (c * pixels) * pixels + i % pixels) * c + i / pixels % c];
    free(copy);
}

/* A tensor of a checkpoint in the order of files: `raw` as it is trained, `ema` its average. Caller frees. */
static float *tensor(const struct ckpt *c, bool raw, const char *name)
{
    const struct st_array *model = safetensors_find(c->model, name), *state;
    char key[160];
    float *x;

    snprintf(key, sizeof key, "raw.%s", name);
    state = safetensors_find(c->state, key);
    assert_non_null(model);
    if (!raw)
        assert_non_null(state); /* else the model file has no averages */
    if (!raw || !state)
        return numbers(model);
    assert_int_equal(st_count(state), st_count(model));
    x = numbers(state);
    if (model->ndims == 4)
        to_file_order(model, x);
    return x;
}

static double norm_of(const double x[SKETCH])
{
    double sum = 0;

    for (int i = 0; i < SKETCH; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

/* The largest of a tensor's steps so far. */
static double largest_step(const float *golden, int64_t step)
{
    double largest = 0;

    for (int64_t s = 0; s < step; s++) {
        double moved[SKETCH];

        for (int i = 0; i < SKETCH; i++)
            moved[i] = (double)golden[s * SKETCH + i] - (s > 0 ? (double)golden[(s - 1) * SKETCH + i] : 0);
        largest = fmax(largest, norm_of(moved));
    }
    return largest;
}

/* How far a tensor is from where it should be, in parts of its largest step. */
static double off(const struct ckpt *c, const struct safetensors *first, const struct st_array *golden, bool raw, const char *name)
{
    const struct st_array *start = safetensors_find(first, name);
    float *want = numbers(golden), *from = start ? numbers(start) : NULL, *x = tensor(c, raw, name);
    double away[SKETCH] = { 0 }, ret;

    assert_non_null(from);
    add_sketch(x, st_count(start), 1, away);
    add_sketch(from, st_count(start), -1, away);
    for (int i = 0; i < SKETCH; i++)
        away[i] -= (double)want[(c->step - 1) * SKETCH + i];
    ret = norm_of(away) / largest_step(want, c->step);
    free(want);
    free(from);
    free(x);
    return ret;
}

/* All tensors of a checkpoint. Returns how many. */
static size_t check_tensors(const struct ckpt *c, const char *job, const struct safetensors *first, const struct safetensors *golden)
{
    size_t length = strlen(job), checked = 0;
    double worst = 0;

    for (size_t i = 0; i < safetensors_count(golden); i++) {
        const struct st_array *a = safetensors_at(golden, i);
        const char *kind = a->name + length + 1;
        double d;

        if (strncmp(a->name, job, length) != 0 || (strncmp(kind, "raw.", 4) != 0 && strncmp(kind, "ema.", 4) != 0))
            continue;
        d = off(c, first, a, *kind == 'r', kind + 4);
        if (!(d <= TOLERANCE))
            fail_msg("step %lld: %s is %.2g of a step off", (long long)c->step, a->name, d);
        worst = fmax(worst, d);
        checked++;
    }
    print_message("%s step %lld: %zu tensors, at most %.2g of a step off\n", job, (long long)c->step, checked, worst);
    return checked;
}

/* Parameters that have a moving average in a checkpoint. */
static size_t averages(const struct ckpt *c)
{
    size_t n = 0;

    for (size_t i = 0; i < safetensors_count(c->state); i++)
        n += strncmp(safetensors_at(c->state, i)->name, "raw.", 4) == 0;
    return n;
}

static void check_losses(const json_t *all, const char *job, int64_t step, const struct safetensors *golden)
{
    static const char *const names[] = { "total", "box", "obj", "noobj", "cls", "iou", "recall50", "recall75" };
    const json_t *terms = loss_of(all, "train", step);
    enum { N = sizeof names / sizeof *names };
    float *want;
    char key[32];

    snprintf(key, sizeof key, "%s.loss", job);
    want = numbers(safetensors_find(golden, key));
    assert_int_equal(json_object_size(terms), N);
    for (int k = 0; k < N; k++) {
        const json_t *pair = json_object_get(terms, names[k]);
        double num = json_number_value(json_array_get(pair, 0)), den = json_number_value(json_array_get(pair, 1));
        const float *w = want + ((step - 1) * N + k) * 2;

        if (!(fabs(num - (double)w[0]) <= 1e-5 * (double)w[0]) || den != (double)w[1])
            fail_msg("step %lld: %s is %.8g of %g, PyTorch says %.8g of %g", (long long)step, names[k], num, den, (double)w[0],
                     (double)w[1]);
    }
    free(want);
}

static void check_job(const char *job, int nranks)
{
    struct safetensors *first = open_file("init"), *golden = open_file("steps");
    struct jobspec *spec = read_job(job, NULL);
    char dir[128], name[32], folder[160];
    json_t *all;

    snprintf(name, sizeof name, "%s-%d", job, nranks);
    job_folder(name, dir);
    run_job(spec, dir, nranks);
    all = reports(dir);
    snprintf(folder, sizeof folder, "%s/checkpoints", dir);
    for (int64_t step = 1; step <= spec->train_steps; step++) {
        struct ckpt *c;
        struct err err;

        if (ckpt_open(folder, step, NULL, &c, &err) < 0)
            fail_msg("%s", err.msg);
        assert_int_equal(check_tensors(c, job, first, golden), safetensors_count(first) + averages(c));
        ckpt_close(c);
        check_losses(all, job, step, golden);
    }
    json_decref(all);
    jobspec_free(spec);
    safetensors_close(first);
    safetensors_close(golden);
}

/* Statistics of each shard; waves; averages. */
static void statistics_of_shards(void **state)
{
    (void)state;
    check_job("shard", 1);
    check_job("shard", 2);
}

/* SyncBN: statistics of the whole batch. */
static void statistics_of_the_batch(void **state)
{
    (void)state;
    check_job("sync", 1);
    check_job("sync", 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(statistics_of_shards), cmocka_unit_test(statistics_of_the_batch) };

    return cmocka_run_group_tests(tests, make_root, remove_root);
}

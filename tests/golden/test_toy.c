/* tests/golden/test_toy.c - a second family of models, which nothing but its own file knows (tests/toy/toy.h), is trained by the trainer as any other:
 * the same bits for 1, 2 and 3 ranks, and over a resume; what is frozen stays, what has no gradient is left alone.
 * uses: proto worker/backend trainer cpu */
#include "tests/golden/job.h"

#include "tests/harness.h"
#include "tests/toy/toy.h"
#include "worker/core/safetensors.h"

enum { STEPS = 8, SAVED = 4, DATA = 1 << 16 };

static struct jobspec *spec_of(void)
{
    json_t *json = json_pack("{s:{s:s},s:{s:{s:s,s:s},s:{s:s,s:s}},s:{s:i,s:i,s:i,s:s,s:f,s:i,s:i},s:{s:i,s:i},s:{s:i,s:i}}", "model",
                             "preset", "toy", "data", "train", "annotations", "tests/checkpoints/train.json", "images",
                             "tests/checkpoints/images", "val", "annotations", "tests/checkpoints/val.json", "images",
                             "tests/checkpoints/images", "train", "steps", STEPS, "batch", 8, "shards", 4, "optimizer", "adamw", "lr", 0.01,
                             "burn_in", 0, "log_every", 1, "val", "every", SAVED, "batch", 1, "checkpoint", "every", SAVED, "keep", 9);
    struct jobspec *spec;
    struct err err = { 0 };

    if (!json || jobspec_parse_for(&toy_presets, json, false, &spec, &err) < 0)
        fail_msg("%s", err.msg);
    json_decref(json);
    return spec;
}

/* A file of the checkpoint after a step, without its metadata: all there is behind the header's length. Returns its bytes. */
static size_t read_file(const char *dir, int step, const char *name, char *ret)
{
    char path[192];
    size_t n;
    FILE *f;

    snprintf(path, sizeof path, "%s/checkpoints/step-%d/%s.safetensors", dir, step, name);
    f = fopen(path, "rb");
    assert_non_null(f);
    n = fread(ret, 1, DATA, f);
    fclose(f);
    assert_true(n > 0 && n < DATA);
    return n;
}

static void same_files(const char *a, const char *b, int step)
{
    static const char *const names[] = { "model", "state" };
    char *x = malloc(DATA), *y = malloc(DATA);

    assert_true(x && y);
    for (int i = 0; i < 2; i++) {
        size_t n = read_file(a, step, names[i], x);

        assert_int_equal(read_file(b, step, names[i], y), n);
        assert_memory_equal(x, y, n);
    }
    free(x);
    free(y);
}

/* Losses and scores that were reported after steps > from, without their times. Caller drops it. */
static json_t *rows(const char *dir, int from)
{
    json_t *all = reports(dir), *found = json_array(), *msg;
    size_t i;

    json_array_foreach (all, i, msg) {
        const char *type = text_of(msg, "type");

        if ((strcmp(type, "loss") == 0 || strcmp(type, "eval") == 0) && json_integer_value(json_object_get(msg, "step")) > from) {
            json_object_del(msg, "time");
            json_object_del(msg, "images_per_s");
            json_array_append(found, msg);
        }
    }
    json_decref(all);
    return found;
}

static void same_rows(const char *a, const char *b, int from)
{
    json_t *x = rows(a, from), *y = rows(b, from);

    assert_true(json_array_size(x) >= (size_t)(STEPS - from + 2));
    if (!json_equal(x, y))
        fail_msg("rows differ: %s\n%s", json_dumps(x, 0), json_dumps(y, 0));
    json_decref(x);
    json_decref(y);
}

static void ranks(void **state)
{
    struct jobspec *spec = spec_of();
    char dir[4][128];

    (void)state;
    for (int p = 1; p <= 3; p++) {
        char name[16];

        snprintf(name, sizeof name, "ranks-%d", p);
        job_folder(name, dir[p]);
        run_job(spec, dir[p], p);
        if (p == 1)
            continue;
        same_rows(dir[1], dir[p], 0);
        same_files(dir[1], dir[p], SAVED);
        same_files(dir[1], dir[p], STEPS);
    }
    jobspec_free(spec);
}

/* The checkpoint after the last step is lost; the job goes on from the one before. */
static void resume(void **state)
{
    struct jobspec *spec = spec_of();
    char dir[128], first[128], cmd[512];

    (void)state;
    job_folder("ranks-1", first);
    job_folder("resumed", dir);
    snprintf(cmd, sizeof cmd, "cp -r '%s/.' '%s' && rm -r '%s/checkpoints/step-%d'", first, dir, dir, STEPS);
    assert_int_equal(system(cmd), 0);
    run_job(spec, dir, 2);
    same_rows(first, dir, SAVED);
    same_files(first, dir, STEPS);
    jobspec_free(spec);
}

static double sum_of(const struct safetensors *f, const char *name)
{
    const struct st_array *a = safetensors_find(f, name);
    double sum = 0;

    assert_non_null(a);
    for (size_t i = 0; i < (size_t)st_bytes(a) / sizeof(float); i++)
        sum += (double)((const float *)a->data)[i];
    return sum;
}

static struct safetensors *open_file(const char *dir, int step, const char *name)
{
    struct safetensors *f;
    struct err err = { 0 };
    char path[192];

    snprintf(path, sizeof path, "%s/checkpoints/step-%d/%s.safetensors", dir, step, name);
    if (safetensors_open(path, &f, &err) < 0)
        fail_msg("%s", err.msg);
    return f;
}

static double total(const json_t *rows, size_t i)
{
    const json_t *t = json_object_get(json_object_get(json_array_get(rows, i), "terms"), "total");

    return json_number_value(json_array_get(t, 0)) / json_number_value(json_array_get(t, 1));
}

/* Equal bits of a training that stands still would prove nothing. */
static void moves(void **state)
{
    static const char *const moving[] = { "left", "right", "class", "count", "norm.weight", "norm.running_mean", "norm.running_var" };
    struct safetensors *a, *b, *kept;
    char dir[128];
    json_t *r;

    (void)state;
    job_folder("ranks-1", dir);
    a = open_file(dir, SAVED, "model");
    b = open_file(dir, STEPS, "model");
    kept = open_file(dir, STEPS, "state");
    for (size_t i = 0; i < sizeof moving / sizeof *moving; i++)
        if (sum_of(a, moving[i]) == sum_of(b, moving[i]))
            fail_msg("%s stands still", moving[i]);
    assert_true(sum_of(a, "frozen") == sum_of(b, "frozen"));
    assert_true(sum_of(a, "depth") == sum_of(b, "depth")); /* no gradient, and no decay in its group */
    assert_true(sum_of(kept, "adam.m.left") != 0 && sum_of(kept, "adam.v.left") > 0 && sum_of(kept, "adam.v.depth") == 0);
    assert_null(safetensors_find(kept, "adam.m.frozen"));
    safetensors_close(a);
    safetensors_close(b);
    safetensors_close(kept);
    r = rows(dir, 0);
    assert_true(total(r, json_array_size(r) - 3) < total(r, 0));
    json_decref(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(ranks), cmocka_unit_test(resume), cmocka_unit_test(moves) };

    job_models = &toy_models;
    return cmocka_run_group_tests_name("toy", tests, make_root, remove_root);
}

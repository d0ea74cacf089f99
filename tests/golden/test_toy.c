/* SPDX-License-Identifier: Apache-2.0 */ /* tests/golden/test_toy.c - uses: proto worker/backend trainer cpu
 * A second family of models, known only to its own file (tests/stand/toy/toy.h), is trained like any other: the same
 * bits for 1, 2 and 3 ranks, and over a resume. Frozen parameters stay, and parameters without a gradient are left
 * alone. */
#include "tests/golden/job.h"

#include <math.h>

#include "proto/evidence/evidence.h"
#include "tests/stand/harness.h"
#include "tests/stand/toy/registry.h"
#include "worker/core/safetensors.h"

enum { STEPS = 8, SAVED = 4, DATA = 1 << 16 };

/* assignments ("train.batch=1"): the last is NULL; NULL: no assignments. */
static struct jobspec *spec_of(const char *const *assignments)
{
    json_t *json =
        json_pack("{s:{s:s},s:{s:{s:s,s:s},s:{s:s,s:s}},s:{s:i,s:i,s:i,s:s,s:f,s:i,s:i},s:{s:i,s:i},s:{s:i,s:i}}", "model", "preset", "toy",
                  "data", "train", "annotations", "tests/golden/shapes/train.json", "images", "tests/golden/shapes/images", "val",
                  "annotations", "tests/golden/shapes/val.json", "images", "tests/golden/shapes/images", "train", "steps", STEPS, "batch",
                  8, "shards", 4, "optimizer", "adamw", "lr", 0.01, "burn_in", 0, "log_every", 1, "val", "every", SAVED, "batch", 1,
                  "checkpoint", "every", 1, "keep", STEPS);
    struct jobspec *spec;
    struct err err = { 0 };

    for (int i = 0; assignments && assignments[i]; i++)
        if (jobspec_override(json, assignments[i], &err) < 0)
            fail_msg("%s", err.msg);
    if (!json || jobspec_parse_for(&toy_presets, json, false, &spec, &err) < 0)
        fail_msg("%s", err.msg);
    json_decref(json);
    return spec;
}

/* A file of the checkpoint after a step, without its metadata: all there is behind the header's length. Returns its
 * bytes. */
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

/* Trains in the folders JOB-1, JOB-2 and JOB-3. */
static void same_for_ranks(const char *job)
{
    struct jobspec *spec = spec_of(NULL);
    char dir[4][128];

    for (int p = 1; p <= 3; p++) {
        char name[16];

        snprintf(name, sizeof name, "%s-%d", job, p);
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

static void ranks(void **state)
{
    (void)state;
    same_for_ranks("ranks");
}

/* The last checkpoints are lost; the job continues from the one before them. */
static void resume(void **state)
{
    struct jobspec *spec = spec_of(NULL);
    char dir[128], first[128], cmd[768];

    (void)state;
    job_folder("ranks-1", first);
    job_folder("resumed", dir);
    snprintf(cmd, sizeof cmd, "cp -r '%s/.' '%s'", first, dir);
    assert_int_equal(system(cmd), 0);
    for (int step = SAVED + 1; step <= STEPS; step++) {
        snprintf(cmd, sizeof cmd, "rm -r '%s/checkpoints/step-%d'", dir, step);
        assert_int_equal(system(cmd), 0);
    }
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

/* Numerator (part 0) or denominator (1) of a loss. */
static double term(const json_t *row, const char *name, size_t part)
{
    return json_number_value(json_array_get(json_object_get(json_object_get(row, "terms"), name), part));
}

static double total(const json_t *rows, size_t i)
{
    const json_t *row = json_array_get(rows, i);

    return term(row, "total", 0) / term(row, "total", 1);
}

/* The farthest that a number of a parameter has moved. Memory of the CPU device is the host's. */
static double farthest(const struct model *m, const struct safetensors *f, const char *name)
{
    const struct st_array *a = safetensors_find(f, name);
    double most = 0;

    assert_non_null(a);
    for (int i = 0; i < m->nparams; i++) {
        const struct param *p = m->params[i];

        if (strcmp(p->name, name) != 0)
            continue;
        assert_int_equal(st_count(a), p->count);
        for (int k = 0; k < p->k; k++)
            for (int rs = 0; rs < p->r * p->s; rs++)
                for (int c = 0; c < p->c; c++) { /* OIHW in the file, KRSC here */
                    double is = (double)((const float *)a->data)[(k * p->c + c) * p->r * p->s + rs];

                    most = fmax(most, fabs(is - (double)p->data[(k * p->r * p->s + rs) * p->c + c]));
                }
    }
    return most;
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

/* Adam's first step is as long as the rate for every number with a gradient, so groups with factors of their own
 * show. */
static void groups(void **state)
{
    static const struct {
        const char *name;
        double rate;
    } rows[] = { { "left", 0.01 }, { "right", 0.01 }, { "class", 0.02 }, { "count", 0.02 } };
    struct device_options opt = { 1, "auto", PRECISION_FP32 };
    struct jobspec *spec = spec_of(NULL);
    const struct device_ops *ops;
    struct safetensors *after;
    struct model *before;
    struct device *dev;
    char dir[128];
    struct err err;

    (void)state;
    job_folder("ranks-1", dir);
    after = open_file(dir, 1, "model");
    assert_int_equal(device_backend("cpu", "auto", &ops, &err), 0);
    assert_int_equal(ops->open(0, &opt, &dev, &err), 0);
    if (model_open(&toy_models, spec, (struct model_classes){ 1, NULL, NULL }, dev, &before, &err) < 0)
        fail_msg("%s", err.msg);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double moved = farthest(before, after, rows[i].name);

        if (fabs(moved - rows[i].rate) > 0.02 * rows[i].rate)
            fail_msg("%s: %g in the first step instead of %g", rows[i].name, moved, rows[i].rate);
    }
    model_free(before);
    dev->ops->close(dev);
    safetensors_close(after);
    jobspec_free(spec);
}

/* The list counts every mark of an image up to its room. The data set has more marks than that. */
static void picks(void **state)
{
    json_t *file = json_load_file("tests/golden/shapes/train.json", 0, NULL), *marks, *mark, *r;
    int per_image[64] = { 0 }, kept = 0, all = 0;
    const char *batch[] = { "train.batch=6", "train.shards=2", "train.steps=2", NULL };
    struct jobspec *spec = spec_of(batch);
    char dir[128];
    size_t i;

    (void)state;
    marks = json_object_get(file, "annotations");
    json_array_foreach (marks, i, mark) {
        json_int_t id = json_integer_value(json_object_get(mark, "image_id"));

        assert_in_range(id, 0, 63);
        kept += per_image[id]++ < ROOM;
        all++;
    }
    assert_true(kept < all);
    assert_int_equal(json_array_size(json_object_get(file, "images")), 6);
    job_folder("picks", dir);
    run_job(spec, dir, 1);
    r = rows(dir, 0);
    for (i = 0; i < 2; i++)
        assert_int_equal(term(json_array_get(r, i), "class", 1), kept);
    json_decref(r);
    json_decref(file);
    jobspec_free(spec);
}

/* The training set with its first image alone, as root/one.json. */
static void write_one(char path[128])
{
    json_t *file = json_load_file("tests/golden/shapes/train.json", 0, NULL), *images = json_object_get(file, "images");
    json_t *marks = json_object_get(file, "annotations"), *id = json_object_get(json_array_get(images, 0), "id");

    while (json_array_size(images) > 1)
        json_array_remove(images, 1);
    for (size_t i = json_array_size(marks); i-- > 0;)
        if (!json_equal(json_object_get(json_array_get(marks, i), "image_id"), id))
            json_array_remove(marks, i);
    snprintf(path, 128, "%s/one.json", root);
    assert_int_equal(json_dump_file(file, path, 0), 0);
    json_decref(file);
}

/* The losses of a model that stands still: in two steps over the same image, and in the validation after the second. */
static void lose(const char *job, const char *seed, double ret[3])
{
    char dir[128], from[128], one[128], init[224], data[160];
    const char *still[] = {
        "train.batch=1", "train.shards=1", "train.steps=2", "train.lr=1e-300", "model.freeze_bn=true", init, data, seed, NULL
    };
    struct jobspec *spec;
    json_t *r;

    write_one(one);
    job_folder("ranks-1", from);
    snprintf(data, sizeof data, "data.train.annotations=%s", one);
    snprintf(init, sizeof init, "model.init=%s/checkpoints/step-%d/model.safetensors", from, STEPS);
    job_folder(job, dir);
    spec = spec_of(still);
    run_job(spec, dir, 1);
    r = rows(dir, 0);
    assert_true(json_array_size(r) >= 3);
    for (size_t i = 0; i < 3; i++)
        ret[i] = term(json_array_get(r, i), "class", 0);
    json_decref(r);
    jobspec_free(spec);
}

/* Only the model's draws can differ: between steps and between seeds, not between runs. */
static void draws(void **state)
{
    double one[3], again[3], two[3];

    (void)state;
    lose("draws-1", "train.seed=1", one);
    lose("draws-again", "train.seed=1", again);
    lose("draws-2", "train.seed=2", two);
    assert_memory_equal(one, again, sizeof one);
    assert_true(one[0] != one[1]);
    for (int i = 0; i < 3; i++)
        assert_true(one[i] != two[i]);
}

/* ---- a gradient divided by the objects of its step ---- */

static enum { NO_COUNT, MARKS, IMAGES, NOTHING } objects; /* of the toy */

static int64_t count_objects(const struct model *m, const struct batch_form *form, const struct shard_batch *b)
{
    const int32_t *first = b->offset[batch_list_of(form, "marks")];
    int64_t n = 0;

    (void)m;
    for (int i = 0; i < b->n && objects == MARKS; i++)
        n += first[i + 1] - first[i] < ROOM ? first[i + 1] - first[i] : ROOM;
    return objects == IMAGES ? b->n : n;
}

static void sum_terms(const struct model *m, const double *raw, int images, double *ret)
{
    toy_sum_terms(m, raw, images, ret);
    if (objects == MARKS || objects == NOTHING)
        ret[1] = objects == MARKS ? raw[PICKS] : 0;
}

static int counting_open(const struct jobspec *spec, int classes, struct device *dev, struct model **ret_model, struct err *err)
{
    static struct model_ops ops;
    int rc = toy_open(spec, classes, dev, ret_model, err);

    if (rc < 0)
        return rc;
    ops = *(*ret_model)->ops;
    ops.objects = objects == NO_COUNT ? NULL : count_objects;
    ops.sum_terms = sum_terms;
    (*ret_model)->ops = &ops;
    return 0;
}

static const struct model_family counting = {
    .name = "toy", .task = &toy_pairs, .needs = NEEDS_conv | NEEDS_norm | NEEDS_map, .evaluators = toy_evaluators, .open = counting_open
};
static const struct model_family *const counting_families[] = { &counting };
static const struct model_registry counting_models = { &toy_presets, counting_families, 1 };

/* The shards of 3 ranks are 2, 1 and 1, and differ in objects. In waves they are still one step, and a run that
 * verifies another finds the same factor. */
static void objects_are_of_all_ranks_and_waves(void **state)
{
    char first[128], dir[128], other[160];
    const char *waves[] = { "train.waves=2", NULL }, *verify[] = { other, NULL };
    struct jobspec *spec = spec_of(waves);
    const json_t *last;
    json_t *all;

    (void)state;
    job_models = &counting_models;
    objects = MARKS;
    same_for_ranks("objects");
    job_folder("objects-1", first);
    job_folder("objects-waves", dir);
    run_job(spec, dir, 2);
    same_rows(first, dir, 0); /* files have the key train.waves too */
    jobspec_free(spec);
    snprintf(other, sizeof other, "errand.evidence=%s", first);
    spec = spec_of(verify);
    job_folder("objects-again", dir);
    run_job(spec, dir, 2);
    all = reports(dir);
    last = json_array_get(all, json_array_size(all) - 1);
    assert_string_equal(text_of(last, "reason"), "equal: steps 1 .. 8");
    json_decref(all);
    jobspec_free(spec);
}

/* One step over all 6 images, in 2 shards, by SGD: the momentum behind it is the gradient that the optimizer saw. */
static void first_step(int what, char ret_dir[128])
{
    const char *one[] = { "train.batch=6", "train.shards=2", "train.steps=1", "train.optimizer=\"sgd\"", "train.weight_decay=0", NULL };
    struct jobspec *spec = spec_of(one);
    char job[16];

    objects = what;
    snprintf(job, sizeof job, "counted-%d", what);
    job_folder(job, ret_dir);
    run_job(spec, ret_dir, 2);
    jobspec_free(spec);
}

static struct evidence_record record_of(const char *dir)
{
    struct evidence_record ret;
    struct evidence *e;
    struct err err;

    assert_int_equal(evidence_open(dir, &e, &err), 0);
    assert_true(evidence_read(e, 1, &ret));
    evidence_close(e);
    return ret;
}

/* The factor is images / objects, at least 1 object. It is behind the evidence's gradient. */
static void a_gradient_is_divided_by_objects(void **state)
{
    static const float factor[] = { [MARKS] = (float)(6 / 19.0), [IMAGES] = 1, [NOTHING] = 6 }; /* images have 1 5 4 4 5 2 marks */
    struct evidence_record record[NOTHING + 1];
    struct safetensors *f[NOTHING + 1];
    char dir[NOTHING + 1][128];

    (void)state;
    job_models = &counting_models;
    for (int what = NO_COUNT; what <= NOTHING; what++) {
        first_step(what, dir[what]);
        record[what] = record_of(dir[what]);
        f[what] = open_file(dir[what], 1, "state");
    }
    same_files(dir[NO_COUNT], dir[IMAGES], 1);
    for (int what = MARKS; what <= NOTHING; what++) {
        const struct st_array *g = safetensors_find(f[NO_COUNT], "momentum.left"), *h = safetensors_find(f[what], "momentum.left");

        assert_true(g && h && st_count(g) == st_count(h) && sum_of(f[what], "momentum.left") != 0);
        for (size_t i = 0; i < st_count(g); i++)
            assert_true(((const float *)h->data)[i] == factor[what] * ((const float *)g->data)[i]);
        assert_memory_equal(&record[what].part[EVIDENCE_GRADIENT], &record[NO_COUNT].part[EVIDENCE_GRADIENT], sizeof(struct hash128));
        safetensors_close(f[what]);
    }
    assert_true(memcmp(&record[MARKS].part[EVIDENCE_WEIGHT], &record[NO_COUNT].part[EVIDENCE_WEIGHT], sizeof(struct hash128)) != 0);
    safetensors_close(f[NO_COUNT]);
}

/* Losses, validation and evidence of a job without objects are still finite. */
static void a_step_without_objects(void **state)
{
    const json_t *saved = NULL, *msg;
    json_t *all, *r;
    char dir[128];
    size_t i;

    (void)state;
    job_folder("counted-3", dir); /* of the test before */
    r = rows(dir, 0);
    for (i = 0; i < 2; i++)
        assert_true(term(json_array_get(r, i), "total", 0) > 0 && term(json_array_get(r, i), "total", 1) == 1);
    assert_true(record_of(dir).loss == (float)term(json_array_get(r, 0), "total", 0));
    all = reports(dir);
    json_array_foreach (all, i, msg)
        saved = strcmp(text_of(msg, "type"), "checkpoint") == 0 ? msg : saved;
    assert_true(json_is_true(json_object_get(saved, "best")));
    assert_true(json_number_value(json_object_get(saved, "val_loss")) == term(json_array_get(r, 1), "total", 0));
    json_decref(all);
    json_decref(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(ranks),
                                        cmocka_unit_test(resume),
                                        cmocka_unit_test(moves),
                                        cmocka_unit_test(groups),
                                        cmocka_unit_test(picks),
                                        cmocka_unit_test(draws),
                                        cmocka_unit_test(objects_are_of_all_ranks_and_waves),
                                        cmocka_unit_test(a_gradient_is_divided_by_objects),
                                        cmocka_unit_test(a_step_without_objects) };

    job_models = &toy_models;
    return cmocka_run_group_tests_name("toy", tests, make_root, remove_root);
}

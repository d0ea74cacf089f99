/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/models/depth/test_depth_load.c - weights of depth
 * networks from files: ours, FeatDepth's names, ResNets alone, and which network they are for.
 * uses: proto worker/models worker/layers worker/data worker/eval worker/mask worker/comm worker/core cpu */
#include "tests/unit/worker/models/depth/depth_models.h"

#include <math.h>

enum { NAME = 128 };

/* A network: the prefix of its parameters here, and in the file. NULL: not in the file. */
struct named {
    const char *ours, *theirs;
};

/* Saves the parameters of m that are in the table `as`, under the names of the file; n rows. */
static void save_as(struct model *m, const struct named *as, size_t n)
{
    struct st_array *a, *kept = calloc((size_t)m->nparams, sizeof *kept);
    char(*name)[NAME] = calloc((size_t)m->nparams, sizeof *name);
    struct err err;
    size_t found = 0;

    assert_true(kept && name);
    assert_int_equal(weights_export(m, &a, &err), 0);
    for (int i = 0; i < m->nparams; i++)
        for (size_t k = 0; k < n; k++)
            if (strncmp(a[i].name, as[k].ours, strlen(as[k].ours)) == 0) {
                snprintf(name[found], NAME, "%s%s", as[k].theirs, a[i].name + strlen(as[k].ours));
                kept[found] = a[i];
                kept[found].name = name[found];
                found++;
            }
    if (safetensors_write(path, kept, found, NULL, 0, &err) < 0)
        fail_msg("%s", err.msg);
    free(kept);
    free(name);
    weights_export_free(m, a);
}

/* Numbers that no seed gives, and that running variances may have. */
static void mark(struct model *m)
{
    for (int i = 0; i < m->nparams; i++)
        for (size_t k = 0; k < m->params[i]->count; k++)
            m->params[i]->data[k] = 1 + (float)((k * 7 + (size_t)i * 3) % 64) / 64;
}

static struct param *param_of(struct model *m, const char *part, const char *rest)
{
    char name[NAME];

    snprintf(name, sizeof name, "%s%s", part, rest);
    for (int i = 0; i < m->nparams; i++)
        if (strcmp(m->params[i]->name, name) == 0)
            return m->params[i];
    return NULL;
}

static bool same(struct model *a, const struct param *p, struct model *b, const struct param *q)
{
    struct err err;
    float *x = weights_get(a, p, &err), *y = weights_get(b, q, &err);
    bool ret;

    assert_true(x && y && p->count == q->count);
    ret = memcmp(x, y, p->count * sizeof *x) == 0;
    free(x);
    free(y);
    return ret;
}

/* Counts the parameters of `to` with the prefix `ours` that equal those of `from` with the other prefix. Also returns
 * whether these are all. */
static int taken(struct model *to, const char *ours, struct model *from, const char *theirs, bool *ret_all)
{
    int n = 0, all = 0;

    for (int i = 0; i < to->nparams; i++) {
        struct param *p = to->params[i], *q;

        if (strncmp(p->name, ours, strlen(ours)) != 0)
            continue;
        all++;
        q = param_of(from, theirs, p->name + strlen(ours));
        n += q && p->count == q->count && same(to, p, from, q);
    }
    *ret_all = n == all && all > 0;
    return n;
}

static bool all_taken(struct model *to, struct model *from, const char *part)
{
    bool all;

    taken(to, part, from, part, &all);
    return all;
}

static bool none_taken(struct model *to, struct model *from, const char *part)
{
    bool all;

    return taken(to, part, from, part, &all) == 0;
}

static void weights_from_files(void **state)
{
    struct model *from = opened("featdepth_autoencoder_r18", NULL), *to;
    float *a, *b;
    struct err err;

    (void)state;
    for (size_t i = 0; i < from->params[0]->count; i++)
        from->params[0]->data[i] *= 3; /* values that no seed gives */
    save(from, NULL);
    to = opened("featdepth_r18", "init_extractor");
    assert_non_null(strstr(to->loaded, "5 of "));
    for (int i = 0; i < to->nparams; i++)
        if (strcmp(to->params[i]->name, from->params[0]->name) == 0) {
            a = weights_get(from, from->params[0], &err);
            b = weights_get(to, to->params[i], &err);
            assert_true(a && b);
            assert_memory_equal(a, b, from->params[0]->count * sizeof *a);
            free(a);
            free(b);
        }
    model_free(to);
    model_free(from);
}

static void errors_name_file_and_array(void **state)
{
    struct model *from = opened("featdepth_autoencoder_r18", NULL), *to = NULL;
    struct err err = { 0 };

    (void)state;
    save(from, "extractor.encoder.bn1.running_var");
    assert_true(try_open("featdepth_r18", "init_extractor", &to, &err) < 0);
    assert_non_null(strstr(err.msg, path));
    assert_non_null(strstr(err.msg, "extractor.encoder.bn1.running_var is not in the file"));
    save(from, "extractor.encoder.");
    assert_true(try_open("featdepth_r18", "init_extractor", &to, &err) < 0);
    assert_non_null(strstr(err.msg, path));
    assert_non_null(strstr(err.msg, "has no array of this network"));
    model_free(from);
}

/* ---- names ---- */

static const struct named featdepth[] = {
    { "depth.encoder.", "DepthEncoder.encoder." }, { "depth.decoder.", "DepthDecoder." },
    { "pose.encoder.", "PoseEncoder.encoder." },   { "pose.decoder.", "PoseDecoder." },
    { "extractor.encoder.", "Encoder.encoder." },  { "extractor.decoder.", "Decoder." },
};
enum { PARTS = sizeof featdepth / sizeof *featdepth };

/* Every network of its checkpoints is read, each from its own names. */
static void featdepth_s_names(void **state)
{
    struct model *from = opened("featdepth_joint_r18", NULL), *to;

    (void)state;
    mark(from);
    save_as(from, featdepth, PARTS);
    to = opened("featdepth_joint_r18", "init");
    for (int i = 0; i < PARTS; i++)
        if (!all_taken(to, from, featdepth[i].ours))
            fail_msg("%s was not taken from %s", featdepth[i].ours, featdepth[i].theirs);
    assert_null(strstr(to->loaded, "random"));
    model_free(to);
    model_free(from);
}

/* A key of one network takes that one alone from a file of all. */
static void a_key_takes_its_own_network(void **state)
{
    static const struct {
        const char *key, *network, *others[2];
    } keys[] = { { "init_depth", "depth.", { "pose.", "extractor." } },
                 { "init_pose", "pose.", { "depth.", "extractor." } },
                 { "init_extractor", "extractor.", { "depth.", "pose." } } };
    struct model *from = opened("featdepth_joint_r18", NULL);

    (void)state;
    mark(from);
    save(from, NULL);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct model *to = opened("featdepth_joint_r18", keys[i].key);

        if (!all_taken(to, from, keys[i].network) || !none_taken(to, from, keys[i].others[0]) || !none_taken(to, from, keys[i].others[1]))
            fail_msg("%s", keys[i].key);
        assert_non_null(strstr(to->loaded, "; of random weights: "));
        model_free(to);
    }
    model_free(from);
}

/* ---- a ResNet alone ---- */

static const struct named alone[] = { { "depth.encoder.", "" } };

/* model.init sets the networks that see pictures: the depth network, and the feature network if it trains. The network
 * that sees two pictures has a key of its own. */
static void a_resnet_alone_sees_pictures(void **state)
{
    struct model *from = opened("featdepth_baseline_r18", NULL), *to;
    bool all;

    (void)state;
    mark(from);
    save_as(from, alone, 1);
    to = opened("featdepth_joint_r18", "init");
    assert_true(all_taken(to, from, "depth.encoder."));
    taken(to, "extractor.encoder.", from, "depth.encoder.", &all);
    assert_true(all);
    assert_int_equal(taken(to, "pose.encoder.", from, "depth.encoder.", &all), 0);
    assert_non_null(strstr(to->loaded,
                           "; of random weights: the decoder of depth, the ResNet of motion, the decoder of motion, the decoder of "
                           "features"));
    model_free(to);
    to = opened("featdepth_autoencoder_r18", "init");
    taken(to, "extractor.encoder.", from, "depth.encoder.", &all);
    assert_true(all);
    model_free(to);
    model_free(from);
}

/* Specs featdepth section 1.1: in the stem that sees two pictures, each half has half of the weights of the stem that
 * sees one picture. */
static void a_stem_of_one_picture_sees_two(void **state)
{
    struct model *from = opened("featdepth_baseline_r18", NULL), *to;
    struct param *one = param_of(from, "depth.encoder.", "conv1.weight"), *two;
    size_t group = 3 * 49;
    float *x, *y;
    struct err err;
    bool all;

    (void)state;
    mark(from);
    save_as(from, alone, 1);
    to = opened("featdepth_baseline_r18", "init_pose");
    two = param_of(to, "pose.encoder.", "conv1.weight");
    x = weights_get_stored(from, one, &err);
    y = weights_get_stored(to, two, &err);
    assert_true(x && y);
    for (size_t k = 0; k < (size_t)one->k; k++)
        for (size_t i = 0; i < 2 * group; i++)
            assert_float_equal(y[k * 2 * group + i], x[k * group + i % group] / 2, 0);
    /* a ResNet-18 has 20 convolutions, each with a normalisation of four arrays */
    assert_int_equal(taken(to, "pose.encoder.", from, "depth.encoder.", &all), 20 * 5 - 1);
    assert_false(all); /* but for the stem's convolution */
    assert_true(none_taken(to, from, "depth.encoder."));
    free(x);
    free(y);
    model_free(to);
    model_free(from);
}

/* The stem for one picture is checked like any other array. */
static void a_stem_of_one_picture_is_sound(void **state)
{
    struct model *from = opened("featdepth_baseline_r18", NULL), *to = NULL;
    struct err err = { 0 };

    (void)state;
    mark(from);
    param_of(from, "depth.encoder.", "conv1.weight")->data[5] = NAN;
    save_as(from, alone, 1);
    assert_true(try_open("featdepth_baseline_r18", "init_pose", &to, &err) < 0);
    assert_non_null(strstr(err.msg, "pose.encoder.conv1.weight"));
    model_free(from);
}

/* The feature extractor never starts at random. The ResNet for pictures becomes the extractor only if the job says
 * so. */
static void a_resnet_alone_is_no_extractor(void **state)
{
    struct model *from = opened("featdepth_baseline_r18", NULL), *to = NULL;
    struct err err = { 0 };
    bool all;

    (void)state;
    mark(from);
    save_as(from, alone, 1);
    assert_true(try_open("featdepth_r18", "init", &to, &err) < 0);
    assert_string_equal(err.msg, "model.init_extractor: no file has the ResNet of features, and features of random weights are of no use");
    to = opened("featdepth_r18", "init_extractor");
    taken(to, "extractor.encoder.", from, "depth.encoder.", &all);
    assert_true(all);
    model_free(to);
    model_free(from);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_from_files),
        cmocka_unit_test(errors_name_file_and_array),
        cmocka_unit_test(featdepth_s_names),
        cmocka_unit_test(a_key_takes_its_own_network),
        cmocka_unit_test(a_resnet_alone_sees_pictures),
        cmocka_unit_test(a_stem_of_one_picture_sees_two),
        cmocka_unit_test(a_stem_of_one_picture_is_sound),
        cmocka_unit_test(a_resnet_alone_is_no_extractor),
    };
    int rc;

    if (models_open("depth_load") < 0)
        return 1;
    rc = cmocka_run_group_tests_name("depth_load", tests, NULL, NULL);
    models_close();
    return rc;
}

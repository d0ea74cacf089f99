/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/models/test_model_init.c
 * uses: proto worker/models worker/layers worker/data worker/eval worker/mask worker/comm worker/core cpu
 * Model.init with a file of another class count or width: the arrays that are taken, left out, or refused, and the
 * messages. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "tests/stand/harness.h"
#include "tests/unit/worker/models/yolo/darknet_file.h"
#include "worker/core/safetensors.h"
#include "worker/data/set/dataset.h"
#include "worker/models/classes.h"
#include "worker/models/yolo/darknet_net.h"
#include "worker/models/yolo/darknet_weights.h"
#include "worker/models/builtin.h"
#include "worker/models/weights.h"
#include "worker/models/yolo/yolov3.h"

extern const struct device_ops *cpu_backend_generic(void);

/* yolov3_tiny: convolutions 0 to 13, 15 (first head), 18 and 21 (with normalisation), 22 (second head). */
enum { OURS = 1, THEIRS = 5, HEAD_1 = 15, HEAD_2 = 22, MAX_CONVS = 16, ALL = -1 };

static char root[TEMP_MAX];
static struct device *dev;
static const struct dataset_class *named; /* classes of the job, as many as the model has; NULL: no names */
static const struct st_meta *meta;        /* of the next file; NULL: none */

static int model_of(int classes, double width, int seed, const char *file, int load_until, struct model **ret, struct err *err)
{
    json_t *json =
        json_pack("{s:{s:s,s:i,s:f},s:{s:{s:s,s:s}},s:{s:i,s:i,s:i}}", "model", "preset", "yolov3_tiny", "size", 64, "width", width, "data",
                  "train", "annotations", "none", "images", "none", "train", "steps", 1, "batch", 1, "seed", seed);
    struct jobspec *spec = NULL;
    char path[TEMP_MAX + 32];
    int rc;

    snprintf(path, sizeof path, "%s/%s", root, file ? file : "");
    if (file)
        json_object_set_new(json_object_get(json, "model"), "init", json_string(path));
    if (load_until >= 0)
        json_object_set_new(json_object_get(json, "model"), "load_until", json_integer(load_until));
    assert_int_equal(jobspec_parse(json, &spec, err), 0);
    rc = model_open(&models_builtin, spec, (struct model_classes){ classes, NULL, named }, dev, ret, err);
    jobspec_free(spec);
    json_decref(json);
    return rc;
}

static struct model *opened(int classes, double width, int seed, const char *file, int load_until)
{
    struct model *m = NULL;
    struct err err = { 0 };

    if (model_of(classes, width, seed, file, load_until, &m, &err) < 0)
        fail_msg("%s", err.msg);
    return m;
}

static float *host(const struct param *p)
{
    float *w = p ? malloc(p->count * sizeof *w) : NULL;
    struct err err;

    assert_true(!p || (w && dev->ops->download(dev, w, p->data, p->count * sizeof *w, &err) >= 0));
    return w;
}

/* Makes normalisations distinguishable: shift and mean of both signs, scale and variance positive. */
static void disturb(struct model *m)
{
    struct err err;

    for (int i = 0; i < m->nparams; i++) {
        struct param *p = m->params[i];
        float *w = host(p);

        for (size_t k = 0; k < p->count && p->kind != PARAM_CONV; k++) {
            float v = (float)(((size_t)i * 7 + k * 5) % 11 + 1) / 8.0f;

            w[k] = p->kind == PARAM_VAR || p->kind == PARAM_SCALE || k % 2 ? v : -v;
        }
        assert_true(dev->ops->upload(dev, p->data, w, p->count * sizeof *w, &err) >= 0);
        free(w);
    }
}

/* The first n convolutions as root/file. */
static void write_weights(const struct model *m, const char *file, size_t n)
{
    const struct darknet_net *net = yolov3_net(m);
    struct darknet_block b[MAX_CONVS];
    char path[TEMP_MAX + 32];
    size_t k = 0;

    for (int i = 0; i < net->nlayers && k < n; i++) {
        const struct yolov3_conv *c = net->layers[i].type == DARKNET_CONV ? yolov3_conv(m, i) : NULL;

        if (c)
            b[k++] = (struct darknet_block){ .layer = i,
                                             .filters = c->weight->k,
                                             .channels = c->weight->c,
                                             .size = c->weight->r,
                                             .bias = host(c->gamma ? c->beta : c->bias),
                                             .scale = host(c->gamma),
                                             .mean = host(c->mean),
                                             .var = host(c->var),
                                             .weights = host(c->weight) };
    }
    snprintf(path, sizeof path, "%s/%s", root, file);
    write_darknet_file(path, b, k, 0);
    while (k-- > 0) {
        free(b[k].bias);
        free(b[k].scale);
        free(b[k].mean);
        free(b[k].var);
        free(b[k].weights);
    }
}

/* The name in a file of an array of ours; "": the file lacks it. */
typedef void name_array(const char *ours, char *ret, size_t size);

/* The arrays of m as root/file. other: stands in place of the array of that name, or behind all. Either may be NULL. */
static void write_arrays(struct model *m, const char *file, name_array *name, const struct st_array *other)
{
    struct st_array *arrays, *filed = calloc((size_t)m->nparams + 1, sizeof *filed);
    char(*names)[128] = calloc((size_t)m->nparams, sizeof *names), path[TEMP_MAX + 32];
    struct err err;
    size_t n = 0;

    assert_int_equal(weights_export(m, &arrays, &err), 0);
    for (int i = 0; i < m->nparams; i++) {
        filed[n] = arrays[i];
        if (name) {
            name(arrays[i].name, names[i], sizeof *names);
            filed[n].name = names[i];
        }
        if (other && strcmp(arrays[i].name, other->name) == 0) {
            filed[n] = *other;
            other = NULL;
        }
        n += filed[n].name[0] != '\0';
    }
    if (other)
        filed[n++] = *other;
    snprintf(path, sizeof path, "%s/%s", root, file);
    assert_int_equal(safetensors_write(path, filed, n, meta, meta ? 1 : 0, &err), 0);
    weights_export_free(m, arrays);
    free(filed);
    free(names);
}

static void write_safetensors(struct model *m, const char *file)
{
    static const float one = 1;

    write_arrays(m, file, NULL, &(struct st_array){ "optimizer.step", ST_F32, 1, { 1 }, &one });
}

/* All of theirs, but for one array. */
static void write_other(const char *file, const struct st_array *other)
{
    struct model *theirs = opened(THEIRS, 0.02, 7, NULL, ALL);

    write_arrays(theirs, file, NULL, other);
    model_free(theirs);
}

/* "module_list.3.batch_norm_3.bias" as ultralytics/yolov3 calls it. */
static void name_of_others(const char *name, char *ret, size_t size)
{
    int layer = 0, len = 0;

    assert_int_equal(sscanf(name, "module_list.%d.%n", &layer, &len), 1);
    snprintf(ret, size, "module_list.%d.%s.%s", layer, strncmp(name + len, "conv_", 5) == 0 ? "Conv2d" : "BatchNorm2d",
             strchr(name + len, '.') + 1);
}

static void name_of_fewer(const char *name, char *ret, size_t size)
{
    name_of_others(name, ret, size);
    if (strcmp(name, "module_list.0.batch_norm_0.running_mean") == 0)
        *ret = '\0';
}

static const char *prefix;

static void name_with_prefix(const char *name, char *ret, size_t size)
{
    snprintf(ret, size, "%s%s", prefix, name);
}

static struct {
    const char *from, *to;
} renamed;

static void name_but_one(const char *name, char *ret, size_t size)
{
    snprintf(ret, size, "%s", strcmp(name, renamed.from) == 0 ? renamed.to : name);
}

static int setup(void **state)
{
    struct device_options opt = { 1, "generic", PRECISION_FP32 };
    struct model *theirs, *wide;
    struct err err;

    (void)state;
    assert_non_null(mkdtemp(temp_path(root, sizeof root, "detd-init-XXXXXX")));
    assert_int_equal(cpu_backend_generic()->open(0, &opt, &dev, &err), 0);
    theirs = opened(THEIRS, 0.02, 7, NULL, ALL);
    wide = opened(THEIRS, 0.04, 7, NULL, ALL);
    disturb(theirs);
    disturb(wide);
    write_weights(theirs, "theirs.weights", MAX_CONVS);
    write_weights(theirs, "front.weights", 5);
    write_weights(wide, "wide.weights", MAX_CONVS);
    write_safetensors(theirs, "theirs.safetensors");
    write_safetensors(wide, "wide.safetensors");
    write_arrays(theirs, "others.safetensors", name_of_others, NULL);
    write_arrays(theirs, "fewer.safetensors", name_of_fewer, NULL);
    for (int i = 0; i < 4; i++) {
        static const char *const files[] = { "parallel.safetensors", "lightning.safetensors", "twice.safetensors", "detector.safetensors" };

        prefix = (const char *[]){ "module.", "model.", "module.model.", "detector." }[i];
        write_arrays(theirs, files[i], name_with_prefix, NULL);
    }
    model_free(theirs);
    model_free(wide);
    return 0;
}

static int teardown(void **state)
{
    char cmd[TEMP_MAX + 16];

    (void)state;
    dev->ops->close(dev);
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", root);
    return system(cmd);
}

static bool same(const struct param *a, const struct param *b)
{
    float *x = host(a), *y = host(b);
    bool is = a->count == b->count && memcmp(x, y, a->count * sizeof *x) == 0;

    free(x);
    free(y);
    return is;
}

/* Layers before `until` but for heads are the file's, number for number; the others are as they were initialised. */
static void check_params(const struct model *m, int until, bool heads_too)
{
    struct model *theirs = opened(THEIRS, 0.02, 7, NULL, ALL), *fresh = opened(yolov3_net(m)->classes, 0.02, 1, NULL, ALL);
    int from_file = 0;

    disturb(theirs);
    for (int i = 0; i < m->nparams; i++) {
        const struct param *p = m->params[i];
        int layer = 0;

        assert_int_equal(sscanf(p->name, "module_list.%d.", &layer), 1);
        if (layer < until && (heads_too || (layer != HEAD_1 && layer != HEAD_2))) {
            assert_true(same(p, theirs->params[i]));
            from_file++;
        } else {
            assert_true(same(p, fresh->params[i]));
        }
    }
    assert_true(from_file > 0);
    model_free(theirs);
    model_free(fresh);
}

static void loads(const char *file, int classes, int load_until, int until, const char *said)
{
    struct model *m = opened(classes, 0.02, 1, file, load_until);

    if (!strstr(m->loaded, said))
        fail_msg("%s: said '%s', not '%s'", file, m->loaded, said);
    check_params(m, until, classes == THEIRS);
    model_free(m);
}

static void refuses(const char *file, int load_until, const char *said)
{
    struct model *m = NULL;
    struct err err = { 0 };
    int rc = model_of(OURS, 0.02, 1, file, load_until, &m, &err);

    if (rc == 0)
        fail_msg("%s: %s", file, m->loaded);
    assert_int_equal(rc, ERR_DATA);
    assert_non_null(strstr(err.msg, file));
    assert_non_null(strstr(err.msg, "model.init"));
    if (!strstr(err.msg, said))
        fail_msg("%s: said '%s', not '%s'", file, err.msg, said);
}

static void weights_of_the_same_count(void **state)
{
    (void)state;
    loads("theirs.weights", THEIRS, ALL, 100, "' (59 of 59 arrays)");
    loads("theirs.weights", THEIRS, 18, 18, "' (47 of 59 arrays); left out: layers 18-22");
    loads("front.weights", OURS, ALL, 10, "' (25 of 59 arrays); left out: layers 10-22; there the file ends");
    loads("front.weights", OURS, 6, 6, "' (15 of 59 arrays); left out: layers 6-22");
}

/* Layers behind a head are found behind the file's head, which is larger. */
static void weights_of_another_count(void **state)
{
    (void)state;
    loads("theirs.weights", OURS, ALL, 100, "' (55 of 59 arrays); left out: layers 15, 22; the file is of 5 classes, the job of 1");
    loads("theirs.weights", OURS, 15, 15, "' (45 of 59 arrays); left out: layers 15-22; the file is of 5 classes, the job of 1");
    loads("theirs.weights", OURS, 16, 16, "' (45 of 59 arrays); left out: layers 15-22; the file is of 5 classes, the job of 1");
    loads("theirs.weights", OURS, 19, 19, "' (50 of 59 arrays); left out: layers 15, 21-22; the file is of 5 classes, the job of 1");
    loads("theirs.weights", OURS, 100, 100, "' (55 of 59 arrays); left out: layers 15, 22; the file is of 5 classes, the job of 1");
}

/* The file is of a network with other layers behind the wanted ones. */
static void what_lies_behind_does_not_matter(void **state)
{
    struct model *theirs;
    char path[TEMP_MAX + 32];
    FILE *f;

    (void)state;
    theirs = opened(THEIRS, 0.02, 7, NULL, ALL);
    disturb(theirs);
    write_weights(theirs, "longer.weights", MAX_CONVS);
    model_free(theirs);
    snprintf(path, sizeof path, "%s/longer.weights", root);
    f = fopen(path, "ab");
    assert_non_null(f);
    assert_int_equal(fwrite("more", 1, 4, f), 4);
    assert_int_equal(fclose(f), 0);
    refuses("longer.weights", ALL, "at no other class count");
    loads("longer.weights", OURS, 15, 15, "' (45 of 59 arrays); left out: layers 15-22");
    loads("longer.weights", OURS, 6, 6, "' (15 of 59 arrays); left out: layers 6-22");
    refuses("longer.weights", 2, "the layers before model.load_until=2 are too few");
    refuses("longer.weights", 16, "at no other class count");
}

static void it_is_said_from_the_start(void **state)
{
    struct model *m = opened(OURS, 0.02, 1, "theirs.weights", ALL);
    char said[TEMP_MAX + 128];

    (void)state;
    snprintf(said, sizeof said, "model.init: loaded layers 0-14, 18-21 of 24 from '%s/theirs.weights' (", root);
    assert_int_equal(strncmp(m->loaded, said, strlen(said)), 0);
    model_free(m);
}

static void nothing_is_no_start(void **state)
{
    (void)state;
    refuses("theirs.weights", 0, "theirs.weights: nothing is loaded: no convolution stands before layer 0 (model.load_until)");
    refuses("theirs.safetensors", 0, "nothing is loaded: no convolution stands before layer 0 (model.load_until)");
    refuses("nowhere.weights", ALL, "nowhere.weights");
    refuses("nowhere.safetensors", ALL, "nowhere.safetensors");
}

static void weights_of_another_width(void **state)
{
    (void)state;
    refuses("wide.weights", ALL, "at no other class count: another network or model.width? model.load_until=15 takes");
    refuses("wide.weights", 100, "at no other class count: another network or model.width? model.load_until=15 takes");
    refuses("wide.weights", 15, " cannot be a running variance, so the numbers are others: another network or model.width?");
    refuses("wide.weights", 1,
            "the layers before model.load_until=1 are too few to tell whether it is of the same one: another network or model.w");
}

static void safetensors(void **state)
{
    (void)state;
    loads("theirs.safetensors", THEIRS, ALL, 100, "' (59 of 59 arrays); arrays of the file without a place in the model: 1");
    loads("theirs.safetensors", OURS, 15, 15,
          "' (45 of 59 arrays); left out: layers 15-22; arrays of the file without a place in the model: 1");
    loads("theirs.safetensors", OURS, ALL, 100,
          "' (55 of 59 arrays); left out: layers 15, 22; the file is of 5 classes, the job of 1; arrays ");
    loads("theirs.safetensors", OURS, 16, 16,
          "' (45 of 59 arrays); left out: layers 15-22; the file is of 5 classes, the job of 1; arrays ");
    refuses("wide.safetensors", 15, "in the model: another network or model.width? model.load_until=");
    refuses("wide.safetensors", ALL, "in the model: another network or model.width");
}

/* An array with other classes is refused as another network's if it is no head, if its count is not whole, or if it has
 * two counts. */
static void only_heads_may_differ(void **state)
{
    static const struct {
        const char *name;
        int rows, columns;
        const char *said;
    } files[] = {
        { "module_list.15.conv_15.weight", 29, 8,
          "module_list.15.conv_15.weight is [29, 8, 1, 1] in the file and [18, 8, 1, 1] in the model" },
        { "module_list.15.conv_15.weight", 30, 7,
          "module_list.15.conv_15.weight is [30, 7, 1, 1] in the file and [18, 8, 1, 1] in the model" },
        { "module_list.15.conv_15.weight", 15, 8,
          "module_list.15.conv_15.weight is [15, 8, 1, 1] in the file and [18, 8, 1, 1] in the model" },
        { "module_list.22.conv_22.weight", 33, 8,
          "module_list.22.conv_22.weight is [33, 8, 1, 1] in the file and [18, 8, 1, 1] in the model" },
        { "module_list.18.conv_18.weight", 24, 8,
          "module_list.18.conv_18.weight is [24, 8, 1, 1] in the file and [8, 8, 1, 1] in the model" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        float numbers[33 * 8] = { 0 };

        write_other("other.safetensors",
                    &(struct st_array){ files[i].name, ST_F32, 4, { files[i].rows, files[i].columns, 1, 1 }, numbers });
        refuses("other.safetensors", ALL, files[i].said);
    }
}

static void names_of_others(void **state)
{
    (void)state;
    loads("others.safetensors", THEIRS, ALL, 100, "' (59 of 59 arrays)");
    loads("others.safetensors", OURS, 15, 15, "' (45 of 59 arrays); left out: layers 15-22");
    loads("others.safetensors", OURS, ALL, 100, "' (55 of 59 arrays); left out: layers 15, 22; the file is of 5 classes, the job of 1");
    refuses("fewer.safetensors", ALL, "': module_list.0.batch_norm_0.running_mean is not in the file: another network or model.width");
}

/* The prefix of a PyTorch wrapper is removed from all names, and reported; an error names any other prefix. */
static void names_in_a_wrapper(void **state)
{
    (void)state;
    loads("parallel.safetensors", THEIRS, ALL, 100, "' (59 of 59 arrays); all names of the file begin with 'module.', which was left out");
    loads("lightning.safetensors", OURS, 15, 15, "' (45 of 59 arrays); left out: layers 15-22; all names of the file begin with 'model.'");
    loads("twice.safetensors", THEIRS, ALL, 100, "begin with 'module.model.'");
    refuses("detector.safetensors", ALL,
            "module_list.0.conv_0.weight is not in the file, which has 'detector.module_list.0.conv_0.weight': names must not have that "
            "prefix");
}

/* Both readers name the kind of a file that holds no weights. */
static void files_that_hold_no_weights(void **state)
{
    static const struct {
        const char *bytes;
        size_t size;
        const char *said;
    } files[] = {
#define CONTENT(text) text, sizeof(text) - 1
        { CONTENT("version https://git-lfs.github.com/spec/v1\noid sha256:0000\nsize 248007048\n"),
          "it is a Git LFS pointer: 'git lfs pull'" },
        { CONTENT("<!DOCTYPE html>\n<html><head><title>404</title></head></html>"), "it is a web page (HTML): the download went wrong" },
        { CONTENT("\n  <HTML>\n<body>Sign in to continue to the file</body>"), "it is a web page (HTML)" },
        { CONTENT("<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>"), "it is XML text" },
        { CONTENT("PK\3\4\0\0\10\10\0\0\0\0\0\0\0\0\0\0archive/data.pkl"), "it is an archive, as PyTorch's .pth" },
        { CONTENT("\x80\2\x8a\nl\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\2M\xe9\3."), "it is a pickle, as detectron2's .pkl" },
        { CONTENT("\x89HDF\r\n\x1a\n\0\0\0\0\0\10\10\0\4\0\20\0\0\0"), "it is an HDF5 file" },
        { CONTENT("\x1f\x8b\10\0\0\0\0\0\0\3\xed\xc1\1\r\0\0\0\xc2\xa0\xf7"), "it is compressed with gzip" },
        { CONTENT("import torch\n\nmodel = torch.load('yolov3.pt')\nprint(model)\n"), "it is text" },
        { CONTENT("[net]\nwidth=416\nheight=416\nchannels=3\n[convolutional]\n"), "it is text in sections, as a .cfg" },
        { CONTENT("{ \"model\": { \"preset\": \"yolov3_tiny\" } }                     "), "it is JSON text" },
        { CONTENT("\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\1\0\0\0\1\0"), "it is a picture" },
        { CONTENT(""), "it is empty" },
#undef CONTENT
    };
    static const char *const names[] = { "wrong.weights", "wrong.safetensors", "wrong.pth" };

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            char path[TEMP_MAX + 32];
            FILE *f;

            snprintf(path, sizeof path, "%s/%s", root, names[k]);
            f = fopen(path, "w");
            assert_non_null(f);
            assert_int_equal(fwrite(files[i].bytes, 1, files[i].size, f), files[i].size);
            fclose(f);
            refuses(names[k], ALL, files[i].said);
        }
}

/* Rows go by order, so names of other classes are told. A file of another program may have anything there. */
static void classes_of_other_names(void **state)
{
    static char *const name[] = { "bus", "car", "cat", "dog", "van" };
    struct dataset_class classes[THEIRS];
    static const struct {
        const char *text, *said;
    } files[] = {
        { "[{\"id\":1,\"name\":\"bus\"},{\"id\":2,\"name\":\"car\"},{\"id\":3,\"name\":\"cat\"},{\"id\":4,\"name\":\"dog\"},{\"id\":9,"
          "\"name\":\"van\"}]",
          NULL },
        { "[{\"id\":1,\"name\":\"bus\"},{\"id\":2,\"name\":\"cat\"},{\"id\":3,\"name\":\"car\"},{\"id\":4,\"name\":\"dog\"},{\"id\":5,"
          "\"name\":\"van\"}]",
          "; classes are matched by their order, and 2 of 5 have another name in the file: the first is 'cat' there, 'car' here" },
        { "[{\"id\":1,\"name\":\"bus\"}]", NULL },
        { "bus,cat", NULL },
    };

    (void)state;
    for (int i = 0; i < THEIRS; i++)
        classes[i] = (struct dataset_class){ i + 1, name[i] };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const struct st_meta of_file = { CLASSES_META, files[i].text };
        struct model *m = opened(THEIRS, 0.02, 7, NULL, ALL);

        meta = &of_file;
        write_safetensors(m, "named.safetensors");
        meta = NULL;
        model_free(m);
        named = classes;
        m = opened(THEIRS, 0.02, 1, "named.safetensors", ALL);
        named = NULL;
        if (files[i].said ? !strstr(m->loaded, files[i].said) : strstr(m->loaded, "another name") != NULL)
            fail_msg("%zu: said '%s'", i, m->loaded);
        model_free(m);
    }
}

/* Each format under the other's name. */
static void formats_under_other_names(void **state)
{
    char from[TEMP_MAX + 32], to[TEMP_MAX + 32];

    (void)state;
    snprintf(from, sizeof from, "%s/theirs.safetensors", root);
    snprintf(to, sizeof to, "%s/renamed.weights", root);
    assert_int_equal(link(from, to), 0);
    refuses("renamed.weights", ALL, "not a darknet .weights file; it is in the format of .safetensors: give it a name that ends so");
    snprintf(from, sizeof from, "%s/theirs.weights", root);
    snprintf(to, sizeof to, "%s/renamed.safetensors", root);
    assert_int_equal(link(from, to), 0);
    refuses("renamed.safetensors", ALL, "not a .safetensors file; it is weights of Darknet");
}

/* A number in a name is matched as a number, the rest of the name letter by letter. */
static void names_are_whole(void **state)
{
    static const struct rename renames[] = { { "module_list.#.conv_#.weight", "#.w#" }, { NULL, NULL } };
    struct model *m = opened(THEIRS, 0.02, 7, NULL, ALL);
    char path[TEMP_MAX + 32];
    struct err err;

    (void)state;
    snprintf(path, sizeof path, "%s/theirs.safetensors", root);
    assert_int_equal(weights_load(m, path, renames, &err), 0);
    assert_non_null(strstr(m->loaded, "': 59 of 59 arrays loaded; arrays of the file without a place in the model: 1"));
    m->loaded[0] = '\0';
    snprintf(path, sizeof path, "%s/others.safetensors", root);
    assert_int_equal(weights_load(m, path, renames, &err), ERR_DATA);
    assert_non_null(strstr(err.msg, "others.safetensors': module_list.0.conv_0.weight is not in the file"));
    model_free(m);
}

/* Numbers keep their order. */
static void numbers_are_in_order(void **state)
{
    static const struct rename renames[] = { { "module_list.1#.conv_#.weight", "#-#.w" }, { NULL, NULL } };
    struct model *m = opened(THEIRS, 0.02, 7, NULL, ALL);
    char path[TEMP_MAX + 32];
    struct err err;

    (void)state;
    snprintf(path, sizeof path, "%s/numbers.safetensors", root);
    renamed.from = "module_list.15.conv_15.weight";
    renamed.to = "5-15.w";
    write_arrays(m, "numbers.safetensors", name_but_one, NULL);
    if (weights_load(m, path, renames, &err) < 0)
        fail_msg("%s", err.msg);
    assert_non_null(strstr(m->loaded, "': 59 of 59 arrays loaded"));
    model_free(m);
}

/* Runs weights_load() on a model after its first parameter got this name. The file calls the parameter `theirs`. */
static int load_renamed(const char *name, const char *theirs, const struct rename *renames, struct model **ret, struct err *err)
{
    struct model *m = opened(THEIRS, 0.02, 7, NULL, ALL);
    char path[TEMP_MAX + 32];

    snprintf(m->params[0]->name, sizeof m->params[0]->name, "%s", name);
    snprintf(path, sizeof path, "%s/four.safetensors", root);
    renamed.from = name;
    renamed.to = theirs;
    write_arrays(m, "four.safetensors", name_but_one, NULL);
    *ret = m;
    return weights_load(m, path, renames, err);
}

/* Towers of stages of blocks of layers: four, and no more. */
static void a_name_has_four_numbers_at_most(void **state)
{
    static const struct rename renames[] = { { "tower.#.stage.#.block.#.conv#.weight", "t#.s#.b#.c#.w" },
                                             { "tower.#.stage.#.block.#.conv#.part.#.weight", "t#.s#.b#.c#.p#.w" },
                                             { NULL, NULL } };
    struct model *m;
    struct err err;

    (void)state;
    assert_int_equal(load_renamed("tower.1.stage.20.block.317.conv4.weight", "t1.s20.b317.c4.w", renames, &m, &err), 0);
    assert_non_null(strstr(m->loaded, "': 59 of 59 arrays loaded"));
    assert_null(strstr(m->loaded, "without a place"));
    model_free(m);
    assert_int_equal(load_renamed("tower.1.stage.20.block.317.conv4.weight", "t1.s20.b4.c317.w", renames, &m, &err), ERR_DATA);
    assert_non_null(strstr(err.msg, "tower.1.stage.20.block.317.conv4.weight is not in the file"));
    model_free(m);
    assert_int_equal(load_renamed("tower.1.stage.2.block.3.conv4.part.5.weight", "t1.s2.b3.c4.p5.w", renames, &m, &err), ERR_DATA);
    assert_non_null(strstr(err.msg, "tower.1.stage.2.block.3.conv4.part.5.weight is not in the file"));
    model_free(m);
}

/* Number k of an array of theirs, as root/file. */
static void write_with(const char *file, const char *name, size_t k, float number)
{
    struct model *m = opened(THEIRS, 0.02, 7, NULL, ALL);
    struct err err;

    disturb(m);
    for (int i = 0; i < m->nparams; i++)
        if (strcmp(m->params[i]->name, name) == 0)
            assert_true(dev->ops->upload(dev, m->params[i]->data + k, &number, sizeof number, &err) >= 0);
    write_safetensors(m, file);
    model_free(m);
}

static void safetensors_of_no_network(void **state)
{
    (void)state;
    write_with("nan.safetensors", "module_list.0.conv_0.weight", 3, NAN);
    refuses("nan.safetensors", 15, "nan.safetensors': module_list.0.conv_0.weight: number ");
    refuses("nan.safetensors", 15, "nan, which is not finite");
    write_with("far.safetensors", "module_list.0.batch_norm_0.running_mean", 1, INFINITY);
    refuses("far.safetensors", 15, "': module_list.0.batch_norm_0.running_mean: number 1 is inf, which is not finite");
    write_with("below.safetensors", "module_list.0.batch_norm_0.running_var", 0, -0.5f);
    refuses("below.safetensors", 15, "': module_list.0.batch_norm_0.running_var: number 0 is -0.5, which is no variance");
    write_with("head.safetensors", "module_list.15.conv_15.bias", 0, NAN);
    loads("head.safetensors", OURS, 15, 15, "' (45 of 59 arrays)");
    loads("head.safetensors", OURS, ALL, 100, "' (55 of 59 arrays)"); /* unwanted layers may differ in any way */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_of_the_same_count),
        cmocka_unit_test(weights_of_another_count),
        cmocka_unit_test(weights_of_another_width),
        cmocka_unit_test(safetensors),
        cmocka_unit_test(names_of_others),
        cmocka_unit_test(names_in_a_wrapper),
        cmocka_unit_test(files_that_hold_no_weights),
        cmocka_unit_test(classes_of_other_names),
        cmocka_unit_test(formats_under_other_names),
        cmocka_unit_test(names_are_whole),
        cmocka_unit_test(numbers_are_in_order),
        cmocka_unit_test(a_name_has_four_numbers_at_most),
        cmocka_unit_test(safetensors_of_no_network),
        cmocka_unit_test(it_is_said_from_the_start),
        cmocka_unit_test(what_lies_behind_does_not_matter),
        cmocka_unit_test(nothing_is_no_start),
        cmocka_unit_test(only_heads_may_differ),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}

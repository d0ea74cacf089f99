/* SPDX-License-Identifier: Apache-2.0 */ /* The job file: errors name the path, defaults, rules between keys,
 * overrides. uses: proto */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "proto/err.h"
#include "proto/job/jobspec_table.h"
#include "tests/unit/proto/job/job_file.h"

static void defaults(void **state)
{
    struct jobspec *s = good("");

    (void)state;
    assert_string_equal(s->name, "job");
    assert_true(s->model_size.w == 416 && s->model_size.h == 416);
    assert_int_equal(s->data_augment_size_min, 320);
    assert_int_equal(s->data_augment_size_max, 512);
    assert_int_equal(s->train_shards, 4);
    assert_int_equal(s->train_burn_in, 200);
    assert_int_equal(s->val_every, 0);
    assert_int_equal(s->checkpoint_every, 400);
    assert_int_equal(s->run_threads, -1);
    assert_true(isnan(s->model_ignore_thresh));
    assert_null(s->data_val_annotations);
    assert_null(s->run_deterministic);
    assert_int_equal(s->train_lr_steps.n, 2);
    assert_int_equal(json_object_size(s->run_env), 0);
    jobspec_free(s);
    s = good("data.val={\"annotations\":\"v.json\",\"images\":\"i\"}");
    assert_int_equal(s->val_every, 400);
    assert_int_equal(s->checkpoint_every, 400);
    jobspec_free(s);
    s = good("train.steps=5;data.val={\"annotations\":\"v.json\",\"images\":\"i\"};model.size=64");
    assert_int_equal(s->val_every, 1);
    assert_int_equal(s->train_burn_in, 0);
    assert_int_equal(s->data_augment_size_min, 32);
    jobspec_free(s);
    s = good("model.preset=null;model.cfg=net.cfg");
    assert_true(s->model_size.w == -1 && s->model_size.h == -1);
    assert_int_equal(s->data_augment_size_min, -1);
    jobspec_free(s);
    jobspec_free(NULL);
}

/* Defaults that follow from other keys stay within their bounds. */
static void defaults_are_bounded(void **state)
{
    struct jobspec *s = good("model.size=2048;train.steps=19999");

    (void)state;
    assert_int_equal(s->data_augment_size_max, 2048);
    assert_int_equal(s->data_augment_size_min, 1952);
    assert_int_equal(s->train_burn_in, 999);
    jobspec_free(s);
    s = good("model.size=160;train.steps=40000;run.ranks=4"); /* as many ranks as shards */
    assert_int_equal(s->data_augment_size_max, 256);
    assert_int_equal(s->data_augment_size_min, 64);
    assert_int_equal(s->train_burn_in, 1000);
    jobspec_free(s);
    s = good("data.val.fraction=0.1");
    assert_string_equal(s->data_val_annotations, s->data_train_annotations);
    assert_string_equal(s->data_val_images, s->data_train_images);
    assert_true(s->val_every > 0);
    jobspec_free(s);
    s = good("data.train.format=yolo;data.train.images=null;data.val.fraction=0.1");
    assert_string_equal(s->data_val_format, "yolo");
    assert_null(s->data_val_images);
    jobspec_free(s);
    jobspec_free(good("data.train.format=voc;data.train.images=null;data.names=/n;data.voc_boxes=corners"));
    jobspec_free(good("data.train.format=darknet;data.train.images=null;data.val={\"format\":\"yolo\",\"annotations\":\"d.yaml\"}"));
    s = good("data.val={\"annotations\":\"v.json\",\"images\":\"i\"};val.every=30");
    assert_int_equal(s->checkpoint_every, 30);
    jobspec_free(s);
    s = good("data.val={\"annotations\":\"v.json\",\"images\":\"i\"};val.every=0");
    assert_int_equal(s->checkpoint_every, 400);
    jobspec_free(s);
}

/* A square is still written as a number: checkpoints keep a hash of the text. */
static void sizes_are_squares_or_rectangles(void **state)
{
    static const struct {
        const char *set, *json;
        int64_t w, h, min, max;
    } rows[] = { { "model.size=64", "64", 64, 64, 32, 160 },
                 { "model.size=[64,64]", "64", 64, 64, 32, 160 },
                 { "model.size=[608.0,320]", "[608,320]", 608, 320, 512, 704 },
                 { "model.size=[96,160]", "[96,160]", 96, 160, 64, 256 } };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct jobspec *s = good(rows[i].set), *again;
        json_t *root = jobspec_json(s), *deciding = jobspec_deciding(s, NULL);
        struct err err;

        for (int k = 0; k < 2; k++) {
            char *text = json_dumps(json_object_get(json_object_get(k ? deciding : root, "model"), "size"), JSON_ENCODE_ANY | JSON_COMPACT);

            assert_string_equal(text, rows[i].json);
            free(text);
        }
        assert_int_equal(jobspec_parse_stored(root, &again, &err), 0);
        for (int k = 0; k < 2; k++) {
            const struct jobspec *of = k ? again : s;

            assert_true(of->model_size.w == rows[i].w && of->model_size.h == rows[i].h);
            assert_true(of->data_augment_size_min == rows[i].min && of->data_augment_size_max == rows[i].max);
        }
        json_decref(root);
        json_decref(deciding);
        jobspec_free(s);
        jobspec_free(again);
    }
}

static int parse_with(const char *key, json_t *value, struct err *err)
{
    json_t *root = job("");
    struct jobspec *s = NULL;
    int rc;

    if (strcmp(key, "name") == 0) {
        json_object_set_new(root, "name", value);
    } else {
        json_t *run = json_object(), *env = json_object();

        json_object_set_new(env, key, value);
        json_object_set_new(run, "env", env);
        json_object_set_new(root, "run", run);
    }
    rc = jobspec_parse(root, &s, err);
    jobspec_free(s);
    json_decref(root);
    return rc;
}

static void texts_are_bounded(void **state)
{
    char text[4098];
    struct err err;

    (void)state;
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '\0';
    assert_int_equal(parse_with("name", json_stringn(text, 64), &err), 0);
    assert_int_equal(parse_with("name", json_stringn(text, 65), &err), ERR_INPUT);
    assert_string_equal(err.msg, "name: must have at most 64 bytes, has 65");
    assert_int_equal(parse_with("A", json_stringn(text, 4096), &err), 0);
    assert_int_equal(parse_with("A", json_stringn(text, 4097), &err), 0); /* all variables together have a limit */
    text[128] = '\0';
    assert_int_equal(parse_with(text, json_string("b"), &err), 0);
    text[128] = 'a';
    text[129] = '\0';
    assert_int_equal(parse_with(text, json_string("b"), &err), ERR_INPUT);
    assert_string_equal(err.field, "run.env");
}

static void shards_of_a_batch(void **state)
{
    (void)state;
    assert_int_equal(jobspec_default_shards(1, 4), 1);
    assert_int_equal(jobspec_default_shards(7, 4), 1);
    assert_int_equal(jobspec_default_shards(8, 4), 2);
    assert_int_equal(jobspec_default_shards(12, 4), 2);
    assert_int_equal(jobspec_default_shards(16, 4), 4);
    assert_int_equal(jobspec_default_shards(32, 4), 8);
    assert_int_equal(jobspec_default_shards(1024, 4), 8);
    assert_int_equal(jobspec_default_shards(4, 1), 4);
}

static void refused(void **state)
{
    static const struct {
        const char *set, *field, *msg;
    } rows[] = {
        { "train.lr=-1", "train.lr", "train.lr: must be > 0, is -1" },
        { "train.lr=0", "train.lr", "train.lr: must be > 0, is 0" },
        { "train.lr=1001", "train.lr", "train.lr: must be at most 1000, is 1001" },
        { "train.lr=fast", "train.lr", "train.lr: must be a number, is \"fast\"" },
        { "train.lr=null", "train.lr", "train.lr: must be a number, is null" },
        { "train.steps=0", "train.steps", "train.steps: must be at least 1, is 0" },
        { "train.steps=2.5", "train.steps", "train.steps: must be a whole number, is 2.5" },
        { "train.steps=null", "train.steps", "train.steps: is required (or train.epochs)" },
        { "train.steps=5;train.epochs=2", "train.epochs",
          "train.epochs: cannot be combined with train.steps (train.steps=null takes that out)" },
        { "train.steps=null;train.epochs=2", "train.epochs",
          "train.epochs: only detctl submit and detctl check make steps of it; train.steps is needed here" },
        { "train.epochs=0", "train.epochs", "train.epochs: must be > 0, is 0" },
        { "train.epochs=all", "train.epochs", "train.epochs: must be a number, is \"all\"" },
        { "train.batch=99999", "train.batch", "train.batch: must be at most 65536, is 99999" },
        { "train.optimizer=sdg", "train.optimizer", "train.optimizer: must be sgd, adam or adamw, is \"sdg\"" },
        { "train.optimizer=adam;train.momentum=0.8", "train.momentum", "train.momentum: needs train.optimizer sgd" },
        { "train.optimizer=adamw;train.nesterov=true", "train.nesterov", "train.nesterov: needs train.optimizer sgd" },
        { "train.momentum=0;train.nesterov=true", "train.nesterov", "train.nesterov: needs train.momentum above 0" },
        { "train.optimizer=adam;train.eps=1e-50", "train.eps", "train.eps: must be at least 1e-30, is 1e-50" },
        { "train.beta1=0.8", "train.beta1", "train.beta1: needs train.optimizer adam or adamw" },
        { "train.beta2=0.9", "train.beta2", "train.beta2: needs train.optimizer adam or adamw" },
        { "train.schedule=cosine;train.lr_steps=[0.5]", "train.lr_steps", "train.lr_steps: needs train.schedule steps" },
        { "train.schedule=constant;train.lr_scale=0.5", "train.lr_scale", "train.lr_scale: needs train.schedule steps" },
        { "train.lr_end=0.1", "train.lr_end", "train.lr_end: needs train.schedule cosine or poly" },
        { "train.schedule=cosine;train.poly_power=2", "train.poly_power", "train.poly_power: needs train.schedule poly" },
        { "train.warmup=linear;train.burn_in_power=2", "train.burn_in_power", "train.burn_in_power: needs train.warmup power" },
        { "train.warmup=linear;train.burn_in=0;train.schedule=cosine", "train.warmup",
          "train.warmup: needs train.burn_in above 0 (its default is a twentieth of the steps), or train.schedule steps" },
        { "train.warmup=linear;train.steps=19;train.schedule=constant", "train.warmup",
          "train.warmup: needs train.burn_in above 0 (its default is a twentieth of the steps), or train.schedule steps" },
        { "train.burn_in=0;train.burn_in_power=2", "train.burn_in_power",
          "train.burn_in_power: needs train.burn_in above 0 (its default is a twentieth of the steps)" },
        { "train.steps=100;train.burn_in=101", "train.burn_in", "train.burn_in: must be at most train.steps (100), is 101" },
        { "train.warmup_factor=0.5", "train.warmup_factor", "train.warmup_factor: needs train.warmup linear" },
        { "train.eps=1e-6", "train.eps", "train.eps: needs train.optimizer adam or adamw" },
        { "data.on_bad=ignore", "data.on_bad", "data.on_bad: must be error or skip, is \"ignore\"" },
        { "run.device=3", "run.device", "run.device: must be auto, cpu or cuda, is \"3\"" },
        { "model.sync_bn=1", "model.sync_bn", "model.sync_bn: must be true or false, is 1" },
        { "name=", "name", "name: must not be empty" },
        { "name=a\tb", "name", "name: must not have control or format characters, is \"a\\tb\"" },
        { "name=a\xc2\x9b"
          "b",
          "name", "name: must not have control or format characters, is \"a\\u009Bb\"" },
        { "name=a\u202eb", "name", "name: must not have control or format characters, is \"a\\u202Eb\"" },
        { "model.preset=null", "model.preset", "model.preset: is required (or model.cfg)" },
        { "model.cfg=x.cfg", "model.cfg", "model.cfg: cannot be combined with model.preset" },
        { "model.preset=null;model.cfg=x.cfg;model.width=0.5", "model.width", "model.width: scales presets only, not model.cfg" },
        { "model.size=100", "model.size", "model.size: must be a multiple of 32, is 100" },
        { "model.size=[64,100]", "model.size", "model.size: must be a multiple of 32, is 100" },
        { "model.size=[16,64]", "model.size", "model.size: must be at least 32, is 16" },
        { "model.size=[64,4096]", "model.size", "model.size: must be at most 2048, is 4096" },
        { "model.size=[64,96,128]", "model.size", "model.size: must be a whole number or [width, height], is a list of 3" },
        { "model.size=[64]", "model.size", "model.size: must be a whole number or [width, height], is a list of 1" },
        { "model.size=[64,\"96\"]", "model.size", "model.size: sides must be whole numbers, one is \"96\"" },
        { "model.size=64x96", "model.size", "model.size: must be a whole number or [width, height], is \"64x96\"" },
        { "model.load_until=3", "model.load_until", "model.load_until: needs model.init" },
        { "train.freeze=0-14", "train.freeze", "train.freeze: needs model.init: layers without pretrained weights cannot be frozen" },
        { "train.freeze=[\"a\",3]", "train.freeze", "train.freeze: number 2 must be a string of 1 to 128 bytes, is 3" },
        { "train.freeze=[\"\"]", "train.freeze", "train.freeze: number 1 must be a string of 1 to 128 bytes, is \"\"" },
        { "train.freeze={}", "train.freeze", "train.freeze: must be a string or a list of strings, is an object" },
        { "train.class_weights=[2]", "train.class_weights", "train.class_weights: must be an object, is a list" },
        { "train.class_weights={\"a\":0}", "train.class_weights", "train.class_weights: of 'a' must be > 0, is 0" },
        { "train.class_weights={\"a\":-1}", "train.class_weights", "train.class_weights: of 'a' must be > 0, is -1" },
        { "train.class_weights={\"a\":1000.5}", "train.class_weights", "train.class_weights: of 'a' must be at most 1000, is 1000.5" },
        { "train.class_weights={\"a\":\"2\"}", "train.class_weights", "train.class_weights: of 'a' must be a number, is \"2\"" },
        { "train.class_weights.a=nan", "train.class_weights", "train.class_weights: of 'a' must be a number, is \"nan\"" },
        { "train.shards=3", "train.shards", "train.shards: must be a power of two, is 3" },
        { "train.shards=32", "train.shards", "train.shards: must divide train.batch (16), is 32" },
        { "run.ranks=5", "run.ranks", "run.ranks: must be at most train.shards (4), is 5" },
        { "model.sync_bn=true;train.waves=2", "train.waves", "train.waves: must be 1 with model.sync_bn, is 2" },
        { "run.device=cpu;run.precision=tf32", "run.precision",
          "run.precision: the CPU computes in fp32 or bf16; tf32 needs run.device cuda" },
        { "run.evidence=all", "run.evidence", "run.evidence: must be off, losses or tensors, is \"all\"" },
        { "errand.data_hash=0123456789abcdef0123456789abcdeg", "errand.data_hash",
          "errand.data_hash: must be 32 hexadecimal digits, 0-9 and a-f, is '0123456789abcdef0123456789abcdeg'" },
        { "errand.data_hash=0123456789abcdef0123456789abcde", "errand.data_hash",
          "errand.data_hash: must be 32 hexadecimal digits, 0-9 and a-f, is '0123456789abcdef0123456789abcde'" },
        { "errand.from=3", "errand.from", "errand.from: needs errand.evidence" },
        { "errand.from=0", "errand.from", "errand.from: needs errand.evidence" },
        { "errand.to=3", "errand.to", "errand.to: needs errand.evidence" },
        { "errand.evidence=/e;errand.to=4001", "errand.to", "errand.to: must be at most train.steps (4000), is 4001" },
        { "errand.evidence=/e;errand.from=20;errand.to=20", "errand.from", "errand.from: must be below errand.to (20), is 20" },
        { "errand.evidence=/e;errand.from=4000", "errand.from", "errand.from: must be below errand.to (4000), is 4000" },
        { "model.sync_bn=true;model.freeze_bn=true", "model.sync_bn", "model.sync_bn: cannot be combined with model.freeze_bn" },
        { "data.val.annotations=v.json", "data.val.images", "data.val.images: is required with data.val.annotations" },
        { "data.val.images=v", "data.val.annotations", "data.val.annotations: is required with data.val.images" },
        { "val.every=10", "val.every", "val.every: needs data.val" },
        { "data.train.images=null", "data.train.images", "data.train.images: is required (folder of the training split's images)" },
        { "data.train.format=voc;data.val.annotations=/v.json", "data.val.images",
          "data.val.images: is required with data.val.annotations" },
        { "data.val.fraction=0.1;data.val.annotations=/v.json;data.val.images=/v", "data.val.fraction",
          "data.val.fraction: is a part of the training split: remove data.val.annotations" },
        { "data.val.fraction=0", "data.val.fraction", "data.val.fraction: must be > 0, is 0" },
        { "data.names=/n", "data.names", "data.names: needs data.train.format or data.val.format voc, darknet or yolo" },
        { "data.voc_boxes=corners", "data.voc_boxes", "data.voc_boxes: needs data.train.format or data.val.format voc" },
        { "data.train.format=yolo;data.voc_difficult=object", "data.voc_difficult",
          "data.voc_difficult: needs data.train.format or data.val.format voc" },
        { "data.augment.size_min=100", "data.augment.size_min", "data.augment.size_min: must be a multiple of 32, is 100" },
        { "data.augment.size_min=512;data.augment.size_max=480", "data.augment.size_max",
          "data.augment.size_max: must be at least data.augment.size_min (512), is 480" },
        { "train.lr_steps=[0.9,0.8]", "train.lr_steps", "train.lr_steps: must ascend; number 2 is step 3200 after step 3600" },
        { "train.lr_steps=[0.9,100]", "train.lr_steps", "train.lr_steps: must ascend; number 2 is step 100 after step 3600" },
        { "train.lr_steps=[100,100]", "train.lr_steps", "train.lr_steps: must ascend; number 2 is step 100 after step 100" },
        { "train.lr_steps=[0.5,2000]", "train.lr_steps", "train.lr_steps: must ascend; number 2 is step 2000 after step 2000" },
        { "data.augment.size_max=528", "data.augment.size_max", "data.augment.size_max: must be a multiple of 32, is 528" },
        { "train.steps=9007199254740994.0", "train.steps", "train.steps: must be a whole number, is 9.0072e15" },
        { "train.lr_steps=[1.5]", "train.lr_steps", "train.lr_steps: must be whole steps, or fractions between 0 and 1; number 1 is 1.5" },
        { "train.lr_steps=[\"a\"]", "train.lr_steps", "train.lr_steps: 'a' is neither a number of steps nor a text as \"2 epochs\"" },
        { "train.lr_steps=3", "train.lr_steps", "train.lr_steps: must be a list of numbers, is 3" },
        { "run.env={\"A\":1}", "run.env", "run.env: A must be a string" },
        { "run.env={\"A=B\":\"1\"}", "run.env", "run.env: 'A=B' is not a variable name" },
        { "train=5", "train", "train: must be an object, is 5" },
        { "data.train=5", "data.train", "data.train: must be an object, is 5" },
        { "data.train={}", "data.train.annotations",
          "data.train.annotations: is required (Annotations of the training split. coco: the JSON file; voc: a list of ImageSets, or a "
          "folder of XML files; darknet: a .data file, or a list with data.names; yolo: data.yaml, or a list or folder with data.names; "
          "frames, kitti: the list of frames)" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *root = job(rows[i].set);
        struct jobspec *s = NULL;
        struct err err = { 0 };

        assert_int_equal(jobspec_parse(root, &s, &err), ERR_INPUT);
        assert_string_equal(err.msg, rows[i].msg);
        assert_string_equal(err.field, rows[i].field);
        assert_null(s);
        json_decref(root);
    }
}

static void unknown_keys(void **state)
{
    static const struct {
        const char *group, *name, *msg;
    } rows[] = {
        { "train", "lrr", "train.lrr: unknown key; did you mean train.lr?" },
        { "train", "subdivisions", "train.subdivisions: unknown key; did you mean train.waves?" },
        { "train", "patience", "train.patience: unknown key; did you mean train.stop_after?" },
        { "model", "pretrained", "model.pretrained: unknown key; did you mean model.init?" },
        { "train", "momentun", "train.momentun: unknown key; did you mean train.momentum?" },
        { "train", "lr.x", "train.lr.x: unknown key; did you mean train.lr?" },
        { NULL, "batch", "batch: unknown key; did you mean train.batch?" },
        { NULL, "train.lr", "train.lr: unknown key; did you mean train.lr?" },
        { NULL, "elephants", "elephants: unknown key; detctl submit --help-keys lists the keys" },
        { NULL, "", ": unknown key; detctl submit --help-keys lists the keys" },
        { NULL, "a\nb", "a?b: unknown key; detctl submit --help-keys lists the keys" },
        { "train", "gpus", "train.gpus: unknown key; did you mean program.gpus?" },
        { "model", "imgsz", "model.imgsz: unknown key; did you mean model.size? It is model.min_size of R-CNN" },
        { "model", "weights", "model.weights: unknown key; did you mean model.init?" },
        { NULL, "mosaic",
          "mosaic: unknown key; no such augmentation is there: data.augment has flip, scale, jitter and colours; detctl submit --help-keys "
          "lists the "
          "keys" },
        { "train", "amp", "train.amp: unknown key; did you mean run.precision? With bf16 activations take half the memory" },
        { "train", "IMS_PER_BATCH", "train.IMS_PER_BATCH: unknown key; did you mean train.batch?" },
        { NULL, "epochs", "epochs: unknown key; did you mean train.epochs?" },
        { NULL, "lr0", "lr0: unknown key; did you mean train.lr?" },
        { NULL, "SOLVER.BASE_LR", "SOLVER.BASE_LR: unknown key; did you mean train.lr?" },
        { NULL, "SOLVER.STEPS", "SOLVER.STEPS: unknown key; did you mean train.lr_steps?" },
        { NULL, "SOLVER.WEIGHT_DECAY", "SOLVER.WEIGHT_DECAY: unknown key; did you mean train.weight_decay?" },
        { NULL, "SOLVER.GAMMA", "SOLVER.GAMMA: unknown key; did you mean train.lr_scale?" },
        { NULL, "MODEL.SparseRCNN.GAMMA", "MODEL.SparseRCNN.GAMMA: unknown key; did you mean model.focal_gamma?" },
        { NULL, "MODEL.SparseRCNN.NUM_PROPOSALS", "MODEL.SparseRCNN.NUM_PROPOSALS: unknown key; did you mean model.proposals?" },
        { NULL, "SOLVER.AMP.ENABLED",
          "SOLVER.AMP.ENABLED: unknown key; did you mean run.precision? With bf16 activations take half the memory" },
        { NULL, "AMPLE.ENABLED", "AMPLE.ENABLED: unknown key; detctl submit --help-keys lists the keys" },
        { NULL, "xsolver.steps", "xsolver.steps: unknown key; did you mean train.steps?" },
        { NULL, "log_config.interval", "log_config.interval: unknown key; did you mean train.log_every?" },
        { NULL, "samples_per_gpu", "samples_per_gpu: unknown key; did you mean train.batch? It counts the images of all ranks" },
        { NULL, "gres", "gres: unknown key; did you mean run.ranks? With run.device=cuda each rank has a GPU" },
        { "train", "ntasks", "train.ntasks: unknown key; did you mean run.ranks?" },
        { NULL, "cpus-per-task", "cpus-per-task: unknown key; did you mean run.threads?" },
        { NULL, "time", "time: unknown key; did you mean run.time_limit? It counts seconds; detctl submit --time takes 12h" },
        { NULL, "partition",
          "partition: unknown key; all jobs share this node; run.priority says which of them run first; detctl submit --help-keys lists "
          "the "
          "keys" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *root = job(""), *at = rows[i].group ? json_object_get(root, rows[i].group) : root;
        struct jobspec *s = NULL;
        struct err err = { 0 };

        json_object_set_new(at, rows[i].name, json_integer(1));
        assert_int_equal(jobspec_parse(root, &s, &err), ERR_INPUT);
        assert_string_equal(err.msg, rows[i].msg);
        json_decref(root);
    }
}

/* Every row leads to a key of ours or to no key, and no foreign word equals a key of ours. */
static void words_of_other_programs(void **state)
{
    (void)state;
    for (const struct job_word *w = job_words; w->theirs; w++) {
        if (w->ours && !job_key_find(w->ours, strlen(w->ours)))
            fail_msg("%s: there is no key %s", w->theirs, w->ours);
        if (!w->ours && !*w->said)
            fail_msg("%s: neither a key nor a word about it", w->theirs);
        for (size_t i = 0; i < JOB_KEY_COUNT; i++) {
            const char *dot = strrchr(job_keys[i].path, '.');

            if (strcmp(dot ? dot + 1 : job_keys[i].path, w->theirs) == 0)
                fail_msg("%s is the name of %s", w->theirs, job_keys[i].path);
        }
        for (const char *c = w->theirs; *c; c++)
            assert_false(*c == '-' || (*c >= 'A' && *c <= 'Z'));
        for (const struct job_word *other = job_words; other != w; other++)
            assert_string_not_equal(other->theirs, w->theirs);
    }
}

static void overrides(void **state)
{
    static const struct {
        const char *assignment, *msg;
    } rows[] = {
        { "train.lr", "'train.lr' is not of the form key=value" },
        { "=3", "'=3' is not of the form key=value" },
        { "train.lrx=3", "train.lrx: unknown key; did you mean train.lr?" },
        { "zzz=3", "zzz: unknown key; detctl submit --help-keys lists the keys" },
        { "run.env.=3", "run.env.: unknown key; did you mean run.env?" },
        { "train.lr=.9", "train.lr: '.9' is not how JSON writes a number; 0.9 is" },
        { "train.steps=+0x10", "train.steps: '+0x10' is not how JSON writes a number; 16 is" },
        { "model.size=064", "model.size: '064' is not how JSON writes a number; 64 is" },
        { "train.lr_steps=[.8,.9]", "train.lr_steps: '[.8,.9]' is not how JSON writes a list of numbers; [0.8, 0.9] is one" },
    };
    struct jobspec *s = good("name=true;run.env.C=.5;train.lr=1e-2;run.env.OMP=3;run.env.B=x=y;train.steps=1e3;model.bn_momentum=0.1");

    (void)state;
    assert_string_equal(s->name, "true");
    assert_string_equal(json_string_value(json_object_get(s->run_env, "C")), ".5");
    assert_float_equal(s->train_lr, 0.01, 0);
    assert_string_equal(json_string_value(json_object_get(s->run_env, "OMP")), "3");
    assert_string_equal(json_string_value(json_object_get(s->run_env, "B")), "x=y");
    assert_int_equal(s->train_steps, 1000);
    jobspec_free(s);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *root = job("");
        struct err err = { 0 };

        assert_int_equal(jobspec_override(root, rows[i].assignment, &err), ERR_INPUT);
        assert_memory_equal(err.msg, rows[i].msg, strlen(rows[i].msg));
        json_decref(root);
    }
}

static void paths(void **state)
{
    json_t *root = job("model.init=/abs/w.weights;data.val.images=./v"), *train;
    struct jobspec *s = NULL;
    struct err err = { 0 };

    (void)state;
    assert_int_equal(jobspec_override(root, "data.val.annotations=../v.json", &err), 0);
    assert_int_equal(jobspec_parse(root, &s, &err), 0);
    assert_int_equal(jobspec_require_absolute(s, &err), ERR_INPUT);
    assert_string_equal(err.field, "data.train.annotations");
    jobspec_free(s);
    assert_int_equal(jobspec_absolute(root, "/home/u", &err), 0);
    train = json_object_get(json_object_get(root, "data"), "train");
    assert_string_equal(json_string_value(json_object_get(train, "annotations")), "/home/u/a.json");
    assert_int_equal(jobspec_parse(root, &s, &err), 0);
    assert_string_equal(s->model_init, "/abs/w.weights");
    assert_string_equal(s->data_val_images, "/home/u/v");
    assert_string_equal(s->data_val_annotations, "/home/u/../v.json");
    assert_int_equal(jobspec_require_absolute(s, &err), 0);
    jobspec_free(s);
    json_decref(root);
}

static void paths_of_a_user(void **state)
{
    json_t *root = job("model.init=job:12@best;data.train.annotations=~/a.json;data.train.images=~//i;data.val.images=x~");
    json_t *data = json_object_get(root, "data"), *train = json_object_get(data, "train");
    struct err err = { 0 };

    (void)state;
    assert_int_equal(setenv("HOME", "/home/ann", 1), 0);
    assert_int_equal(jobspec_absolute(root, "/w", &err), 0);
    assert_string_equal(json_string_value(json_object_get(train, "annotations")), "/home/ann/a.json");
    assert_string_equal(json_string_value(json_object_get(train, "images")), "/home/ann/i");
    assert_string_equal(json_string_value(json_object_get(json_object_get(data, "val"), "images")), "/w/x~");
    assert_string_equal(json_string_value(json_object_get(json_object_get(root, "model"), "init")), "job:12@best");
    json_object_set_new(train, "images", json_string("~bob/i"));
    assert_int_equal(jobspec_absolute(root, "/w", &err), ERR_INPUT);
    assert_string_equal(err.field, "data.train.images");
    json_object_set_new(train, "images", json_string("~"));
    assert_int_equal(setenv("HOME", "", 1), 0);
    assert_int_equal(jobspec_absolute(root, "/w", &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "HOME"));
    json_decref(root);
}

/* The error for a file with that text must begin so, after the file's name. */
static void explains(const char *path, const char *text, const char *said)
{
    struct err err = { 0 };
    json_t *root = NULL;

    write_file(path, text);
    assert_int_equal(jobspec_read(path, &root, &err), ERR_INPUT);
    if (strncmp(err.msg + strlen(path) + 1, said, strlen(said)) != 0)
        fail_msg("'%s' is told of '%s'", err.msg, text);
}

static void reading(void **state)
{
    char dir[TEMP_MAX], path[TEMP_MAX + 16], want[256];
    struct err err = { 0 };
    json_t *root = NULL;

    (void)state;
    assert_non_null(mkdtemp(temp_path(dir, sizeof dir, "test_jobspec.XXXXXX")));
    snprintf(path, sizeof path, "%s/job.json", dir);
    assert_int_equal(jobspec_read(path, &root, &err), -ENOENT);
    write_file(path, MINIMAL);
    assert_int_equal(jobspec_read(path, &root, &err), 0);
    json_decref(root);
    write_file(path, "{\n  \"a\": 1,\n  \"b\" 2 }");
    assert_int_equal(jobspec_read(path, &root, &err), ERR_INPUT);
    snprintf(want, sizeof want, "%s:3:7: ':' expected near '2'", path);
    assert_string_equal(err.msg, want);
    explains(path, "{\n  \"a\": [1, 2],\n  \"b\": 2 , // the last\n}\n",
             "3:10: a comma before '}': the last member must not have a comma behind it");
    explains(path, "{ \"a\": [1, 2, ] }", "1:13: a comma before ']'");
    explains(path, "\xef\xbb\xbf{ \"a\": 1 }", "1:1: it begins with a byte order mark (BOM)");
    explains(path, "{ # here\n}", "1:3: comments begin with //");
    explains(path, "{\n \"\xc3\xa4\": 1 /* here */ }", "2:9: comments begin with //");
    explains(path, "{ 'a': 1 }", "1:3: strings stand between double quotes");
    explains(path, "{ \"a\": \"x, }", "1:");
    write_file(path, "// {,}\n{ \"a\": \"http://x/,}\", // , \"not\n  \"b\\\"//\": 2 }//");
    assert_int_equal(jobspec_read(path, &root, &err), 0);
    assert_string_equal(json_string_value(json_object_get(root, "a")), "http://x/,}");
    assert_int_equal(json_integer_value(json_object_get(root, "b\"//")), 2);
    json_decref(root);
    write_file(path, "{\"a\":1,\"a\":2}");
    assert_int_equal(jobspec_read(path, &root, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "duplicate"));
    write_file(path, "[1]");
    assert_int_equal(jobspec_read(path, &root, &err), ERR_INPUT);
    write_file(path, "");
    assert_int_equal(jobspec_read(path, &root, &err), ERR_INPUT);
    assert_int_equal(truncate(path, JOB_MAX_BYTES + 1), 0);
    assert_int_equal(jobspec_read(path, &root, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "larger than"));
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(jobspec_read(path, &root, &err), ERR_INPUT);
    assert_int_equal(jobspec_read(dir, &root, &err), ERR_INPUT);
    unlink(path);
    rmdir(dir);
}

/* "a|b|c" */
static const char *words_of(const char *of)
{
#define X(field, key, type, def, neutral, families, min, max, unit, values, help) \
    if (strcmp(key, of) == 0)                                                     \
        return values;
    JOB_KEYS(X)
#undef X
    return "";
}

/* Keys without a use for the optimizer are silent at their defaults. Every optimizer has its keys. */
static void optimizers(void **state)
{
    struct jobspec *s = good("train.optimizer=adamw;train.beta2=0.99;train.momentum=0.9");
    char words[256], set[320], *rest = words, *word;

    (void)state;
    snprintf(words, sizeof words, "%s", words_of("train.optimizer"));
    while ((word = strsep(&rest, "|"))) {
        snprintf(set, sizeof set, "train.optimizer=%s", word);
        jobspec_free(good(set));
    }
    assert_string_equal(s->train_optimizer, "adamw");
    jobspec_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(defaults_are_bounded),
        cmocka_unit_test(sizes_are_squares_or_rectangles),
        cmocka_unit_test(texts_are_bounded),
        cmocka_unit_test(shards_of_a_batch),
        cmocka_unit_test(refused),
        cmocka_unit_test(unknown_keys),
        cmocka_unit_test(words_of_other_programs),
        cmocka_unit_test(overrides),
        cmocka_unit_test(paths),
        cmocka_unit_test(paths_of_a_user),
        cmocka_unit_test(reading),
        cmocka_unit_test(optimizers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

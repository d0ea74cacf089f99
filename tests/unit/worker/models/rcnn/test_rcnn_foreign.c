/* SPDX-License-Identifier: Apache-2.0 */ /* Weights of Faster and Mask R-CNN: files of other programs, files of
 * backbones alone, and files that are refused.
 * uses: proto worker/models worker/layers worker/data worker/eval worker/mask worker/comm worker/core cpu */
#include "tests/unit/worker/models/rcnn/rcnn_files.h"

static void rename_to(struct st_array *a, const char *from, const char *to)
{
    static char name[512][96];
    static int used;

    snprintf(name[used], sizeof name[used], "%s%s", to, a->name + strlen(from));
    a->name = name[used];
    used = (used + 1) % 512;
}

static const char prefix[] = "backbone.body.";

/* Keeps only the arrays of an ImageNet file: names without the prefix, and a classifier. */
static void backbone_alone(struct st_array *a, size_t *n)
{
    static const float zero[4];
    size_t kept = 0;

    for (size_t i = 0; i < *n; i++)
        if (strncmp(a[i].name, prefix, sizeof prefix - 1) == 0) {
            rename_to(&a[i], prefix, "");
            a[kept++] = a[i];
        }
    a[kept++] = (struct st_array){ "fc.bias", ST_F32, 1, { 4 }, zero };
    a[kept++] = (struct st_array){ "layer9.extra", ST_F32, 1, { 2 }, zero };
    *n = kept;
}

static void old_names(struct st_array *a, size_t *n)
{
    static const char *const rename[][2] = { { "rpn.head.conv.0.0", "rpn.head.conv" },
                                             { "roi_heads.mask_head.0.0", "roi_heads.mask_head.mask_fcn1" },
                                             { "roi_heads.mask_head.1.0", "roi_heads.mask_head.mask_fcn2" },
                                             { "roi_heads.mask_head.2.0", "roi_heads.mask_head.mask_fcn3" },
                                             { "roi_heads.mask_head.3.0", "roi_heads.mask_head.mask_fcn4" } };
    char from[64], to[64];

    for (size_t i = 0; i < *n; i++) {
        for (size_t k = 0; k < sizeof rename / sizeof *rename; k++)
            if (strncmp(a[i].name, rename[k][0], strlen(rename[k][0])) == 0) {
                rename_to(&a[i], rename[k][0], rename[k][1]);
                break;
            }
        for (int level = 0; level < 8; level++) {
            snprintf(from, sizeof from, "backbone.fpn.%s_blocks.%d.0", level < 4 ? "inner" : "layer", level % 4);
            snprintf(to, sizeof to, "backbone.fpn.%s_blocks.%d", level < 4 ? "inner" : "layer", level % 4);
            if (strncmp(a[i].name, from, strlen(from)) == 0)
                rename_to(&a[i], from, to);
        }
    }
}

static void other_files(void **state)
{
    struct model *m = opened("mask_rcnn_r18_fpn", "tv", NULL, CLASSES), *again;

    (void)state;
    again = opened("mask_rcnn_r18_fpn", "tv", file_of(m, 0, old_names), CLASSES);
    same_weights(m, again, false);
    assert_non_null(strstr(again->loaded, "torchvision's old names"));
    model_free(again);
    again = opened("mask_rcnn_r18_fpn", "tv", file_of(m, 0, backbone_alone), CLASSES);
    assert_non_null(strstr(again->loaded, "a backbone of torchvision"));
    assert_non_null(strstr(again->loaded,
                           "not in the file: the feature pyramid, the RPN, the box head, the box predictor, the mask head, the "
                           "mask predictor"));
    assert_non_null(strstr(again->loaded, "without a place in the model: layer9.extra"));
    assert_null(strstr(again->loaded, "fc.bias"));
    model_free(again);
    again = opened("mask_rcnn_r18_fpn", "tv", file_of(m, 0, NULL), CLASSES + 1);
    assert_non_null(strstr(again->loaded, "left out, as the file is of 3 classes and the job of 4: the box predictor, the mask predictor"));
    model_free(again);
    again = opened("faster_rcnn_r18_fpn", "tv", file_of(m, 0, NULL), CLASSES);
    assert_non_null(strstr(again->loaded, "without a place in the model: roi_heads.mask_head.0.0.bias"));
    model_free(again);
    model_free(m);
}

static const float small[4];
static const char bottom_up[] = "backbone.bottom_up.";

/* A backbone of detectron2 by itself, with a classifier. */
static void body_of_detectron2(struct st_array *a, size_t *n)
{
    size_t kept = 0;

    for (size_t i = 0; i < *n; i++)
        if (strncmp(a[i].name, bottom_up, sizeof bottom_up - 1) == 0) {
            rename_to(&a[i], bottom_up, "");
            a[kept++] = a[i];
        }
    a[kept++] = (struct st_array){ "stem.fc.weight", ST_F32, 1, { 4 }, small };
    *n = kept;
}

enum { WIDEST = 128 /* channels of the last stage at this width */ };

static float scale_of(int i)
{
    return 0.5f + (float)i / 64;
}

static float shift_of(int i)
{
    return 2 - (float)i / 32;
}

/* "res2.0.conv1" to "res2_0_branch2a", "stem.conv1" to "conv1". */
static void detectron_layer(const char *layer, bool norm, char *buf, size_t size)
{
    int stage, block, conv;

    if (sscanf(layer, "res%d.%d.conv%d", &stage, &block, &conv) == 3)
        snprintf(buf, size, "res%d_%d_branch2%c", stage, block, "abc"[conv - 1]);
    else if (sscanf(layer, "res%d.%d.short", &stage, &block) == 2)
        snprintf(buf, size, "res%d_%d_branch1", stage, block);
    else
        snprintf(buf, size, "%s", norm ? "res_conv1" : "conv1");
}

/* Detectron's file of a backbone: its norms have only scales and shifts, with the statistics folded in. Momenta and a
 * classifier are in the file, too. */
static void of_detectron(struct st_array *a, size_t *n)
{
    static char name[512][32];
    static float scale[WIDEST], shift[WIDEST];
    size_t kept = 0;

    for (int i = 0; i < WIDEST; i++) {
        scale[i] = scale_of(i);
        shift[i] = shift_of(i);
    }
    for (size_t i = 0; i < *n; i++) {
        const char *norm = strstr(a[i].name, ".norm."), *end = !norm ? "_w" : strcmp(norm, ".norm.weight") == 0 ? "_bn_s" : "_bn_b";
        char layer[24];

        if (strncmp(a[i].name, bottom_up, sizeof bottom_up - 1) != 0 || strstr(a[i].name, "running_"))
            continue;
        detectron_layer(a[i].name + sizeof bottom_up - 1, norm, layer, sizeof layer);
        snprintf(name[kept], sizeof name[kept], "%s%s", layer, end);
        if (norm)
            a[i].data = end[4] == 's' ? scale : shift;
        a[i].name = name[kept];
        a[kept++] = a[i];
    }
    a[kept++] = (struct st_array){ "conv1_w_momentum", ST_F32, 1, { 4 }, small };
    a[kept++] = (struct st_array){ "pred_w", ST_F32, 1, { 4 }, small };
    *n = kept;
}

/* The expected numbers of an array of the backbone after Detectron's file has been read; NULL: as in m. */
static float (*detectron_number(const struct rcnn_named *a))(int)
{
    return a->array == RCNN_GAMMA ? scale_of : a->array == RCNN_BETA ? shift_of : NULL;
}

static void is_detectrons(struct model *m, struct model *again, int i)
{
    const struct rcnn_named *named = &rcnn_network_of(m)->front.named[i];
    float (*told)(int) = detectron_number(named);
    size_t count = m->params[i]->count;
    struct err err;
    float *before = weights_get(m, m->params[i], &err), *now = weights_get(again, again->params[i], &err);

    for (size_t k = 0; k < count; k++) {
        float want = told ? told((int)k) : named->array == RCNN_MEAN ? 0 : named->array == RCNN_VAR ? 1 : before[k];

        if (now[k] != want)
            fail_msg("%s: number %zu is %g, not %g", m->params[i]->name, k, (double)now[k], (double)want);
    }
    free(before);
    free(now);
}

static void backbones_of_detectron(void **state)
{
    struct model *m = opened("faster_rcnn_r50_fpn", "d2", NULL, CLASSES), *again;
    int found = 0;

    (void)state;
    silent = true;
    again = opened("faster_rcnn_r50_fpn", "d2", file_of(m, 1, body_of_detectron2), CLASSES);
    assert_non_null(strstr(again->loaded, " (a backbone of detectron2)"));
    assert_null(strstr(again->loaded, "without a place"));
    for (int i = 0; i < m->nparams; i++)
        if (rcnn_network_of(m)->front.named[i].part.place <= RCNN_SHORTCUT) {
            struct err err;
            float *x = weights_get(m, m->params[i], &err), *y = weights_get(again, again->params[i], &err);

            assert_memory_equal(x, y, m->params[i]->count * sizeof *x);
            free(x);
            free(y);
        }
    model_free(again);
    again = opened("faster_rcnn_r50_fpn", "d2", file_of(m, 1, of_detectron), CLASSES);
    assert_non_null(strstr(again->loaded, " (a backbone of Detectron)"));
    assert_non_null(strstr(again->loaded, "not in the file: the feature pyramid, the RPN, the box head, the box predictor"));
    assert_null(strstr(again->loaded, "without a place"));
    for (int i = 0; i < m->nparams; i++)
        if (rcnn_network_of(m)->front.named[i].part.place <= RCNN_SHORTCUT) {
            is_detectrons(m, again, i);
            found++;
        }
    assert_int_equal(found, 53 * 5); /* all of the backbone */
    model_free(again);
    model_free(m);
    silent = false;
}

/* Arrays of other programs' files that no detector needs are not reported; names that only look similar are
 * reported. */
static const char *const idle[] = { "fc.weight",
                                    "fc.bias",
                                    "pixel_mean",
                                    "pixel_std",
                                    "pred_w",
                                    "pred_b",
                                    "fc1000_w",
                                    "fc1000_b",
                                    "stem.fc.weight",
                                    "stem.fc.bias",
                                    "linear.weight",
                                    "linear.bias",
                                    "backbone.body.bn1.num_batches_tracked",
                                    "conv1_w_momentum",
                                    "proposal_generator.anchor_generator.cell_anchors.0" };
static const char *const busy[] = { "fc.weights", "xfc.bias", "pixel_means", "pred_w2", "num_batches", "conv1_w_momentums" };

static void add_arrays(struct st_array *a, size_t *n, const char *const *name, size_t count)
{
    for (size_t i = 0; i < count; i++)
        a[(*n)++] = (struct st_array){ name[i], ST_F32, 1, { 4 }, small };
}

static void with_idle(struct st_array *a, size_t *n)
{
    add_arrays(a, n, idle, sizeof idle / sizeof *idle);
}

static void idle_arrays(void **state)
{
    struct model *m = opened("faster_rcnn_r18_fpn", "tv", NULL, CLASSES), *again;

    (void)state;
    again = opened("faster_rcnn_r18_fpn", "tv", file_of(m, 0, with_idle), CLASSES);
    assert_null(strstr(again->loaded, "without a place"));
    same_weights(m, again, false);
    model_free(again);
    model_free(m);
    for (size_t i = 0; i < sizeof busy / sizeof *busy; i++)
        assert_false(rcnn_is_idle(busy[i]));
}

static void without_a_scale(struct st_array *a, size_t *n)
{
    for (size_t i = 0; i < *n; i++)
        if (strcmp(a[i].name, "backbone.body.layer2.0.bn1.weight") == 0)
            a[i] = a[--*n];
}

static void half_an_rpn(struct st_array *a, size_t *n)
{
    for (size_t i = 0; i < *n; i++)
        if (strcmp(a[i].name, "rpn.head.cls_logits.bias") == 0)
            a[i] = a[--*n];
}

static void two_of_an_rpn(struct st_array *a, size_t *n)
{
    half_an_rpn(a, n);
    for (size_t i = 0; i < *n; i++)
        if (strcmp(a[i].name, "rpn.head.bbox_pred.weight") == 0)
            a[i] = a[--*n];
}

enum { STRAY = 205 };

/* The name of the last must not reach a terminal unchanged. */
static void with_many(struct st_array *a, size_t *n)
{
    static char name[STRAY][16];

    for (int i = 0; i < STRAY; i++) {
        snprintf(name[i], sizeof name[i], i < 3 ? "zz\n\033[%03d" : "zzz%03d", i);
        a[(*n)++] = (struct st_array){ name[i], ST_F32, 1, { 4 }, small };
    }
}

/* Redirects the rank's log to a file, then back. */
static int log_fd, stderr_fd;

static void log_begin(void)
{
    char path[TEMP_MAX + 32];

    snprintf(path, sizeof path, "%s/log", folder);
    log_fd = open(path, O_CREAT | O_RDWR | O_TRUNC | O_CLOEXEC, 0600);
    stderr_fd = dup(2);
    assert_true(log_fd >= 0 && stderr_fd >= 0 && dup2(log_fd, 2) == 2);
    unlink(path);
}

static const char *log_end(void)
{
    static char text[1 << 16];
    ssize_t n;

    fflush(stderr);
    assert_true(dup2(stderr_fd, 2) == 2 && lseek(log_fd, 0, SEEK_SET) == 0);
    n = read(log_fd, text, sizeof text - 1);
    assert_true(n >= 0);
    text[n] = '\0';
    close(log_fd);
    close(stderr_fd);
    return text;
}

static int lines(const char *text, const char *with)
{
    int n = 0;

    for (const char *p = text; (p = strstr(p, with)); p++)
        n++;
    return n;
}

/* Sentences are short, the log has every name, up to a bound. */
static void the_log_has_all_names(void **state)
{
    struct model *m = opened("faster_rcnn_r18_fpn", "tv", NULL, CLASSES), *again = NULL;
    struct err err = { 0 };
    const char *path = file_of(m, 0, with_many), *said;

    (void)state;
    log_begin();
    again = opened("faster_rcnn_r18_fpn", "tv", path, CLASSES);
    said = log_end();
    assert_non_null(strstr(again->loaded, " and 202 more, which the log names"));
    assert_int_equal(lines(said, ".safetensors': without a place in the model: zz"), 200);
    assert_non_null(strstr(said, ": zz??[000\n"));
    assert_non_null(strstr(said, "': without a place in the model: and 5 more\n"));
    assert_int_equal(lines(said, "\n"), 201);
    model_free(again);
    path = file_of(m, 0, backbone_alone);
    log_begin();
    again = opened("faster_rcnn_r18_fpn", "tv", path, CLASSES);
    said = log_end();
    assert_non_null(strstr(said, "': not in the file: roi_heads.box_head.fc6.weight\n"));
    assert_non_null(strstr(said, "': without a place in the model: layer9.extra\n"));
    assert_int_equal(lines(said, "': not in the file: "), 16 + 6 + 8);
    assert_null(strstr(said, "backbone.body."));
    model_free(again);
    path = file_of(m, 0, two_of_an_rpn);
    log_begin();
    assert_int_equal(try_open("faster_rcnn_r18_fpn", "tv", path, CLASSES, &again, &err), ERR_DATA);
    said = log_end();
    assert_non_null(
        strstr(err.msg, " is not in the file, which has torchvision's names; 2 arrays are missing in all, the rank's log names them"));
    assert_non_null(strstr(said, "': not in the file: rpn.head.cls_logits.bias\n"));
    assert_non_null(strstr(said, "': not in the file: rpn.head.bbox_pred.weight\n"));
    assert_int_equal(lines(said, "\n"), 2);
    model_free(m);
}

static void odd_boxes(struct st_array *a, size_t *n)
{
    for (size_t i = 0; i < *n; i++)
        if (strcmp(a[i].name, "roi_heads.box_predictor.bbox_pred.bias") == 0)
            a[i].shape[0] = 15;
}

static void not_a_number(struct st_array *a, size_t *n)
{
    static const float bad[8] = { 1, 2, NAN };

    for (size_t i = 0; i < *n; i++)
        if (strcmp(a[i].name, "backbone.body.bn1.bias") == 0)
            a[i].data = bad;
}

static void wrong_files(void **state)
{
    static const struct {
        change *how;
        const char *said;
    } rows[] = {
        { without_a_scale, "backbone.body.layer2.0.bn1.weight is not in the file, which has torchvision's names" },
        { half_an_rpn, "rpn.head.cls_logits.bias is not in the file" },
        { odd_boxes, "4 scores and 15 numbers of boxes belong to no count of classes" },
        { not_a_number, "backbone.body.bn1.bias: number 2 is nan, which is not finite" },
    };
    struct model *m = opened("faster_rcnn_r18_fpn", "tv", NULL, CLASSES), *again = NULL;
    struct err err = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(try_open("faster_rcnn_r18_fpn", "tv", file_of(m, 0, rows[i].how), CLASSES, &again, &err), ERR_DATA);
        if (!strstr(err.msg, rows[i].said))
            fail_msg("%s", err.msg);
    }
    silent = true;
    assert_int_equal(try_open("faster_rcnn_r18_fpn", "d2", file_of(m, 0, backbone_alone), CLASSES, &again, &err), ERR_DATA);
    silent = false;
    assert_non_null(strstr(err.msg, "the file is a backbone of torchvision, which fits model.backbone=torchvision; it is msra"));
    assert_string_equal(err.field, "model.backbone");
    assert_int_equal(try_open("faster_rcnn_r34_fpn", "tv", file_of(m, 0, NULL), CLASSES, &again, &err), ERR_DATA);
    assert_int_equal(try_open("faster_rcnn_r50_fpn", "tv", file_of(m, 0, NULL), CLASSES, &again, &err), ERR_DATA);
    model_free(m);
}

static void refused(const char *flavor, const char *file, const char *said)
{
    struct model *m = NULL;
    struct err err = { 0 };

    assert_int_equal(try_open("mask_rcnn_r18_fpn", flavor, file, CLASSES, &m, &err), ERR_DATA);
    assert_string_equal(err.field, "model.backbone");
    if (!strstr(err.msg, said))
        fail_msg("%s", err.msg);
}

static void taken(const char *flavor, const char *file, const char *of)
{
    struct model *m = opened("mask_rcnn_r18_fpn", flavor, file, CLASSES);
    char said[64];

    snprintf(said, sizeof said, "; its model.flavor is %s, the job's is %s", of ? of : "", flavor);
    if ((strstr(m->loaded, "model.flavor") != NULL) != (of != NULL) || (of && !strstr(m->loaded, said)))
        fail_msg("%s", m->loaded);
    model_free(m);
}

/* Names and shapes do not show strides and colours: a whole detector of torchvision must not be taken for a detector of
 * detectron2, under any names. */
static void of_another_kind(void **state)
{
    static const char tv_says[] =
        "the file is a detector of torchvision, which fits model.flavor=tv, or at least model.backbone=torchvision; it is msra";
    static const char says_tv[] = "the file is of a job with model.backbone=torchvision; it is msra";
    struct model *tv = opened("mask_rcnn_r18_fpn", "tv", NULL, CLASSES), *d2 = opened("mask_rcnn_r18_fpn", "d2", NULL, CLASSES);

    (void)state;
    silent = true;
    refused("d2", file_of(tv, 0, NULL), tv_says);
    refused("d2", file_of(tv, 0, old_names), tv_says);
    taken("tv", file_of(tv, 0, old_names), NULL);
    taken("d2", file_of(d2, 1, NULL), NULL);
    backbone = "torchvision";
    taken("d2", file_of(tv, 0, NULL), "tv");
    taken("d2", file_of(tv, 1, NULL), NULL); /* the file cannot show it */
    taken("d2", file_of(tv, 1, body_of_detectron2), NULL);
    refused("d2", file_of(d2, 1, of_detectron), "the file is a backbone of Detectron, which fits model.backbone=msra; it is torchvision");
    refused("tv", file_of(d2, 1, of_detectron), "the file is a backbone of Detectron, which fits model.backbone=msra; it is torchvision");
    backbone = NULL;
    taken("d2", file_of(d2, 1, body_of_detectron2), NULL);
    taken("d2", file_of(d2, 1, of_detectron), NULL);
    silent = false;
    refused("d2", file_of(tv, 0, NULL), says_tv);
    refused("d2", file_of(tv, 1, NULL), says_tv);
    refused("tv", file_of(d2, 0, NULL), "the file is of a job with model.backbone=msra; it is torchvision");
    taken("d2", file_of(d2, 0, NULL), NULL);
    backbone = "msra";
    taken("tv", file_of(d2, 0, NULL), "d2");
    backbone = NULL;
    model_free(tv);
    model_free(d2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_files),
        cmocka_unit_test(wrong_files),
        cmocka_unit_test(the_log_has_all_names),
        cmocka_unit_test(of_another_kind),
        cmocka_unit_test(backbones_of_detectron),
        cmocka_unit_test(idle_arrays),
    };
    return cmocka_run_group_tests_name("rcnn_foreign", tests, set_up, tear_down);
}

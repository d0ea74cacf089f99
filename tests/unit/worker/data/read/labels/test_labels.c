/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/data/read/labels/test_labels.c
 * uses: proto worker/core worker/mask worker/data
 * Darknet's lists and folders with a data.yaml: the contents of each, their order, and their errors. */
#include "tests/unit/worker/data/read/labels/labels_set.h"

static void darknet_by_file(void **state)
{
    struct place p;

    (void)state;
    darknet(&p);
    must_read(&p, 3, 3, 0);
    assert_string_equal(p.d->images[0].file, "images/b c.png");
    assert_string_equal(p.d->images[2].file, "obj/d.png");
    assert_string_equal(p.d->classes[1].name, "big dog");
    assert_int_equal(p.d->classes[0].id, 1);
    assert_int_equal(p.d->unlabelled, 0);
    box_is(&p, 0, 1, 24, 12, 16, 24);
    box_is(&p, 1, 0, 16, 7.2, 6.4, 4.8);
    box_is(&p, 2, 0, 0, 0, 64, 48);
    p.opt.val = true;
    must_read(&p, 1, 2, 0);
    end(&p);
}

static void darknet_by_list(void **state)
{
    char text[TEMP_MAX + 64];
    struct place p;

    (void)state;
    darknet(&p);
    snprintf(p.annotations, sizeof p.annotations, "%s/net/abs.txt", p.dir);
    snprintf(text, sizeof text, "%s/net/data/../data/images/./a.png\n", p.dir);
    put(&p, "net/abs.txt", text);
    must_fail(&p, ERR_DATA, "abs.txt", "data.names must give the names of its classes");
    names(&p, "cat\ndog\n");
    must_read(&p, 1, 2, 0);
    assert_string_equal(p.d->images[0].file, "a.png");
    put(&p, "net/abs.txt", "data/images/a.png\n"); /* below the list's own folder */
    must_read(&p, 1, 2, 0);
    put(&p, "net/abs.txt", "images/a.png\n");
    must_read(&p, 0, 0, 1);
    told(&p, "net/images/a.png", "No such file");
    snprintf(p.images, sizeof p.images, "%s/net/data", p.dir);
    p.opt.images = p.images;
    must_read(&p, 1, 2, 0);
    end(&p);
}

/* A picture with an unreadable label file must not count as background. */
static void labels_that_cannot_be_read(void **state)
{
    char path[512];
    struct place p;

    (void)state;
    darknet(&p);
    must_read(&p, 3, 3, 0);
    assert_int_equal(unlink(path_of(&p, "net/data/labels/a.txt", path)), 0);
    assert_int_equal(symlink("not/mounted.txt", path), 0);
    must_read(&p, 2, 1, 1);
    told(&p, "net/data/labels/a.txt", "No such file");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("a.txt", path), 0);
    must_read(&p, 2, 1, 1);
    told(&p, "net/data/labels/a.txt", "symbolic links");
    end(&p);
}

/* A .data file of the validation split may number its classes in another way. */
static void darknet_validation(void **state)
{
    struct dataset_class classes[2] = { { 1, (char *)"big dog" }, { 2, (char *)"cat" } };
    struct dataset train = { .nclasses = 2, .classes = classes };
    struct place p;

    (void)state;
    darknet(&p);
    p.opt.train = &train;
    p.opt.val = true;
    must_read(&p, 1, 2, 0);
    box_is(&p, 0, 0, 24, 12, 16, 24);
    box_is(&p, 1, 1, 16, 7.2, 6.4, 4.8);
    assert_string_equal(p.d->classes[1].name, "cat");
    classes[0].name = (char *)"cow";
    must_read(&p, 1, 1, 1);
    told(&p, "labels/a.txt, line 1: 'big dog' is no class", "training split");
    end(&p);
}

/* Only the last folder called images is replaced in the path of the labels. */
static void last_images(void **state)
{
    struct place p;

    (void)state;
    darknet(&p);
    picture(&p, "images/set/JPEGImages/e.JPEG");
    put(&p, "images/set/labels/e.txt", "0 .5 .5 .5 .5\n");
    put(&p, "list.txt", "images/set/JPEGImages/e.JPEG\n");
    snprintf(p.annotations, sizeof p.annotations, "%s/list.txt", p.dir);
    names(&p, "cat\n");
    must_read(&p, 1, 1, 0);
    end(&p);
}

static void unlabelled_pictures_are_empty(void **state)
{
    struct place p;

    (void)state;
    darknet(&p);
    picture(&p, "net/data/images/n.png");
    put(&p, "net/data/train.txt", "data/images/n.png\ndata/images/a.png\ndata/images/n.png\n");
    must_read(&p, 2, 2, 0);
    assert_int_equal(p.problems.notes, 1);
    noted(&p, "train.txt, line 3: ", "train.txt, line 1");
    assert_int_equal(p.d->unlabelled, 1);
    put(&p, "net/data/train.txt", "data/images/n.png\n");
    must_read(&p, 1, 0, 0);
    noted(&p, "obj.data: no picture of it has a file of labels, such as '", "/net/data/labels/n.txt'");
    end(&p);
}

static void bad_lines(void **state)
{
    static const struct {
        enum labels_form form;
        const char *line, *why;
    } bad[] = {
        { LABELS_DARKNET, "x .5 .5 .5 .5", "its class is not a whole number" },
        { LABELS_DARKNET, "0.5 .5 .5 .5 .5", "its class is not a whole number" },
        { LABELS_DARKNET, "2 .5 .5 .5 .5", "class 2 is not among the 2 names, 0 to 1" },
        { LABELS_DARKNET, "-1 .5 .5 .5 .5", "class -1 is not among" },
        { LABELS_DARKNET, "0 .5 .5 .5", "should be a class and 4 numbers: middle" },
        { LABELS_DARKNET, "0 .1 .1 .5 .1 .5 .5", "should be a class and 4 numbers: middle" },
        { LABELS_YOLO, "0 .1 .1 .5 .1 .5", "at least 3" },
        { LABELS_YOLO, "0 .1 .1 .5 .1 .5 .5 .7", "at least 3" },
        { LABELS_DARKNET, "0 .5 .5 .5 nan", "its class must be followed by numbers only" },
        { LABELS_DARKNET, "0 .5 .5 .5 0x1", "its class must be followed by numbers only" },
        { LABELS_DARKNET, "0 320 240 64 64", "looks like pixels" },
        { LABELS_DARKNET, "0 1.2 .5 .5 .5", "is outside its picture" },
        { LABELS_DARKNET, "0 -.2 .5 .5 .5", "is outside its picture" },
        { LABELS_DARKNET, "0 .5 .5 0 .5", "box has no area: [32, 12, 0, 24] in 64 x 48" },
        { LABELS_DARKNET, "0 .5 .5 -.1 .5", "box has a negative size" },
        { LABELS_YOLO, "0 .1 .1 .1 .2 .1 .5", "box has no area" },
        { LABELS_DARKNET, "0 .5\x01.5 .5 .5", "not a line of text" },
        { LABELS_DARKNET, "0 .5 .5 .5 .5\xff", "not UTF-8" },
    };
    char text[200];
    struct place p;

    (void)state;
    darknet(&p);
    snprintf(p.annotations, sizeof p.annotations, "%s/net/data/val.txt", p.dir);
    snprintf(p.images, sizeof p.images, "%s/net", p.dir);
    p.opt.images = p.images;
    names(&p, "cat\ndog\n");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(text, sizeof text, "1 .5 .5 .5 .5\n\n%s\n0 .5 .5 .5 .5\n", bad[i].line);
        put(&p, "net/data/labels/a.txt", text);
        p.opt.form = bad[i].form;
        must_read(&p, 1, 2, 1);
        told(&p, "net/data/labels/a.txt, line 3: ", bad[i].why);
    }
    end(&p);
}

/* A box that reaches over its picture is clipped and counted, as with COCO. */
static void clipped(void **state)
{
    struct place p;

    (void)state;
    darknet(&p);
    put(&p, "net/data/labels/a.txt", "0 0.0 0.5 0.5 0.5\n");
    p.opt.val = true;
    must_read(&p, 1, 1, 0);
    assert_int_equal(p.d->clipped, 1);
    box_is(&p, 0, 0, 0, 12, 16, 24);
    assert_true(p.d->boxes[0].told[0] == -16 && p.d->boxes[0].told[2] == 32 && p.d->boxes[0].area == 32 * 24);
    end(&p);
}

/* Boxes of whole pixels, and of hundredths as in COCO, are restored to the bit from six digits. */
static void shares_are_pixels_again(void **state)
{
    const double sizes[4][2] = { { 640, 480 }, { 500, 375 }, { 1333, 800 }, { 427, 640 } };
    char text[200];
    struct place p;
    int pass = 0;

    (void)state;
    darknet(&p);
    p.opt.val = true;
    for (int s = 0; s < 4; s++)
        for (int i = 0; i < 60; i++, pass++) {
            const double w = sizes[s][0], h = sizes[s][1], part = i % 2 ? 100 : 1;
            const double b[4] = { rint((17 + 3.37 * i) * part) / part, rint((5 + 2.13 * i) * part) / part,
                                  rint((31 + 1.71 * i) * part) / part, rint((23 + 1.19 * i) * part) / part };
            static uint8_t rgb[1333 * 800 * 3];
            char path[512];
            struct err err;

            if (i == 0)
                assert_int_equal(image_write_png(path_of(&p, "net/data/images/a.png", path), rgb, (int)w, (int)h, &err), 0);
            snprintf(text, sizeof text, "0 %.6f %.6f %.6f %.6f\n", (b[0] + b[2] / 2) / w, (b[1] + b[3] / 2) / h, b[2] / w, b[3] / h);
            put(&p, "net/data/labels/a.txt", text);
            must_read(&p, 1, 1, 0);
            box_is(&p, 0, 0, b[0], b[1], b[2], b[3]);
        }
    assert_int_equal(pass, 240);
    end(&p);
}

static void bad_data_files(void **state)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        { "train data/train.txt\n", "obj.data, line 1: should be KEY = VALUE" },
        { "names=data/obj.names\n", "there is no 'train = LIST'" },
        { "train=data/train.txt\n", "there is no 'names = FILE'" },
        { "train=\n", "line 1: has no value" },
        { "train=a\ntrain=b\n", "line 2: stands here a second time" },
        { "train=data/train.txt\nnames=data/obj.names\nclasses=3\n", "classes is 3, but there are 2 names" },
    };
    struct place p;

    (void)state;
    darknet(&p);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put(&p, "net/cfg/obj.data", bad[i].text);
        must_fail(&p, ERR_DATA, "net/cfg/obj.data", bad[i].why);
    }
    put(&p, "net/cfg/obj.data", "train=nowhere.txt\nnames=data/obj.names\n");
    must_fail(&p, -ENOENT, "its list 'nowhere.txt' is neither", "data.train.images");
    end(&p);
}

static void yolo_folders(void **state)
{
    struct place p;

    (void)state;
    yolo(&p, "path: .\ntrain: images/train\nval: images/val\nnc: 2\nnames: ['cat', \"dog\"]\nroboflow:\n  a: [1, {b: c}]\n");
    must_read(&p, 2, 2, 0);
    assert_string_equal(p.d->folder + strlen(p.dir), "/set/images/train");
    assert_string_equal(p.d->images[0].file, "b.png");
    assert_string_equal(p.d->images[1].file, "more/a.JPG");
    box_is(&p, 1, 1, 16, 12, 32, 24); /* the bounds of an outline */
    p.opt.val = true;
    must_read(&p, 1, 1, 0);
    p.opt.val = false;
    p.opt.masks = true;
    must_read(&p, 2, 1, 1);
    told(&p, "set/labels/train/b.txt, line 1", "has no outline");
    assert_int_equal(dataset_mask(p.d, 0).kind, MASK_POLYGONS);
    assert_true(dataset_mask(p.d, 0).xy[2][0] == 48 && dataset_mask(p.d, 0).xy[2][1] == 36);
    end(&p);
}

static void yolo_lists_and_maps(void **state)
{
    struct place p;

    (void)state;
    yolo(&p, "train:\n - lists/train.txt\n - images/val\nval: ../set/images/val\nnames:\n  1: dog\n  0: cat\n");
    put(&p, "set/lists/train.txt", "./../images/train/more/a.JPG\nimages/train/b.png\n");
    must_read(&p, 3, 3, 0);
    assert_string_equal(p.d->images[0].file, "train/more/a.JPG");
    assert_string_equal(p.d->images[1].file, "train/b.png");
    assert_string_equal(p.d->images[2].file, "val/c.png");
    assert_string_equal(p.d->classes[1].name, "dog");
    put(&p, "set/data.yaml", "train: ../images/train\nnames: [a, b]\n"); /* as some sites pack them */
    must_read(&p, 2, 2, 0);
    put(&p, "set/data.yaml", "path: /nowhere/else\ntrain: images/train\nnames: [a, b]\n");
    must_read(&p, 2, 2, 0);
    put(&p, "set/data.yaml", "path: /nowhere/else\ntrain: train\nnames: [a, b]\n");
    must_fail(&p, -ENOENT, "set/train' is not there", "data.train.images");
    snprintf(p.images, sizeof p.images, "%s/set/images", p.dir);
    p.opt.images = p.images;
    must_read(&p, 2, 2, 0);
    snprintf(p.annotations, sizeof p.annotations, "%s/set/images/train", p.dir); /* no data.yaml at all */
    must_fail(&p, ERR_DATA, "is not a data.yaml", "data.names");
    names(&p, "cat\ndog\n");
    must_read(&p, 2, 2, 0);
    end(&p);
}

static void bad_yaml(void **state)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        { "", "there is nothing in it" },
        { "- a\n", "line 1: should be keys and values" },
        { "train: [images/train\n", "not YAML: " },
        { "a: b\n\ttrain: x\n", "line 2: not YAML: " },
        { "names: [a, b]\n", "there is no \"train\"" },
        { "train: images/train\n", "there is no \"names\"" },
        { "train: images/train\ntrain: images/train\nnames: [a]\n", "line 2: a key that is there twice" },
        { "train: images/train\nnames: [a, a]\n", "line 2: 'a' is there twice" },
        { "train: images/train\nnames: {0: a, 2: b}\n", "have a gap" },
        { "train: images/train\nnames: {0: a, 0: b}\n", "number of a class is there twice" },
        { "train: images/train\nnames: {x: a}\n", "should be a whole number" },
        { "train: images/train\nnames: cat\n", "neither a list nor numbers" },
        { "train: images/train\nnames: [[a]]\n", "should be text" },
        { "train: {a: b}\nnames: [a]\n", "should be text" },
        { "train: images/train\nnc: 3\nnames: [a, b]\n", "\"nc\" is 3, but there are 2 names" },
        { "train: images/train\nnames: [a]\nkpt_shape: 17\n", "line 3: should be [K, D]" },
        { "train: images/train\nnames: [a]\nkpt_shape: [17]\n", "line 3: should be" },
        { "train: images/train\nnames: [a]\nkpt_shape: [17, 4]\n", "line 3: should be a whole number" },
        { "train: images/train\nnames: [a]\nkpt_shape: [17, 1]\n", "line 3: should be [K, D]" },
        { "train: images/train\nnames: [a]\nkpt_shape: [0, 3]\n", "line 3: should be [K, D]" }, /* use null for no key points */
        { "a: &x b\ntrain: *x\nnames: [a]\n", "line 2: an alias" },
        { "train: images/train\nnames: [a]\n---\nb: c\n", "line 3: a second document" },
    };
    char deep[2000] = "a: ";
    struct place p;

    (void)state;
    yolo(&p, "");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put(&p, "set/data.yaml", bad[i].text);
        must_fail(&p, ERR_DATA, "set/data.yaml", bad[i].why);
    }
    memset(deep + 3, '[', 1000);
    put(&p, "set/data.yaml", deep);
    must_fail(&p, ERR_DATA, "set/data.yaml", "nested too deep");
    end(&p);
}

/* The checked files stay as they were, or the error names a changed file: the index knows every file of labels. */
static void index_knows_the_files(void **state)
{
    struct check_options check = { .on_bad = BAD_ERROR, .threads = 2 };
    char index[512];
    struct hash128 one, two;
    struct dataset *d;
    struct place p;

    (void)state;
    darknet(&p);
    check.annotations = p.annotations;
    check.labels = &p.opt;
    path_of(&p, "index", index);
    assert_int_equal(check_split(&check, &p.problems, &d, &p.err), 0);
    assert_int_equal(index_write(index, d, &p.err), 0);
    assert_int_equal(index_hash(d, &one, &p.err), 0);
    dataset_free(d);
    assert_int_equal(index_load(index, &check, &d, &p.err), 0);
    assert_int_equal(d->nfiles, 6); /* the .data file, names, list and labels */
    assert_int_equal(index_hash(d, &two, &p.err), 0);
    assert_memory_equal(&one, &two, sizeof one);
    dataset_free(d);
    put(&p, "net/data/labels/a.txt", "1 0.5 0.5 0.25 0.5\r\n0 0.3 0.2 0.1 0.2\n");
    assert_int_equal(index_load(index, &check, &d, &p.err), ERR_DATA);
    assert_non_null(strstr(p.err.msg, "labels/a.txt"));
    end(&p);
}

/* Bad records fail the check of a split, unless they are to be skipped. */
static void policy(void **state)
{
    struct check_options check = { .on_bad = BAD_ERROR, .threads = 2 };
    struct dataset *d;
    struct place p;

    (void)state;
    darknet(&p);
    check.annotations = p.annotations;
    check.labels = &p.opt;
    put(&p, "net/data/labels/a.txt", "5 .5 .5 .5 .5\n0 .5 .5 .5 .5\n");
    assert_int_equal(check_split(&check, &p.problems, &d, &p.err), ERR_DATA);
    assert_non_null(strstr(p.err.msg, "labels/a.txt, line 1: class 5"));
    check.on_bad = BAD_SKIP;
    assert_int_equal(check_split(&check, &p.problems, &d, &p.err), 0);
    assert_int_equal(d->offset[d->nimages], 2);
    dataset_free(d);
    end(&p);
}

/* The same set at another path has the same hash. */
static void hash_knows_no_place(void **state)
{
    struct hash128 hash[2];
    struct place p;

    (void)state;
    for (int i = 0; i < 2; i++) {
        yolo(&p, "train: images/train\nnames: [a, b]\n");
        must_read(&p, 2, 2, 0);
        assert_int_equal(index_hash(p.d, &hash[i], &p.err), 0);
        end(&p);
    }
    assert_memory_equal(&hash[0], &hash[1], sizeof hash[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(darknet_by_file),
        cmocka_unit_test(darknet_by_list),
        cmocka_unit_test(labels_that_cannot_be_read),
        cmocka_unit_test(darknet_validation),
        cmocka_unit_test(last_images),
        cmocka_unit_test(unlabelled_pictures_are_empty),
        cmocka_unit_test(bad_lines),
        cmocka_unit_test(clipped),
        cmocka_unit_test(shares_are_pixels_again),
        cmocka_unit_test(bad_data_files),
        cmocka_unit_test(yolo_folders),
        cmocka_unit_test(yolo_lists_and_maps),
        cmocka_unit_test(bad_yaml),
        cmocka_unit_test(index_knows_the_files),
        cmocka_unit_test(policy),
        cmocka_unit_test(hash_knows_no_place),
    };

    return cmocka_run_group_tests_name("labels", tests, NULL, NULL);
}

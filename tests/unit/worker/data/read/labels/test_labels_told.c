/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/data/read/labels/test_labels_told.c
 * uses: proto worker/core worker/mask worker/data
 * Labels as other programs and systems write them: they are read, reported, or refused with the tool's name. */
#include "tests/unit/worker/data/read/labels/labels_set.h"

/* A repeated row is the same object. A yolo set keeps only the first, as its programs do; other sets keep both. All
 * repeats are reported. */
static void doubles(void **state)
{
    static const char rows[] = "0 .5 .5 .5 .5\n1 .5 .5 .5 .5\n0 .5 .5 .25 .5\n0 0.50 .5 .5 5e-1\n";
    static const char outlines[] = "0 .1 .1 .5 .1 .5 .5\n0 .1 .1 .1 .5 .5 .5\n0 .1 .1 .5 .1 .5 .5\n";
    struct place p;

    (void)state;
    yolo(&p, "train: images/val\nnames: [a, b]\n");
    put(&p, "set/labels/val/c.txt", rows);
    must_read(&p, 1, 3, 0);
    assert_int_equal(p.problems.notes, 1);
    noted(&p, "set/labels/val/c.txt, line 4: the same object as in line 1", "one of them is kept");
    put(&p, "set/labels/val/c.txt", outlines); /* the same bounds are no double */
    must_read(&p, 1, 2, 0);
    noted(&p, "line 3: the same object as in line 1", "one of them is kept");
    p.opt.form = LABELS_DARKNET;
    put(&p, "set/labels/val/c.txt", rows);
    put(&p, "set/val.txt", "images/val/c.png\n");
    snprintf(p.annotations, sizeof p.annotations, "%s/set/val.txt", p.dir);
    names(&p, "a\nb\n");
    must_read(&p, 1, 4, 0);
    noted(&p, "set/labels/val/c.txt, line 4: the same object as in line 1", "both are kept");
    end(&p);
    voc(&p);
    put(&p, "voc/Annotations/b.xml",
        XML(OBJECT("cow", "1", "2", "3", "4") OBJECT("dog", "1", "2", "3", "4") OBJECT("cow", "1", "2", "3", "4")));
    must_read(&p, 2, 5, 0);
    assert_int_equal(p.problems.notes, 1);
    noted(&p, "voc/Annotations/b.xml, line 9: the same object as in line 3", "both are kept");
    end(&p);
}

/* Each reader gets an unknown and a misspelt key: it reports each once, with the suggested key. */
static void unknown_keys(void **state)
{
    struct place p;

    (void)state;
    yolo(&p, "train: images/train\nnames: [a, b]\nkpt_shap: [4, 2]\nroboflow: {a: b}\nchannels: 1\n? [odd]\n: key\ntest: x\n");
    must_read(&p, 2, 2, 0);
    assert_int_equal(p.problems.notes, 3);
    noted(&p, "set/data.yaml, line 3: key \"kpt_shap\" is not known and ignored", "\"kpt_shape\" may be meant");
    noted(&p, "set/data.yaml, line 5: key \"channels\" is not known and ignored", "");
    end(&p);
    darknet(&p);
    put(&p, "net/cfg/obj.data", "clases=2\ntrain=data/train.txt\nnames=data/obj.names\nbackup=x\ndifficult=data/difficult.txt\n");
    must_read(&p, 3, 3, 0);
    assert_int_equal(p.problems.notes, 2);
    noted(&p, "net/cfg/obj.data, line 1: key \"clases\" is not known and ignored", "\"classes\" may be meant");
    noted(&p, "net/cfg/obj.data, line 5: key \"difficult\" is not known and ignored", "");
    end(&p);
    voc(&p);
    put(&p, "voc/Annotations/a.xml",
        XML("<object><name>cow</name><dificult>1</dificult>\n<robust/><bndbox><xmin>2</xmin><ymin>3</ymin><xmax>10</xmax><ymax>12</ymax>"
            "<angle>2</angle></bndbox></object>"));
    put(&p, "voc/Annotations/b.xml", XML("<rating>5</rating><object><dificult>1</dificult></object>"));
    must_read(&p, 2, 1, 1);
    assert_int_equal(p.problems.notes, 4); /* once for the set, not for each file */
    noted(&p, "voc/Annotations/b.xml, line 3: element of <object> \"dificult\" is not known and ignored", "\"difficult\" may be meant");
    noted(&p, "voc/Annotations/a.xml, line 4: element of <object> \"robust\" is not known", "");
    noted(&p, "voc/Annotations/a.xml, line 4: element of <bndbox> \"angle\" is not known", "");
    noted(&p, "voc/Annotations/b.xml, line 3: element of <annotation> \"rating\" is not known", "");
    end(&p);
}

/* Byte order marks and CRLF, in every file of every form. */
static void marks_and_line_ends(void **state)
{
#define MARK "\xef\xbb\xbf"
    struct place p;

    (void)state;
    voc(&p);
    put(&p, "voc/ImageSets/Main/train.txt", MARK "b\r\na\r\n");
    put(&p, "voc/Annotations/a.xml", MARK "<?xml version=\"1.0\"?>\r\n" XML("\r\n" OBJECT("dog\r\n", "1\r\n", "1", "64", "48")));
    names(&p, MARK "dog\r\ncow\r\n");
    must_read(&p, 2, 2, 0);
    end(&p);
    darknet(&p);
    put(&p, "net/cfg/obj.data", MARK "train=data/train.txt\r\nnames=data/obj.names\r\n\r\nclasses=2\r\n");
    put(&p, "net/data/obj.names", MARK "cat\r\nbig dog\r\n");
    put(&p, "net/data/train.txt", MARK "data/images/b c.png\r\ndata/images/a.png\r\n");
    put(&p, "net/data/labels/a.txt", MARK "1 0.5 0.5 0.25 0.5\r\n0 0.3 0.2 0.1 0.1\r\n");
    must_read(&p, 2, 2, 0);
    assert_string_equal(p.d->classes[1].name, "big dog");
    end(&p);
    yolo(&p, MARK "train: images/train\r\nval: ./list.txt\r\nnames:\r\n  - a\r\n  - b\r\n");
    must_read(&p, 2, 2, 0);
    put(&p, "set/list.txt", MARK "./images/val/c.png\r\n");
    p.opt.val = true;
    must_read(&p, 1, 1, 0);
    assert_int_equal(p.problems.notes, 0);
    end(&p);
}

/* The file ending of the annotations gives their format, in capital or small letters, as for a picture. */
static void endings_of_annotations(void **state)
{
    static const char *const yamls[] = { "set/data.YAML", "set/data.Yml" };
    struct place p;

    (void)state;
    yolo(&p, "");
    for (int i = 0; i < 2; i++) {
        put(&p, yamls[i], "train: images/train\nnames: [a, b]\n");
        snprintf(p.annotations, sizeof p.annotations, "%s/%s", p.dir, yamls[i]);
        must_read(&p, 2, 2, 0);
    }
    end(&p);
    darknet(&p);
    put(&p, "net/cfg/obj.DATA", "train=data/train.txt\nnames=data/obj.names\n");
    snprintf(p.annotations, sizeof p.annotations, "%s/net/cfg/obj.DATA", p.dir);
    must_read(&p, 3, 3, 0);
    end(&p);
}

/* The system resolves the path above a linked folder. */
static void above_a_link(void **state)
{
    char path[512];
    struct place p;

    (void)state;
    yolo(&p, "train: link/../other\nnames: [a, b]\n");
    picture(&p, "far/other/images/x.png");
    put(&p, "far/other/labels/x.txt", "1 .5 .5 .5 .5\n");
    picture(&p, "set/other/wrong.png");
    put(&p, "far/folder/file", "");
    assert_int_equal(symlink("../far/folder", path_of(&p, "set/link", path)), 0);
    must_read(&p, 1, 1, 0);
    assert_string_equal(p.d->images[0].file, "x.png");
    put(&p, "set/data.yaml", "train: list.txt\nnames: [a, b]\n");
    put(&p, "set/list.txt", "link/../other/images/x.png\nimages/../images/val/c.png\n");
    must_read(&p, 2, 2, 0);
    assert_non_null(strstr(p.d->images[0].file, "link/../other/images/x.png"));
    end(&p);
}

/* Cameras and old programs write .TXT: if such a file were skipped, its picture would become background. */
static void labels_in_capital_letters(void **state)
{
    char from[512], to[512];
    struct place p;

    (void)state;
    darknet(&p);
    assert_int_equal(rename(path_of(&p, "net/data/labels/a.txt", from), path_of(&p, "net/data/labels/a.TXT", to)), 0);
    assert_int_equal(rename(path_of(&p, "net/data/obj/d.txt", from), path_of(&p, "net/data/obj/d.TXT", to)), 0);
    must_read(&p, 3, 3, 0);
    assert_int_equal(p.d->unlabelled, 0);
    end(&p);
}

/* Key points behind a box must not become corners of an outline. */
static void yolo_key_points(void **state)
{
    static const char two[] = "0 .5 .5 .2 .2 .45 .45 .55 .45 .5 .55 .5 .5\n";
    static const char seen[] = "0 .5 .5 .25 .5 .45 .45 2 .55 .45 1 0 0 0\n1 .25 .25 .25 .25 .2 .2 2 .3 .3 2 .2 .3 2\n";
    struct place p;

    (void)state;
    yolo(&p, "train: images/val\nnames: [a, b]\nkpt_shape: [4, 2]\n");
    put(&p, "set/labels/val/c.txt", two);
    must_read(&p, 1, 1, 0);
    box_is(&p, 0, 0, 25.6, 19.2, 12.8, 9.6);
    put(&p, "set/data.yaml", "train: images/val\nnames: [a, b]\n");
    must_fail(&p, ERR_DATA, "set/data.yaml: lines of its labels are a class and 12 numbers", "\"kpt_shape: [4, 2]\"");
    put(&p, "set/data.yaml", "train: images/val\nnames: [a, b]\nkpt_shape: ~\n");
    must_read(&p, 1, 1, 0); /* an outline, because the user requests it */
    assert_float_equal(p.d->boxes[0].w, 22.4, 1e-9);
    assert_float_equal(p.d->boxes[0].h, 16.8, 1e-9);
    put(&p, "set/labels/val/c.txt", seen);
    put(&p, "set/data.yaml", "train: images/val\nnames: [a, b]\n");
    must_fail(&p, ERR_DATA, "a class and 13 numbers", "\"kpt_shape: [3, 3]\"");
    put(&p, "set/data.yaml", "train: images/val\nnames: [a, b]\nkpt_shape: [3, 3]\n");
    must_read(&p, 1, 2, 0);
    box_is(&p, 0, 0, 24, 12, 16, 24);
    put(&p, "set/data.yaml", "train: images/val\nnames: [a, b]\n"); /* the cause is reported, and not its effects in each line */
    put(&p, "set/labels/val/c.txt", "0 .5 .5 .25 .5 .45 .45 2 .55 .45 2\n1 .5 .5 .25 .5 .45 .45 2 .55 .45 2\n");
    must_fail(&p, ERR_DATA, "a class and 10 numbers", "\"kpt_shape: [2, 3]\"");
    assert_int_equal(p.problems.count, 0);
    put(&p, "set/data.yaml", "train: images/val\nnames: [a, b]\nkpt_shape: [3, 3]\n");
    put(&p, "set/labels/val/c.txt", "0 .5 .5 .25 .5\n0 .5 .5 .25 .5 .1 .1\n");
    must_read(&p, 1, 1, 1);
    told(&p, "labels/val/c.txt, line 2: should be a class, 4 numbers of its box and by kpt_shape 9 of key points", "a class and 6 numbers");
    end(&p);
}

/* A single broken line must not turn all other lines into outlines: bad records may be left out. */
static void yolo_key_points_with_a_broken_line(void **state)
{
    static const char two[] = "0 .5 .5 .2 .2 .45 .45 .55 .45 .5 .55 .5 .5\n";
    static const char *const broken[] = { "0 .5 .5 .2 .2 .45 .45 .55 .45 .5 .55 .5\n", "0 .5 .5 .2\n",
                                          "0 50 50 20 20 45 45 55 45 50 55 50 50\n", "9 .5 .5 .2 .2 .9 .9 .9 .9 .9 .9 .9 .9\n" };
    struct place p;
    char text[512];

    (void)state;
    yolo(&p, "train: images/val\nnames: [a, b]\n");
    for (size_t i = 0; i < 2 * sizeof broken / sizeof *broken; i++) {
        const char *line = broken[i / 2];

        snprintf(text, sizeof text, "%s%s%s%s", i % 2 ? line : "", two, two, i % 2 ? "" : line);
        put(&p, "set/labels/val/c.txt", text);
        must_fail(&p, ERR_DATA, "a class and 12 numbers", "\"kpt_shape: [4, 2]\"");
    }
    end(&p);
}

/* Score and track of a tracker must not become a corner. Outlines of four corners each stay outlines. */
static void yolo_other_columns(void **state)
{
    struct place p;

    (void)state;
    yolo(&p, "train: images/val\nnames: [a, b]\n");
    put(&p, "set/labels/val/c.txt", "0 .5 .5 .2 .2 .91 1\n0 .4 .5 .2 .2 .95 1\n0 .3 .5 .2 .2 .97 0\n1 .2 .5 .2 .2 .93 1\n");
    must_fail(&p, ERR_DATA, "number 6 is whole in every line", "other columns behind a box have to go");
    put(&p, "set/labels/val/c.txt",
        "0 .1 .1 .3 .1 .3 .4 .1 .4\n0 .5 .5 .9 .5 .9 1 .5 1\n1 .5 .2 .6 .2 .6 .3 .5 .3\n1 .7 .1 .8 .1 .8 .2 .7 .2\n");
    must_read(&p, 1, 4, 0);
    put(&p, "set/labels/val/c.txt", "0 .5 .5 .2 .2 17\n");
    must_read(&p, 1, 0, 1);
    told(&p, "c.txt, line 1: should be a class and 4 numbers, or a class and the corners", "has a class and 5 numbers");
    end(&p);
}

/* Ultralytics' programs read these as well: null, "validation" for "val", "nc" without "names". */
static void yolo_keys(void **state)
{
    struct place p;

    (void)state;
    yolo(&p, "path: ~\ntrain: images/train\nvalidation: images/val\nnc: 2\n");
    must_read(&p, 2, 2, 0);
    noted(&p, "set/data.yaml: there is no \"names\"", "class_0 to class_1");
    assert_string_equal(p.d->classes[1].name, "class_1");
    p.opt.val = true;
    must_read(&p, 1, 1, 0);
    put(&p, "set/data.yaml", "train: images/train\nval: images/val\nvalidation: images/val\nnames: [a, b]\n");
    must_fail(&p, ERR_DATA, "line 3", "\"val\" and \"validation\" are both there");
    for (int i = 0; i < 3; i++) {
        const char *const nothing[] = { "~", "null", "" };
        char text[100];

        snprintf(text, sizeof text, "train: images/train\nval: %s\nnames: [a, b]\n", nothing[i]);
        put(&p, "set/data.yaml", text);
        must_fail(&p, ERR_DATA, "set/data.yaml", "there is no \"val\"");
    }
    put(&p, "set/data.yaml", "train: images/train\nval: '~'\nnames: [a, b]\n");
    must_fail(&p, -ENOENT, "set/~' is not there", "");
    end(&p);
}

/* Files of these tools are recognised for every stated form. */
static void other_tools(void **state)
{
    static const struct {
        const char *file, *text, *why;
    } tools[] = {
        { "via.json", "{\"_via_settings\": {}, \"_via_img_metadata\": {}}", "via.json: a project of VIA (VGG Image Annotator)" },
        { "via_region.json", "{\"a.jpg12\": {\"filename\": \"a.jpg\", \"regions\": [{\"shape_attributes\": {\"name\": \"rect\"}}]}}",
          "VIA's own JSON" },
        { "a.json",
          " {\"version\": \"5.1\", \"flags\": {}, \"shapes\": [{\"label\": \"x\", \"shape_type\": \"polygon\"}], \"imagePath\": \"a.jpg\"}",
          "a.json: a file of labelme" },
        { "studio.json", "[{\"id\": 1, \"annotations\": [{\"id\": 1, \"result\": []}], \"data\": {\"image\": \"/a.jpg\"}}]",
          "Label Studio's own JSON" },
        { "studio_min.json", "[{\"image\": \"a.jpg\", \"id\": 1, \"label\": [], \"annotator\": 1, \"annotation_id\": 1}]",
          "Label Studio's own JSON" },
        { "_annotations.createml.json", "[{\"image\": \"a.jpg\", \"annotations\": [{\"label\": \"x\", \"coordinates\": {\"x\": 1}}]}]",
          "CreateML's JSON" },
        { "annotations.xml", "<?xml version=\"1.0\"?>\n<annotations>\n<version>1.1</version><meta><task/></meta></annotations>",
          "CVAT's own XML" },
        { "img1.xml",
          "<annotation><filename>a.png</filename><object><name>x</name><polygon><pt><x>1</x></pt></polygon></object><imagesize><nrows>1</"
          "nrows></imagesize></"
          "annotation>",
          "XML of the LabelMe web tool" },
    };
    const enum labels_form forms[] = { LABELS_VOC, LABELS_YOLO, LABELS_DARKNET };
    struct dataset *d;
    char path[512], full[512];
    struct place p;

    (void)state;
    begin(&p, LABELS_VOC, "set");
    names(&p, "x\n");
    for (size_t i = 0; i < sizeof tools / sizeof *tools; i++) {
        snprintf(path, sizeof path, "set/%s", tools[i].file);
        put(&p, path, tools[i].text);
        for (int k = 0; k < 5; k++) { /* the file as each form, then its folder as voc and its file as coco */
            struct check_options check = {
                .on_bad = k % 2 ? BAD_ERROR : BAD_SKIP, .threads = 1, .images = p.dir, .labels = k < 4 ? &p.opt : NULL
            };

            snprintf(p.annotations, sizeof p.annotations, k == 3 ? "%s/set" : "%s/set/%s", p.dir, tools[i].file);
            p.opt.form = forms[k % 3];
            check.annotations = p.annotations;
            memset(&p.problems, 0, sizeof p.problems);
            if (check_split(&check, &p.problems, &d, &p.err) != ERR_DATA || !strstr(p.err.msg, tools[i].why) || p.problems.count > 0)
                fail_msg("%s as form %d: '%s'", tools[i].file, k, p.err.msg);
        }
        assert_int_equal(unlink(path_of(&p, path, full)), 0);
    }
    end(&p);
}

/* Good annotations, but another tool's files in the place of labels. */
static void other_tools_beside_pictures(void **state)
{
    struct check_options check = { .on_bad = BAD_SKIP, .threads = 1 };
    struct dataset *d;
    struct place p;

    (void)state;
    begin(&p, LABELS_YOLO, "set/data.yaml");
    put(&p, "set/data.yaml", "train: images\nnames: [a]\n");
    picture(&p, "set/images/a.png");
    put(&p, "set/images/a.json", "{\"shapes\": [{\"label\": \"x\", \"shape_type\": \"polygon\"}]}");
    check.annotations = p.annotations;
    check.labels = &p.opt;
    assert_int_equal(check_split(&check, &p.problems, &d, &p.err), ERR_DATA);
    assert_non_null(strstr(p.err.msg, "set/images/a.json: a file of labelme"));
    put(&p, "set/labels/a.txt", "0 .5 .5 .5 .5\n"); /* beside good labels it changes nothing */
    assert_int_equal(check_split(&check, &p.problems, &d, &p.err), 0);
    dataset_free(d);
    end(&p);
    voc(&p);
    put(&p, "voc/ImageSets/Main/train.txt", "a\n");
    put(&p, "voc/Annotations/a.xml",
        "<annotation><object><name>x</name><polygon/></object><imagesize><nrows>9</nrows></imagesize></annotation>");
    check.annotations = p.annotations;
    assert_int_equal(check_split(&check, &p.problems, &d, &p.err), ERR_DATA);
    assert_non_null(strstr(p.err.msg, "voc/Annotations/a.xml: XML of the LabelMe web tool"));
    end(&p);
}

/* Rotated boxes of Roboflow lie in folders of their own. */
static void rotated_boxes(void **state)
{
    struct place p;

    (void)state;
    begin(&p, LABELS_YOLO, "set/data.yaml");
    put(&p, "set/data.yaml", "train: ../train/images\nnames: [a]\n");
    picture(&p, "set/train/images/a.png");
    put(&p, "set/train/labelTxt/a.txt", "0 0 0 2 2 2 2 0 a 0\n");
    must_read(&p, 1, 0, 0);
    noted(&p, "set/data.yaml: no picture of it has a file of labels", "labelTxt has rotated boxes, which are not read");
    end(&p);
}

/* CVAT's YOLO 1.1 has paths of a folder that the archive lacks. */
static void cvat_archive(void **state)
{
    struct place p;

    (void)state;
    begin(&p, LABELS_DARKNET, "set/obj.data");
    put(&p, "set/obj.data", "classes = 1\ntrain = data/train.txt\nnames = data/obj.names\nbackup = backup/\n");
    put(&p, "set/obj.names", "cat\n");
    put(&p, "set/train.txt", "data/obj_train_data/a.png\n");
    picture(&p, "set/obj_train_data/a.png");
    put(&p, "set/obj_train_data/a.txt", "0 .5 .5 .5 .5\n");
    must_fail(&p, -ENOENT, "set/obj.data: an archive of CVAT in the form YOLO 1.1", "into a folder data beside it");
    put(&p, "set/data/obj.names", "cat\n"); /* the advice works */
    put(&p, "set/data/train.txt", "data/obj_train_data/a.png\n");
    picture(&p, "set/data/obj_train_data/a.png");
    put(&p, "set/data/obj_train_data/a.txt", "0 .5 .5 .5 .5\n");
    must_read(&p, 1, 1, 0);
    end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doubles),
        cmocka_unit_test(unknown_keys),
        cmocka_unit_test(marks_and_line_ends),
        cmocka_unit_test(endings_of_annotations),
        cmocka_unit_test(above_a_link),
        cmocka_unit_test(labels_in_capital_letters),
        cmocka_unit_test(yolo_key_points),
        cmocka_unit_test(yolo_key_points_with_a_broken_line),
        cmocka_unit_test(yolo_other_columns),
        cmocka_unit_test(yolo_keys),
        cmocka_unit_test(other_tools),
        cmocka_unit_test(other_tools_beside_pictures),
        cmocka_unit_test(rotated_boxes),
        cmocka_unit_test(cvat_archive),
    };

    return cmocka_run_group_tests_name("labels_told", tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/data/read/labels/test_labels_voc.c
 * uses: proto worker/core worker/mask worker/data
 * Pascal VOC: its contents, their order, and their errors. */
#include "tests/unit/worker/data/read/labels/labels_set.h"

static void voc_by_list(void **state)
{
    struct place p;

    (void)state;
    voc(&p);
    must_read(&p, 2, 3, 0);
    assert_string_equal(p.d->images[0].file, "b.png"); /* the order of the list */
    assert_string_equal(p.d->images[1].file, "a.jpg");
    assert_int_equal(p.d->images[1].id, 2);
    assert_int_equal(p.d->nclasses, 3); /* sorted, from 1 */
    assert_string_equal(p.d->classes[0].name, "cat");
    assert_string_equal(p.d->classes[2].name, "dog");
    assert_int_equal(p.d->classes[0].id, 1);
    box_is(&p, 0, 1, 1.5, 2, 8.5, 10.5); /* counted from 1, the last pixel inside */
    box_is(&p, 1, 2, 0, 0, 64, 48);
    box_is(&p, 2, 0, 10, 11, 10, 10);
    p.opt.corners = true;
    must_read(&p, 2, 3, 0);
    box_is(&p, 0, 1, 2.5, 3, 7.5, 9.5);
    box_is(&p, 1, 2, 1, 1, 63, 47);
    end(&p);
}

/* The vector of specs yolov3 section 5.7. */
static void voc_by_the_kit(void **state)
{
    struct place p;

    (void)state;
    voc(&p);
    put(&p, "voc/Annotations/b.xml",
        "<annotation><size><width>500</width><height>375</height></size>" OBJECT("cow", "263", "211", "324", "339") "</annotation>");
    must_read(&p, 2, 3, 0);
    assert_true((p.d->boxes[0].x + p.d->boxes[0].w / 2) / 500 == 0.586 && p.d->boxes[0].w / 500 == 0.124);
    assert_true((p.d->boxes[0].y + p.d->boxes[0].h / 2) / 375 == 0.732 && p.d->boxes[0].h / 375 == 0.344);
    end(&p);
}

static void voc_with_names(void **state)
{
    struct place p;

    (void)state;
    voc(&p);
    names(&p, "dog\r\n\ncow\n");
    must_read(&p, 2, 2, 1);
    told(&p, "voc/Annotations/a.xml, line 6: 'cat' is not one of the 2 classes", "data.names");
    assert_string_equal(p.d->classes[0].name, "dog");
    box_is(&p, 0, 1, 1.5, 2, 8.5, 10.5);
    names(&p, "dog\ncow\ndog\n");
    must_fail(&p, ERR_DATA, "some.names, line 3", "'dog' is there twice");
    names(&p, "\n");
    must_fail(&p, ERR_DATA, "some.names", "no name of a class");
    end(&p);
}

/* The classes of the validation split are those of training, even if it has others itself. */
static void voc_validation(void **state)
{
    struct dataset_class classes[2] = { { 7, (char *)"cow" }, { 9, (char *)"dog" } };
    struct dataset train = { .nclasses = 2, .classes = classes };
    struct place p;

    (void)state;
    voc(&p);
    p.opt.train = &train;
    must_read(&p, 2, 2, 1);
    told(&p, "a.xml, line 6: 'cat' is not one of the 2 classes", "of the training split");
    box_is(&p, 0, 0, 1.5, 2, 8.5, 10.5);
    box_is(&p, 1, 1, 0, 0, 64, 48);
    assert_int_equal(p.d->classes[1].id, 9);
    end(&p);
}

/* COCO's categories may share a name. */
static void names_that_tell_no_class(void **state)
{
    struct dataset_class classes[3] = { { 7, (char *)"cow" }, { 8, (char *)"cow" }, { 9, (char *)"dog" } };
    struct dataset train = { .nclasses = 3, .classes = classes };
    struct place p;

    (void)state;
    voc(&p);
    p.opt.train = &train;
    must_fail(&p, ERR_DATA, "which class of the training split is 'cow'?", "id 7 and 8");
    names(&p, "dog\ncow\n");
    must_fail(&p, ERR_DATA, "which class of the training split is 'cow'?", "id 7 and 8");
    end(&p);
}

static void voc_difficult(void **state)
{
    struct place p;

    (void)state;
    voc(&p);
    put(&p, "voc/Annotations/b.xml",
        XML("<object><name>cow</name><difficult>1</difficult><part><name>head</name><bndbox><xmin>1</xmin></bndbox></part>"
            "<bndbox><xmin>2</xmin><ymin>3</ymin><xmax>10</xmax><ymax>12</ymax></bndbox></object>"));
    must_read(&p, 2, 3, 0);
    assert_true(p.d->boxes[0].crowd && !p.d->boxes[1].crowd);
    p.opt.difficult = true;
    must_read(&p, 2, 3, 0);
    assert_false(p.d->boxes[0].crowd);
    end(&p);
}

static void voc_folder_of_files(void **state)
{
    struct place p;

    (void)state;
    begin(&p, LABELS_VOC, "xml");
    put(&p, "xml/2.xml", "<annotation>" OBJECT("b", "1", "1", "4", "4") "</annotation>"); /* no size: the picture's own */
    put(&p, "xml/10.xml", "<annotation><size><width>0</width><height>0</height></size></annotation>");
    put(&p, "xml/.hidden.xml", "?");
    picture(&p, "pictures/2.PNG");
    picture(&p, "pictures/10.jpeg");
    snprintf(p.images, sizeof p.images, "%s/pictures/", p.dir);
    p.opt.images = p.images;
    must_read(&p, 2, 1, 0);
    assert_int_equal(p.problems.notes, 0);
    picture(&p, "pictures/1.png");
    picture(&p, "pictures/20.png");
    must_read(&p, 2, 1, 0);
    noted(&p, "/pictures: pictures without an XML file are left out: 2, as '1.png'", "");
    assert_string_equal(p.d->images[0].file, "10.jpeg"); /* bytes, not numbers */
    assert_true(p.d->images[1].w == W && p.d->images[1].h == H);
    p.opt.images = NULL; /* beside them */
    must_read(&p, 0, 0, 2);
    told(&p, "2.xml: there is no picture '2'", "/xml'");
    end(&p);
}

/* Endings in any case. If two pictures have the same name, the one named in the file is taken. */
static void voc_endings(void **state)
{
    struct place p;
    char path[512];

    (void)state;
    voc(&p);
    assert_int_equal(unlink(path_of(&p, "voc/JPEGImages/a.jpg", path)), 0);
    picture(&p, "voc/JPEGImages/a.Jpg");
    must_read(&p, 2, 3, 0);
    assert_string_equal(p.d->images[1].file, "a.Jpg");
    picture(&p, "voc/JPEGImages/a.webp");
    must_read(&p, 1, 1, 1);
    told(&p, "voc/Annotations/a.xml: '", "JPEGImages' has both 'a.Jpg' and 'a.webp'; <filename> should name one of them");
    put(&p, "voc/Annotations/a.xml", XML("<filename>C:\\pictures\\a.webp</filename>" OBJECT("dog", "1", "1", "64", "48")));
    must_read(&p, 2, 2, 0);
    assert_string_equal(p.d->images[1].file, "a.webp");
    assert_int_equal(unlink(path_of(&p, "voc/JPEGImages/a.Jpg", path)), 0);
    assert_int_equal(unlink(path_of(&p, "voc/JPEGImages/a.webp", path)), 0);
    must_read(&p, 1, 1, 1);
    told(&p, "voc/Annotations/a.xml: there is no picture 'a' in ", ".bmp or .webp)");
    assert_null(strstr(p.problems.text[0], "<filename>"));
    put(&p, "voc/Annotations/a.xml", XML("<filename>ab.webp</filename>" OBJECT("dog", "1", "1", "64", "48")));
    must_read(&p, 1, 1, 1);
    told(&p, "voc/Annotations/a.xml: there is no picture 'a' in ", "its <filename> 'ab.webp' is not used");
    put(&p, "voc/JPEGImages/a.tiff", "II*");
    put(&p, "voc/Annotations/a.xml", "<annotation>" OBJECT("dog", "1", "1", "64", "48") "</annotation>");
    must_read(&p, 1, 1, 1);
    told(&p, "JPEGImages/a.tiff: ", "neither a JPEG, PNG, WebP nor BMP file");
    end(&p);
}

/* Annotations may be a link: the pictures are beside the link. */
static void voc_linked_folder(void **state)
{
    char from[512], to[512];
    struct place p;

    (void)state;
    voc(&p);
    assert_int_equal(rename(path_of(&p, "voc/Annotations", from), path_of(&p, "elsewhere/xml", to)), 0);
    assert_int_equal(symlink("../elsewhere/xml", from), 0);
    must_read(&p, 2, 3, 0);
    end(&p);
}

static void voc_names_with_blanks(void **state)
{
    struct place p;

    (void)state;
    voc(&p);
    put(&p, "voc/ImageSets/Main/train.txt", "my photo 1\r\n\tb and c \r\na\r\n");
    put(&p, "voc/Annotations/my photo 1.xml", XML(OBJECT("cow", "1", "2", "3", "4")));
    put(&p, "voc/Annotations/b and c.xml", XML(OBJECT("cow", "1", "2", "3", "4")));
    picture(&p, "voc/JPEGImages/my photo 1.jpg");
    picture(&p, "voc/JPEGImages/b and c.PNG");
    must_read(&p, 3, 4, 0);
    assert_string_equal(p.d->images[0].file, "my photo 1.jpg");
    assert_string_equal(p.d->images[1].file, "b and c.PNG");
    put(&p, "voc/ImageSets/Main/train.txt", "a  1\nb -1\n");
    must_fail(&p, ERR_DATA, "train.txt, line 1", "a name and 1, 0 or -1, as in a list of one class");
    put(&p, "voc/ImageSets/Main/train.txt", "a\nb -1\n");
    must_fail(&p, ERR_DATA, "train.txt, line 2", "as in a list of one class");
    put(&p, "voc/ImageSets/Main/train.txt", "a b\n");
    must_read(&p, 0, 0, 1);
    told(&p, "voc/Annotations/a b.xml", "No such file");
    end(&p);
}

/* Doubtful files stay, and the user gets a note about them. */
static void voc_doubts(void **state)
{
    struct place p;

    (void)state;
    voc(&p);
    put(&p, "voc/Annotations/a.xml",
        "<annotation><filename>x.jpg</filename>\n<size><width>6.5</width></size>" OBJECT("cow", "0", "2", "3", "4") "</annotation>");
    must_read(&p, 2, 2, 0);
    assert_int_equal(p.problems.notes, 3);
    noted(&p, "voc/Annotations/a.xml, line 2: <size> holds something that is no number of pixels", "the picture's own size counts");
    noted(&p, "voc/Annotations/a.xml, line 2: a box begins at 0", "(1 such boxes). With data.voc_boxes=corners");
    noted(&p, "voc/Annotations/a.xml: <filename> is 'x.jpg', which is not the name of its picture (1 such files)", "");
    assert_int_equal(p.d->images[1].w, W);
    p.opt.corners = true;
    must_read(&p, 2, 2, 0);
    assert_int_equal(p.problems.notes, 2);
    p.opt.corners = false;
    put(&p, "voc/Annotations/a.xml",
        XML("<object><name>cow</name><difficult>maybe</difficult><bndbox><xmin>2</xmin><ymin>3</ymin><xmax>10</xmax>"
            "<ymax>12</ymax></bndbox></object>"));
    must_read(&p, 2, 1, 1);
    told(&p, "a.xml, line 3", "<difficult> is neither 0 nor 1");
    p.opt.difficult = true; /* the value is not read */
    must_read(&p, 2, 2, 0);
    end(&p);
}

static void voc_bad_objects(void **state)
{
    static const struct {
        const char *body, *why;
    } bad[] = {
        { "<object><name>a</name></object>", "line 3: object has no <bndbox>" },
        { "<object><name>a</name><robndbox><cx>5</cx></robndbox></object>",
          "line 3: object has <robndbox>, a rotated box, which is not read" },
        { "<object><bndbox/></object>", "object has no <name>" },
        { "<object><name/></object>", "<name> is empty" },
        { "<object><name>a</name><name>b</name></object>", "has two names" },
        { "<object><name>a</name><bndbox><xmin>1</xmin></bndbox></object>", "object has no <ymin>" },
        { "<object><name>a</name><bndbox/><bndbox/></object>", "has two boxes" },
        { "<object><name>a</name><difficult>2</difficult></object>", "<difficult> is neither 0 nor 1" },
        { OBJECT("a", "nan", "1", "2", "3"), "<xmin> is not a number" },
        { OBJECT("a", "1", "0x10", "2", "3"), "<ymin> is not a number" },
        { OBJECT("a", "1", "1", "2e9", "3"), "impossible number" },
        { OBJECT("a", "9", "1", "2", "3"), "box has a negative size: [8, 0, -6, 3] in 64 x 48" },
        { OBJECT("a", "3", "1", "2", "3"), "box has no area" },
        { OBJECT("a", "70", "1", "80", "3"), "line 3: box lies outside its image" },
    };
    char text[1000];
    struct place p;

    (void)state;
    voc(&p);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(text, sizeof text, XML("%s" OBJECT("cow", "1", "1", "5", "5")), bad[i].body);
        put(&p, "voc/Annotations/b.xml", text);
        must_read(&p, 2, 3, 1);
        told(&p, "voc/Annotations/b.xml", bad[i].why);
    }
    end(&p);
}

static void voc_bad_files(void **state)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        { "", "no element found" },
        { "<annotation>\n\n<object></annotation>", "line 3: no annotation: mismatched tag" },
        { "<annotations/>", "its root is not <annotation>" },
        { "<!DOCTYPE a [<!ENTITY b \"bbbb\">]><annotation/>", "a document type is declared" },
        { "<annotation><size><width><b/></width></size></annotation>", "an element where only text may be" },
        { "<annotation>\xff</annotation>", "not well-formed" },
    };
    char deep[2000] = "<annotation>";
    struct place p;

    (void)state;
    voc(&p);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put(&p, "voc/Annotations/b.xml", bad[i].text);
        must_read(&p, 1, 2, 1); /* the whole picture is left out */
        told(&p, "voc/Annotations/b.xml", bad[i].why);
    }
    for (int i = 0; i < 100; i++)
        strcat(deep, "<part>");
    put(&p, "voc/Annotations/b.xml", deep);
    must_read(&p, 1, 2, 1);
    told(&p, "b.xml", "nested too deep");
    put(&p, "voc/ImageSets/Main/train.txt", "a\nc\na\n");
    must_read(&p, 1, 2, 1);
    told(&p, "voc/Annotations/c.xml", "No such file");
    noted(&p, "train.txt, line 3: '", "a.xml' is there twice: also in ");
    put(&p, "voc/ImageSets/Main/train.txt", "a\n../b\n");
    must_fail(&p, ERR_DATA, "train.txt, line 2", "no name of a picture");
    put(&p, "train.txt", "a\n");
    snprintf(p.annotations, sizeof p.annotations, "%s/train.txt", p.dir);
    must_fail(&p, ERR_DATA, "is in no folder ImageSets", "data.train.images");
    snprintf(p.images, sizeof p.images, "%s/voc", p.dir);
    p.opt.images = p.images;
    must_read(&p, 1, 2, 0);
    end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(voc_by_list),
        cmocka_unit_test(voc_by_the_kit),
        cmocka_unit_test(voc_with_names),
        cmocka_unit_test(voc_validation),
        cmocka_unit_test(names_that_tell_no_class),
        cmocka_unit_test(voc_difficult),
        cmocka_unit_test(voc_folder_of_files),
        cmocka_unit_test(voc_endings),
        cmocka_unit_test(voc_linked_folder),
        cmocka_unit_test(voc_names_with_blanks),
        cmocka_unit_test(voc_doubts),
        cmocka_unit_test(voc_bad_objects),
        cmocka_unit_test(voc_bad_files),
    };

    return cmocka_run_group_tests_name("labels_voc", tests, NULL, NULL);
}

/* tests/unit/test_labels.c - uses: proto worker/core worker/mask worker/data worker/data/sample
 * Pascal VOC, darknet's lists and folders with a data.yaml: what each says, in which order, and what is wrong with it. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/err.h"
#include "tests/harness.h"
#include "worker/data/check.h"
#include "worker/data/image.h"
#include "worker/data/labels.h"
#include "worker/data/problems.h"

enum { W = 64, H = 48 };

struct place {
    char dir[TEMP_MAX];
    struct labels_options opt;
    struct problems problems;
    struct dataset *d;
    struct err err;
    char annotations[TEMP_MAX + 64], images[TEMP_MAX + 64], names[TEMP_MAX + 64];
};

/* Folders on the way to a file are made. */
static char *path_of(const struct place *p, const char *file, char path[512])
{
    snprintf(path, 512, "%s/%s", p->dir, file);
    for (char *at = path + strlen(p->dir) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(path, 0755);
        *at = '/';
    }
    return path;
}

static void put(const struct place *p, const char *file, const char *text)
{
    char path[512];
    FILE *f = fopen(path_of(p, file, path), "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void picture(const struct place *p, const char *file)
{
    static uint8_t rgb[W * H * 3];
    char path[512];
    struct err err;

    assert_int_equal(image_write_png(path_of(p, file, path), rgb, W, H, &err), 0);
}

static void begin(struct place *p, enum labels_form form, const char *annotations)
{
    memset(p, 0, sizeof *p);
    temp_path(p->dir, sizeof p->dir, "labels-XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    snprintf(p->annotations, sizeof p->annotations, "%s/%s", p->dir, annotations);
    p->opt = (struct labels_options){ .form = form, .annotations = p->annotations };
}

static void names(struct place *p, const char *text)
{
    put(p, "some.names", text);
    snprintf(p->names, sizeof p->names, "%s/some.names", p->dir);
    p->opt.names = p->names;
}

static void end(struct place *p)
{
    char command[TEMP_MAX + 16];

    dataset_free(p->d);
    snprintf(command, sizeof command, "rm -rf '%s'", p->dir);
    assert_int_equal(system(command), 0);
}

static int read_set(struct place *p)
{
    dataset_free(p->d);
    p->d = NULL;
    memset(&p->problems, 0, sizeof p->problems);
    memset(&p->err, 0, sizeof p->err);
    return labels_read(&p->opt, &p->problems, &p->d, &p->err);
}

static void must_read(struct place *p, int images, int boxes, int problems)
{
    if (read_set(p) != 0)
        fail_msg("%s", p->err.msg);
    for (int i = 0; i < p->problems.kept && p->problems.count != problems; i++)
        print_message("%s\n", p->problems.text[i]);
    assert_int_equal(p->problems.count, problems);
    assert_int_equal(p->d->nimages, images);
    assert_int_equal(p->d->offset[images], boxes);
}

/* The reading fails; the sentence has both parts. */
static void must_fail(struct place *p, int code, const char *first, const char *second)
{
    int rc = read_set(p);

    if (rc != code || !strstr(p->err.msg, first) || !strstr(p->err.msg, second))
        fail_msg("rc %d, '%s', wanted %d, '%s' and '%s'", rc, rc < 0 ? p->err.msg : "", code, first, second);
}

static void told(const struct place *p, const char *first, const char *second)
{
    for (int i = 0; i < p->problems.kept; i++)
        if (strstr(p->problems.text[i], first) && strstr(p->problems.text[i], second))
            return;
    fail_msg("no problem has '%s' and '%s': '%s'", first, second, p->problems.kept ? p->problems.text[0] : "");
}

/* A note has both parts. */
static void noted(const struct place *p, const char *first, const char *second)
{
    for (int i = 0; i < p->problems.notes_kept; i++)
        if (strstr(p->problems.note[i], first) && strstr(p->problems.note[i], second))
            return;
    fail_msg("no note has '%s' and '%s': '%s'", first, second, p->problems.notes_kept ? p->problems.note[0] : "");
}

static void box_is(const struct place *p, int64_t k, int cls, double x, double y, double w, double h)
{
    const struct dataset_box *b = &p->d->boxes[k];

    if (b->cls != cls || b->x != x || b->y != y || b->w != w || b->h != h)
        fail_msg("box %d is class %d [%.17g, %.17g, %.17g, %.17g], wanted %d [%g, %g, %g, %g]", (int)k, b->cls, b->x, b->y, b->w, b->h, cls,
                 x, y, w, h);
}

/* ---- Pascal VOC ---- */

#define OBJECT(name, x1, y1, x2, y2)                                                                                                    \
    "<object>\n<name>" name "</name><pose>Left</pose><difficult>0</difficult>\n<bndbox><xmin>" x1 "</xmin><ymin>" y1 "</ymin><xmax>" x2 \
    "</xmax><ymax>" y2 "</ymax></bndbox></object>\n"
#define XML(body) \
    "<annotation>\n<folder>VOC</folder><size><width>64</width><height>48</height><depth>3</depth></size>\n" body "</annotation>\n"

static void voc(struct place *p)
{
    begin(p, LABELS_VOC, "voc/ImageSets/Main/train.txt");
    put(p, "voc/ImageSets/Main/train.txt", "b\na\n");
    put(p, "voc/Annotations/a.xml", XML(OBJECT("dog", "1", "1", "64", "48") OBJECT("cat", "11", "12", "20", "21")));
    put(p, "voc/Annotations/b.xml", XML(OBJECT(" cow ", "2.5", "3", "10", "12.5")));
    picture(p, "voc/JPEGImages/a.jpg");
    picture(p, "voc/JPEGImages/b.png");
}

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
    told(&p, "voc/Annotations/a.xml, line 6: 'cat' is none of the 2 classes", "data.names");
    assert_string_equal(p.d->classes[0].name, "dog");
    box_is(&p, 0, 1, 1.5, 2, 8.5, 10.5);
    names(&p, "dog\ncow\ndog\n");
    must_fail(&p, ERR_DATA, "some.names, line 3", "'dog' is there twice");
    names(&p, "\n");
    must_fail(&p, ERR_DATA, "some.names", "no name of a class");
    end(&p);
}

/* Classes of the validation split are those of training, whichever it has itself. */
static void voc_validation(void **state)
{
    struct dataset_class classes[2] = { { 7, (char *)"cow" }, { 9, (char *)"dog" } };
    struct dataset train = { .nclasses = 2, .classes = classes };
    struct place p;

    (void)state;
    voc(&p);
    p.opt.train = &train;
    must_read(&p, 2, 2, 1);
    told(&p, "a.xml, line 6: 'cat' is none of the 2 classes", "of the training split");
    box_is(&p, 0, 0, 1.5, 2, 8.5, 10.5);
    box_is(&p, 1, 1, 0, 0, 64, 48);
    assert_int_equal(p.d->classes[1].id, 9);
    end(&p);
}

/* COCO's categories may be called alike. */
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

/* Endings in any case; of two pictures of one name the one that the file says. */
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

/* Doubtful files stay, and their user hears of them. */
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
        { "<annotation><size><width><b/></width></size></annotation>", "inside of what should be text" },
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

/* ---- darknet ---- */

static void darknet(struct place *p)
{
    begin(p, LABELS_DARKNET, "net/cfg/obj.data");
    put(p, "net/cfg/obj.data",
        "classes= 2\ntrain  = data/train.txt\n# a remark\nvalid=data/val.txt\nnames = data/obj.names\nbackup = backup/\n");
    put(p, "net/data/obj.names", "cat\nbig dog\n");
    put(p, "net/data/train.txt", "data/images/b c.png\ndata/images/a.png\n\ndata/obj/d.png\n");
    put(p, "net/data/val.txt", "data/images/a.png\n");
    picture(p, "net/data/images/a.png");
    picture(p, "net/data/images/b c.png");
    picture(p, "net/data/obj/d.png");
    put(p, "net/data/labels/a.txt", "1 0.5 0.5 0.25 0.5\r\n0 0.3 0.2 0.1 0.1\n");
    put(p, "net/data/labels/b c.txt", "");
    put(p, "net/data/obj/d.txt",
        "\xef\xbb\xbf"
        "0 .5 .5 1 1");
}

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
    must_fail(&p, ERR_DATA, "abs.txt", "data.names has to say");
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

/* Cameras and old programs write .TXT: passing it over would make a picture background. */
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

/* A picture whose labels are there and cannot be read is no background. */
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

/* Only the last folder called images has another name where the labels are. */
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
    noted(&p, "obj.data: none of its pictures has a file of labels, as '", "/net/data/labels/n.txt'");
    end(&p);
}

static void bad_lines(void **state)
{
    static const struct {
        enum labels_form form;
        const char *line, *why;
    } bad[] = {
        { LABELS_DARKNET, "x .5 .5 .5 .5", "its class is no whole number" },
        { LABELS_DARKNET, "0.5 .5 .5 .5 .5", "its class is no whole number" },
        { LABELS_DARKNET, "2 .5 .5 .5 .5", "class 2 is not among the 2 names, 0 to 1" },
        { LABELS_DARKNET, "-1 .5 .5 .5 .5", "class -1 is not among" },
        { LABELS_DARKNET, "0 .5 .5 .5", "should be a class and 4 numbers: middle" },
        { LABELS_DARKNET, "0 .1 .1 .5 .1 .5 .5", "should be a class and 4 numbers: middle" },
        { LABELS_YOLO, "0 .1 .1 .5 .1 .5", "at least 3" },
        { LABELS_YOLO, "0 .1 .1 .5 .1 .5 .5 .7", "at least 3" },
        { LABELS_DARKNET, "0 .5 .5 .5 nan", "not numbers alone" },
        { LABELS_DARKNET, "0 .5 .5 .5 0x1", "not numbers alone" },
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

/* What reaches over its picture is clipped and counted, as of COCO. */
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

/* Boxes of whole pixels, and of hundredths as COCO has them, come back from six digits to the bit. */
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

/* ---- folders with a data.yaml ---- */

static void yolo(struct place *p, const char *yaml)
{
    begin(p, LABELS_YOLO, "set/data.yaml");
    put(p, "set/data.yaml", yaml);
    picture(p, "set/images/train/b.png");
    picture(p, "set/images/train/more/a.JPG");
    picture(p, "set/images/val/c.png");
    put(p, "set/images/train/notes.md", "no picture");
    put(p, "set/labels/train/b.txt", "0 .5 .5 .5 .5\n");
    put(p, "set/labels/train/more/a.txt", "1 .25 .25 .75 .25 .75 .75 .25 .75\n");
    put(p, "set/labels/val/c.txt", "1 .5 .5 .5 .5\n");
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
    must_fail(&p, ERR_DATA, "is no data.yaml", "data.names");
    names(&p, "cat\ndog\n");
    must_read(&p, 2, 2, 0);
    end(&p);
}

/* Key points behind a box are no corners of an outline. */
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
    must_fail(&p, ERR_DATA, "set/data.yaml: each line of its labels is a class and 12 numbers", "\"kpt_shape: [4, 2]\"");
    put(&p, "set/data.yaml", "train: images/val\nnames: [a, b]\nkpt_shape: ~\n");
    must_read(&p, 1, 1, 0); /* an outline: the user says so */
    assert_float_equal(p.d->boxes[0].w, 22.4, 1e-9);
    assert_float_equal(p.d->boxes[0].h, 16.8, 1e-9);
    put(&p, "set/labels/val/c.txt", seen);
    put(&p, "set/data.yaml", "train: images/val\nnames: [a, b]\n");
    must_fail(&p, ERR_DATA, "a class and 13 numbers", "\"kpt_shape: [3, 3]\"");
    put(&p, "set/data.yaml", "train: images/val\nnames: [a, b]\nkpt_shape: [3, 3]\n");
    must_read(&p, 1, 2, 0);
    box_is(&p, 0, 0, 24, 12, 16, 24);
    put(&p, "set/data.yaml", "train: images/val\nnames: [a, b]\n"); /* the cause is told, not what follows from it in each line */
    put(&p, "set/labels/val/c.txt", "0 .5 .5 .25 .5 .45 .45 2 .55 .45 2\n1 .5 .5 .25 .5 .45 .45 2 .55 .45 2\n");
    must_fail(&p, ERR_DATA, "a class and 10 numbers", "\"kpt_shape: [2, 3]\"");
    assert_int_equal(p.problems.count, 0);
    put(&p, "set/data.yaml", "train: images/val\nnames: [a, b]\nkpt_shape: [3, 3]\n");
    put(&p, "set/labels/val/c.txt", "0 .5 .5 .25 .5\n0 .5 .5 .25 .5 .1 .1\n");
    must_read(&p, 1, 1, 1);
    told(&p, "labels/val/c.txt, line 2: should be a class, 4 numbers of its box and by kpt_shape 9 of key points", "a class and 6 numbers");
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

/* The same row twice is one object: of yolo one is kept, as its programs do, and elsewhere both. All are told. */
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

/* ---- all of them ---- */

/* Each reader gets an unknown and a misspelt key: it tells each once, with the word that may be meant. */
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

/* The ending of the annotations says their form in any case of its letters, as that of a picture does. */
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

/* The system decides what is above a linked folder. */
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

/* What was checked stays as it was, or is told by name: the index knows every file of labels. */
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

/* Whatever form they are given as, files of these tools are known by name. */
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
    noted(&p, "set/data.yaml: none of its pictures has a file of labels", "labelTxt has rotated boxes, which are not read");
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

/* Wherever a set lies it is the same one. */
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
        cmocka_unit_test(darknet_by_file),
        cmocka_unit_test(darknet_by_list),
        cmocka_unit_test(darknet_validation),
        cmocka_unit_test(labels_in_capital_letters),
        cmocka_unit_test(labels_that_cannot_be_read),
        cmocka_unit_test(last_images),
        cmocka_unit_test(unlabelled_pictures_are_empty),
        cmocka_unit_test(bad_lines),
        cmocka_unit_test(clipped),
        cmocka_unit_test(shares_are_pixels_again),
        cmocka_unit_test(bad_data_files),
        cmocka_unit_test(yolo_folders),
        cmocka_unit_test(yolo_lists_and_maps),
        cmocka_unit_test(yolo_key_points),
        cmocka_unit_test(yolo_other_columns),
        cmocka_unit_test(doubles),
        cmocka_unit_test(yolo_keys),
        cmocka_unit_test(bad_yaml),
        cmocka_unit_test(unknown_keys),
        cmocka_unit_test(marks_and_line_ends),
        cmocka_unit_test(endings_of_annotations),
        cmocka_unit_test(above_a_link),
        cmocka_unit_test(index_knows_the_files),
        cmocka_unit_test(policy),
        cmocka_unit_test(other_tools),
        cmocka_unit_test(other_tools_beside_pictures),
        cmocka_unit_test(rotated_boxes),
        cmocka_unit_test(cvat_archive),
        cmocka_unit_test(hash_knows_no_place),
    };

    return cmocka_run_group_tests_name("labels", tests, NULL, NULL);
}

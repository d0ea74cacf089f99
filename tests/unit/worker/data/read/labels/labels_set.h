/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/data/read/labels/labels_set.h - for tests of data sets
 * with labels in many files: trees on disk, and functions to read them. */
#pragma once
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
#include "tests/stand/harness.h"
#include "worker/data/read/check.h"
#include "worker/data/image/image.h"
#include "worker/data/read/labels/labels.h"
#include "worker/data/set/problems.h"

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
__attribute__((unused)) static char *path_of(const struct place *p, const char *file, char path[512])
{
    snprintf(path, 512, "%s/%s", p->dir, file);
    for (char *at = path + strlen(p->dir) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(path, 0755);
        *at = '/';
    }
    return path;
}

__attribute__((unused)) static void put(const struct place *p, const char *file, const char *text)
{
    char path[512];
    FILE *f = fopen(path_of(p, file, path), "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

__attribute__((unused)) static void picture(const struct place *p, const char *file)
{
    static uint8_t rgb[W * H * 3];
    char path[512];
    struct err err;

    assert_int_equal(image_write_png(path_of(p, file, path), rgb, W, H, &err), 0);
}

__attribute__((unused)) static void begin(struct place *p, enum labels_form form, const char *annotations)
{
    memset(p, 0, sizeof *p);
    temp_path(p->dir, sizeof p->dir, "labels-XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    snprintf(p->annotations, sizeof p->annotations, "%s/%s", p->dir, annotations);
    p->opt = (struct labels_options){ .form = form, .annotations = p->annotations };
}

__attribute__((unused)) static void names(struct place *p, const char *text)
{
    put(p, "some.names", text);
    snprintf(p->names, sizeof p->names, "%s/some.names", p->dir);
    p->opt.names = p->names;
}

__attribute__((unused)) static void end(struct place *p)
{
    char command[TEMP_MAX + 16];

    dataset_free(p->d);
    snprintf(command, sizeof command, "rm -rf '%s'", p->dir);
    assert_int_equal(system(command), 0);
}

__attribute__((unused)) static int read_set(struct place *p)
{
    dataset_free(p->d);
    p->d = NULL;
    memset(&p->problems, 0, sizeof p->problems);
    memset(&p->err, 0, sizeof p->err);
    return labels_read(&p->opt, &p->problems, &p->d, &p->err);
}

__attribute__((unused)) static void must_read(struct place *p, int images, int boxes, int problems)
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
__attribute__((unused)) static void must_fail(struct place *p, int code, const char *first, const char *second)
{
    int rc = read_set(p);

    if (rc != code || !strstr(p->err.msg, first) || !strstr(p->err.msg, second))
        fail_msg("rc %d, '%s', wanted %d, '%s' and '%s'", rc, rc < 0 ? p->err.msg : "", code, first, second);
}

__attribute__((unused)) static void told(const struct place *p, const char *first, const char *second)
{
    for (int i = 0; i < p->problems.kept; i++)
        if (strstr(p->problems.text[i], first) && strstr(p->problems.text[i], second))
            return;
    fail_msg("no problem has '%s' and '%s': '%s'", first, second, p->problems.kept ? p->problems.text[0] : "");
}

/* A note has both parts. */
__attribute__((unused)) static void noted(const struct place *p, const char *first, const char *second)
{
    for (int i = 0; i < p->problems.notes_kept; i++)
        if (strstr(p->problems.note[i], first) && strstr(p->problems.note[i], second))
            return;
    fail_msg("no note has '%s' and '%s': '%s'", first, second, p->problems.notes_kept ? p->problems.note[0] : "");
}

__attribute__((unused)) static void box_is(const struct place *p, int64_t k, int cls, double x, double y, double w, double h)
{
    const struct dataset_box *b = &p->d->boxes[k];

    if (b->cls != cls || b->x != x || b->y != y || b->w != w || b->h != h)
        fail_msg("box %d is class %d [%.17g, %.17g, %.17g, %.17g], wanted %d [%g, %g, %g, %g]", (int)k, b->cls, b->x, b->y, b->w, b->h, cls,
                 x, y, w, h);
}

#define OBJECT(name, x1, y1, x2, y2)                                                                                                    \
    "<object>\n<name>" name "</name><pose>Left</pose><difficult>0</difficult>\n<bndbox><xmin>" x1 "</xmin><ymin>" y1 "</ymin><xmax>" x2 \
    "</xmax><ymax>" y2 "</ymax></bndbox></object>\n"
#define XML(body) \
    "<annotation>\n<folder>VOC</folder><size><width>64</width><height>48</height><depth>3</depth></size>\n" body "</annotation>\n"

__attribute__((unused)) static void voc(struct place *p)
{
    begin(p, LABELS_VOC, "voc/ImageSets/Main/train.txt");
    put(p, "voc/ImageSets/Main/train.txt", "b\na\n");
    put(p, "voc/Annotations/a.xml", XML(OBJECT("dog", "1", "1", "64", "48") OBJECT("cat", "11", "12", "20", "21")));
    put(p, "voc/Annotations/b.xml", XML(OBJECT(" cow ", "2.5", "3", "10", "12.5")));
    picture(p, "voc/JPEGImages/a.jpg");
    picture(p, "voc/JPEGImages/b.png");
}

__attribute__((unused)) static void darknet(struct place *p)
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

__attribute__((unused)) static void yolo(struct place *p, const char *yaml)
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

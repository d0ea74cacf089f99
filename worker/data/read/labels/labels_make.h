/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/labels/labels_make.h - builds a data set of labels picture
 * by picture: forms name the pictures and read each one's file; this sizes the pictures, checks boxes by the rules and
 * numbers everything. Only for the modules of labels.h. */
#pragma once
#include "proto/hash/hash.h"
#include "worker/data/set/idmap.h"
#include "worker/data/image/image_names.h"
#include "worker/data/read/labels/label_names.h"
#include "worker/data/read/labels/label_paths.h"
#include "worker/data/read/labels/labels.h"
#include "worker/data/text/text_lines.h"
#include "worker/data/text/whole_file.h"

struct decoder;

/* An object of the newest picture: equal hashes are the same class, box and outline. */
struct label_row {
    struct hash128 hash;
    int64_t line;
};

/* A picture of the split, from a list or a folder. */
struct label_item {
    char *picture; /* path; of voc's, until it is found, the name of the XML file */
    int32_t list;  /* dataset.files: the list that names it; -1: it was found in a folder */
    int64_t line;  /* there */
};

/* Notes that voc makes once for a whole set, at its end. */
enum { VOC_PLACE = 400 };
struct voc_notes {
    /* boxes that begin at 0; files with a <filename> that differs from the name of their picture */
    int64_t zeros, renamed;
    char zero[VOC_PLACE], rename[VOC_PLACE];
};

/* Properties that all lines of labels share. They tell key points from outlines, which a single line cannot. */
enum { COLUMNS_SEEN = 128 };
struct lines_alike {
    int64_t lines;            /* read so far */
    int n;                    /* numbers after the class of each line; -1: they differ */
    bool pairs, triples;      /* the first four are a box that holds the rest, as points of 2 or of 3 numbers */
    bool whole[COLUMNS_SEEN]; /* number i is a whole one in each line */
};

/* Lines that are left out tell nothing about the others, so they are counted apart. */
struct label_columns {
    int points; /* of data.yaml (data_yaml.h) */
    struct lines_alike good, bad;
};

struct labels_maker {
    const struct labels_options *opt;
    struct problems *problems;
    struct err *err;
    struct dataset *d;
    struct label_names names; /* as the files number them */
    /* [names.n]: index in the classes of the training split, -1: not there; NULL: as they are */
    int32_t *class_of;
    struct label_item *item;
    int nitems;
    size_t items_room, boxes_room, files_room;
    struct decoder *dec;
    struct whole_file file; /* the file read last */
    struct label_columns columns;
    struct label_row *row; /* [nrows]: objects of the newest picture */
    struct idmap row_of;   /* by their hashes, or the next number that was free */
    int nrows;
    size_t rows_room;
    char unlabelled[800]; /* the first picture without a file of labels, and the place for that file */
    struct voc_notes voc;
    struct image_names pictures; /* of voc: the folder that was searched last */
    char **picture;              /* [d->nimages]: path of each */
    const char *where;           /* the file of the boxes that are being added */
};

/* An object of a file, in pixels. */
struct label_box {
    int64_t line;
    int cls; /* of names */
    double x, y, w, h;
    bool crowd;
    const double (*xy)[2]; /* its outline; NULL: no outline */
    int npoints;
};

/* All functions that return an int return 0, or an error that ends the reading. */

int labels_no_memory(struct labels_maker *m);
/* Reads a file of the set into m->file and remembers it as a file that must not change. must: else a file that is
 * missing or bad is reported as a problem; returns 1 then. */
int labels_make_file(struct labels_maker *m, const char *path, int64_t max_bytes, bool must);
/* Adds the names of a file, one a line, read with labels_make_file(). */
int labels_make_names(struct labels_maker *m, const char *path);
/* The names of the training split, numbered like its classes; ERR_DATA: two have the same name, so that a name
 * identifies neither. */
int labels_make_train_names(struct labels_maker *m, struct label_names *names);
/* Adds a picture; list: dataset.files, or -1. */
int labels_make_item(struct labels_maker *m, const char *picture, int32_t list, int64_t line);
/* "LIST, line 7: " for an item, or "". */
const char *labels_make_place(const struct labels_maker *m, const struct label_item *item, char *buf, size_t size);
/* Width and height of a picture from its header. 1: reported as a problem, the picture is left out. */
int labels_make_size(struct labels_maker *m, const char *picture, int *ret_w, int *ret_h);
/* The next picture, of w x h pixels, is item number i; boxes follow. 1: its size is reported as a problem. */
int labels_make_image(struct labels_maker *m, int i, const char *picture, int w, int h);
/* Adds a box to the newest picture. A bad one is reported as a problem and left out. An object that the picture has
 * already is reported as a note; yolo drops it. */
int labels_make_box(struct labels_maker *m, const struct label_box *box);
/* A bad record of m->where. */
void labels_make_problem(struct labels_maker *m, int64_t line, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* A form: names the pictures, then reads each one's labels; item i of m->item. */
struct labels_kind {
    int (*open)(struct labels_maker *m);
    int (*take)(struct labels_maker *m, int i);
    int (*end)(struct labels_maker *m); /* after the last picture; may be NULL */
};
extern const struct labels_kind labels_voc, labels_darknet, labels_yolo;
/* Lines of text in darknet's form: the `take` of the other two. */
int labels_text_take(struct labels_maker *m, int i);
/* Tells where labels were looked for if no picture has any. ERR_DATA: judged by all their lines, labels that were taken
 * for outlines are boxes with key points. */
int labels_text_end(struct labels_maker *m);
/* The pictures of a list, one path a line, relative to folder; or the pictures below a folder. */
int labels_text_list(struct labels_maker *m, const char *path, const char *folder);
int labels_text_folder(struct labels_maker *m, const char *path);

/* SPDX-License-Identifier: Apache-2.0 */ /* Labels as darknet has them: a text file for each picture, a line for each
 * object. A line is the class, from 0, then centre and size of the box, as fractions of the picture's width and height.
 * For ultralytics' programs a line may also be a class and the corners of an outline. A picture without a file, or with
 * an empty one, has no object. Fractions become pixels rounded to hundredths, which is COCO's precision: boxes in whole
 * pixels, or from COCO, that were written with six digits are restored to the bit. Source: specs yolov3 section 5.1. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/err.h"
#include "proto/grow.h"
#include "worker/data/image/image_names.h"
#include "worker/data/read/labels/labels_make.h"
#include "worker/data/set/problems.h"

enum { LABELS_MAX_BYTES = 256 << 20, LIST_MAX_BYTES = 1 << 28 };
/* OVER: fractions this far outside are due to rounding. PIXELS: numbers above this are pixels, not fractions. */
static const double OVER = 1e-3, PIXELS = 1.5;

/* ---- one file ---- */

/* Converts a fraction to pixels of a side. */
static double pixels(double share, int side)
{
    return rint(share * side * 100) / 100;
}

struct numbers {
    double *v;
    int n;
    size_t room;
};

/* Reads the class and the numbers behind it. Returns the line's flaw, or NULL. */
static const char *read_line(struct text_line line, struct numbers *v, double *ret_cls, bool *ret_memory)
{
    struct text_line word;

    *ret_memory = false;
    v->n = 0;
    if (!text_word(&line, &word) || !text_number(&word, ret_cls) || *ret_cls != floor(*ret_cls))
        return "its class is not a whole number";
    while (text_word(&line, &word)) {
        *ret_memory = !GROW(v->v, v->room, v->n + 1);
        if (*ret_memory)
            return "no memory";
        if (!text_number(&word, &v->v[v->n++]))
            return "its class must be followed by numbers only";
    }
    return NULL;
}

/* n: how many of them are fractions. */
static const char *share_flaw(const struct numbers *v, int n, bool box)
{
    for (int i = 0; i < n; i++) {
        if (v->v[i] > PIXELS)
            return "looks like pixels: a box must be given as fractions of the picture's width and height, 0 to 1";
        if (box && i >= 2 ? v->v[i] > 1 + OVER : v->v[i] > 1 + OVER || v->v[i] < -OVER)
            return "is outside its picture: fractions must be 0 to 1";
    }
    return NULL;
}

/* ---- properties of all lines ---- */

/* True if the points, of `size` numbers each, lie in the box before them or near its edge. 0 0 means not visible. */
static bool frames_points(const struct numbers *v, int size)
{
    const double *b = v->v, x = b[2] * 0.6, y = b[3] * 0.6;

    if ((v->n - 4) % size != 0 || b[0] - b[2] / 2 < -OVER || b[0] + b[2] / 2 > 1 + OVER || b[1] - b[3] / 2 < -OVER ||
        b[1] + b[3] / 2 > 1 + OVER)
        return false;
    for (int i = 4; i < v->n; i += size) {
        const double *p = &b[i];

        if ((p[0] != 0 || p[1] != 0) && (fabs(p[0] - b[0]) > x || fabs(p[1] - b[1]) > y))
            return false;
        if (size == 3 && p[2] != 0 && p[2] != 1 && p[2] != 2)
            return false;
    }
    return true;
}

static void columns_see(struct lines_alike *c, const struct numbers *v)
{
    if (c->lines++ == 0) {
        c->n = v->n;
        c->pairs = c->triples = true;
        for (int i = 0; i < COLUMNS_SEEN; i++)
            c->whole[i] = true;
    }
    c->n = c->n == v->n ? c->n : -1;
    c->pairs = c->pairs && v->n > 4 && frames_points(v, 2);
    c->triples = c->triples && v->n > 4 && frames_points(v, 3);
    for (int i = 0; i < v->n && i < COLUMNS_SEEN; i++)
        c->whole[i] = c->whole[i] && v->v[i] == floor(v->v[i]);
}

/* The first column behind the box that is whole in every line, such as a visibility or the number of a track. -1: no
 * such column, or the boxes are whole as well, which proves nothing. */
static int whole_column(const struct lines_alike *c)
{
    if (c->lines < 4 || (c->whole[0] && c->whole[1] && c->whole[2] && c->whole[3]))
        return -1;
    for (int i = 4; i < c->n && i < COLUMNS_SEEN; i++)
        if (c->whole[i])
            return i;
    return -1;
}

/* True if a folder labelTxt lies beside that of the pictures, where Roboflow exports rotated boxes. */
static bool has_rotated(const struct labels_maker *m)
{
    char folder[DATASET_MAX_PATH], up[DATASET_MAX_PATH], path[DATASET_MAX_PATH];
    struct stat st;

    label_path_folder(m->picture[0], folder);
    label_path_folder(folder, up);
    return label_path(up, "labelTxt", path) && stat(path, &st) == 0;
}

/* Notes a set without any file of labels: they probably lie elsewhere. */
static void tell_unlabelled(struct labels_maker *m)
{
    if (m->d->nimages > 0 && m->d->unlabelled == m->d->nimages)
        problems_note(m->problems, "%s: no picture of it has a file of labels, such as %s%s", m->opt->annotations, m->unlabelled,
                      has_rotated(m) ? "; labelTxt has rotated boxes, which are not read: export \"YOLOv8\" or \"COCO\"" : "");
}

int labels_text_end(struct labels_maker *m)
{
    const struct lines_alike *good = &m->columns.good, *bad = &m->columns.bad, *c = bad->lines > good->lines ? bad : good;
    int size = c->triples ? 3 : 2, column = whole_column(c);

    tell_unlabelled(m);
    if (m->opt->form != LABELS_YOLO || m->columns.points >= 0 || c->lines == 0 || c->n < 6 || (!c->triples && !c->pairs && column < 0))
        return 0;
    problems_forget(m->problems);
    if (c->triples || c->pairs)
        return err_set(m->err, ERR_DATA,
                       "%s: lines of its labels are a class and %d numbers, and the first four are a box around the rest: key points? "
                       "Then data.yaml needs \"kpt_shape: [%d, %d]\"; if they are corners of outlines, \"kpt_shape: null\"",
                       m->opt->annotations, c->n, (c->n - 4) / size, size);
    return err_set(m->err, ERR_DATA,
                   "%s: lines of its labels are a class and %d numbers, and number %d is whole in every line, unlike corners of outlines. "
                   "Key points need \"kpt_shape: [K, D]\" in data.yaml, other columns behind a box have to go, and outlines need "
                   "\"kpt_shape: null\"",
                   m->opt->annotations, c->n, column + 1);
}

/* ---- one object ---- */

/* The box of an outline is its bounds. */
static int put_outline(struct labels_maker *m, struct numbers *v, int w, int h, struct label_box *box)
{
    double(*xy)[2] = malloc((size_t)v->n / 2 * sizeof *xy), least[2] = { INFINITY, INFINITY }, most[2] = { -INFINITY, -INFINITY };
    int rc;

    if (!xy)
        return labels_no_memory(m);
    for (int i = 0; i < v->n / 2; i++)
        for (int k = 0; k < 2; k++) {
            xy[i][k] = pixels(v->v[2 * i + k], k ? h : w);
            least[k] = fmin(least[k], xy[i][k]);
            most[k] = fmax(most[k], xy[i][k]);
        }
    box->x = least[0];
    box->y = least[1];
    box->w = most[0] - least[0];
    box->h = most[1] - least[1];
    box->xy = (const double(*)[2])xy;
    box->npoints = v->n / 2;
    rc = labels_make_box(m, box);
    free(xy);
    return rc;
}

static int put_box(struct labels_maker *m, const struct numbers *v, int w, int h, struct label_box *box)
{
    box->w = pixels(v->v[2], w);
    box->h = pixels(v->v[3], h);
    box->x = pixels(v->v[0] - v->v[2] / 2, w);
    box->y = pixels(v->v[1] - v->v[3] / 2, h);
    return labels_make_box(m, box);
}

/* True if the line is an outline; otherwise it is a box, perhaps with key points behind it. */
static bool is_outline(const struct labels_maker *m, const struct numbers *v)
{
    return m->opt->form == LABELS_YOLO && m->columns.points <= 0 && v->n >= 6 && v->n % 2 == 0 && v->n / 2 <= MASK_MAX_POINTS;
}

static bool is_shape(const struct labels_maker *m, const struct numbers *v)
{
    return v->n == 4 || is_outline(m, v) || (m->columns.points > 0 && v->n == 4 + m->columns.points);
}

static void tell_shape(struct labels_maker *m, int64_t line, int n)
{
    if (m->columns.points > 0)
        labels_make_problem(m, line,
                            "should be a class, 4 numbers of its box and by kpt_shape %d of key points; has a class and %d numbers",
                            m->columns.points, n);
    else if (m->opt->form == LABELS_YOLO)
        labels_make_problem(
            m, line, "should be a class and 4 numbers, or a class and the corners of an outline, at least 3; has a class and %d numbers",
            n);
    else
        labels_make_problem(m, line, "should be a class and 4 numbers: middle x y, width, height; has a class and %d numbers", n);
}

static int put_line(struct labels_maker *m, struct text_line line, struct numbers *v, int w, int h)
{
    struct label_box box = { .line = line.number };
    bool memory, shape, outline, known;
    double cls;
    const char *why = read_line(line, v, &cls, &memory);

    if (memory)
        return labels_no_memory(m);
    if (why) {
        labels_make_problem(m, line.number, "%s", why);
        return 0;
    }
    shape = is_shape(m, v);
    outline = is_outline(m, v);
    known = cls >= 0 && cls < m->names.n;
    why = shape ? share_flaw(v, outline ? v->n : 4, !outline) : NULL;
    columns_see(shape && !why && known ? &m->columns.good : &m->columns.bad, v);
    if (!shape)
        tell_shape(m, line.number, v->n);
    else if (why)
        labels_make_problem(m, line.number, "%s", why);
    else if (!known)
        labels_make_problem(m, line.number, "class %g is not among the %d names, 0 to %d", cls, m->names.n, m->names.n - 1);
    if (!shape || why || !known)
        return 0;
    box.cls = (int)cls;
    return outline ? put_outline(m, v, w, h, &box) : put_box(m, v, w, h, &box);
}

static int put_lines(struct labels_maker *m, const char *path, int w, int h)
{
    struct numbers v = { 0 };
    struct err why = { 0 };
    struct text_lines l;
    struct text_line line;
    int rc = 0, got;

    text_lines_open(&l, path, m->file.bytes, m->file.size);
    while (rc >= 0 && (got = text_lines_next(&l, &line, &why)) != 0) {
        if (got < 0)
            problems_add(m->problems, "%s", why.msg);
        else
            rc = put_line(m, line, &v, w, h);
    }
    free(v.v);
    return rc;
}

/* True if the path exists. A dangling link counts, and a path that cannot be examined, as in a folder without
 * permission: reading it later reports the error. */
static bool there(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

/* Looks for the labels at path, which ends with .txt, and then with .TXT; *path becomes the name found. */
static bool find_labels(char path[DATASET_MAX_PATH])
{
    char *ending = path + strlen(path) - 3;

    if (there(path))
        return true;
    memcpy(ending, "TXT", 4);
    if (there(path))
        return true;
    memcpy(ending, "txt", 4);
    return false;
}

/* Remembers the first picture without a file of labels. */
static void see_unlabelled(struct labels_maker *m, const char *picture)
{
    char path[DATASET_MAX_PATH];

    if (m->d->unlabelled++ == 0 && (label_path_rule(picture, path) || label_path_beside(picture, path)))
        snprintf(m->unlabelled, sizeof m->unlabelled, "'%.380s', which would be '%.380s'", picture, path);
}

int labels_text_take(struct labels_maker *m, int i)
{
    const char *picture = m->item[i].picture;
    char path[DATASET_MAX_PATH];
    int w, h, rc;
    bool labelled;

    labelled = (label_path_rule(picture, path) && find_labels(path)) || (label_path_beside(picture, path) && find_labels(path));
    m->where = path;
    rc = labels_make_size(m, picture, &w, &h);
    if (rc == 0 && labelled)
        rc = labels_make_file(m, path, LABELS_MAX_BYTES, false);
    if (rc == 0)
        rc = labels_make_image(m, i, picture, w, h);
    if (rc == 0 && !labelled)
        see_unlabelled(m, picture);
    return rc == 0 && labelled ? put_lines(m, path, w, h) : rc;
}

/* ---- the pictures ---- */

/* A path may contain blanks, so the whole line is one path. */
static int put_picture(struct labels_maker *m, const char *list, const char *folder, const struct text_line *line)
{
    char text[DATASET_MAX_PATH], from[DATASET_MAX_PATH], path[DATASET_MAX_PATH];

    if (line->len >= sizeof text / 2)
        return err_set(m->err, ERR_DATA, "%s, line %lld: path too long", list, (long long)line->number);
    memcpy(text, line->text, line->len);
    text[line->len] = '\0';
    if (m->opt->form == LABELS_YOLO && line->len > 2 && text[0] == '.' && text[1] == '/')
        label_path_folder(list, from); /* like ultralytics' programs */
    else
        snprintf(from, sizeof from, "%s", folder);
    if (!label_path(from, text, path))
        return err_set(m->err, ERR_DATA, "%s, line %lld: path too long", list, (long long)line->number);
    return labels_make_item(m, path, m->d->nfiles - 1, line->number);
}

int labels_text_list(struct labels_maker *m, const char *path, const char *folder)
{
    struct text_lines l;
    struct text_line line;
    int rc = labels_make_file(m, path, LIST_MAX_BYTES, true);

    if (rc < 0)
        return rc;
    text_lines_open(&l, path, m->file.bytes, m->file.size);
    while ((rc = text_lines_next(&l, &line, m->err)) > 0)
        if ((rc = put_picture(m, path, folder, &line)) < 0)
            return rc;
    return rc;
}

static int found(void *arg, const char *path, struct err *err)
{
    (void)err; /* the maker holds it */
    return labels_make_item(arg, path, -1, 0);
}

int labels_text_folder(struct labels_maker *m, const char *path)
{
    return label_paths_scan(path, true, image_name_is_picture, found, m, m->err);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* Pascal VOC. Either a list of ImageSets, a name a line: Annotations/NAME.xml
 * and the picture JPEGImages/NAME lie in its root, which is data.train.images, by default the folder that contains
 * ImageSets. Or a folder of XML files, each with a picture of its name in data.train.images, by default beside it.
 * Source: the development kit of VOC2012; its example code counts pixels from 1, and boxes include their last pixel. */
#include <assert.h>
#include <errno.h>
#include <expat.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/grow.h"
#include "worker/data/image/image_names.h"
#include "worker/data/read/labels/labels_make.h"
#include "worker/data/set/problems.h"

enum { XML_MAX_BYTES = 64 << 20, XML_MAX_DEPTH = 32, XML_MAX_TEXT = 1023, LIST_MAX_BYTES = 1 << 28 };

#if XML_MAJOR_VERSION > 2 || XML_MINOR_VERSION >= 9 /* newer versions deprecate the function without 64 */
#define line_of XML_GetCurrentLineNumber64
#else
#define line_of XML_GetCurrentLineNumber
#endif
#pragma GCC poison XML_GetCurrentLineNumber /* use line_of instead */

/* ---- one file ---- */

enum side { XMIN, YMIN, XMAX, YMAX, SIDES };
static const char *const side_names[SIDES] = { "xmin", "ymin", "xmax", "ymax" };

struct voc_object {
    int64_t line;
    char name[LABEL_NAME_MAX + 1]; /* "": not met yet */
    double side[SIDES];
    int told[SIDES], names, boxes; /* how often each was met */
    bool difficult;
    const char *flaw; /* constant text; NULL: good */
};

/* The parser's place. Unknown elements are skipped with their contents. */
enum place { ROOT, IN_ANNOTATION, IN_SIZE, IN_OBJECT, IN_BOX, IN_LEAF, IN_OTHER };

struct voc_file {
    struct labels_maker *m;
    XML_Parser parser;
    enum place place[XML_MAX_DEPTH + 1];
    int depth;
    char leaf[16]; /* its name; known names fit */
    char text[XML_MAX_TEXT + 1];
    size_t len;
    char filename[XML_MAX_TEXT + 1]; /* without folders; "": not stated */
    double width, height;            /* 0: not stated */
    int64_t bad_size;                /* line of a wrong <size>; 0: the size is good */
    struct voc_object *object;
    int nobjects;
    size_t room;
    const char *why; /* reason for ending the parse: constant text */
    bool memory;
};

static void stop(struct voc_file *f, const char *why)
{
    if (!f->why)
        f->why = why;
    XML_StopParser(f->parser, XML_FALSE);
}

static void new_object(struct voc_file *f)
{
    if (!GROW(f->object, f->room, f->nobjects + 1)) {
        f->memory = true;
        stop(f, "no memory");
        return;
    }
    f->object[f->nobjects++] = (struct voc_object){ .line = (int64_t)line_of(f->parser) };
}

static bool is_leaf(enum place in, const char *name)
{
    static const char *const size[] = { "width", "height", NULL }, *const object[] = { "name", "difficult", NULL };
    static const char *const box[] = { "xmin", "ymin", "xmax", "ymax", NULL }, *const file[] = { "filename", NULL };
    const char *const *of = in == IN_SIZE ? size : in == IN_OBJECT ? object : in == IN_BOX ? box : in == IN_ANNOTATION ? file : NULL;

    for (; of && *of; of++)
        if (strcmp(*of, name) == 0)
            return true;
    return false;
}

/* Known elements of the development kit and of usual tools that change nothing here. */
static bool is_harmless(enum place in, const char *name)
{
    static const char *const annotation[] = { "folder", "filename", "path", "source", "owner", "segmented", NULL }, *const size[] = {
        "depth", NULL
    };
    static const char *const object[] = { "pose", "truncated", "occluded", "part", "polygon", "actions", "point", "attributes", NULL };
    const char *const *of = in == IN_ANNOTATION ? annotation : in == IN_SIZE ? size : in == IN_OBJECT ? object : NULL;

    for (; of && *of; of++)
        if (strcmp(*of, name) == 0)
            return true;
    return false;
}

/* Notes an unknown element, once for each name in a set. */
static void tell_element(struct voc_file *f, enum place in, const char *name)
{
    static const char *const where[] = {
        [IN_ANNOTATION] = "<annotation>", [IN_SIZE] = "<size>", [IN_OBJECT] = "<object>", [IN_BOX] = "<bndbox>"
    };
    static const char *const ours[] = { "filename", "size", "width", "height", "object", "name", "difficult",
                                        "bndbox",   "xmin", "ymin",  "xmax",   "ymax",   NULL };
    char place[VOC_PLACE + 32], what[32];

    if (is_harmless(in, name))
        return;
    snprintf(place, sizeof place, "%.*s, line %lld", VOC_PLACE, f->m->where, (long long)line_of(f->parser));
    snprintf(what, sizeof what, "element of %s", where[in]);
    problems_note_key(f->m->problems, place, what, name, ours);
}

static void flaw(struct voc_object *o, const char *text)
{
    if (!o->flaw)
        o->flaw = text;
}

/* The new place of the parser at the start of this element. */
static enum place place_of(struct voc_file *f, enum place in, const char *name)
{
    if (in == ROOT) {
        if (strcmp(name, "annotation") != 0)
            stop(f, "its root is not <annotation>");
        return IN_ANNOTATION;
    }
    if (in == IN_ANNOTATION && strcmp(name, "size") == 0)
        return IN_SIZE;
    if (in == IN_ANNOTATION && strcmp(name, "object") == 0) {
        new_object(f);
        return IN_OBJECT;
    }
    if (in == IN_OBJECT && strcmp(name, "bndbox") == 0) {
        f->object[f->nobjects - 1].boxes++;
        return IN_BOX;
    }
    if (in == IN_OBJECT && strcmp(name, "robndbox") == 0) { /* from roLabelImg */
        flaw(&f->object[f->nobjects - 1], "has <robndbox>, a rotated box, which is not read");
        return IN_OTHER;
    }
    if (in == IN_LEAF)
        stop(f, "an element where only text may be");
    if (is_leaf(in, name))
        return IN_LEAF;
    if (in != IN_OTHER && in != IN_LEAF)
        tell_element(f, in, name);
    return IN_OTHER;
}

static void XMLCALL on_start(void *arg, const XML_Char *name, const XML_Char **attributes)
{
    struct voc_file *f = arg;

    (void)attributes;
    if (f->why)
        return;
    if (f->depth == XML_MAX_DEPTH) {
        stop(f, "elements are nested too deep");
        return;
    }
    f->place[f->depth + 1] = place_of(f, f->depth ? f->place[f->depth] : ROOT, name);
    f->depth++;
    if (f->place[f->depth] == IN_LEAF) {
        snprintf(f->leaf, sizeof f->leaf, "%s", name);
        f->len = 0;
    }
}

static void XMLCALL on_text(void *arg, const XML_Char *text, int len)
{
    struct voc_file *f = arg;

    if (f->why || f->depth == 0 || f->place[f->depth] != IN_LEAF)
        return;
    if (f->len + (size_t)len > XML_MAX_TEXT) {
        stop(f, "a text is too long");
        return;
    }
    memcpy(f->text + f->len, text, (size_t)len);
    f->len += (size_t)len;
}

/* Removes the blanks around the text. */
static void trim(struct voc_file *f)
{
    const char *blanks = " \t\r\n";
    size_t skip;

    f->text[f->len] = '\0';
    while (f->len > 0 && strchr(blanks, f->text[f->len - 1]))
        f->text[--f->len] = '\0';
    skip = strspn(f->text, blanks);
    memmove(f->text, f->text + skip, f->len + 1 - skip);
    f->len -= skip;
}

static bool number(const struct voc_file *f, double *ret)
{
    return text_number(&(struct text_line){ .text = f->text, .len = f->len }, ret);
}

static void end_of_object_leaf(struct voc_file *f, struct voc_object *o)
{
    double v;

    if (f->leaf[0] == 'n') {
        o->names++;
        if (f->len == 0 || f->len > LABEL_NAME_MAX)
            flaw(o, "<name> is empty or too long");
        else
            memcpy(o->name, f->text, f->len + 1);
    } else if (f->m->opt->difficult || f->len == 0) {
        o->difficult = false; /* not used, or not stated */
    } else if (!number(f, &v) || (v != 0 && v != 1)) {
        flaw(o, "<difficult> is neither 0 nor 1");
    } else {
        o->difficult = v != 0;
    }
}

static void end_of_side(struct voc_file *f, struct voc_object *o)
{
    static const char *const bad[SIDES] = { "<xmin> is not a number", "<ymin> is not a number", "<xmax> is not a number",
                                            "<ymax> is not a number" };

    for (int i = 0; i < SIDES; i++)
        if (strcmp(f->leaf, side_names[i]) == 0) {
            o->told[i]++;
            if (!number(f, &o->side[i]))
                flaw(o, bad[i]);
        }
}

/* Cuts off the folders, also those of Windows: they are of another computer. */
static void end_of_filename(struct voc_file *f)
{
    const char *name = f->text;

    for (const char *p = f->text; *p; p++)
        if (*p == '/' || *p == '\\')
            name = p + 1;
    snprintf(f->filename, sizeof f->filename, "%s", name);
}

/* Some programs write 0 for an unknown size. */
static void end_of_size(struct voc_file *f)
{
    double v;

    if (!number(f, &v) || v < 0 || v != floor(v) || v > 1e9)
        f->bad_size = (int64_t)line_of(f->parser);
    else
        *(f->leaf[0] == 'w' ? &f->width : &f->height) = v;
}

/* The object that the current elements belong to. */
static struct voc_object *newest(struct voc_file *f)
{
    assert(f->nobjects > 0);
    return &f->object[f->nobjects - 1];
}

static void XMLCALL on_end(void *arg, const XML_Char *name)
{
    struct voc_file *f = arg;

    (void)name;
    if (f->why)
        return;
    if (f->place[f->depth] == IN_LEAF) {
        trim(f);
        if (f->place[f->depth - 1] == IN_ANNOTATION)
            end_of_filename(f);
        else if (f->place[f->depth - 1] == IN_SIZE)
            end_of_size(f);
        else if (f->place[f->depth - 1] == IN_OBJECT)
            end_of_object_leaf(f, newest(f));
        else
            end_of_side(f, newest(f));
    }
    f->depth--;
}

/* A DOCTYPE is refused: it could define text that grows without end, and annotations never need one. */
static void XMLCALL on_doctype(void *arg, const XML_Char *name, const XML_Char *system, const XML_Char *pub, int has_subset)
{
    (void)name;
    (void)system;
    (void)pub;
    (void)has_subset;
    stop(arg, "a document type is declared");
}

/* Returns 0; 1 after reporting a problem; or an error. The caller frees f->object. */
static int parse(struct labels_maker *m, const char *path, struct voc_file *f)
{
    enum XML_Status status;
    long long line;

    *f = (struct voc_file){ .m = m, .parser = XML_ParserCreate(NULL) };
    if (!f->parser)
        return labels_no_memory(m);
    XML_SetUserData(f->parser, f);
    XML_SetElementHandler(f->parser, on_start, on_end);
    XML_SetCharacterDataHandler(f->parser, on_text);
    XML_SetStartDoctypeDeclHandler(f->parser, on_doctype);
    status = XML_Parse(f->parser, (const char *)m->file.bytes, (int)m->file.size, XML_TRUE);
    line = (long long)line_of(f->parser);
    if (status != XML_STATUS_OK && !f->why) {
        f->memory = XML_GetErrorCode(f->parser) == XML_ERROR_NO_MEMORY;
        f->why = XML_ErrorString(XML_GetErrorCode(f->parser));
    }
    XML_ParserFree(f->parser);
    if (f->memory)
        return labels_no_memory(m);
    if (f->why)
        problems_add(m->problems, "%s, line %lld: no annotation: %s", path, line, f->why);
    return f->why ? 1 : 0;
}

/* ---- objects ---- */

static const char *missing(const struct voc_object *o)
{
    static const char *const texts[SIDES] = { "has no <xmin>", "has no <ymin>", "has no <xmax>", "has no <ymax>" };

    if (o->flaw)
        return o->flaw;
    if (o->names != 1)
        return o->names ? "has two names" : "has no <name>";
    if (o->boxes != 1)
        return o->boxes ? "has two boxes" : "has no <bndbox>";
    for (int i = 0; i < SIDES; i++)
        if (o->told[i] != 1)
            return o->told[i] ? "a side of its box is there twice" : texts[i];
    return NULL;
}

static int put_object(struct labels_maker *m, const struct voc_object *o, bool named)
{
    const struct labels_options *opt = m->opt;
    double inside = opt->corners ? 0 : 1;
    struct label_box box = { .line = o->line, .crowd = o->difficult };
    const char *why = missing(o);

    box.cls = why ? -1 : label_names_find(&m->names, o->name);
    if (why) {
        labels_make_problem(m, o->line, "object %s", why);
        return 0;
    }
    if (box.cls < 0 && named) {
        labels_make_problem(m, o->line, "'%.100s' is not one of the %d classes%s", o->name, m->names.n,
                            opt->names   ? " of data.names"
                            : opt->train ? " of the training split"
                                         : "");
        return 0;
    }
    if (box.cls < 0)
        box.cls = label_names_add(&m->names, m->where, o->name, m->err);
    if (box.cls < 0)
        return box.cls;
    if (!opt->corners && (o->side[XMIN] < 1 || o->side[YMIN] < 1) && m->voc.zeros++ == 0)
        snprintf(m->voc.zero, sizeof m->voc.zero, "%.380s, line %lld", m->where, (long long)o->line);
    box.x = o->side[XMIN] - inside;
    box.y = o->side[YMIN] - inside;
    box.w = o->side[XMAX] - o->side[XMIN] + inside;
    box.h = o->side[YMAX] - o->side[YMIN] + inside;
    return labels_make_box(m, &box);
}

/* ---- pictures ---- */

/* The folder that the pictures of an XML file are in. */
static void folder_of(const struct labels_maker *m, const struct label_item *item, char ret[DATASET_MAX_PATH])
{
    char folder[DATASET_MAX_PATH], up[DATASET_MAX_PATH];

    label_path_folder(item->picture, folder);
    label_path_folder(folder, up); /* Annotations may be a link, and .. would follow it */
    if (item->list >= 0)
        label_path(up, "JPEGImages", ret);
    else
        label_path(".", m->opt->images ? m->opt->images : folder, ret);
}

/* Among pictures with the same stem: the only one, or the one that <filename> names. Returns its index, or -1. */
static int64_t choose(const struct image_names *names, size_t first, size_t n, const char *filename)
{
    for (size_t i = first; i < first + n; i++)
        if (n == 1 || strcmp(names->file[i], filename) == 0)
            return (int64_t)i;
    return -1;
}

/* <filename> may lack the ending. */
static bool names_picture(const char *filename, const char *stem)
{
    size_t len = strlen(stem);

    return strncmp(filename, stem, len) == 0 && (!filename[len] || image_name_ending(filename) == filename + len);
}

static void tell_none(struct labels_maker *m, const char *xml, const char *name, const char *folder, const char *filename)
{
    if (*filename && !names_picture(filename, name))
        problems_add(m->problems,
                     "%s: there is no picture '%.100s' in '%.150s' (" IMAGE_NAMES_READ "); its <filename> '%.100s' is not used", xml, name,
                     folder, filename);
    else
        problems_add(m->problems, "%s: there is no picture '%.100s' in '%.200s' (" IMAGE_NAMES_READ ")", xml, name, folder);
}

/* The picture of an XML file. Returns 0; 1 after reporting a problem; or -ENOMEM. */
static int picture_of(struct labels_maker *m, const struct label_item *item, const char *filename, char ret[DATASET_MAX_PATH])
{
    char name[DATASET_MAX_PATH], folder[DATASET_MAX_PATH];
    size_t first = 0, n = 0;
    int64_t at;

    label_path_stem(item->picture, name);
    folder_of(m, item, folder);
    if (image_names_list(&m->pictures, folder, m->err) == -ENOMEM)
        return -ENOMEM;
    n = image_names_find(&m->pictures, name, &first);
    at = choose(&m->pictures, first, n, filename);
    if (at >= 0 && label_path(folder, m->pictures.file[at], ret))
        return 0;
    if (n > 1)
        problems_add(m->problems, "%s: '%.200s' has both '%.60s' and '%.60s'; <filename> should name one of them, is '%.60s'",
                     item->picture, folder, m->pictures.file[first], m->pictures.file[first + 1], filename);
    else
        tell_none(m, item->picture, name, folder, filename);
    return 1;
}

/* Counts files with a <filename> of another picture. */
static void see_filename(struct labels_maker *m, const char *filename, const char *picture)
{
    const char *slash = strrchr(picture, '/'), *name = slash ? slash + 1 : picture;
    char stem[DATASET_MAX_PATH];

    label_path_stem(picture, stem);
    if (!*filename || strcasecmp(filename, name) == 0 || strcasecmp(filename, stem) == 0)
        return;
    if (m->voc.renamed++ == 0)
        snprintf(m->voc.rename, sizeof m->voc.rename, "%.250s: <filename> is '%.100s'", m->where, filename);
}

/* The size that the file states, by default that of the picture. */
static int size_of(struct labels_maker *m, const struct voc_file *f, const char *picture, int *ret_w, int *ret_h)
{
    if (f->bad_size)
        problems_note(m->problems, "%s, line %lld: <size> holds something that is no number of pixels; the picture's own size counts",
                      m->where, (long long)f->bad_size);
    if (f->bad_size || f->width == 0 || f->height == 0)
        return labels_make_size(m, picture, ret_w, ret_h);
    *ret_w = (int)f->width;
    *ret_h = (int)f->height;
    return 0;
}

static int take(struct labels_maker *m, int i)
{
    const struct label_item *item = &m->item[i];
    bool named = m->opt->names || m->opt->train;
    char picture[DATASET_MAX_PATH];
    struct voc_file f;
    int w = 0, h = 0, rc;

    m->where = item->picture;
    rc = labels_make_file(m, item->picture, XML_MAX_BYTES, false);
    if (rc != 0)
        return rc;
    rc = parse(m, item->picture, &f);
    if (rc == 0)
        rc = picture_of(m, item, f.filename, picture);
    if (rc == 0)
        rc = size_of(m, &f, picture, &w, &h);
    if (rc == 0)
        rc = labels_make_image(m, i, picture, w, h);
    if (rc == 0)
        see_filename(m, f.filename, picture);
    for (int k = 0; k < f.nobjects && rc == 0; k++)
        rc = put_object(m, &f.object[k], named);
    free(f.object);
    return rc;
}

/* Notes pictures without an XML file in a folder of XML files. They are not used: it is unknown whether they contain
 * objects. */
static int tell_unused(struct labels_maker *m)
{
    const struct image_names *names = &m->pictures;
    bool *used = calloc(names->n + 1, sizeof *used);
    char stem[DATASET_MAX_PATH];
    size_t unused = 0, last = 0, first;

    if (!used)
        return labels_no_memory(m);
    for (int i = 0; i < m->nitems; i++) {
        label_path_stem(m->item[i].picture, stem);
        for (size_t n = image_names_find(names, stem, &first); n > 0; n--)
            used[first + n - 1] = true;
    }
    for (size_t i = names->n; i-- > 0;)
        if (!used[i]) {
            unused++;
            last = i;
        }
    if (unused)
        problems_note(m->problems, "%s: pictures without an XML file are left out: %zu, as '%.100s'", names->folder, unused,
                      names->file[last]);
    free(used);
    return 0;
}

static int end(struct labels_maker *m)
{
    const struct voc_notes *v = &m->voc;

    if (v->zeros)
        problems_note(m->problems,
                      "%s: a box begins at 0, but pixels count from 1 in VOC's development kit (%lld such boxes). With "
                      "data.voc_boxes=corners sides are "
                      "read as they stand",
                      v->zero, (long long)v->zeros);
    if (v->renamed)
        problems_note(m->problems, "%s, which is not the name of its picture (%lld such files). The name of the XML file counts", v->rename,
                      (long long)v->renamed);
    return m->nitems > 0 && m->item[0].list < 0 && m->pictures.n > 0 ? tell_unused(m) : 0;
}

/* ---- the list or the folder ---- */

static bool is_xml(const char *path)
{
    size_t len = strlen(path);

    return len > 4 && strcasecmp(path + len - 4, ".xml") == 0;
}

static int found(void *arg, const char *path, struct err *err)
{
    (void)err; /* the maker holds it */
    return labels_make_item(arg, path, -1, 0);
}

static bool there(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0;
}

/* True if the last word is 1, 0 or -1: lists of a single class have that behind each name. */
static bool is_class_line(struct text_line line)
{
    struct text_line word, last = { 0 };
    int words = 0;

    for (; text_word(&line, &word); words++)
        last = word;
    return words > 1 && ((last.len == 1 && strchr("01", last.text[0])) || (last.len == 2 && memcmp(last.text, "-1", 2) == 0));
}

/* Names may contain blanks. "NAME 1" is a name if its XML file exists; otherwise the line is of a list of a single
 * class. */
static int put_line(struct labels_maker *m, const char *list, const char *root, const struct text_line *line)
{
    char file[DATASET_MAX_PATH], path[DATASET_MAX_PATH];
    long long number = (long long)line->number;

    if (line->len >= 1000 || memchr(line->text, '/', line->len) || line->text[0] == '.')
        return err_set(m->err, ERR_DATA, "%s, line %lld: is no name of a picture of Annotations", list, number);
    snprintf(file, sizeof file, "Annotations/%.*s.xml", (int)line->len, line->text);
    if (!label_path(root, file, path))
        return err_set(m->err, ERR_DATA, "%s, line %lld: path too long", list, number);
    if (is_class_line(*line) && !there(path))
        return err_set(m->err, ERR_DATA,
                       "%s, line %lld: a name and 1, 0 or -1, as in a list of one class; take that of all, as ImageSets/Main/train.txt",
                       list, number);
    return labels_make_item(m, path, m->d->nfiles - 1, line->number);
}

/* ROOT/ImageSets/Main/train.txt, or ROOT/ImageSets/train.txt. */
static int root_of(struct labels_maker *m, char ret[DATASET_MAX_PATH])
{
    char folder[DATASET_MAX_PATH], name[DATASET_MAX_PATH];

    if (m->opt->images)
        return label_path(".", m->opt->images, ret) ? 0 : err_set(m->err, ERR_DATA, "%s: path too long", m->opt->annotations);
    label_path_folder(m->opt->annotations, folder);
    for (int up = 0; up < 2 && label_path(".", folder, name); up++, label_path_folder(name, folder)) {
        const char *slash = strrchr(name, '/');

        if (strcmp(slash ? slash + 1 : name, "ImageSets") == 0) {
            label_path_folder(name, ret);
            return 0;
        }
    }
    return err_set(m->err, ERR_DATA,
                   "%s: is in no folder ImageSets; data.train.images (data.val.images) says which folder Annotations and JPEGImages are in",
                   m->opt->annotations);
}

static int read_list(struct labels_maker *m)
{
    const char *list = m->opt->annotations;
    char root[DATASET_MAX_PATH];
    struct text_lines l;
    struct text_line line;
    int rc = root_of(m, root);

    if (rc == 0)
        rc = labels_make_file(m, list, LIST_MAX_BYTES, true);
    if (rc < 0)
        return rc;
    text_lines_open(&l, list, m->file.bytes, m->file.size);
    while ((rc = text_lines_next(&l, &line, m->err)) > 0)
        if ((rc = put_line(m, list, root, &line)) < 0)
            return rc;
    return rc;
}

static int open_voc(struct labels_maker *m)
{
    struct stat st;
    int rc = m->opt->train && !m->opt->names ? labels_make_train_names(m, &m->names) : 0;

    if (rc < 0)
        return rc;
    if (stat(m->opt->annotations, &st) == 0 && S_ISDIR(st.st_mode))
        return label_paths_scan(m->opt->annotations, false, is_xml, found, m, m->err);
    return read_list(m);
}

const struct labels_kind labels_voc = { open_voc, take, end };

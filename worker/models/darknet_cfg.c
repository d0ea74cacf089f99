#include "worker/models/darknet_cfg.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/core/file.h"

enum { MAX_WARNINGS = 100, MAX_KEYS = 256 /* of a section */ };

struct entry {
    const char *key, *value;
    int line;
    bool used;
};

struct section {
    const char *name;
    int line;
    int from, to; /* its entries */
};

/* rc is sticky: after the first error getters return their defaults, so that builders need no branch per key. */
struct parser {
    const char *name;
    char *text; /* our copy; keys and values point into it */
    struct section *sections;
    struct entry *entries;
    int nsections, nentries;
    int rc;
    struct err *err;
    FILE *warnings;
    int nwarnings;
};

static void fail(struct parser *p, int line, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void warn(struct parser *p, int line, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static void fail(struct parser *p, int line, const char *fmt, ...)
{
    char what[320];
    va_list ap;

    if (p->rc < 0)
        return;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    p->rc = err_set(p->err, ERR_INPUT, "%s:%d: %s", p->name, line, what);
}

static void warn(struct parser *p, int line, const char *fmt, ...)
{
    va_list ap;

    if (p->nwarnings++ >= MAX_WARNINGS)
        return;
    fprintf(p->warnings, "%s:%d: ", p->name, line);
    va_start(ap, fmt);
    vfprintf(p->warnings, fmt, ap);
    va_end(ap);
    fputc('\n', p->warnings);
    if (p->nwarnings == MAX_WARNINGS)
        fprintf(p->warnings, "%s: further warnings are not shown\n", p->name);
}

/* ---- lines ---- */

/* Cuts the comment and removes all blanks, also inside, as darknet does. */
static void squeeze(char *line)
{
    char *to = line;

    line[strcspn(line, "#;")] = 0;
    for (const char *from = line; *from; from++)
        if (!strchr(" \t\r", *from))
            *to++ = *from;
    *to = 0;
}

static bool is_plain(const char *line)
{
    for (; *line; line++)
        if (*line <= ' ' || *line > '~')
            return false;
    return true;
}

static void add_section(struct parser *p, char *line, int number)
{
    char *end = strchr(line, ']');

    if (!end || end[1] || end == line + 1) {
        fail(p, number, "'%.40s' is not a section; expected [name]", line);
        return;
    }
    *end = 0;
    p->sections[p->nsections++] = (struct section){ line + 1, number, p->nentries, p->nentries };
}

static void add_entry(struct parser *p, char *line, int number)
{
    char *eq = strchr(line, '=');
    struct section *s = p->nsections ? &p->sections[p->nsections - 1] : NULL;

    if (!eq || eq == line || !eq[1]) {
        fail(p, number, "'%.40s' is neither [section] nor key=value", line);
        return;
    }
    if (!s) {
        fail(p, number, "'%.40s' stands before the first section", line);
        return;
    }
    *eq = 0;
    for (int i = s->from; i < s->to; i++)
        if (strcmp(p->entries[i].key, line) == 0) {
            warn(p, number, "'%.40s' is already set in line %d, which holds", line, p->entries[i].line);
            return;
        }
    if (s->to - s->from == MAX_KEYS) {
        fail(p, number, "more than %d keys in one section", MAX_KEYS);
        return;
    }
    p->entries[p->nentries++] = (struct entry){ line, eq + 1, number, false };
    s->to = p->nentries;
}

static void read_line(struct parser *p, char *line, int number)
{
    if (strlen(line) > DARKNET_CFG_MAX_LINE) {
        fail(p, number, "line longer than %d bytes", DARKNET_CFG_MAX_LINE);
        return;
    }
    squeeze(line);
    if (!*line)
        return;
    if (!is_plain(line))
        fail(p, number, "unexpected character");
    else if (*line == '[')
        add_section(p, line, number);
    else
        add_entry(p, line, number);
}

/* Fills sections and entries; there are at most as many of each as lines. */
static void read_lines(struct parser *p, size_t size)
{
    static const char mark[] = "\xef\xbb\xbf"; /* byte order mark */
    char *at = p->text + (strncmp(p->text, mark, 3) == 0 ? 3 : 0);
    size_t nlines = 1;

    for (size_t i = 0; i < size; i++)
        nlines += p->text[i] == '\n';
    p->sections = calloc(nlines, sizeof *p->sections);
    p->entries = calloc(nlines, sizeof *p->entries);
    if (!p->sections || !p->entries) {
        p->rc = err_set(p->err, -ENOMEM, "%s: out of memory", p->name);
        return;
    }
    for (int number = 1; at && p->rc == 0; number++) {
        char *end = strchr(at, '\n');

        if (end)
            *end = 0;
        read_line(p, at, number);
        at = end ? end + 1 : NULL;
    }
}

/* ---- values ---- */

static struct entry *find(struct parser *p, const struct section *s, const char *key)
{
    for (int i = s->from; i < s->to; i++)
        if (strcmp(p->entries[i].key, key) == 0) {
            p->entries[i].used = true;
            return &p->entries[i];
        }
    return NULL;
}

/* One number at *at, up to a comma or the end; moves *at behind it. Decimal digits only: strtod alone would take hex, inf and nan. */
static double number(struct parser *p, const struct entry *e, const char **at, double min, double max, bool whole)
{
    size_t len = strcspn(*at, ",");
    char *end;
    double v = strtod(*at, &end);

    if (len == 0 || strspn(*at, "0123456789.eE+-") < len || end != *at + len)
        fail(p, e->line, "%.40s: '%.*s' is not a number", e->key, (int)(len < 40 ? len : 40), *at);
    else if (whole && v != floor(v))
        fail(p, e->line, "%.40s: must be a whole number, is %g", e->key, v);
    else if (!(v >= min && v <= max))
        fail(p, e->line, "%.40s: must be %g to %g, is %g", e->key, min, max, v);
    *at += len + ((*at)[len] == ',');
    return v;
}

static double get_number(struct parser *p, const struct section *s, const char *key, double def, double min, double max, bool whole)
{
    const struct entry *e = find(p, s, key);
    const char *at;
    double v;

    if (!e)
        return def;
    at = e->value;
    v = number(p, e, &at, min, max, whole);
    if (*at || strchr(e->value, ','))
        fail(p, e->line, "%.40s: one number expected, is '%.40s'", key, e->value);
    return p->rc < 0 ? def : v;
}

static double get_real(struct parser *p, const struct section *s, const char *key, double def, double min, double max)
{
    return get_number(p, s, key, def, min, max, false);
}

static int get_int(struct parser *p, const struct section *s, const char *key, int def, int min, int max)
{
    return (int)get_number(p, s, key, def, min, max, true);
}

/* A list of at most max numbers; returns how many. 0: the key is absent or wrong. */
static int get_list(struct parser *p, const struct section *s, const char *key, double *v, int max, double lo, double hi, bool whole)
{
    const struct entry *e = find(p, s, key);
    const char *at = e ? e->value : "";
    int n = 0;

    while (*at && p->rc == 0) {
        if (n == max) {
            fail(p, e->line, "%.40s: more than %d numbers", key, max);
            break;
        }
        v[n++] = number(p, e, &at, lo, hi, whole);
    }
    return p->rc < 0 ? 0 : n;
}

/* Index of the value in words[], which ends with NULL. */
static int get_word(struct parser *p, const struct section *s, const char *key, int def, const char *const *words)
{
    const struct entry *e = find(p, s, key);

    if (!e)
        return def;
    for (int i = 0; words[i]; i++)
        if (strcmp(words[i], e->value) == 0)
            return i;
    fail(p, e->line, "%.40s: '%.40s' is not supported", key, e->value);
    return def;
}

/* A value that may only be what we compute anyway. */
static void only(struct parser *p, const struct section *s, const char *key, double value)
{
    double v = get_real(p, s, key, value, -1e9, 1e9);

    if (v != value)
        fail(p, s->line, "%s=%g is not supported, only %g", key, v, value);
}

/* ---- sections ---- */

static const char *const activations[] = { "linear", "leaky", "relu", "logistic", "tanh", NULL }; /* order of enum act_kind */
static const char *const policies[] = { "constant", "step", "steps", "exp", "poly", "sig", "random", NULL };

static void build_conv(struct parser *p, const struct section *s, struct darknet_layer *l, int index)
{
    (void)index;
    l->filters = get_int(p, s, "filters", 1, 1, DARKNET_MAX_FILTERS);
    l->size = get_int(p, s, "size", 1, 1, DARKNET_MAX_KERNEL);
    l->stride = get_int(p, s, "stride", 1, 1, DARKNET_MAX_KERNEL);
    l->pad = get_int(p, s, "padding", 0, 0, DARKNET_MAX_KERNEL);
    if (get_int(p, s, "pad", 0, 0, 1))
        l->pad = l->size / 2;
    l->bn = get_int(p, s, "batch_normalize", 0, 0, 1);
    l->act = (enum act_kind)get_word(p, s, "activation", ACT_LOGISTIC, activations);
    only(p, s, "groups", 1);
    only(p, s, "dilation", 1);
    only(p, s, "binary", 0);
    only(p, s, "xnor", 0);
}

/* darknet's sources: negative counts back from the layer itself. */
static int absolute(struct parser *p, const struct section *s, double source, int index)
{
    int at = (int)source < 0 ? index + (int)source : (int)source;

    if (at < 0 || at >= index)
        fail(p, s->line, "layer %d: source %d is no layer before it", index, (int)source);
    return at;
}

static void build_shortcut(struct parser *p, const struct section *s, struct darknet_layer *l, int index)
{
    double from[1] = { -1 };

    if (get_list(p, s, "from", from, 1, -DARKNET_MAX_LAYERS, DARKNET_MAX_LAYERS, true) == 0)
        fail(p, s->line, "a [shortcut] needs from=");
    l->nsources = 1;
    l->source[0] = absolute(p, s, from[0], index);
    l->act = (enum act_kind)get_word(p, s, "activation", ACT_LINEAR, activations);
}

static void build_route(struct parser *p, const struct section *s, struct darknet_layer *l, int index)
{
    double from[DARKNET_MAX_SOURCES];

    l->nsources = get_list(p, s, "layers", from, DARKNET_MAX_SOURCES, -DARKNET_MAX_LAYERS, DARKNET_MAX_LAYERS, true);
    if (l->nsources == 0)
        fail(p, s->line, "a [route] needs layers=");
    for (int i = 0; i < l->nsources; i++)
        l->source[i] = absolute(p, s, from[i], index);
    only(p, s, "groups", 1);
}

static void build_upsample(struct parser *p, const struct section *s, struct darknet_layer *l, int index)
{
    (void)index;
    l->stride = get_int(p, s, "stride", 2, 1, DARKNET_MAX_KERNEL);
    only(p, s, "scale", 1);
}

static void build_maxpool(struct parser *p, const struct section *s, struct darknet_layer *l, int index)
{
    (void)index;
    l->stride = get_int(p, s, "stride", 1, 1, DARKNET_MAX_KERNEL);
    l->size = get_int(p, s, "size", l->stride, 1, DARKNET_MAX_KERNEL);
    l->pad = get_int(p, s, "padding", l->size - 1, 0, DARKNET_MAX_KERNEL);
    if (p->rc == 0 && l->pad / 2 >= l->size)
        fail(p, s->line, "padding=%d: windows of size %d would lie outside", l->pad, l->size);
}

static void build_anchors(struct parser *p, const struct section *s, struct yolo_head *y)
{
    double v[2 * YOLO_MAX_ANCHORS];
    int n = get_list(p, s, "anchors", v, 2 * YOLO_MAX_ANCHORS, 1e-3, 1e5, false);

    if (n == 0 || n % 2 != 0)
        fail(p, s->line, "anchors: pairs of width and height expected, %d numbers found", n);
    y->ntotal = n / 2;
    for (int i = 0; i < n; i++)
        y->anchor[i / 2][i % 2] = (float)v[i];
    n = get_int(p, s, "num", 1, 1, YOLO_MAX_ANCHORS);
    if (n != y->ntotal)
        fail(p, s->line, "num=%d, but there are %d anchors", n, y->ntotal);
}

static void build_masks(struct parser *p, const struct section *s, struct yolo_head *y)
{
    double v[YOLO_MAX_ANCHORS];

    y->nanchors = get_list(p, s, "mask", v, YOLO_MAX_ANCHORS, 0, y->ntotal - 1, true);
    for (int i = 0; i < y->nanchors; i++) {
        y->mask[i] = (int)v[i];
        for (int j = 0; j < i; j++)
            if (y->mask[j] == y->mask[i])
                fail(p, s->line, "mask: anchor %d stands there twice", y->mask[i]);
    }
    if (y->nanchors > 0)
        return;
    y->nanchors = y->ntotal;
    for (int i = 0; i < y->ntotal; i++)
        y->mask[i] = i;
}

static void build_yolo(struct parser *p, const struct section *s, struct darknet_layer *l, int index)
{
    (void)index;
    build_anchors(p, s, &l->yolo);
    build_masks(p, s, &l->yolo);
    l->yolo.classes = get_int(p, s, "classes", 20, 1, DARKNET_MAX_CLASSES);
    l->yolo.ignore_thresh = (float)get_real(p, s, "ignore_thresh", .5, 0, 1);
    l->yolo.truth_thresh = (float)get_real(p, s, "truth_thresh", 1, 0, 1);
    l->yolo.assign_iou_thresh = (float)get_real(p, s, "iou_thresh", 1, 0, 1);
    l->yolo.box_gain = l->yolo.obj_gain = l->yolo.noobj_gain = l->yolo.cls_gain = 1.0f;
    l->jitter = get_real(p, s, "jitter", .2, 0, .9);
    l->random = get_int(p, s, "random", 0, 0, 1);
    l->max_boxes = get_int(p, s, "max", 90, 1, 1000000);
}

static const struct layer_kind {
    const char *name;
    enum darknet_type type;
    void (*build)(struct parser *p, const struct section *s, struct darknet_layer *l, int index);
} kinds[] = {
    { "convolutional", DARKNET_CONV, build_conv },    { "conv", DARKNET_CONV, build_conv },
    { "shortcut", DARKNET_SHORTCUT, build_shortcut }, { "route", DARKNET_ROUTE, build_route },
    { "upsample", DARKNET_UPSAMPLE, build_upsample }, { "maxpool", DARKNET_MAXPOOL, build_maxpool },
    { "max", DARKNET_MAXPOOL, build_maxpool },        { "yolo", DARKNET_YOLO, build_yolo },
};

static void build_layer(struct parser *p, const struct section *s, struct darknet_layer *l, int index)
{
    static const char *const refused[] = { "dontload", "dontsave", "dontloadscales", "numload" };

    l->line = s->line;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].name, s->name) != 0)
            continue;
        l->type = kinds[i].type;
        kinds[i].build(p, s, l, index);
        l->learning_rate = get_real(p, s, "learning_rate", 1, 0, 1e6);
        l->stop_backward = get_int(p, s, "stopbackward", 0, 0, 1);
        for (size_t r = 0; r < sizeof refused / sizeof *refused; r++)
            only(p, s, refused[r], 0);
        return;
    }
    fail(p, s->line, "layer %d: [%.40s] is not supported", index, s->name);
}

static void build_schedule(struct parser *p, const struct section *s, struct darknet_net *net)
{
    int nscales;

    net->policy = (enum darknet_policy)get_word(p, s, "policy", DARKNET_CONSTANT, policies);
    if (net->policy != DARKNET_STEPS)
        return;
    net->nsteps = get_list(p, s, "steps", net->steps, DARKNET_MAX_STEPS, 0, 1e9, true);
    nscales = get_list(p, s, "scales", net->scales, DARKNET_MAX_STEPS, 0, 1e6, false);
    if (net->nsteps == 0 || net->nsteps != nscales)
        fail(p, s->line, "policy=steps needs steps= and scales= of equal length, not %d and %d", net->nsteps, nscales);
}

static void build_net(struct parser *p, const struct section *s, struct darknet_net *net)
{
    net->width = get_int(p, s, "width", 0, 1, DARKNET_MAX_SIDE);
    net->height = get_int(p, s, "height", 0, 1, DARKNET_MAX_SIDE);
    net->channels = get_int(p, s, "channels", 0, 1, 1024);
    net->batch = get_int(p, s, "batch", 1, 1, 1000000);
    net->subdivisions = get_int(p, s, "subdivisions", 1, 1, 1000000);
    net->max_batches = get_int(p, s, "max_batches", 0, 0, 1000000000);
    net->burn_in = get_int(p, s, "burn_in", 0, 0, 1000000000);
    net->momentum = get_real(p, s, "momentum", .9, 0, 1);
    net->decay = get_real(p, s, "decay", .0001, 0, 1e3);
    net->learning_rate = get_real(p, s, "learning_rate", .001, 0, 1e6);
    net->power = get_real(p, s, "power", 4, 0, 1e3);
    net->angle = get_real(p, s, "angle", 0, 0, 360);
    net->aspect = get_real(p, s, "aspect", 1, 0, 1e3);
    net->saturation = get_real(p, s, "saturation", 1, 0, 1e3);
    net->exposure = get_real(p, s, "exposure", 1, 0, 1e3);
    net->hue = get_real(p, s, "hue", 0, 0, 1);
    build_schedule(p, s, net);
    if (p->rc == 0 && net->batch % net->subdivisions != 0)
        warn(p, s->line, "batch=%d is not a multiple of subdivisions=%d", net->batch, net->subdivisions);
}

static void warn_unused(struct parser *p)
{
    for (int i = 0; i < p->nentries; i++)
        if (!p->entries[i].used)
            warn(p, p->entries[i].line, "'%.40s' has no effect", p->entries[i].key);
}

static void build(struct parser *p, struct darknet_net *net)
{
    const struct section *first = p->sections;

    if (p->nsections == 0 || (strcmp(first->name, "net") != 0 && strcmp(first->name, "network") != 0)) {
        fail(p, p->nsections ? first->line : 1, "the first section must be [net]");
        return;
    }
    if (p->nsections - 1 < 1 || p->nsections - 1 > DARKNET_MAX_LAYERS) {
        fail(p, first->line, "%d layers: must be 1 to %d", p->nsections - 1, DARKNET_MAX_LAYERS);
        return;
    }
    net->layers = calloc((size_t)p->nsections, sizeof *net->layers);
    if (!net->layers) {
        p->rc = err_set(p->err, -ENOMEM, "%s: out of memory", p->name);
        return;
    }
    build_net(p, first, net);
    for (; net->nlayers < p->nsections - 1 && p->rc == 0; net->nlayers++)
        build_layer(p, &p->sections[net->nlayers + 1], &net->layers[net->nlayers], net->nlayers);
    if (p->rc == 0)
        p->rc = darknet_net_shape(net, p->err);
    if (p->rc == 0)
        warn_unused(p);
}

/* Opens what a parse needs; on failure the caller's cleanup finds NULLs. */
static int prepare(struct parser *p, struct darknet_net *net, const char *text, size_t size, size_t *warn_size)
{
    if (size > DARKNET_CFG_MAX_BYTES)
        return err_set(p->err, ERR_INPUT, "%s: larger than %d bytes", p->name, DARKNET_CFG_MAX_BYTES);
    if (memchr(text, 0, size))
        return err_set(p->err, ERR_INPUT, "%s: not a text file", p->name);
    p->text = strndup(text, size);
    net->name = strdup(p->name);
    p->warnings = open_memstream(&net->warnings, warn_size);
    if (!p->text || !net->name || !p->warnings)
        return err_set(p->err, -ENOMEM, "%s: out of memory", p->name);
    return 0;
}

int darknet_cfg_parse(const char *text, size_t size, const char *name, struct darknet_net **ret_net, struct err *err)
{
    struct parser p = { .name = name, .err = err };
    struct darknet_net *net = calloc(1, sizeof *net);
    size_t warn_size;

    if (!net)
        return err_set(err, -ENOMEM, "%s: out of memory", name);
    p.rc = prepare(&p, net, text, size, &warn_size);
    if (p.rc == 0)
        read_lines(&p, size);
    if (p.rc == 0)
        build(&p, net);
    if (p.warnings && fclose(p.warnings) != 0 && p.rc == 0)
        p.rc = err_set(err, -ENOMEM, "%s: out of memory", name);
    free(p.text);
    free(p.sections);
    free(p.entries);
    if (p.rc < 0)
        darknet_net_free(net);
    else
        *ret_net = net;
    return p.rc;
}

int darknet_cfg_read(const char *path, struct darknet_net **ret_net, struct err *err)
{
    struct file_map map;
    int rc = file_map_open(path, DARKNET_CFG_MAX_BYTES, &map, err);

    if (rc < 0)
        return rc;
    rc = darknet_cfg_parse((const char *)map.data, map.size, path, ret_net, err);
    file_map_close(&map);
    return rc;
}

#include "worker/models/yolo/darknet_weights.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/err.h"
#include "worker/core/file.h"
#include "worker/core/file_kind.h"
#include "worker/models/yolo/darknet_net.h"

enum {
    HEADER_SHORT = 16, /* `seen` has 4 or 8 bytes */
    HEADER_LONG = 20,
    LAST_VERSION = 99, /* versions are 0.1 and 0.2; the length at the start of a .safetensors file is larger */
    TELLING = 16,      /* chance that so many wrong variances are all positive: 1 in 65,536 */
};

/* The file in reading, and the network's blocks. */
struct reading {
    const unsigned char *bytes;
    size_t size, header;
    const char *label;
    struct darknet_block *blocks;
    size_t nblocks;
    int classes, own; /* class count of the file's heads; that of the blocks (0: no heads) */
    bool open_ended;  /* its size does not show the block where it ends */
};

/* How a file fits the network, for one width of its header. */
struct fit {
    long n;      /* the file ends after this many blocks; -1: not at the end of a block */
    int classes; /* it has the size of the whole network with this class count, unlike the blocks' own; 0: no such count */
};

static uint64_t filter_count(const struct darknet_block *b, int classes)
{
    return b->anchors > 0 ? (uint64_t)b->anchors * (5 + (uint64_t)classes) : (uint64_t)b->filters;
}

static uint64_t block_floats(const struct darknet_block *b, int classes)
{
    return filter_count(b, classes) * ((uint64_t)b->channels * (uint64_t)b->size * (uint64_t)b->size + (b->scale ? 4 : 1));
}

static const struct darknet_block *first_head(const struct reading *p)
{
    for (size_t i = 0; i < p->nblocks; i++)
        if (p->blocks[i].anchors > 0)
            return &p->blocks[i];
    return NULL;
}

/* The number of blocks that end exactly at `floats`. -1: no block ends there. */
static long blocks_at(const struct reading *p, uint64_t floats)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < p->nblocks; i++) {
        sum += block_floats(&p->blocks[i], p->own);
        if (sum == floats)
            return (long)i + 1;
    }
    return -1;
}

/* The class count for which the whole network has so many numbers. Each class adds the same number. 0: no such count,
 * or it is that of the blocks. */
static int other_classes(const struct reading *p, uint64_t floats)
{
    uint64_t one = 0, two = 0, each;

    for (size_t i = 0; i < p->nblocks; i++) {
        one += block_floats(&p->blocks[i], 1);
        two += block_floats(&p->blocks[i], 2);
    }
    each = two - one;
    if (each == 0 || floats < one || (floats - one) % each != 0 || (floats - one) / each >= DARKNET_MAX_CLASSES)
        return 0;
    int classes = (int)((floats - one) / each) + 1;
    return classes == p->own ? 0 : classes;
}

/* The number of blocks before a layer. -1: the file is too short for them. */
static long blocks_below(const struct reading *p, int layer)
{
    uint64_t sum = 0;
    long n = 0;

    while ((size_t)n < p->nblocks && p->blocks[n].layer < layer)
        sum += block_floats(&p->blocks[n++], p->own);
    return (p->size - p->header) / 4 >= sum ? n : -1;
}

static struct fit fits(const struct reading *p, size_t header)
{
    uint64_t floats = (p->size - header) / 4;

    if (p->size <= header || (p->size - header) % 4 != 0)
        return (struct fit){ -1, 0 };
    return (struct fit){ blocks_at(p, floats), other_classes(p, floats) };
}

/* Advises on another way to load the file. */
static void hint(const struct reading *p, int load_until, char *text, size_t size)
{
    const struct darknet_block *head = first_head(p);

    if (load_until >= 0 && (!head || load_until <= head->layer))
        snprintf(text, size, "another network or model.width?");
    else if (head)
        snprintf(text, size, "another network or model.width? model.load_until=%d takes the layers in front of the heads", head->layer);
    else
        snprintf(text, size, "another network or model.width? model.load_until takes the part in front");
}

static int boundary_err(const struct reading *p, int load_until, struct err *err)
{
    uint64_t floats = (p->size - p->header) / 4, below = 0, above = 0;
    char what[128];
    size_t n = 0;

    hint(p, load_until, what, sizeof what);
    while (n < p->nblocks && (above = below + block_floats(&p->blocks[n], p->own)) <= floats) {
        below = above;
        n++;
    }
    if (n == 0)
        return err_set(err, ERR_DATA, "%s: holds %llu numbers, less than the first layer's %llu: cut off, or another network", p->label,
                       (unsigned long long)floats, (unsigned long long)above);
    if (n == p->nblocks)
        return err_set(err, ERR_DATA, "%s: holds %llu numbers, the whole network %llu, and as many at no other class count: %s", p->label,
                       (unsigned long long)floats, (unsigned long long)below, what);
    return err_set(
        err, ERR_DATA,
        "%s: holds %llu numbers; this network's layers end at %llu (through layer %d) and %llu (through layer %d), and it has as "
        "many at no other class count: %s",
        p->label, (unsigned long long)floats, (unsigned long long)below, p->blocks[n - 1].layer, (unsigned long long)above,
        p->blocks[n].layer, what);
}

static int64_t read_seen(const struct reading *p)
{
    int64_t wide;
    int32_t narrow;

    memcpy(&wide, p->bytes + 12, 8);
    memcpy(&narrow, p->bytes + 12, 4);
    return p->header == HEADER_LONG ? wide : narrow;
}

static int other_file(const struct reading *p, struct err *err)
{
    const char *kind = file_kind(p->bytes, p->size, WEIGHTS_DARKNET);

    if (kind)
        return err_set(err, ERR_DATA, "%s: not a darknet .weights file; it is %s", p->label, kind);
    return err_set(err, ERR_DATA, "%s: not a darknet .weights file: its %zu bytes do not begin with a version", p->label, p->size);
}

static int read_header(struct reading *p, struct darknet_weights_info *info, struct err *err)
{
    int32_t version[3];

    if (p->size < HEADER_LONG)
        return other_file(p, err);
    memcpy(version, p->bytes, 12);
    info->major = version[0];
    info->minor = version[1];
    info->revision = version[2];
    if (info->major < 0 || info->minor < 0 || info->major > LAST_VERSION || info->minor > LAST_VERSION)
        return other_file(p, err);
    p->header = info->major * 10 + info->minor >= 2 ? HEADER_LONG : HEADER_SHORT;
    info->seen = read_seen(p);
    return 0;
}

/* Some writers' headers have the other width than their version says. The size of the file shows that. */
static void try_other_header(struct reading *p, struct darknet_weights_info *info, struct fit *f)
{
    size_t other = p->header == HEADER_LONG ? HEADER_SHORT : HEADER_LONG;
    struct fit found = fits(p, other);

    if (found.n < 0 && found.classes == 0)
        return;
    snprintf(info->note, sizeof info->note, "the header has %zu bytes although version %d.%d says %zu", other, info->major, info->minor,
             p->header);
    p->header = other;
    info->seen = read_seen(p);
    *f = found;
}

/* Finds the number of blocks in the file and its class count. */
static int choose(struct reading *p, int load_until, struct darknet_weights_info *info, long *ret_n, struct err *err)
{
    const struct darknet_block *head = first_head(p);
    struct fit f = fits(p, p->header);

    if (f.n < 0 && f.classes == 0)
        try_other_header(p, info, &f);
    if (f.n >= 0 && f.classes > 0 && p->blocks[f.n - 1].layer >= head->layer && (load_until < 0 || load_until > head->layer))
        return err_set(err, ERR_DATA,
                       "%s: is this network through layer %d with %d classes, or all of it with %d: its size leaves the choice; "
                       "model.load_until=%d takes the layers in front of the heads",
                       p->label, p->blocks[f.n - 1].layer, p->own, f.classes, head->layer);
    if (f.n < 0 && f.classes > 0) {
        p->classes = info->classes = f.classes;
        f.n = (long)p->nblocks;
    }
    if (f.n < 0 && load_until >= 0 && (!head || load_until <= head->layer)) {
        f.n = blocks_below(p, load_until);
        p->open_ended = true;
    }
    *ret_n = f.n;
    return f.n < 0 ? boundary_err(p, load_until, err) : 0;
}

static bool wanted(const struct reading *p, const struct darknet_block *b, int load_until)
{
    return (load_until < 0 || b->layer < load_until) && (b->anchors == 0 || p->classes == p->own);
}

/* Order: bias, scale, mean, var. In a file of other widths weights would lie where variances should be, and half of
 * them are negative. */
static int check_variances(const struct reading *p, const struct darknet_block *b, const unsigned char *from, struct err *err)
{
    for (int k = 0; b->scale && k < b->filters; k++) {
        float v;

        memcpy(&v, from + 4 * (3 * (size_t)b->filters + (size_t)k), 4);
        if (!(v >= 0) || isinf(v))
            return err_set(err, ERR_DATA,
                           "%s: layer %d: %g cannot be a running variance, so the numbers are others: another network or model.width?",
                           p->label, b->layer, (double)v);
    }
    return 0;
}

/* Checks that every number of a block is finite. */
static int check_finite(const struct reading *p, const struct darknet_block *b, const unsigned char *from, struct err *err)
{
    const uint64_t filters = (uint64_t)b->filters, each = (uint64_t)b->channels * (uint64_t)b->size * (uint64_t)b->size;
    const struct {
        const char *name;
        uint64_t count;
    } arrays[] = { { b->scale ? "shift" : "bias", filters },
                   { "scale", b->scale ? filters : 0 },
                   { "mean", b->scale ? filters : 0 },
                   { "variance", b->scale ? filters : 0 },
                   { "weights", filters * each } };

    for (size_t a = 0; a < sizeof arrays / sizeof *arrays; a++)
        for (uint64_t i = 0; i < arrays[a].count; i++, from += 4) {
            float v;

            memcpy(&v, from, 4);
            if (!isfinite(v))
                return err_set(err, ERR_DATA, "%s: layer %d: number %llu of the %s is %g, which is not finite", p->label, b->layer,
                               (unsigned long long)i, arrays[a].name, (double)v);
        }
    return 0;
}

static int check_block(const struct reading *p, const struct darknet_block *b, const unsigned char *from, struct err *err)
{
    int rc = check_variances(p, b, from, err);

    return rc < 0 ? rc : check_finite(p, b, from, err);
}

static const unsigned char *take(float *dst, const unsigned char *from, size_t count)
{
    memcpy(dst, from, count * 4);
    return from + count * 4;
}

/* The file has OIHW, memory KRSC. */
static void take_weights(const struct darknet_block *b, const unsigned char *from)
{
    size_t taps = (size_t)b->size * (size_t)b->size, channels = (size_t)b->channels;

    for (size_t k = 0; k < (size_t)b->filters; k++)
        for (size_t c = 0; c < channels; c++)
            for (size_t rs = 0; rs < taps; rs++, from += 4)
                memcpy(&b->weights[(k * taps + rs) * channels + c], from, 4);
}

static void take_block(const struct darknet_block *b, const unsigned char *from)
{
    size_t filters = (size_t)b->filters;

    from = take(b->bias, from, filters);
    if (b->scale) {
        from = take(b->scale, from, filters);
        from = take(b->mean, from, filters);
        from = take(b->var, from, filters);
    }
    take_weights(b, from);
}

/* A wider network's file has scales where the first layer has variances, and scales pass the check. So in a file that
 * may end anywhere only later layers prove that it fits. */
static int check_telling(const struct reading *p, long n, int load_until, struct err *err)
{
    int telling = 0;
    bool first = true;

    for (long i = 0; i < n; i++)
        if (p->blocks[i].scale && wanted(p, &p->blocks[i], load_until)) {
            telling += first ? 0 : p->blocks[i].filters;
            first = false;
        }
    if (p->open_ended && telling < TELLING)
        return err_set(
            err, ERR_DATA,
            "%s: its size fits this network at no layer and no class count, and the layers before model.load_until=%d are too few to "
            "tell whether it is of the same one: another network or model.width?",
            p->label, load_until);
    return 0;
}

/* Checks the first n blocks of the file, or, with take_them, copies the wanted ones. */
static int walk(const struct reading *p, long n, int load_until, bool take_them, struct darknet_weights_info *info, struct err *err)
{
    const unsigned char *from = p->bytes + p->header;
    int rc = 0;

    for (long i = 0; i < n && rc == 0; i++) {
        struct darknet_block *b = &p->blocks[i];

        if (wanted(p, b, load_until) && !take_them)
            rc = check_block(p, b, from, err);
        else if (wanted(p, b, load_until))
            take_block(b, from);
        b->loaded = take_them && wanted(p, b, load_until);
        info->nloaded += b->loaded;
        from += 4 * block_floats(b, p->classes);
    }
    return rc;
}

int darknet_weights_parse(const void *bytes, size_t size, const char *label, struct darknet_block *blocks, size_t n, int load_until,
                          struct darknet_weights_info *ret_info, struct err *err)
{
    struct reading p = { .bytes = bytes, .size = size, .label = label, .blocks = blocks, .nblocks = n };
    struct darknet_weights_info info = { 0 };
    const struct darknet_block *head = first_head(&p);
    int rc = read_header(&p, &info, err);
    long held = 0;

    p.own = p.classes = head ? head->filters / head->anchors - 5 : 0;
    if (rc == 0)
        rc = choose(&p, load_until, &info, &held, err);
    if (rc == 0 && load_until >= 0 && (held == 0 || !wanted(&p, &blocks[0], load_until)))
        rc = err_set(err, ERR_DATA, "%s: nothing is loaded: no convolution stands before layer %d (model.load_until)", label, load_until);
    if (rc == 0)
        rc = check_telling(&p, held, load_until, err);
    if (rc == 0)
        rc = walk(&p, held, load_until, false, &info, err);
    if (rc == 0)
        rc = walk(&p, held, load_until, true, &info, err);
    if (rc == 0)
        *ret_info = info;
    return rc;
}

int darknet_weights_load(const char *path, struct darknet_block *blocks, size_t n, int load_until, struct darknet_weights_info *ret_info,
                         struct err *err)
{
    struct file_map map;
    int rc = file_map_open(path, SIZE_MAX, &map, err);

    if (rc < 0)
        return rc;
    rc = darknet_weights_parse(map.data, map.size, path, blocks, n, load_until, ret_info, err);
    file_map_close(&map);
    return rc;
}

#include "worker/models/darknet_weights.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/err.h"
#include "worker/core/file.h"

enum { HEADER_SHORT = 16, HEADER_LONG = 20 }; /* `seen` has 4 or 8 bytes */

/* The file while it is checked: the blocks it holds, and where its floats start. */
struct plan {
    const unsigned char *bytes;
    size_t size, header;
    const char *label;
    const struct darknet_block *blocks;
    size_t nblocks;
};

static uint64_t weight_count(const struct darknet_block *b)
{
    return (uint64_t)b->filters * (uint64_t)b->channels * (uint64_t)b->size * (uint64_t)b->size;
}

static uint64_t block_floats(const struct darknet_block *b)
{
    return weight_count(b) + (uint64_t)b->filters * (b->scale ? 4 : 1);
}

/* How many blocks end exactly at `floats`; -1: a boundary lies elsewhere. */
static long blocks_at(const struct plan *p, uint64_t floats)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < p->nblocks; i++) {
        sum += block_floats(&p->blocks[i]);
        if (sum == floats)
            return (long)i + 1;
    }
    return -1;
}

/* Blocks in front of a layer; -1: the file does not hold them all. */
static long blocks_below(const struct plan *p, int layer)
{
    uint64_t sum = 0;
    long n = 0;

    while ((size_t)n < p->nblocks && p->blocks[n].layer < layer)
        sum += block_floats(&p->blocks[n++]);
    return (p->size - p->header) / 4 >= sum ? n : -1;
}

/* Blocks in the file if its header has this width; -1: it does not end where one of them ends. */
static long fits(const struct plan *p, size_t header)
{
    if (p->size <= header || (p->size - header) % 4 != 0)
        return -1;
    return blocks_at(p, (p->size - header) / 4);
}

static int boundary_err(const struct plan *p, struct err *err)
{
    uint64_t floats = (p->size - p->header) / 4, below = 0, above = 0;
    size_t n = 0;

    while (n < p->nblocks && (above = below + block_floats(&p->blocks[n])) <= floats) {
        below = above;
        n++;
    }
    if (n == 0)
        return err_set(err, ERR_DATA, "%s: holds %llu numbers, less than the first layer's %llu: cut off, or another network", p->label,
                       (unsigned long long)floats, (unsigned long long)above);
    if (n == p->nblocks)
        return err_set(err, ERR_DATA, "%s: holds %llu numbers, the whole network %llu: another network or class count", p->label,
                       (unsigned long long)floats, (unsigned long long)below);
    return err_set(err, ERR_DATA,
                   "%s: holds %llu numbers; this network's layers end at %llu (through layer %d) and %llu (through layer %d): another "
                   "network or class count? load_until takes the part in front",
                   p->label, (unsigned long long)floats, (unsigned long long)below, p->blocks[n - 1].layer, (unsigned long long)above,
                   p->blocks[n].layer);
}

static int64_t read_seen(const struct plan *p)
{
    int64_t wide;
    int32_t narrow;

    memcpy(&wide, p->bytes + 12, 8);
    memcpy(&narrow, p->bytes + 12, 4);
    return p->header == HEADER_LONG ? wide : narrow;
}

static int read_header(struct plan *p, struct darknet_weights_info *info, struct err *err)
{
    int32_t version[3];

    if (p->size < HEADER_LONG)
        return err_set(err, ERR_DATA, "%s: %zu bytes are no weights file", p->label, p->size);
    memcpy(version, p->bytes, 12);
    info->major = version[0];
    info->minor = version[1];
    info->revision = version[2];
    if (info->major < 0 || info->minor < 0 || info->major > 100000 || info->minor > 100000)
        return err_set(err, ERR_DATA, "%s: version %d.%d is none of a weights file", p->label, info->major, info->minor);
    p->header = info->major * 10 + info->minor >= 2 ? HEADER_LONG : HEADER_SHORT;
    info->seen = read_seen(p);
    return 0;
}

/* Some writers put a header of the other width behind their version number: the boundary tells. */
static void try_other_header(struct plan *p, struct darknet_weights_info *info, long *n)
{
    size_t other = p->header == HEADER_LONG ? HEADER_SHORT : HEADER_LONG;
    long found = fits(p, other);

    if (found < 0)
        return;
    snprintf(info->note, sizeof info->note, "the header has %zu bytes although version %d.%d says %zu", other, info->major, info->minor,
             p->header);
    p->header = other;
    info->seen = read_seen(p);
    *n = found;
}

/* How many blocks to fill. */
static int choose(struct plan *p, int load_until, struct darknet_weights_info *info, struct err *err)
{
    long n = fits(p, p->header);

    if (n < 0)
        try_other_header(p, info, &n);
    if (n < 0 && load_until >= 0)
        n = blocks_below(p, load_until);
    if (n < 0)
        return boundary_err(p, err);
    while (load_until >= 0 && n > 0 && p->blocks[n - 1].layer >= load_until)
        n--;
    if (!info->note[0] && (size_t)n < p->nblocks)
        snprintf(info->note, sizeof info->note, "layers from %d on keep their initial values", p->blocks[n].layer);
    info->nloaded = (size_t)n;
    return 0;
}

static const unsigned char *take(float *dst, const unsigned char *from, uint64_t count)
{
    memcpy(dst, from, (size_t)count * 4);
    return from + count * 4;
}

/* OIHW in the file, KRSC here. */
static const unsigned char *take_weights(const struct darknet_block *b, const unsigned char *from)
{
    size_t taps = (size_t)b->size * (size_t)b->size, channels = (size_t)b->channels;

    for (size_t k = 0; k < (size_t)b->filters; k++)
        for (size_t c = 0; c < channels; c++)
            for (size_t rs = 0; rs < taps; rs++, from += 4)
                memcpy(&b->weights[(k * taps + rs) * channels + c], from, 4);
    return from;
}

static const unsigned char *take_block(const struct darknet_block *b, const unsigned char *from)
{
    uint64_t filters = (uint64_t)b->filters;

    from = take(b->bias, from, filters);
    if (b->scale) {
        from = take(b->scale, from, filters);
        from = take(b->mean, from, filters);
        from = take(b->var, from, filters);
    }
    return take_weights(b, from);
}

int darknet_weights_parse(const void *bytes, size_t size, const char *label, const struct darknet_block *blocks, size_t n, int load_until,
                          struct darknet_weights_info *ret_info, struct err *err)
{
    struct plan p = { bytes, size, 0, label, blocks, n };
    struct darknet_weights_info info = { 0 };
    const unsigned char *from;
    int rc = read_header(&p, &info, err);

    if (rc == 0)
        rc = choose(&p, load_until, &info, err);
    if (rc < 0)
        return rc;
    from = p.bytes + p.header;
    for (size_t i = 0; i < info.nloaded; i++)
        from = take_block(&blocks[i], from);
    *ret_info = info;
    return 0;
}

int darknet_weights_load(const char *path, const struct darknet_block *blocks, size_t n, int load_until,
                         struct darknet_weights_info *ret_info, struct err *err)
{
    struct file_map map;
    int rc = file_map_open(path, SIZE_MAX, &map, err);

    if (rc < 0)
        return rc;
    rc = darknet_weights_parse(map.data, map.size, path, blocks, n, load_until, ret_info, err);
    file_map_close(&map);
    return rc;
}

static void put(struct file_out *o, const float *v, int count)
{
    file_out_write(o, v, (size_t)count * 4, NULL);
}

/* Failures are kept by o and told by the commit. */
static void put_block(struct file_out *o, const struct darknet_block *b)
{
    size_t taps = (size_t)b->size * (size_t)b->size, channels = (size_t)b->channels;

    put(o, b->bias, b->filters);
    if (b->scale) {
        put(o, b->scale, b->filters);
        put(o, b->mean, b->filters);
        put(o, b->var, b->filters);
    }
    for (size_t k = 0; k < (size_t)b->filters; k++)
        for (size_t c = 0; c < channels; c++)
            for (size_t rs = 0; rs < taps; rs++)
                put(o, &b->weights[(k * taps + rs) * channels + c], 1);
}

int darknet_weights_save(const char *path, const struct darknet_block *blocks, size_t n, int64_t seen, struct err *err)
{
    static const int32_t version[3] = { 0, 2, 0 };
    struct file_out *o;
    int rc = file_out_open(path, &o, err);

    if (rc < 0)
        return rc;
    file_out_write(o, version, sizeof version, NULL);
    file_out_write(o, &seen, sizeof seen, NULL);
    for (size_t i = 0; i < n; i++)
        put_block(o, &blocks[i]);
    return file_out_commit(o, err);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* Converts between rows of bits and columns of runs, eight columns at a time,
 * by transposed blocks of 8 x 8. */
#include "worker/mask/rle.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

#include "worker/mask/rle_writer.h"

enum { COLUMNS = 8, COLUMN_BYTES = RLE_MAX_SIDE / 8 + 9 }; /* room to read a column's last word in full */

/* Bit 7 of a column's first byte is its topmost pixel. */
struct strip {
    uint8_t column[COLUMNS][COLUMN_BYTES];
};

/* Transposes 8 x 8 bits; the first row is the highest byte. Warren, Hacker's Delight, section 7-3. */
static uint64_t turn(uint64_t x)
{
    uint64_t t = (x ^ (x >> 7)) & 0x00aa00aa00aa00aau;

    x ^= t ^ (t << 7);
    t = (x ^ (x >> 14)) & 0x0000cccc0000ccccu;
    x ^= t ^ (t << 14);
    t = (x ^ (x >> 28)) & 0x00000000f0f0f0f0u;
    return x ^ t ^ (t << 28);
}

/* ---- to bits ---- */

/* Sets rows from .. to - 1 of a column. */
static void fill(uint8_t *column, int from, int to)
{
    int first = from / 8, last = to / 8;
    uint8_t head = (uint8_t)(0xff >> from % 8), tail = (uint8_t) ~(0xff >> to % 8);

    if (first == last) {
        column[first] |= head & tail;
        return;
    }
    column[first] |= head;
    memset(column + first + 1, 0xff, (size_t)(last - first - 1));
    column[last] |= tail;
}

static void put_strip(const struct strip *s, int b, int h, size_t stride, uint8_t *bits)
{
    for (int y = 0; y < h; y += 8) {
        uint64_t block = 0;

        for (int c = 0; c < COLUMNS; c++)
            block = block << 8 | s->column[c][y / 8];
        block = turn(block);
        for (int r = 0; r < 8 && y + r < h; r++)
            bits[(size_t)(y + r) * stride + (size_t)b] = (uint8_t)(block >> (56 - 8 * r));
    }
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

static int most(int a, int b)
{
    return a > b ? a : b;
}

/* Reads the pieces that are set, one by one. */
struct pieces {
    const struct rle *m;
    size_t next;
    int32_t from, to, at;
};

static bool piece_next(struct pieces *p)
{
    while (p->next + 1 < p->m->n) {
        p->from = p->at + p->m->run[p->next];
        p->to = p->from + p->m->run[p->next + 1];
        p->at = p->to;
        p->next += 2;
        if (p->from < p->to)
            return true;
    }
    return false;
}

/* Fills column x of the picture: its rows y .. y + h - 1 become bits 0 .. h - 1. *more: p holds a piece. */
static void fill_column(struct pieces *p, bool *more, int x, int y, int h, uint8_t *column)
{
    int32_t begin = x * p->m->h, end = begin + p->m->h;

    while (*more && p->from < end) {
        int from = most(most(p->from, begin) - begin - y, 0), to = least(least(p->to, end) - begin - y, h);

        if (from < to)
            fill(column, from, to);
        if (p->to > end)
            return; /* the piece continues in the next column */
        *more = piece_next(p);
    }
}

void rle_to_crop(const struct rle *m, int x, int y, int w, int h, uint8_t *bits)
{
    struct pieces p = { .m = m };
    size_t stride = (size_t)(w + 7) / 8;
    bool more = piece_next(&p);
    struct strip s;

    assert(h <= RLE_MAX_SIDE);
    while (more && x > 0 && p.to <= (int64_t)x * m->h)
        more = piece_next(&p);
    for (int b = 0; b < (int)stride; b++) {
        for (int c = 0; c < COLUMNS; c++) {
            int at = x + COLUMNS * b + c;

            memset(s.column[c], 0, (size_t)h / 8 + 1);
            if (at >= 0 && at < m->w && COLUMNS * b + c < w)
                fill_column(&p, &more, at, y, h, s.column[c]);
        }
        put_strip(&s, b, h, stride, bits);
    }
}

/* ---- to runs ---- */

static void get_strip(struct strip *s, int b, int h, size_t stride, const uint8_t *bits)
{
    for (int y = 0; y < h; y += 8) {
        uint64_t block = 0;

        for (int r = 0; r < 8; r++)
            block = block << 8 | (y + r < h ? bits[(size_t)(y + r) * stride + (size_t)b] : 0);
        block = turn(block);
        for (int c = 0; c < COLUMNS; c++)
            s->column[c][y / 8] = (uint8_t)(block >> (56 - 8 * c));
    }
}

/* The first row in at .. end - 1 that is set, or with flip (all ones) the first one that is not. `end` if there is no
 * such row. */
static int find(const uint8_t *column, int at, int end, uint64_t flip)
{
    while (at < end) {
        uint64_t word;

        memcpy(&word, column + at / 8, sizeof word);
        word = (be64toh(word) ^ flip) << at % 8;
        if (word)
            return least(at + __builtin_clzll(word), end);
        at += 64 - at % 8;
    }
    return end;
}

/* Writes rows first .. end - 1 of a column. Its row 0 is pixel `at` of the picture. */
static void write_column(struct rle_writer *o, const uint8_t *column, int first, int end, int32_t at)
{
    for (int from, to = first; (from = find(column, to, end, 0)) < end;) {
        to = find(column, from, end, ~(uint64_t)0);
        rle_write(o, at + from, at + to);
    }
}

int rle_from_crop(struct rle *m, int h, int w, const struct rle_crop *crop, struct err *err)
{
    int first = crop->y < 0 ? least(-crop->y, crop->h) : 0, end = crop->y < h ? least(crop->h, h - crop->y) : 0;
    size_t stride = (size_t)(crop->w + 7) / 8;
    struct rle_writer o;
    struct strip s;

    assert(crop->h <= RLE_MAX_SIDE);
    rle_write_begin(&o, m, h, w);
    memset(&s, 0, sizeof s); /* whole words are read */
    for (int b = 0; b < (int)stride; b++) {
        get_strip(&s, b, crop->h, stride, crop->bits);
        for (int c = 0; c < COLUMNS; c++) {
            int x = crop->x + COLUMNS * b + c;

            if (x >= 0 && x < w && COLUMNS * b + c < crop->w)
                write_column(&o, s.column[c], first, end, x * h + crop->y);
        }
    }
    return rle_write_end(&o, err);
}

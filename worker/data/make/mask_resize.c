#include "worker/data/make/mask_resize.h" /* SPDX-License-Identifier: Apache-2.0 */

int64_t mask_column_parts(const int32_t *run, int64_t n, int h)
{
    int64_t at = 0, parts = 0;

    for (int64_t i = 0; i < n; i++) {
        if (i % 2 && run[i] > 0)
            parts += (at + run[i] - 1) / h - at / h + 1;
        at += run[i];
    }
    return parts;
}

int64_t mask_resized_most(int64_t parts, int w, int to_w)
{
    int64_t copies = (to_w + w - 1) / w + 1; /* copies of a column; one more since quotients are rounded */

    return 2 * copies * parts + 1;
}

/* The rows from .. to - 1 of a column are set. */
struct part {
    int32_t from, to;
};

struct work {
    struct part *part; /* [parts], column by column */
    int32_t *column;   /* [w + 1]: first part of each column */
    int32_t *row;      /* [h + 1]: first row of the result that comes from this source row or a later one */
};

size_t mask_resize_scratch(int64_t parts, const struct resizing *z)
{
    return (size_t)parts * sizeof(struct part) + ((size_t)z->w + (size_t)z->h + 2) * sizeof(int32_t);
}

static struct work lay_out(void *scratch, int64_t parts, const struct resizing *z)
{
    struct work k = { .part = scratch };

    k.column = (int32_t *)(k.part + parts);
    k.row = k.column + z->w + 1;
    return k;
}

static void fill_parts(struct work *k, const int32_t *run, int64_t n, const struct resizing *z)
{
    int64_t at = 0;
    int32_t parts = 0;
    int column = 0;

    for (int64_t i = 0; i < n; at += run[i++])
        for (int64_t from = at; i % 2 && from < at + run[i];) {
            int x = (int)(from / z->h);
            int64_t top = (int64_t)x * z->h, to = at + run[i] < top + z->h ? at + run[i] : top + z->h;

            while (column <= x)
                k->column[column++] = parts;
            k->part[parts++] = (struct part){ (int32_t)(from - top), (int32_t)(to - top) };
            from = to;
        }
    while (column <= z->w)
        k->column[column++] = parts;
}

static void fill_rows(struct work *k, const struct resizing *z)
{
    int u = 0;

    for (int y = 0; y <= z->h; y++) {
        while (u < z->to.h && resize_nearest_row(z, u) < y)
            u++;
        k->row[y] = u;
    }
}

/* Writes runs from pieces. */
struct writer {
    int32_t *ret;
    int64_t room, n;
    int64_t from, to; /* the last piece, still open */
    int64_t written;
};

static void write_run(struct writer *o, int64_t run)
{
    if (o->n < o->room)
        o->ret[o->n] = (int32_t)run;
    o->n++;
}

static void write_piece(struct writer *o)
{
    if (o->to == o->from)
        return;
    write_run(o, o->from - o->written);
    write_run(o, o->to - o->from);
    o->written = o->to;
}

/* Pieces must come in order. */
static void add_piece(struct writer *o, int64_t from, int64_t to)
{
    if (from == to)
        return;
    if (from != o->to || o->from == o->to) {
        write_piece(o);
        o->from = from;
    }
    o->to = to;
}

int64_t mask_resize(const int32_t *run, int64_t n, const struct resizing *z, void *scratch, int32_t *ret, int64_t room)
{
    struct work k = lay_out(scratch, mask_column_parts(run, n, z->h), z);
    struct writer o = { .ret = ret, .room = room };
    int64_t all = (int64_t)z->to.h * z->to.w;

    fill_parts(&k, run, n, z);
    fill_rows(&k, z);
    for (int t = 0; t < z->to.w; t++) {
        int x = resize_nearest_column(z, t);

        for (int32_t i = k.column[x]; i < k.column[x + 1]; i++)
            add_piece(&o, (int64_t)t * z->to.h + k.row[k.part[i].from], (int64_t)t * z->to.h + k.row[k.part[i].to]);
    }
    write_piece(&o);
    if (o.written < all)
        write_run(&o, all - o.written);
    return o.n;
}

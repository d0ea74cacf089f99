#include "worker/mask/rle.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "proto/err.h"
#include "proto/grow.h"
#include "worker/mask/rle_writer.h"

static int no_memory(struct err *err)
{
    return err_set(err, -ENOMEM, "masks: out of memory");
}

void rle_free(struct rle *m)
{
    free(m->run);
    *m = (struct rle){ 0 };
}

static bool put(struct rle *m, int32_t run)
{
    if (!GROW(m->run, m->room, m->n + 1))
        return false;
    m->run[m->n++] = run;
    return true;
}

/* ---- run by run ---- */

int rle_begin(struct rle *m, int64_t h, int64_t w, struct err *err)
{
    m->n = 0;
    m->left = 0;
    if (h < 1 || w < 1 || h > RLE_MAX_SIDE || w > RLE_MAX_SIDE)
        return err_set(err, ERR_DATA, "a size of %" PRId64 " x %" PRId64 " pixels (height x width)", h, w);
    m->h = (int)h;
    m->w = (int)w;
    m->left = m->h * m->w;
    return 0;
}

int rle_add(struct rle *m, int64_t run, struct err *err)
{
    if (run < 0)
        return err_set(err, ERR_DATA, "a run is negative");
    if (run > m->left)
        return err_set(err, ERR_DATA, "the runs pass its size of %d x %d pixels (height x width)", m->h, m->w);
    if (!put(m, (int32_t)run))
        return no_memory(err);
    m->left -= (int32_t)run;
    return 0;
}

int rle_end(struct rle *m, struct err *err)
{
    if (m->left > 0)
        return err_set(err, ERR_DATA, "the runs do not fill its size of %d x %d pixels (height x width)", m->h, m->w);
    return 0;
}

/* ---- the compressed form: 6 bits a character from '0'. Low 5 bits: value, low part first; sixth bit: more follows.
 * From the fourth run on each is the difference to the run two before. ---- */

enum { FIRST = 48, LAST = 111, MORE = 32, SIGN = 16, GROUP = 5 };

bool rle_text_number(const char **at, const char *end, int64_t *ret)
{
    int64_t v = 0;
    int shift = 0, c;

    do {
        if (*at == end || **at < FIRST || **at > LAST || shift > RLE_TEXT_MOST * GROUP)
            return false;
        c = *(*at)++ - FIRST;
        v |= (int64_t)(c & (MORE - 1)) << shift;
        shift += GROUP;
    } while (c & MORE);
    *ret = c & SIGN ? v - ((int64_t)1 << shift) : v;
    return true;
}

static size_t put_number(int32_t v, char *to)
{
    size_t n = 0;
    bool more;

    do {
        int c = v & (MORE - 1);

        v >>= GROUP; /* gcc: keeps the sign */
        more = v != (c & SIGN ? -1 : 0);
        to[n++] = (char)(FIRST + c + (more ? MORE : 0));
    } while (more);
    return n;
}

size_t rle_to_text(const struct rle *m, char *ret)
{
    size_t len = 0;

    for (size_t i = 0; i < m->n; i++)
        len += put_number(i > 2 ? m->run[i] - m->run[i - 2] : m->run[i], ret + len);
    return len;
}

/* ---- writing pieces that are set ---- */

void rle_write_begin(struct rle_writer *o, struct rle *m, int h, int w)
{
    assert(h > 0 && w > 0 && h <= RLE_MAX_SIDE && w <= RLE_MAX_SIDE);
    m->h = h;
    m->w = w;
    m->n = 0;
    m->left = 0;
    *o = (struct rle_writer){ .m = m };
}

static void flush(struct rle_writer *o)
{
    if (o->from == o->to)
        return;
    o->failed = o->failed || !put(o->m, o->from - o->written) || !put(o->m, o->to - o->from);
    o->written = o->to;
}

void rle_write(struct rle_writer *o, int32_t from, int32_t to)
{
    if (from > o->to) {
        flush(o);
        o->from = from;
        o->to = from;
    }
    o->to = to > o->to ? to : o->to;
}

int rle_write_end(struct rle_writer *o, struct err *err)
{
    int32_t all = o->m->h * o->m->w;

    flush(o);
    o->failed = o->failed || (o->written < all && !put(o->m, all - o->written));
    return o->failed ? no_memory(err) : 0;
}

/* ---- measures ---- */

void rle_bounds(const struct rle *m, int ret_box[4])
{
    int32_t at = 0, left = m->w, right = 0, top = m->h, bottom = 0;

    for (size_t i = 0; i < m->n; at += m->run[i++]) {
        int32_t last = at + m->run[i] - 1, x0, x1, y0, y1;

        if (i % 2 == 0 || m->run[i] == 0)
            continue;
        x0 = at / m->h;
        x1 = last / m->h;
        y0 = x0 < x1 ? 0 : at % m->h; /* a run over several columns has the whole height */
        y1 = x0 < x1 ? m->h - 1 : last % m->h;
        left = x0 < left ? x0 : left;
        right = x1 + 1;
        top = y0 < top ? y0 : top;
        bottom = y1 + 1 > bottom ? y1 + 1 : bottom;
    }
    if (right == 0)
        left = top = 0;
    ret_box[0] = left;
    ret_box[1] = top;
    ret_box[2] = right - left;
    ret_box[3] = bottom - top;
}

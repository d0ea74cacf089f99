#include "worker/eval/masks/mask_words.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/grow.h"
#include "worker/mask/rle.h"

enum { WORD = 64 };

/* Two masks' rows of `len` words. */
struct rows {
    const uint64_t *a, *b;
    size_t stride_a, stride_b;
    int n, len;
};

static inline __attribute__((always_inline)) int64_t count_common(const struct rows *r)
{
    int64_t n = 0;

    for (int y = 0; y < r->n; y++)
        for (int i = 0; i < r->len; i++)
            n += __builtin_popcountll(r->a[(size_t)y * r->stride_a + (size_t)i] & r->b[(size_t)y * r->stride_b + (size_t)i]);
    return n;
}

__attribute__((target("popcnt"))) static int64_t count_fast(const struct rows *r)
{
    return count_common(r);
}

static int64_t count(const struct rows *r)
{
    return __builtin_cpu_supports("popcnt") ? count_fast(r) : count_common(r);
}

/* Gives the mask w x h words at the end of the store. */
static int place(struct mask_store *s, struct mask_words *m, struct err *err)
{
    size_t n = (size_t)m->w * (size_t)m->h;

    if (!GROW(s->word, s->room, s->used + n))
        return err_set(err, -ENOMEM, "masks: out of memory");
    m->at = s->used;
    s->used += n;
    return 0;
}

static struct mask_words placed_at(int x, int y, int w, int h)
{
    if (w <= 0 || h <= 0)
        return (struct mask_words){ 0 };
    return (struct mask_words){ .x = x / WORD, .y = y, .w = (x + w + WORD - 1) / WORD - x / WORD, .h = h };
}

static void measure(const struct mask_store *s, struct mask_words *m)
{
    const uint64_t *word = m->w > 0 ? s->word + m->at : NULL;

    m->area = count(&(struct rows){ word, word, (size_t)m->w, (size_t)m->w, m->h, m->w });
}

/* Bits i * 64 .. of a row; 0 behind the end of the row. */
static uint64_t load(const uint8_t *row, int w, int i)
{
    int left = w - WORD * i, bytes = (left + 7) / 8;
    uint64_t word = 0;

    if (left <= 0)
        return 0;
    memcpy(&word, row + 8 * i, (size_t)(bytes < 8 ? bytes : 8));
    word = be64toh(word);
    return left < WORD ? word & ~(~(uint64_t)0 >> left) : word;
}

int mask_words_of_result(struct mask_store *s, const struct result_mask *m, struct mask_words *ret, struct err *err)
{
    struct mask_words words = placed_at(m->x, m->y, m->w, m->h);
    size_t stride = (size_t)(m->w + 7) / 8;
    int shift = m->x % WORD, rc = place(s, &words, err);
    uint64_t *to;

    if (rc < 0)
        return rc;
    to = words.h > 0 ? s->word + words.at : NULL;
    for (int y = 0; y < words.h; y++) {
        uint64_t before = 0;

        for (int i = 0; i < words.w; i++) {
            uint64_t word = load(m->bits + (size_t)y * stride, m->w, i);

            *to++ = shift ? before << (WORD - shift) | word >> shift : word;
            before = word;
        }
    }
    measure(s, &words);
    *ret = words;
    return 0;
}

int mask_words_of_rle(struct mask_store *s, const struct rle *m, struct mask_words *ret, struct err *err)
{
    struct mask_words words;
    int box[4], rc;

    rle_bounds(m, box);
    words = placed_at(box[0], box[1], box[2], box[3]);
    rc = place(s, &words, err);
    if (rc < 0)
        return rc;
    if (words.h > 0)
        rle_to_crop(m, words.x * WORD, words.y, words.w * WORD, words.h, (uint8_t *)(s->word + words.at));
    for (size_t i = 0; i < (size_t)words.w * (size_t)words.h; i++)
        s->word[words.at + i] = be64toh(s->word[words.at + i]);
    measure(s, &words);
    *ret = words;
    return 0;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

static int most(int a, int b)
{
    return a > b ? a : b;
}

int64_t mask_words_common(const struct mask_store *s, const struct mask_words *a, const struct mask_words *b)
{
    int x = most(a->x, b->x), y = most(a->y, b->y), w = least(a->x + a->w, b->x + b->w) - x, h = least(a->y + a->h, b->y + b->h) - y;
    size_t in_a, in_b;

    if (w <= 0 || h <= 0)
        return 0;
    in_a = a->at + (size_t)(y - a->y) * (size_t)a->w + (size_t)(x - a->x);
    in_b = b->at + (size_t)(y - b->y) * (size_t)b->w + (size_t)(x - b->x);
    return count(&(struct rows){ s->word + in_a, s->word + in_b, (size_t)a->w, (size_t)b->w, h, w });
}

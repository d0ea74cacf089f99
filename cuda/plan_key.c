#include "cuda/plan_key.h" /* SPDX-License-Identifier: Apache-2.0 */
#include "proto/tier.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

int plan_key_out_h(const struct conv_key *k)
{
    return (k->h + 2 * k->pad - k->r) / k->stride + 1;
}

int plan_key_out_w(const struct conv_key *k)
{
    return (k->w + 2 * k->pad - k->s) / k->stride + 1;
}

size_t plan_key_bytes(const struct conv_key *k)
{
    return k->dtype == DTYPE_BF16 ? 2 : 4;
}

/* The largest power of two up to PLAN_ALIGN that divides both. */
static int alignment(const void *ptr, size_t span)
{
    uintptr_t bits = (uintptr_t)ptr | (uintptr_t)span | PLAN_ALIGN;

    return (int)(bits & -bits);
}

/* Copies field by field: padding in a struct is not copied reliably. */
static void copy_conv(struct conv_key *d, const struct conv_key *s)
{
    d->dir = s->dir;
    d->dtype = s->dtype;
    d->precision = s->precision;
    d->tier = s->tier;
    d->n = s->n;
    d->h = s->h;
    d->w = s->w;
    d->c = s->c;
    d->k = s->k;
    d->r = s->r;
    d->s = s->s;
    d->stride = s->stride;
    d->pad = s->pad;
    d->x_stride = s->x_stride;
    d->y_stride = s->y_stride;
    d->bias = s->bias && s->dir == CONV_FWD;
    d->add = s->add && s->dir == CONV_BWD_DATA;
}

struct plan_key plan_key_make(const struct conv_key *conv, const struct conv_args *args)
{
    static const struct conv_args nowhere;
    const struct conv_args *a = args ? args : &nowhere;
    size_t es = plan_key_bytes(conv), images = conv->tier == TIER_WORLD ? (size_t)conv->n : 0;
    size_t x_span = images * (size_t)conv->h * (size_t)conv->w * (size_t)conv->x_stride * es;
    size_t y_span = images * (size_t)plan_key_out_h(conv) * (size_t)plan_key_out_w(conv) * (size_t)conv->y_stride * es;
    uintptr_t w = conv->dir == CONV_BWD_WEIGHTS ? (uintptr_t)a->dw : (uintptr_t)a->w;
    struct plan_key key;

    memset(&key, 0, sizeof key);
    copy_conv(&key.conv, conv);
    if (key.conv.bias)
        w |= (uintptr_t)a->bias;
    key.align_x = alignment(a->x, x_span);
    key.align_w = alignment((void *)w, 0);
    key.align_y = alignment(a->y, y_span);
    return key;
}

bool plan_key_equal(const struct plan_key *a, const struct plan_key *b)
{
    const unsigned char *x = (const unsigned char *)a, *y = (const unsigned char *)b;

    return memcmp(x, y, sizeof *a) == 0;
}

static const char *dir_name(enum conv_dir dir)
{
    return dir == CONV_FWD ? "fwd" : dir == CONV_BWD_DATA ? "bwd_data" : "bwd_weights";
}

static const char *number_name(const struct conv_key *k)
{
    if (k->dtype == DTYPE_BF16)
        return "bf16";
    return k->precision == PRECISION_TF32 ? "tf32" : "fp32";
}

static char *text_with(const struct plan_key *key, const char *tier, char ret[PLAN_KEY_TEXT])
{
    const struct conv_key *k = &key->conv;
    int n = snprintf(ret, PLAN_KEY_TEXT, "%s %s %s x[%d,%d,%d,%d] w[%d,%d,%d,%d] stride %d pad %d%s%s", dir_name(k->dir), number_name(k),
                     tier, k->n, k->h, k->w, k->c, k->k, k->r, k->s, k->c, k->stride, k->pad, k->bias ? " bias" : "", k->add ? " add" : "");

    if (n < PLAN_KEY_TEXT && (k->x_stride != k->c || k->y_stride != k->k))
        n += snprintf(ret + n, (size_t)(PLAN_KEY_TEXT - n), " pitch %d,%d", k->x_stride, k->y_stride);
    if (n < PLAN_KEY_TEXT && (key->align_x < PLAN_ALIGN || key->align_w < PLAN_ALIGN || key->align_y < PLAN_ALIGN))
        snprintf(ret + n, (size_t)(PLAN_KEY_TEXT - n), " align %d,%d,%d", key->align_x, key->align_w, key->align_y);
    return ret;
}

char *plan_key_text(const struct plan_key *key, char ret[PLAN_KEY_TEXT])
{
    return text_with(key, tier_name(key->conv.tier), ret);
}

char *plan_key_any_tier(const struct plan_key *key, char ret[PLAN_KEY_TEXT])
{
    return text_with(key, "any", ret);
}

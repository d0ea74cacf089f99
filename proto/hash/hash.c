#include "proto/hash/hash.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <string.h>

#include "proto/hash/hash_keys.h"
#include "proto/hash/hash_mix.h"

static uint64_t tail_word(const unsigned char *bytes, size_t n)
{
    uint64_t w = 0;

    memcpy(&w, bytes, n);
    return w;
}

void hash_add(uint64_t out[2], const void *data, size_t bytes, uint64_t kappa, uint64_t first_word)
{
    const unsigned char *b = data;
    uint64_t sum[2] = { 0, 0 };

    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t w = tail_word(b + i, bytes - i < 8 ? bytes - i : 8), j = first_word + i / 8;

        sum[0] += hash_word(w, kappa, j, HASH_MUL_0);
        sum[1] += hash_word(w, kappa, j, HASH_MUL_1);
    }
    out[0] += sum[0];
    out[1] += sum[1];
}

struct hash128 hash_bytes(const void *data, size_t bytes, uint64_t kappa)
{
    struct hash128 h = { { 0, 0 } };

    hash_add(h.lane, data, bytes, kappa, 0);
    return h;
}

static void add_product(struct hash128 *sum, uint64_t word, size_t j)
{
    sum->lane[0] += hash_product(word, HASH_KEY[j]);
    sum->lane[1] += hash_product(word, HASH_KEY[j + 1]);
}

/* n: at most a block. */
static struct hash128 sum_products(const unsigned char *bytes, size_t n)
{
    struct hash128 h = { { 0, 0 } };
    size_t words = n / 8;

    for (size_t j = 0; j < words; j++) {
        uint64_t w;

        memcpy(&w, bytes + j * 8, sizeof w);
        add_product(&h, w, j);
    }
    if (n % 8)
        add_product(&h, tail_word(bytes + words * 8, n % 8), words);
    return h;
}

struct hash128 hash_data(const void *data, size_t bytes)
{
    const size_t block = HASH_BLOCK_WORDS * 8;
    struct hash128 sum = { { 0, 0 } };
    const unsigned char *from = data;

    for (size_t b = 0; b * block < bytes; b++) {
        struct hash128 h = sum_products(from + b * block, bytes - b * block < block ? bytes - b * block : block);

        sum.lane[0] += hash_word(h.lane[0], bytes, b, HASH_MUL_0);
        sum.lane[1] += hash_word(h.lane[1], bytes, b, HASH_MUL_1);
    }
    return sum;
}

/* The length is hashed first, so that names that differ only in trailing zero bytes have different hashes. */
uint64_t hash_name(const char *name)
{
    size_t n = strlen(name);

    return hash_mix(hash_bytes(name, n, n).lane[0] + HASH_GAMMA, HASH_MUL_0);
}

struct hash128 hash_fold(struct hash128 x, struct hash128 y)
{
    return (struct hash128){ { hash_mix(x.lane[0] * HASH_GAMMA + y.lane[0], HASH_MUL_0),
                               hash_mix(x.lane[1] * HASH_GAMMA + y.lane[1], HASH_MUL_1) } };
}

struct hash128 hash_fold_u64(struct hash128 x, uint64_t y)
{
    return hash_fold(x, (struct hash128){ { y, y } });
}

void hash_hex(struct hash128 h, char ret[33])
{
    for (int i = 0; i < 32; i++)
        ret[i] = "0123456789abcdef"[h.lane[i / 16] >> (60 - i % 16 * 4) & 15];
    ret[32] = '\0';
}

int hash_parse(const char *text, struct hash128 *ret_hash)
{
    static const char digits[] = "0123456789abcdef";
    struct hash128 h = { { 0, 0 } };

    for (int i = 0; i < 32; i++) {
        const char *d = text[i] ? strchr(digits, text[i]) : NULL;

        if (!d)
            return -1;
        h.lane[i / 16] = h.lane[i / 16] << 4 | (uint64_t)(d - digits);
    }
    if (text[32])
        return -1;
    *ret_hash = h;
    return 0;
}

#include "proto/host/sha256.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdint.h>
#include <string.h>

enum { BLOCK = 64 };

struct state {
    uint32_t h[8];
    unsigned char block[BLOCK];
    size_t in_block;
    uint64_t size;
};

static const uint32_t k[64] = { 0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
                                0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
                                0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
                                0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
                                0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
                                0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
                                0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
                                0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2 };

static uint32_t turn(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static void mix(uint32_t h[8], const unsigned char *block)
{
    uint32_t w[64], v[8];

    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++)
        w[i] = w[i - 16] + (turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3) + w[i - 7] +
               (turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(v, h, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t a = v[0], e = v[4];
        uint32_t one = v[7] + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & v[5]) ^ (~e & v[6])) + k[i] + w[i];
        uint32_t two = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));

        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += one;
        v[0] = one + two;
    }
    for (int i = 0; i < 8; i++)
        h[i] += v[i];
}

static void begin(struct state *s)
{
    static const uint32_t first[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 };

    memset(s, 0, sizeof *s);
    memcpy(s->h, first, sizeof first);
}

static void add(struct state *s, const void *data, size_t size)
{
    const unsigned char *at = data;

    s->size += size;
    while (size > 0) {
        size_t n = size < BLOCK - s->in_block ? size : BLOCK - s->in_block;

        memcpy(s->block + s->in_block, at, n);
        s->in_block += n;
        at += n;
        size -= n;
        if (s->in_block == BLOCK) {
            mix(s->h, s->block);
            s->in_block = 0;
        }
    }
}

static void end(struct state *s, unsigned char ret[SHA256_BYTES])
{
    uint64_t bits = s->size * 8;
    unsigned char length[8];

    add(s, "\x80", 1);
    while (s->in_block != BLOCK - 8)
        add(s, "", 1);
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(bits >> (56 - 8 * i));
    add(s, length, 8);
    for (int i = 0; i < SHA256_BYTES; i++)
        ret[i] = (unsigned char)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

void sha256(const void *data, size_t size, unsigned char ret[SHA256_BYTES])
{
    struct state s;

    begin(&s);
    add(&s, data, size);
    end(&s, ret);
}

static void keyed(const unsigned char *key, unsigned char pad, const void *data, size_t size, unsigned char *ret)
{
    unsigned char block[BLOCK];
    struct state s;

    for (int i = 0; i < BLOCK; i++)
        block[i] = pad ^ (i < SHA256_BYTES ? key[i] : 0);
    begin(&s);
    add(&s, block, sizeof block);
    add(&s, data, size);
    end(&s, ret);
    explicit_bzero(block, sizeof block);
    explicit_bzero(&s, sizeof s);
}

void sha256_seal(const unsigned char key[SHA256_BYTES], const void *data, size_t size, unsigned char ret[SHA256_BYTES])
{
    unsigned char inner[SHA256_BYTES];

    keyed(key, 0x36, data, size, inner);
    keyed(key, 0x5c, inner, sizeof inner, ret);
}

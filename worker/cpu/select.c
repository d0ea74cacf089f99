#include "worker/cpu/select.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <string.h>

enum { DIGIT = 11, DIGITS = 1 << DIGIT, BYTE = 256, FEW = 64 };

static void insertion_sort(uint64_t *key, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        uint64_t k = key[i];
        size_t j = i;

        for (; j > 0 && key[j - 1] > k; j--)
            key[j] = key[j - 1];
        key[j] = k;
    }
}

static unsigned digit_of(uint64_t key, int shift)
{
    return (unsigned)(key >> shift) % DIGITS;
}

/* The digit of the k-th smallest key, from 1. *ret_below: the number of keys with a smaller digit. */
static unsigned cut_digit(const uint64_t *key, size_t n, size_t k, int shift, size_t *ret_below)
{
    uint32_t count[DIGITS];
    size_t below = 0;
    unsigned d = 0;

    memset(count, 0, sizeof count);
    for (size_t i = 0; i < n; i++)
        count[digit_of(key[i], shift)]++;
    for (; below + count[d] < k; d++)
        below += count[d];
    *ret_below = below;
    return d;
}

/* Puts keys below the cut first, then those at it; the other keys stay in the array behind these. Returns the number of
 * keys at the cut. */
static size_t split(uint64_t *key, size_t n, unsigned cut, int shift, size_t below)
{
    size_t small = 0, at = below;

    /* Two passes of swaps: first all keys up to the cut to the front, then those below it. */
    for (size_t i = 0, to = 0; i < n; i++)
        if (digit_of(key[i], shift) <= cut) {
            uint64_t k = key[i];

            key[i] = key[to];
            key[to++] = k;
            at = to;
        }
    for (size_t i = 0; i < at; i++)
        if (digit_of(key[i], shift) < cut) {
            uint64_t k = key[i];

            key[i] = key[small];
            key[small++] = k;
        }
    return at - small;
}

size_t select_smallest(uint64_t *key, size_t n, size_t k)
{
    size_t wanted = k;

    if (n <= k)
        return n;
    for (int shift = 64 - DIGIT; wanted > 0 && wanted<n; shift = shift> DIGIT ? shift - DIGIT : 0) {
        size_t below;
        unsigned cut = cut_digit(key, n, wanted, shift, &below);

        n = split(key, n, cut, shift, below);
        key += below;
        wanted -= below;
        if (shift == 0)
            break;
    }
    return k;
}

void select_sort(uint64_t *key, uint64_t *tmp, size_t n)
{
    uint64_t *from = key, *to = tmp;

    if (n <= FEW) {
        insertion_sort(key, n);
        return;
    }
    for (int shift = 0; shift < 64; shift += 8) {
        uint32_t at[BYTE] = { 0 };
        uint32_t sum = 0;
        uint64_t *was = from;

        for (size_t i = 0; i < n; i++)
            at[from[i] >> shift & (BYTE - 1)]++;
        for (int d = 0; d < BYTE; d++) {
            uint32_t count = at[d];

            at[d] = sum;
            sum += count;
        }
        for (size_t i = 0; i < n; i++)
            to[at[from[i] >> shift & (BYTE - 1)]++] = from[i];
        from = to;
        to = was;
    }
}

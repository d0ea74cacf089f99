#include "worker/core/philox.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>

#include "worker/kernels/math.h"
#include "worker/kernels/philox.h"

/* FNV-1a folded to 16 bits. A unit test lists the names in use and finds two with the same value. */
uint16_t philox_op(const char *name)
{
    uint32_t h = 2166136261u;

    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 16777619u;
    return (uint16_t)(h >> 16 ^ h);
}

void philox_block(const struct philox_key *k, uint64_t block, uint32_t ret[4])
{
    philox_block_of(k, block, ret);
}

uint32_t philox_word(const struct philox_key *k, uint64_t element)
{
    uint32_t word[4];

    philox_block(k, element / 4, word);
    return word[element % 4];
}

float philox_uniform(const struct philox_key *k, uint64_t element)
{
    return philox_to_uniform(philox_word(k, element));
}

uint32_t philox_below(const struct philox_key *k, uint64_t element, uint32_t n)
{
    return (uint32_t)((uint64_t)philox_word(k, element) * n >> 32);
}

double philox_normal(const struct philox_key *k, uint64_t element)
{
    const double step = 1.0 / 4294967296.0;
    uint32_t word[4];
    double radius, turn;

    philox_block(k, element / 2, word);
    radius = sqrt(-2.0 * math_log64(((double)word[element % 2 * 2] + 1.0) * step)); /* (0, 1] */
    turn = (double)word[element % 2 * 2 + 1] * step;
    return radius * math_cos_turns64(turn);
}

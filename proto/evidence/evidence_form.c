#include "proto/evidence/evidence_form.h" /* SPDX-License-Identifier: Apache-2.0 */
#include "proto/tier.h"

#include <endian.h>
#include <string.h>

/* Offsets of the members of a record. */
enum {
    AT_STEP = 0,
    AT_ATTEMPT = 8,
    AT_RANKS = 12,
    AT_TIER = 14,
    AT_FLAGS = 15,
    AT_LR = 16,
    AT_LOSS = 20,
    AT_PART = 24,
    AT_CHAIN = 104,
    AT_CHECK = 120
};
enum { FLAG_SKIPPED = 1, FLAG_VALIDATED = 2, FLAGS = 4 };
_Static_assert(AT_PART + EVIDENCE_PARTS * 16 == AT_CHAIN && AT_CHECK + 8 == EVIDENCE_RECORD_BYTES, "the record is full");

static unsigned char *put_u64(unsigned char *at, uint64_t v)
{
    v = htole64(v);
    memcpy(at, &v, 8);
    return at + 8;
}

static uint64_t get_u64(const unsigned char *at)
{
    uint64_t v;

    memcpy(&v, at, 8);
    return le64toh(v);
}

static void put_u32(unsigned char *at, uint32_t v)
{
    v = htole32(v);
    memcpy(at, &v, 4);
}

static uint32_t get_u32(const unsigned char *at)
{
    uint32_t v;

    memcpy(&v, at, 4);
    return le32toh(v);
}

static void put_float(unsigned char *at, float v)
{
    uint32_t bits;

    memcpy(&bits, &v, 4);
    put_u32(at, bits);
}

static float get_float(const unsigned char *at)
{
    uint32_t bits = get_u32(at);
    float v;

    memcpy(&v, &bits, 4);
    return v;
}

static unsigned char *put_hashes(unsigned char *at, const struct hash128 *h, int n)
{
    for (int i = 0; i < n; i++)
        at = put_u64(put_u64(at, h[i].lane[0]), h[i].lane[1]);
    return at;
}

static const unsigned char *get_hashes(const unsigned char *at, struct hash128 *ret, int n)
{
    for (int i = 0; i < n; i++, at += 16)
        ret[i] = (struct hash128){ { get_u64(at), get_u64(at + 8) } };
    return at;
}

/* Checksum of all bytes before it, the step and the run. */
static uint64_t check(struct hash128 start, const unsigned char *bytes, size_t n, int64_t step)
{
    return hash_fold_u64(hash_bytes(bytes, n, start.lane[0]), (uint64_t)step).lane[0];
}

void evidence_put_record(struct hash128 start, const struct evidence_record *r, unsigned char ret[EVIDENCE_RECORD_BYTES])
{
    put_u64(ret + AT_STEP, (uint64_t)r->step);
    put_u32(ret + AT_ATTEMPT, (uint32_t)r->attempt);
    ret[AT_RANKS] = (unsigned char)r->ranks;
    ret[AT_RANKS + 1] = (unsigned char)(r->ranks >> 8);
    ret[AT_TIER] = (unsigned char)r->tier;
    ret[AT_FLAGS] = (unsigned char)((r->skipped ? FLAG_SKIPPED : 0) | (r->validated ? FLAG_VALIDATED : 0));
    put_float(ret + AT_LR, r->lr);
    put_float(ret + AT_LOSS, r->loss);
    put_hashes(ret + AT_PART, r->part, EVIDENCE_PARTS);
    put_hashes(ret + AT_CHAIN, &r->chain, 1);
    put_u64(ret + AT_CHECK, check(start, ret, AT_CHECK, r->step));
}

bool evidence_get_record(struct hash128 start, const unsigned char bytes[EVIDENCE_RECORD_BYTES], int64_t step, struct evidence_record *ret)
{
    uint32_t attempt = get_u32(bytes + AT_ATTEMPT);

    if (get_u64(bytes + AT_STEP) != (uint64_t)step || get_u64(bytes + AT_CHECK) != check(start, bytes, AT_CHECK, step) ||
        attempt > INT32_MAX || bytes[AT_TIER] >= TIERS || bytes[AT_FLAGS] >= FLAGS)
        return false;
    *ret = (struct evidence_record){ .step = step,
                                     .attempt = (int)attempt,
                                     .ranks = bytes[AT_RANKS] | bytes[AT_RANKS + 1] << 8,
                                     .tier = bytes[AT_TIER],
                                     .skipped = (bytes[AT_FLAGS] & FLAG_SKIPPED) != 0,
                                     .validated = (bytes[AT_FLAGS] & FLAG_VALIDATED) != 0,
                                     .lr = get_float(bytes + AT_LR),
                                     .loss = get_float(bytes + AT_LOSS) };
    get_hashes(bytes + AT_PART, ret->part, EVIDENCE_PARTS);
    get_hashes(bytes + AT_CHAIN, &ret->chain, 1);
    return true;
}

size_t evidence_detail_bytes(const struct evidence_head *h)
{
    return 8 + 16 * (2 * (size_t)h->shards + EVIDENCE_STATES + 2 * (size_t)h->ntensors) + 8;
}

int64_t evidence_ring_at(const struct evidence_head *h, int64_t step)
{
    return step % EVIDENCE_RING * (int64_t)evidence_detail_bytes(h);
}

int64_t evidence_kept_at(const struct evidence_head *h, int64_t step)
{
    return step % EVIDENCE_EVERY == 0 ? (step / EVIDENCE_EVERY - 1) * (int64_t)evidence_detail_bytes(h) : -1;
}

void evidence_put_detail(const struct evidence_head *h, struct hash128 start, const struct evidence_detail *d, unsigned char *ret)
{
    unsigned char *at = put_u64(ret, (uint64_t)d->step);

    at = put_hashes(at, d->data, h->shards);
    at = put_hashes(at, d->loss, h->shards);
    at = put_hashes(at, d->state, EVIDENCE_STATES);
    at = put_hashes(at, d->gradient, h->ntensors);
    at = put_hashes(at, d->weight, h->ntensors);
    put_u64(at, check(start, ret, (size_t)(at - ret), d->step));
}

bool evidence_get_detail(const struct evidence_head *h, struct hash128 start, const unsigned char *bytes, int64_t step,
                         struct evidence_detail *ret)
{
    size_t n = evidence_detail_bytes(h) - 8;
    const unsigned char *at = bytes + 8;

    if (get_u64(bytes) != (uint64_t)step || get_u64(bytes + n) != check(start, bytes, n, step))
        return false;
    ret->step = step;
    at = get_hashes(at, ret->data, h->shards);
    at = get_hashes(at, ret->loss, h->shards);
    at = get_hashes(at, ret->state, EVIDENCE_STATES);
    at = get_hashes(at, ret->gradient, h->ntensors);
    get_hashes(at, ret->weight, h->ntensors);
    return true;
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/fuzz/test_spool.c - uses: proto supervisor
 * The two files of a spool: eight bytes of how far detd is, then both halves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <sys/stat.h>

#include "proto/err.h"
#include "supervisor/spool/spool.h"
#include "tests/fuzz/fuzz.h"

const char fuzz_name[] = "spool";
const int fuzz_places = 10;

enum { SEGMENT = 2048, HEAD = 512, HEAD_CRC_AT = 84, RECORD_HEAD = 16, KEPT = 256 };

static char folder[TEMP_MAX], path[2][TEMP_MAX + 16];

/* CRC32C, as supervisor/spool/spool.c has it. */
static uint32_t crc32c(uint32_t crc, const uint8_t *p, size_t len)
{
    crc = ~crc;
    while (len-- > 0) {
        crc ^= *p++;
        for (int k = 0; k < 8; k++)
            crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
    }
    return ~crc;
}

static uint32_t load32(const uint8_t *p)
{
    uint32_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

/* Corrects the checksums, otherwise the code behind them would never be reached. An odd last byte leaves a segment as
 * it is. */
static void mend(uint8_t *seg)
{
    uint32_t crc = crc32c(0, seg + 8, 8), sum;
    size_t at = HEAD;

    if (seg[SEGMENT - 1] & 1)
        return;
    sum = crc32c(0, seg, HEAD_CRC_AT);
    memcpy(seg + HEAD_CRC_AT, &sum, sizeof sum);
    while (at + RECORD_HEAD < SEGMENT) {
        uint32_t len = load32(seg + at);

        if (len == 0 || len > SEGMENT - at - RECORD_HEAD)
            return;
        crc = crc32c(crc, seg + at, 4);
        crc = crc32c(crc, seg + at + 8, 8);
        crc = crc32c(crc, seg + at + RECORD_HEAD, len);
        memcpy(seg + at + 4, &crc, sizeof crc);
        at += (RECORD_HEAD + len + 7) & ~7u;
    }
}

struct kept {
    uint64_t first, last;
    uint32_t sums[KEPT];
};

/* Every record that is there, in order and without a gap. */
static void read_all(struct spool *s, struct kept *ret)
{
    struct spool_cursor c;
    struct err err = { 0 };
    const char *payload;
    uint64_t seq;
    size_t len;
    int rc = spool_seek(s, 0, &c, &err);

    if (rc < 0)
        fail_msg("%s", err.msg);
    *ret = (struct kept){ .first = c.seq, .last = c.seq - 1 };
    while ((rc = spool_next(s, &c, &payload, &len, &seq, &err)) == 1) {
        assert_true(seq == ret->last + 1 && len > 0 && len <= SPOOL_MAX_RECORD && payload[len] == '\0');
        ret->last = seq;
        ret->sums[seq % KEPT] = crc32c(0, (const uint8_t *)payload, len);
    }
    if (rc < 0)
        fail_msg("%s", err.msg);
    assert_true(ret->last == spool_last(s));
}

static struct spool *open_spool(uint64_t acked)
{
    struct spool *s = NULL;
    struct err err = { 0 };

    if (spool_open(folder, SEGMENT, acked, &s, &err) < 0)
        fail_msg("%s", err.msg);
    return s;
}

/* A second opening finds the same records as the first, and those appended between them. */
static void check(uint64_t acked)
{
    struct spool *s = open_spool(acked);
    struct kept once, again;
    uint64_t seq = 0;
    int rc;

    read_all(s, &once);
    assert_true(spool_acked(s) == acked && spool_last(s) >= acked);
    spool_ack(s, spool_last(s));
    rc = spool_append(s, "{}", 2, &seq, NULL);
    assert_true(rc == 0 && seq == once.last + 1);
    spool_close(s);
    s = open_spool(acked);
    read_all(s, &again);
    assert_true(again.last == seq && again.first >= once.first);
    for (uint64_t i = again.first; i <= once.last; i++)
        assert_int_equal(once.sums[i % KEPT], again.sums[i % KEPT]);
    spool_close(s);
}

void fuzz_one(const uint8_t *bytes, size_t size)
{
    uint8_t seg[2][SEGMENT] = { 0 };
    uint64_t acked = 0;
    size_t half;

    if (size < sizeof acked)
        return;
    memcpy(&acked, bytes, sizeof acked);
    acked >>= 3; /* larger numbers do not occur */
    bytes += sizeof acked;
    size -= sizeof acked;
    half = size / 2 < SEGMENT ? size / 2 : SEGMENT;
    snprintf(folder, sizeof folder, "%s", fuzz_path());
    assert_int_equal(mkdir(folder, 0700), 0);
    for (int i = 0; i < 2; i++) {
        memcpy(seg[i], bytes + (size_t)i * half, half);
        mend(seg[i]);
        snprintf(path[i], sizeof path[i], "%s/spool.%d", folder, i);
        fuzz_write(path[i], seg[i], SEGMENT);
    }
    check(acked);
    for (int i = 0; i < 2; i++)
        unlink(path[i]);
    rmdir(folder);
}

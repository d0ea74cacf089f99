/* SPDX-License-Identifier: Apache-2.0 */ /* tests/fuzz/replay.c - a target as a test without libFuzzer. Each seed of
 * tests/fuzz/NAME is fed as it is, cut short, with inserted bytes, and with bytes changed, removed and doubled in a
 * fixed pseudo-random way. DETD_FUZZ_ROUNDS (default 60): the number of such changes of each seed, at most 1500 for
 * slow targets. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/fuzz/fuzz.h"

enum { SEED_MAX = 1 << 16, ROUNDS = 60, FEW = 20, SLOW_ROUNDS = 1500 };

static uint64_t random_state = 88172645463325252;

static size_t below(size_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (size_t)(random_state % n);
}

/* Feeds a copy of exactly this size, so that a sanitizer sees a read behind its end. */
static void feed(const uint8_t *bytes, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);

    assert_non_null(copy);
    memcpy(copy, bytes, size);
    fuzz_one(copy, size);
    free(copy);
}

static size_t change(uint8_t *bytes, size_t size)
{
    for (size_t n = 1 + below(4); n > 0 && size > 0; n--) {
        size_t at = below(size), len = below(size - at < 16 ? size - at + 1 : 17);

        switch (below(5)) {
        case 0:
            bytes[at] ^= (uint8_t)(1u << below(8));
            break;
        case 1:
            bytes[at] = (uint8_t)below(256);
            break;
        case 2:
            size = at;
            break;
        case 3: /* cut some out */
            memmove(bytes + at, bytes + at + len, size - at - len);
            size -= len;
            break;
        default: /* say some twice */
            if (size + len > SEED_MAX)
                break;
            memmove(bytes + at + len, bytes + at, size - at);
            size += len;
        }
    }
    return size;
}

static void put_into(const uint8_t *seed, size_t size, size_t places)
{
    static const struct {
        const char *text;
        size_t len;
    } puts[] = { { "", 1 },      { "9", 1 },  { "-", 1 }, { "\n[", 2 }, { "\xff\xff\xff\x7f", 4 },
                 { ",9999", 5 }, { "\"", 1 }, { "=", 1 }, { "\n", 1 },  { "\xff", 1 } };
    static uint8_t bytes[SEED_MAX];
    size_t stride = size / places + 1;

    for (size_t at = 0; at < size; at += stride) {
        feed(seed, at);
        for (size_t k = 0; k < sizeof puts / sizeof *puts; k++) {
            memcpy(bytes, seed, size);
            memcpy(bytes + at, puts[k].text, puts[k].len < size - at ? puts[k].len : size - at);
            feed(bytes, size);
        }
    }
}

/* A target with few places is slow. */
static int fewer(int rounds)
{
    return fuzz_places < FEW && rounds > SLOW_ROUNDS ? SLOW_ROUNDS : rounds;
}

static void vary(const uint8_t *seed, size_t size)
{
    const char *wanted = getenv("DETD_FUZZ_ROUNDS");
    static uint8_t bytes[SEED_MAX];

    feed(seed, size);
    put_into(seed, size, (size_t)fuzz_places);
    for (int r = fewer(wanted ? atoi(wanted) : ROUNDS); r > 0; r--) {
        memcpy(bytes, seed, size);
        feed(bytes, change(bytes, size));
    }
}

static void seeds(void **state)
{
    static uint8_t seed[SEED_MAX + 1];
    char folder[128], path[512];
    struct dirent **list;
    int n, found = 0;

    (void)state;
    snprintf(folder, sizeof folder, "tests/fuzz/%s", fuzz_name);
    n = scandir(folder, &list, NULL, alphasort);
    if (n < 0)
        fail_msg("no seeds in %s: run this from the root of the repository", folder);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, list[i]->d_name);
        if (list[i]->d_name[0] != '.') {
            FILE *f = fopen(path, "r");
            size_t size;

            assert_non_null(f);
            size = fread(seed, 1, sizeof seed, f);
            fclose(f);
            assert_in_range(size, 0, SEED_MAX);
            vary(seed, size);
            found++;
        }
        free(list[i]);
    }
    free(list);
    assert_true(found > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(seeds) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

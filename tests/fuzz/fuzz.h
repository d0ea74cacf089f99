/* SPDX-License-Identifier: Apache-2.0 */ /* tests/fuzz/fuzz.h - a fuzz target: one parser, fed with bytes from outside.
 * Each tests/fuzz/test_NAME.c defines the two below, and is linked twice: with replay.c, as a test that feeds it the
 * seeds in tests/fuzz/NAME and small changes of them; and with libFuzzer (make fuzz TARGET=NAME). Include it after
 * cmocka.h. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <jansson.h>

#include "tests/stand/harness.h"

extern const char fuzz_name[];
extern const int fuzz_places; /* the number of places in a seed at which replay.c cuts and inserts: fewer for a slow target */
/* Takes any bytes, which are a copy of exactly this size. Fails an assertion where the parser breaks its contract. */
void fuzz_one(const uint8_t *bytes, size_t size);

/* A file or folder of the target's own, for parsers that open one; the target removes it. It lies in memory if
 * possible, since some targets sync, and under a unique name. */
static inline const char *fuzz_path(void)
{
    static char path[TEMP_MAX];
    char name[40];

    snprintf(name, sizeof name, "fuzz-detd-%ld", (long)getpid());
    if (access("/dev/shm", W_OK) == 0)
        snprintf(path, sizeof path, "/dev/shm/%s", name);
    else
        temp_path(path, sizeof path, name);
    return path;
}

static inline void fuzz_write(const char *path, const void *bytes, size_t size)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    fclose(f);
}

/* flags: jansson's. */
static inline bool fuzz_is_json(const char *bytes, size_t size, size_t flags)
{
    json_t *root = json_loadb(bytes, size, flags, NULL);

    json_decref(root);
    return root != NULL;
}

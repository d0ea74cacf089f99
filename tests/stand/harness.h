/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/harness.h - the requirements of tests/harness/run.sh for a
 * cmocka program: its files lie under TMPDIR, where leftovers are noticed, and a skipped test gives its reason. Include
 * it after cmocka.h. */
#pragma once
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { TEMP_MAX = 96 }; /* room for a path of temp_path() */

/* TMPDIR/name, for mkdtemp() or mkstemp(). Returns path. */
static inline char *temp_path(char *path, size_t size, const char *name)
{
    const char *folder = getenv("TMPDIR");
    int n = snprintf(path, size, "%s/%s", folder ? folder : "/tmp", name);

    if (n < 0 || (size_t)n >= size) {
        fprintf(stderr, "TMPDIR is too long for tests: %s\n", folder);
        exit(1);
    }
    return path;
}

/* make check-long: tests that search, rather than check, search further. */
static inline bool test_long(void)
{
    return getenv("TEST_LONG") != NULL;
}

/* Ends the running test; tests/skips lists the reasons that are accepted where nothing should be skipped. */
#define SKIP(...)                            \
    do {                                     \
        print_message("skip: " __VA_ARGS__); \
        print_message("\n");                 \
        skip();                              \
    } while (0)

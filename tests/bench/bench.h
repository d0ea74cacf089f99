/* tests/bench/bench.h - what the bench programs share. They take "key=value" arguments and print records, a line each: a name, then key=value words, numbers
 * without units (the key names them). bench.py reads those and no other line, see records.py. */
#pragma once
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline double bench_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The value of the argument "key=...", or fallback. Borrowed from argv. */
static inline const char *bench_word(int argc, char **argv, const char *key, const char *fallback)
{
    size_t len = strlen(key);

    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], key, len) == 0 && argv[i][len] == '=')
            return argv[i] + len + 1;
    return fallback;
}

static inline double bench_number(int argc, char **argv, const char *key, double fallback)
{
    const char *word = bench_word(argc, argv, key, NULL);

    return word ? atof(word) : fallback;
}

/* A whole number of at least 1. */
static inline int bench_count(int argc, char **argv, const char *key, int fallback)
{
    const char *word = bench_word(argc, argv, key, NULL);
    int n = word ? atoi(word) : fallback;

    return n < 1 ? 1 : n;
}

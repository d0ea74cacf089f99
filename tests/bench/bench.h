/* SPDX-License-Identifier: Apache-2.0 */ /* tests/bench/bench.h - shared code of the bench programs. They take
 * "key=value" arguments and print records, a line each: a name, then key=value words. Numbers have no units: the key
 * names the unit. bench.py reads these lines only, see records.py. */
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static inline double bench_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Processor time of all threads so far, in seconds. */
static inline double bench_cpu_seconds(void)
{
    struct rusage r;

    getrusage(RUSAGE_SELF, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) + (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1e-6;
}

/* The largest memory of this process so far, in MiB (VmHWM): ru_maxrss begins with the parent's memory. */
static inline double bench_peak_mib(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[128];
    long kb = 0;

    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %ld", &kb) == 1)
            break;
    if (f)
        fclose(f);
    return (double)kb / 1024;
}

/* Number i of a sequence without pattern, and a number that is uniform in [0, 1): both sides of a comparison make their
 * inputs of these (made_up.py). */
static inline uint32_t bench_noise(uint32_t i)
{
    i = i * 2654435761u + 1;
    i ^= i >> 15;
    i *= 2246822519u;
    return i ^ i >> 13;
}

static inline double bench_uniform(uint32_t i)
{
    return (bench_noise(i) >> 8) / 16777216.0;
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

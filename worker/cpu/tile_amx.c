/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/tile_amx.c - see tile_amx.h. Builds for CPUs that never have the
 * unit contain almost nothing. */
#include "worker/cpu/tile_amx.h"

#include <stdio.h>
#include <string.h>

#include "proto/host/cpu.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#define UNIT_FN                   __attribute__((target("amx-tile,amx-bf16")))
#define UNIT_ZERO(t)              _tile_zero(t)
#define UNIT_LOAD(t, from, bytes) _tile_loadd(t, from, bytes)
#define UNIT_STORE(t, to, bytes)  _tile_stored(t, to, bytes)
#define UNIT_DOT(c, a, b)         _tile_dpbf16ps(c, a, b)
#define UNIT_BARRIER()            __asm__ volatile("" ::: "memory")
#include "worker/cpu/tile_unit.h"

enum {
    STATE_TILES = 3 << 17,   /* bits of XCR0: the kernel saves configuration and tiles */
    ASK_PERMISSION = 0x1023, /* arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) */
    TILE_DATA = 18,
};

/* Eight tiles of 16 rows of 64 bytes. */
static const struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} config = { .palette = 1,
             .row_bytes = { 64, 64, 64, 64, 64, 64, 64, 64 },
             .rows = { TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS } };

UNIT_FN static void amx_begin(void)
{
    _tile_loadconfig(&config);
}

UNIT_FN static void amx_end(void)
{
    _tile_release(); /* a thread without tiles costs no more at a switch */
}

const struct tile_unit tile_amx = { amx_begin, amx_end, unit_run };

static unsigned long long saved_states(void)
{
    unsigned lo, hi;

    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (unsigned long long)hi << 32 | lo;
}

/* Compares a product of numbers of every size, computed with and without the unit. */
static bool agrees(void)
{
    enum { ROWS = 50, BLOCKS = 3, PADDED = 64 };
    static const long tap = 0, column[2] = { 0, 16 }, half[2] = { 0, TILE_HALF };
    static uint16_t a[PADDED * TILE_BLOCK * BLOCKS], b[TILE_PANEL * BLOCKS];
    static float c[2][ROWS * TILE_COLS];
    struct tile_product t = { .a = a, .b = b, .a_tap = &tap, .b_tap = &tap, .a_row = TILE_BLOCK * BLOCKS, .a_block = TILE_BLOCK };
    uint32_t seed = 1;

    for (size_t i = 0; i < sizeof a / sizeof *a; i++)
        a[i] = (uint16_t)((seed = seed * 1664525u + 1013904223u) >> 16 & 0xBFFF); /* below 2 */
    for (size_t i = 0; i < sizeof b / sizeof *b; i++)
        b[i] = (uint16_t)((seed = seed * 1664525u + 1013904223u) >> 16 & 0xBFFF);
    t.b_column = half;
    t.b_block = TILE_PANEL;
    t.c_column = column;
    t.columns = 2;
    t.c_row = TILE_COLS;
    t.rows = ROWS;
    t.taps = 1;
    t.blocks = BLOCKS;
    t.c = c[0];
    tile_plain.run(&t);
    t.c = c[1];
    tile_amx.begin();
    tile_amx.run(&t);
    tile_amx.end();
    return memcmp(c[0], c[1], sizeof c[0]) == 0;
}

bool amx_ready(char *ret_why, size_t size)
{
    if (!cpu_has_bf16_unit())
        snprintf(ret_why, size, "it has no unit for bf16 (AMX)");
    else if ((saved_states() & STATE_TILES) != STATE_TILES)
        snprintf(ret_why, size, "the kernel does not save the state of its unit for bf16 (AMX)");
    else if (syscall(SYS_arch_prctl, ASK_PERMISSION, TILE_DATA) != 0)
        snprintf(ret_why, size, "the kernel does not permit its unit for bf16 (AMX)");
    else if (!agrees())
        snprintf(ret_why, size, "its unit for bf16 (AMX) gives other bits than it should");
    else
        return true;
    return false;
}

#else
bool amx_ready(char *ret_why, size_t size)
{
    if (cpu_has_bf16_unit())
        snprintf(ret_why, size, "its %s build uses no unit for bf16 (AMX)", ISA_NAME);
    else
        snprintf(ret_why, size, "it has no unit for bf16 (AMX)");
    return false;
}

const struct tile_unit tile_amx = { 0 }; /* never ready, so it is never called */
#endif

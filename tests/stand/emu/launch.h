/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/emu/launch.h - between the device code's header (C++) and the
 * emulator (C). */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { EMU_MAX_THREADS = 1024, EMU_WARP = 32, EMU_MAX_ARGS = 4096 };

struct emu_dim {
    unsigned x, y, z;
};

/* A line of device code. */
struct emu_site {
    const char *file;
    int line;
};

/* A launch. invoke calls the kernel once, for the thread in threadIdx, with a copy of the arguments. */
struct emu_launch {
    const char *kernel;
    struct emu_site site;
    struct emu_dim grid, block;
    void (*invoke)(const void *args);
};

#ifdef __cplusplus
extern "C" {
#endif
struct emu_stream;
void emu_launch_queue(const struct emu_launch *launch, struct emu_stream *stream, const void *args, size_t bytes);
/* Memory of the running block for the declaration that key stands for. */
void *emu_shared(const void *key, size_t bytes);
/* Waits for all live threads of the block; returns how many came with predicate true (ret_all: how many came). */
int emu_barrier(struct emu_site site, int predicate, int *ret_all);
/* Waits for the living lanes of mask; ret_values[l] is the value of lane l. Returns the lanes that came; *ret_lane is
 * the caller's own. */
unsigned emu_meet(struct emu_site site, unsigned mask, uint64_t value, uint64_t ret_values[EMU_WARP], int *ret_lane);
#ifdef __cplusplus
}
#endif

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/emu/emu.h - controls of the emulated GPU for tests, beyond the
 * CUDA runtime's own functions: seeds, faults, and tasks of other emulated libraries. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct device_ops;
struct emu_stream;

#ifdef __cplusplus
extern "C" {
#endif

/* The emulated device: detd_backend() of cuda/ under another name. */
const struct device_ops *cuda_backend_emu(void);

/* The order of blocks, threads and streams from now on. Before the first call: seed 1, or the environment's
 * EMU_SEED. */
void emu_seed(uint64_t seed);

/* From now on there is no device (on), or there is one again. */
void emu_no_device(bool on);
/* The device's memory; 0: as much as the machine gives. Starts at 16 GiB. */
void emu_memory_limit(size_t bytes);
/* Only the n-th allocation of device or pinned memory from now fails (1: the next). 0: no allocation fails. */
void emu_fail_malloc_after(int n);
/* The n-th queued task from now ends the context with this error (a cudaError_t); all later calls return it until
 * emu_revive(). 0: no task does. */
void emu_fail_task_after(int n, int error);
void emu_revive(void);

/* Bytes of device memory allocated now, and allocations ever made: in a steady state the second does not grow. */
size_t emu_memory_used(void);
uint64_t emu_allocations(void);
/* Tasks that have run, and tasks that wait. */
uint64_t emu_tasks_run(void);
/* The number of times that the host has waited for a stream or an event: a step must not wait. */
uint64_t emu_waits(void);
size_t emu_tasks_queued(void);

/* Queues a function of another emulated library on a stream, with `bytes` of *arg copied. It runs under the emulator's
 * lock and may read and write device memory. It returns EMU_DONE, or EMU_AGAIN when it waits for another stream's task
 * (a rendezvous of ranks): then it is called again later. The text is for messages. */
enum { EMU_DONE, EMU_AGAIN };
int emu_task(struct emu_stream *stream, const char *what, int (*run)(void *arg), const void *arg, size_t bytes);
/* An event from outside (an abort flag) may have ended the wait of a task: look again. */
void emu_wake(void);

#ifdef __cplusplus
}
#endif

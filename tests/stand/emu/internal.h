/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/emu/internal.h - interfaces between the files of the emulator.
 * All functions except emu_lock() must be called with the lock held. */
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/stand/emu/cuda_runtime.h"
#include "tests/stand/emu/launch.h"

#if defined(__SANITIZE_ADDRESS__)
#define EMU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMU_ASAN 1
#endif
#if __has_feature(memory_sanitizer)
#define EMU_MSAN 1
#endif
#endif
#ifdef EMU_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n)   ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif
#ifdef EMU_MSAN
#include <sanitizer/msan_interface.h>
#endif

/* ---- control.c ---- */
void emu_lock(void);
void emu_unlock(void);
/* Releases the lock until `changed` is signalled or that time has come. */
void emu_wait(pthread_cond_t *changed, const struct timespec *until);
/* The next number of the seed's sequence, below n (n > 0). */
uint32_t emu_random(uint32_t n);
/* Makes e the calling thread's last error; returns it. */
cudaError_t emu_error(cudaError_t e);
/* The context's error, cudaSuccess while it lives; or that there is no device. */
cudaError_t emu_context(void);
/* Call it before a task runs. Returns the context's error, which a test may have requested. */
cudaError_t emu_task_starts(void);
/* Ends the process: the program under test broke a rule of CUDA. */
void emu_violation(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* ---- queue.c ---- */
/* Does queued work mention an address of [from, to)? Its name, or NULL. */
const char *emu_queued_on(const char *from, const char *to);

/* ---- memory.c ---- */
enum emu_memory { EMU_PAGEABLE, EMU_PINNED, EMU_DEVICE };
enum emu_memory emu_memory_of(const void *ptr, size_t bytes);
/* Lets this process read and write device memory, or forbids it (not every time, where there is much of it). Not
 * nested. */
void emu_memory_open(bool open);
/* Fills memory that must not be read: with 0xFF, or under MSan as uninitialised. */
void emu_poison(void *ptr, size_t bytes);
bool emu_device_absent(void);

/* ---- block.c ---- */
void emu_run_grid(const struct emu_launch *launch, const void *args);

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/emu/fiber.h - stacks that one thread of the machine switches
 * between; tells the sanitizers. Used under the emulator's lock. */
#pragma once

struct fiber;

/* A fiber that runs main() when it is first switched to; main() never returns. Kept for ever. Aborts when there is no
 * memory. */
struct fiber *fiber_new(void (*main)(void));
/* Switches to fiber f; returns when another fiber switches back to the caller. */
void fiber_switch(struct fiber *f);
/* The fiber that runs: the calling thread's own stack is one too. */
struct fiber *fiber_self(void);

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/emu/fiber.c - switching stacks on x86-64: six registers and the
 * stack pointer. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "tests/stand/emu/fiber.h"
#include "tests/stand/emu/internal.h"

#ifdef EMU_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

enum { STACK_BYTES = 256 << 10, GUARD_BYTES = 4096 };

struct fiber {
    void *sp;
    void (*main)(void);
    const void *bottom; /* of the stack, for the sanitizers */
    size_t bytes;
    void *fake_stack, *tsan;
};

/* Fibers run under a single lock, so one current fiber is enough; the host is the thread that holds the lock. */
static struct fiber host, *self = &host;

/* Saves the callee-saved registers, stores the stack pointer in *save, continues on the stack at load. */
void emu_switch_stack(void **save, void *load);
__asm__(".text\n"
        ".type emu_switch_stack, @function\n"
        ".globl emu_switch_stack\n"
        "emu_switch_stack:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size emu_switch_stack, . - emu_switch_stack\n");

/* On the new stack, right after a switch. from: the fiber that was left. */
static void arrived(struct fiber *from)
{
#ifdef EMU_ASAN
    __sanitizer_finish_switch_fiber(self->fake_stack, from == &host ? &host.bottom : NULL, from == &host ? &host.bytes : NULL);
#else
    (void)from;
#endif
}

static struct fiber *left; /* by the switch under way */

static void first_entry(void)
{
    arrived(left);
    self->main();
    abort();
}

struct fiber *fiber_self(void)
{
    return self;
}

void fiber_switch(struct fiber *f)
{
    struct fiber *me = self;

    left = me;
    self = f;
#ifdef EMU_ASAN
    __sanitizer_start_switch_fiber(&me->fake_stack, f->bottom, f->bytes);
#endif
#ifdef __SANITIZE_THREAD__
    if (me == &host)
        host.tsan = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(f->tsan, 0);
#endif
    emu_switch_stack(&me->sp, f->sp);
    arrived(left);
}

struct fiber *fiber_new(void (*fn)(void))
{
    struct fiber *f = calloc(1, sizeof(*f));
    char *stack = mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    uintptr_t *top;

    if (!f || stack == MAP_FAILED || mprotect(stack, GUARD_BYTES, PROT_NONE) < 0) {
        fputs("emulated GPU: no memory for another fiber\n", stderr);
        abort();
    }
    f->main = fn;
    f->bottom = stack + GUARD_BYTES;
    f->bytes = STACK_BYTES;
#ifdef __SANITIZE_THREAD__
    f->tsan = __tsan_create_fiber(0);
#endif
    top = (uintptr_t *)(void *)(stack + GUARD_BYTES + STACK_BYTES);
    *--top = 0; /* where first_entry() would return to; also puts its stack where the ABI wants it: 8 off a multiple of 16 */
    *--top = (uintptr_t)first_entry;
    top -= 6; /* registers: any values */
    f->sp = top;
    return f;
}

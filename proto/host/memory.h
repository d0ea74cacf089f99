/* SPDX-License-Identifier: Apache-2.0 */ /* proto/host/memory.h - ends a program that lacks memory. */
#pragma once

/* Prints "PROGRAM: out of memory" and exits with 1. For small allocations that no caller could do without; a service
 * returns an error instead. */
void memory_out(void) __attribute__((noreturn));

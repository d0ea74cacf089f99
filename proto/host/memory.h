/* SPDX-License-Identifier: Apache-2.0 */ /* proto/host/memory.h - ends a program that lacks memory. */
#pragma once

/* Says "PROGRAM: out of memory" and exits with 1. For a few bytes whose lack no caller could mend; a service returns an error instead. */
void memory_out(void) __attribute__((noreturn));

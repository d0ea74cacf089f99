/* SPDX-License-Identifier: Apache-2.0 */ /* proto/host/output.h - tells whether all output of a program was written.
 * Needs only the C library. */
#pragma once
#include <stdio.h>

/* To be called for each stream to standard output before a program ends. Flushes it, and returns 0 if everything ever
 * printed to it is written. Otherwise prints "PROGRAM: standard output: why" on standard error and returns -1: the exit
 * status must tell it, too. */
int output_end(FILE *out, const char *program);

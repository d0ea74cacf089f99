/* SPDX-License-Identifier: Apache-2.0 */ /* proto/host/output.h - whether what a program has printed was written. Needs the C library alone. */
#pragma once
#include <stdio.h>

/* To be asked of each stream to standard output before a program ends. Flushes it, and returns 0 where all that was ever printed to it is written. Else it says
 * "PROGRAM: standard output: why" on standard error and returns -1: the exit status must tell it, too. */
int output_end(FILE *out, const char *program);

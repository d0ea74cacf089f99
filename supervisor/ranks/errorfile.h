/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/ranks/errorfile.h - the files that TORCHELASTIC_ERROR_FILE
 * names: a rank of a program writes its exception there, in the form of torch's `record`. */
#pragma once
#include <stddef.h>

struct err;

/* Removes the files of an earlier start of this attempt, and makes their folder in the working directory. */
int errorfile_prepare(int attempt, int nranks, struct err *err);
/* The name of a rank's file, relative to the working directory. */
void errorfile_name(int attempt, int rank, char *ret, size_t size);
/* The exception of the rank that failed first, as the last lines of its message; "": no rank has written one.
 * Returns that rank, or -1. first: the rank to prefer if the files have no time. */
int errorfile_read(int attempt, int nranks, int first, char *ret, size_t size);

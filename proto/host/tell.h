/* SPDX-License-Identifier: Apache-2.0 */ /* proto/host/tell.h - a service's lines on standard error. It never waits for whoever reads them there, and leaves the descriptor as it is, since others may share it.
 * Needs the C library alone. Any thread. */
#pragma once

enum { TELL_LINE_BYTES = 1280 };

/* Writes prefix, the text of fmt and a line end, at most TELL_LINE_BYTES together. Control characters of the text become blanks, so that one call
 * makes one line. A line that a terminal, pipe or socket cannot take at once is dropped; the next line that can be written comes behind one that says how many
 * were. A file is waited for. */
void tell_line(const char *prefix, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

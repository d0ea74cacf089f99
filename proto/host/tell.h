/* SPDX-License-Identifier: Apache-2.0 */ /* proto/host/tell.h - a service's lines on standard error. It never waits for
 * a slow reader, and leaves the flags of the descriptor unchanged, since other processes may share it. Needs only the C
 * library. Any thread. */
#pragma once

enum { TELL_LINE_BYTES = 1280 };

/* Writes prefix, the text of fmt and a line end, at most TELL_LINE_BYTES together. Control characters of the text
 * become blanks, so that one call makes one line. A terminal, pipe or socket that cannot take the line at once loses
 * it; the next line that can be written comes behind a line with the number of lost lines. A file is waited for. */
void tell_line(const char *prefix, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

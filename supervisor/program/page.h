/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/program/page.h - the progress page of a rank of a program. */
#pragma once
#include "proto/progress.h"
#include "supervisor/program/silence.h"

/* Reads changes, step, deadline and phase; zeros as long as the rank has not written the page. The memory is the
 * program's, so the phase may hold any bytes; it is ended by a NUL. */
void page_read(struct progress *page, struct silence_page *ret);

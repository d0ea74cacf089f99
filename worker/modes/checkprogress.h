/* SPDX-License-Identifier: Apache-2.0 */ /* worker/modes/checkprogress.h - reports on stderr the progress of a check of
 * data that takes longer than two seconds. */
#pragma once

struct check_progress;
struct checkprogress;

/* Starts the thread that reports every few seconds. hint: the end of the first line, or ""; it must outlive the thread.
 * Returns NULL if no thread can be started; then nothing is reported. */
struct checkprogress *checkprogress_start(const char *hint);
/* Sets the name of the part that is checked from now on; the name must outlive the thread. Returns the counters for
 * check_options.progress, at 0; p owns them. p NULL: returns NULL. */
struct check_progress *checkprogress_phase(struct checkprogress *p, const char *what);
/* Ends the thread and frees p. NULL is ignored. */
void checkprogress_stop(struct checkprogress *p);

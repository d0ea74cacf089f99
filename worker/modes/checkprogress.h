/* SPDX-License-Identifier: Apache-2.0 */ /* worker/modes/checkprogress.h - tells on stderr how far a check of data is that takes longer than two seconds. */
#pragma once

struct check_progress;
struct checkprogress;

/* Starts the thread that tells, every few seconds. hint: the end of the first line, or ""; it must outlive the thread. Returns NULL where no thread
 * can be started; nothing is told then. */
struct checkprogress *checkprogress_start(const char *hint);
/* Sets the name of the part that is checked from now on; `what` must outlive the thread. Returns the counters for check_options.progress, at 0; p owns them. p NULL:
 * returns NULL. */
struct check_progress *checkprogress_phase(struct checkprogress *p, const char *what);
/* Ends the thread and frees p. NULL is fine. */
void checkprogress_stop(struct checkprogress *p);

/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/run/drain.h - a drain of the node that a full disk keeps from being
 * stored. The note about it is the file `drained` in the state folder, which is this process's folder. */
#pragma once
#include <stdbool.h>

struct runner;

/* At the start, after r->drained was read from the store: a note of an earlier daemon counts instead, and is stored.
 * Makes the room for a note; without that detd runs too. */
void drain_load(struct runner *r);
/* Notes the reason, and stores it when there is room. False: the note cannot be written, and the drain is forgotten if
 * detd ends before that. */
bool drain_keep(struct runner *r, const char *reason);

/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/base/reserve.h - a file that only takes up room, for a full disk. It
 * is removed so that an operation that makes room can run, and made again when there is room. A kill at any moment
 * leaves a file of some size, or no file. Errors are ignored: without the file, a full disk is as bad as it would be
 * anyway. */
#pragma once
#include <stdbool.h>

struct reserve {
    char path[4096 + 16];
    bool whole;
};

void reserve_open(struct reserve *r, const char *folder);
/* Makes as much of the file as there is room for. Does nothing if the file is whole. */
void reserve_make(struct reserve *r);
/* Removes the file. False: it took no room. */
bool reserve_give_back(struct reserve *r);

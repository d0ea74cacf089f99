/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/base/reserve.h - a file that only takes up room, for a disk that has none left: it is given back for what makes room, and made again when there is some. A
 * kill at any moment leaves one of some size, or none. Nobody hears of an error: without it a full disk is what it would be anyway. */
#pragma once
#include <stdbool.h>

struct reserve {
    char path[4096 + 16];
    bool whole;
};

void reserve_open(struct reserve *r, const char *folder);
/* As much of it as there is room for; where it is whole, nothing. */
void reserve_make(struct reserve *r);
/* False: there was none. */
bool reserve_give_back(struct reserve *r);

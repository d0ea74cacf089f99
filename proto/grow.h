/* SPDX-License-Identifier: Apache-2.0 */ /* proto/grow.h - arrays that grow. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for `need` elements in `array`, which is NULL or on the heap. `room` is a size_t: the number of elements
 * that fit. A new room is at least twice the old one. False: out of memory; array and room stay unchanged. */
#define GROW(array, room, need) grow_array(&(array), &(room), (size_t)(need), sizeof *(array))

/* array: the address of the pointer. A first block has 256 bytes or more. */
static inline bool grow_array(void *array, size_t *room, size_t need, size_t size)
{
    size_t most = SIZE_MAX / 2 / size, least = 256 / size + 1, more = need;
    void *old, *bigger;

    if (need <= *room)
        return true;
    more = more < 2 * *room ? 2 * *room : more;
    more = more < least ? least : more;
    memcpy(&old, array, sizeof old);
    bigger = more <= most ? realloc(old, more * size) : NULL;
    if (!bigger)
        return false;
    memcpy(array, &bigger, sizeof bigger); /* works for any element type */
    *room = more;
    // cppcheck-suppress memleak
    return true;
}

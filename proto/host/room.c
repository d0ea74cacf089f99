#include "proto/host/room.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stddef.h>

const char *room_lacks(int error)
{
    switch (error) {
    case EFBIG:
        return "the limit of file sizes (ulimit -f) is reached";
    case EDQUOT:
        return "the disk quota is used up";
    case ENOSPC:
        return "the disk is full";
    default:
        return NULL;
    }
}

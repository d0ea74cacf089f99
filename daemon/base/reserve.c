#include "daemon/base/reserve.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* WHOLE: the size up to which the database's log grows before it begins anew. The removal of a job adds some ten pages
 * to the log, and the removal of a hundred jobs less than a thousand. */
enum { WHOLE = 4 << 20, LEAST = 64 << 10, BLOCK = 512 };

static long long room_of(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 ? (long long)st.st_blocks * BLOCK : 0;
}

void reserve_make(struct reserve *r)
{
    int fd = r->whole ? -1 : open(r->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return;
    for (int step = WHOLE, have = 0; step >= LEAST && have < WHOLE; step /= 2)
        if (posix_fallocate(fd, 0, have + step) == 0)
            have += step;
    r->whole = room_of(fd) >= WHOLE;
    close(fd);
}

bool reserve_give_back(struct reserve *r)
{
    struct stat st;
    bool any = lstat(r->path, &st) == 0 && st.st_blocks > 0;

    r->whole = false;
    return unlink(r->path) == 0 && any;
}

void reserve_open(struct reserve *r, const char *folder)
{
    snprintf(r->path, sizeof r->path, "%s/reserve", folder);
    r->whole = false;
    reserve_make(r);
}

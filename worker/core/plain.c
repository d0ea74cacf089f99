#include "worker/core/plain.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/clean.h"

enum { PIECE = 512, CHARACTER = 4 };

struct plain {
    struct plain *next;
    int fd;
    bool terminal;
    char held[CHARACTER]; /* the first bytes of a character that is not complete */
    size_t nheld;
};

/* All open ones. The list exists for leak checkers: they do not follow the C library's pointer to its cookie. */
static struct plain *first;

static bool is_shown(uint32_t code)
{
    return !clean_is_obeyed(code) || code == '\n' || code == '\t';
}

/* Takes one byte. Returns the number of bytes now complete in `to`, at most CHARACTER times those of clean_shown(). */
static size_t put(struct plain *p, char c, char *to)
{
    size_t n, done = 0;
    uint32_t code;

    p->held[p->nheld++] = c;
    while (p->nheld > 0 && (n = clean_next(p->held, p->nheld, &code)) > 0) {
        if (is_shown(code))
            memcpy(to + done, p->held, n);
        else
            strcpy(to + done, clean_shown(code).s);
        done += is_shown(code) ? n : strlen(clean_shown(code).s);
        p->nheld -= n;
        memmove(p->held, p->held + n, p->nheld);
    }
    return done;
}

static bool write_all(int fd, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, bytes, size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        bytes += n;
        size -= (size_t)n;
    }
    return true;
}

static ssize_t plain_write(void *cookie, const char *from, size_t size)
{
    struct plain *p = cookie;
    char piece[PIECE];
    size_t n = 0;

    if (!p->terminal)
        return write_all(p->fd, from, size) ? (ssize_t)size : 0;
    for (size_t i = 0; i < size; i++) {
        n += put(p, from[i], piece + n);
        if (n + CHARACTER * sizeof(struct clean_shown) > sizeof piece || i + 1 == size) {
            if (!write_all(p->fd, piece, n))
                return 0;
            n = 0;
        }
    }
    return (ssize_t)size;
}

static int plain_close(void *cookie)
{
    struct plain **at = &first;

    while (*at != cookie)
        at = &(*at)->next;
    *at = (*at)->next;
    free(cookie);
    return 0;
}

FILE *plain_open(int fd)
{
    struct plain *p = malloc(sizeof *p);
    FILE *f;

    if (!p)
        return NULL;
    *p = (struct plain){ .next = first, .fd = fd, .terminal = isatty(fd) };
    f = fopencookie(p, "w", (cookie_io_functions_t){ .write = plain_write, .close = plain_close });
    if (!f) {
        free(p);
        return NULL;
    }
    first = p;
    setvbuf(f, NULL, fd == STDERR_FILENO || isatty(fd) ? _IOLBF : _IOFBF, BUFSIZ);
    return f;
}

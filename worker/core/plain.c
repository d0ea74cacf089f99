#include "worker/core/plain.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

enum { LEAD = 0xc2, PIECE = 512 };

struct plain {
    struct plain *next;
    int fd;
    unsigned char last; /* byte that came before */
    bool held;          /* a LEAD whose second byte is to come */
};

/* Those that are open: to a sanitizer the C library's pointer to them is none, and what nobody points to has leaked. */
static struct plain *first;

static bool is_c1(unsigned char c)
{
    return c >= 0x80 && c < 0xa0;
}

/* Of one byte up to two. */
static size_t put(struct plain *p, unsigned char c, char *to)
{
    bool held = p->held, alone = p->last < 0x80;
    size_t n = 0;

    p->last = c;
    p->held = c == LEAD;
    if (held && is_c1(c)) {
        to[n++] = '?';
        return n;
    }
    if (held)
        to[n++] = (char)LEAD;
    if (p->held)
        return n;
    to[n++] = (c < ' ' && c != '\n' && c != '\t') || c == 0x7f || (is_c1(c) && alone) ? '?' : (char)c;
    return n;
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

    for (size_t i = 0; i < size; i++) {
        n += put(p, (unsigned char)from[i], piece + n);
        if (n + 2 > sizeof piece || i + 1 == size) {
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
    *p = (struct plain){ .next = first, .fd = fd };
    f = fopencookie(p, "w", (cookie_io_functions_t){ .write = plain_write, .close = plain_close });
    if (!f) {
        free(p);
        return NULL;
    }
    first = p;
    setvbuf(f, NULL, fd == STDERR_FILENO || isatty(fd) ? _IOLBF : _IOFBF, BUFSIZ);
    return f;
}

#include "worker/data/exif.h"

#include <stdbool.h>
#include <string.h>

enum { TAG_ORIENTATION = 274, TYPE_SHORT = 3, TYPE_LONG = 4, ENTRY_BYTES = 12, TIFF_LEAST = 8 };

/* The block is a TIFF file: byte order, 42, where its first directory begins, and there a count of entries. */
struct tiff {
    const uint8_t *p;
    size_t size;
    bool big; /* the high byte comes first */
};

/* Of n <= 4 bytes at `at`; 0 where they are not there. */
static uint32_t number(const struct tiff *t, size_t at, int n)
{
    uint32_t v = 0;

    if (at > t->size || t->size - at < (size_t)n)
        return 0;
    for (int i = 0; i < n; i++)
        v = v << 8 | t->p[at + (size_t)(t->big ? i : n - 1 - i)];
    return v;
}

static int value_of(const struct tiff *t, size_t entry)
{
    uint32_t type = number(t, entry + 2, 2), v = type == TYPE_SHORT  ? number(t, entry + 8, 2)
                                                 : type == TYPE_LONG ? number(t, entry + 8, 4)
                                                                     : 0;

    return number(t, entry + 4, 4) == 1 && v >= 1 && v <= 8 ? (int)v : 1;
}

static int of_tiff(const uint8_t *p, size_t size)
{
    struct tiff t = { p, size, size > 0 && p[0] == 'M' };
    size_t entry;
    uint32_t n;

    if (size < TIFF_LEAST || memcmp(p, t.big ? "MM" : "II", 2) != 0 || number(&t, 2, 2) != 42)
        return 1;
    entry = number(&t, 4, 4);
    n = number(&t, entry, 2);
    for (entry += 2; n > 0 && entry + ENTRY_BYTES <= size; n--, entry += ENTRY_BYTES)
        if (number(&t, entry, 2) == TAG_ORIENTATION)
            return value_of(&t, entry);
    return 1;
}

static bool has_length(int marker)
{
    return marker != 0x01 && !(marker >= 0xd0 && marker <= 0xd8);
}

/* Segments up to the picture's data: 0xff, a marker, and a length that counts itself. Other bytes between them are passed over. */
int exif_orientation(const uint8_t *bytes, size_t size)
{
    static const char name[] = "Exif\0"; /* and one more byte, which is to be 0 */
    size_t at = 2, len;

    if (size < 4 || bytes[0] != 0xff || bytes[1] != 0xd8)
        return 1;
    while (size - at >= 4) {
        int marker = bytes[at + 1];

        if (bytes[at] != 0xff || marker == 0 || marker == 0xff) {
            at++;
            continue;
        }
        if (marker == 0xd9 || marker == 0xda)
            return 1;
        len = has_length(marker) ? (size_t)(bytes[at + 2] << 8 | bytes[at + 3]) : 0;
        at += 2;
        if (len > size - at)
            return 1;
        if (marker == 0xe1 && len >= 2 + sizeof name && memcmp(bytes + at + 2, name, 5) == 0)
            return of_tiff(bytes + at + 2 + sizeof name, len - 2 - sizeof name);
        at += len;
    }
    return 1;
}

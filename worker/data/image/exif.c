#include "worker/data/image/exif.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdbool.h>
#include <string.h>

enum { TAG_ORIENTATION = 274, TYPE_SHORT = 3, TYPE_LONG = 4, ENTRY_BYTES = 12, TIFF_LEAST = 8 };
enum { CHUNK_LEAST = 12, EXIF_MOST = 1 << 20 /* longest block in a PNG; a JPEG's has at most 64 KiB */ };

static const uint8_t png_begin[8] = { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n' };

/* The block is a TIFF file: byte order, 42, offset of the first directory. The directory begins with a count of
 * entries. */
struct tiff {
    const uint8_t *p;
    size_t size;
    bool big; /* the high byte comes first */
};

/* The number of n <= 4 bytes at `at`; 0 if they lie outside. */
static uint32_t number(const struct tiff *t, size_t at, int n)
{
    uint32_t v = 0;

    if (at > t->size || t->size - at < (size_t)n)
        return 0;
    for (int i = 0; i < n; i++)
        v = v << 8 | t->p[at + (size_t)(t->big ? i : n - 1 - i)];
    return v;
}

/* The first number of an entry. Up to four bytes of numbers stand in the entry, more stand elsewhere in the block. 0:
 * missing, or not a number. */
static uint32_t first_of(const struct tiff *t, size_t entry)
{
    uint32_t type = number(t, entry + 2, 2);
    int each = type == TYPE_SHORT ? 2 : type == TYPE_LONG ? 4 : 0;
    uint64_t bytes = (uint64_t)each * number(t, entry + 4, 4);
    size_t at = bytes <= 4 ? entry + 8 : number(t, entry + 8, 4);

    return bytes > 0 && at <= t->size && bytes <= t->size - at ? number(t, at, each) : 0;
}

/* If several entries give an orientation, the last one counts. */
static int of_tiff(const uint8_t *p, size_t size)
{
    struct tiff t = { p, size, size > 0 && p[0] == 'M' };
    uint32_t n, found = 1;
    size_t entry;

    if (size < TIFF_LEAST || memcmp(p, t.big ? "MM" : "II", 2) != 0 || number(&t, 2, 2) != 42)
        return 1;
    entry = number(&t, 4, 4);
    n = number(&t, entry, 2);
    for (entry += 2; n > 0 && entry + ENTRY_BYTES <= size; n--, entry += ENTRY_BYTES) {
        uint32_t v = number(&t, entry, 2) == TAG_ORIENTATION ? first_of(&t, entry) : 0;

        found = v > 0 ? v : found;
    }
    return found <= 8 ? (int)found : 1;
}

static const char name[] = "Exif\0"; /* followed by one more byte, which must be 0 */

/* ---- JPEG ---- */

static bool has_length(int marker)
{
    return marker != 0x01 && !(marker >= 0xd0 && marker <= 0xd8);
}

/* Segments up to the picture's data: 0xff, a marker, and a length that includes itself. Other bytes between segments
 * are skipped. */
static int of_jpeg(const uint8_t *bytes, size_t size)
{
    size_t at = 2, len;

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

/* ---- PNG ---- */

/* The checksum of a chunk without its length. */
static uint32_t crc_of(const uint8_t *p, size_t n)
{
    uint32_t crc = ~0u;

    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

/* Some programs put a JPEG's name before the block. */
static int of_chunk(const uint8_t *p, size_t size)
{
    size_t skip = size > sizeof name && memcmp(p, name, sizeof name) == 0 ? sizeof name : 0;

    return of_tiff(p + skip, size - skip);
}

/* A chunk: its length, four letters, the bytes, a checksum of letters and bytes. The block may follow the picture's
 * data. */
static int of_png(const uint8_t *bytes, size_t size)
{
    const struct tiff file = { bytes, size, true };
    size_t at = sizeof png_begin, len;
    int found = 1;

    while (at <= size && size - at >= CHUNK_LEAST) {
        const uint8_t *letters = bytes + at + 4;

        len = number(&file, at, 4);
        if (len > size - at - CHUNK_LEAST)
            break;
        if (memcmp(letters, "eXIf", 4) == 0 && len <= EXIF_MOST && crc_of(letters, 4 + len) == number(&file, at + 8 + len, 4))
            found = of_chunk(letters + 4, len);
        at += CHUNK_LEAST + len;
    }
    return found;
}

/* ---- WebP ---- */

/* RIFF chunks: four letters, a little-endian length, the bytes, padded to an even number. */
static int of_webp(const uint8_t *bytes, size_t size)
{
    const struct tiff file = { bytes, size, false };
    size_t at = 12, len;

    for (; at <= size && size - at >= 8; at += 8 + len + len % 2) {
        len = number(&file, at + 4, 4);
        if (len > size - at - 8)
            break;
        if (memcmp(bytes + at, "EXIF", 4) == 0)
            return len <= EXIF_MOST ? of_chunk(bytes + at + 8, len) : 1;
    }
    return 1;
}

int exif_orientation(const uint8_t *bytes, size_t size)
{
    if (size >= 4 && bytes[0] == 0xff && bytes[1] == 0xd8)
        return of_jpeg(bytes, size);
    if (size >= 12 && memcmp(bytes, "RIFF", 4) == 0 && memcmp(bytes + 8, "WEBP", 4) == 0)
        return of_webp(bytes, size);
    return size > sizeof png_begin && memcmp(bytes, png_begin, sizeof png_begin) == 0 ? of_png(bytes, size) : 1;
}

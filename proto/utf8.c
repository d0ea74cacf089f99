#include "proto/utf8.h" /* SPDX-License-Identifier: Apache-2.0 */

int utf8_length(const unsigned char *p, const unsigned char *end)
{
    int n = p[0] >= 0xc2 && p[0] <= 0xdf ? 2 : p[0] >= 0xe0 && p[0] <= 0xef ? 3 : p[0] >= 0xf0 && p[0] <= 0xf4 ? 4 : 0;

    if (p[0] < 0x80)
        return 1;
    if (n == 0 || end - p < n)
        return 0;
    for (int i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return n;
}

bool utf8_good(const char *text, size_t len)
{
    const unsigned char *p = (const unsigned char *)text, *end = p + len;
    int n = 1;

    for (; p < end && n > 0; p += n)
        n = utf8_length(p, end);
    return n > 0;
}

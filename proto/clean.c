#include "proto/clean.h"

#include <stdlib.h>
#include <string.h>

json_t *clean_string(const char *text)
{
    json_t *s = json_string(text);
    char *copy;

    if (s || !(copy = strdup(text)))
        return s;
    for (char *p = copy; *p; p++)
        if ((unsigned char)*p >= 0x80)
            *p = '?';
    s = json_string(copy);
    free(copy);
    return s;
}

void clean_copy(char *to, size_t size, const char *from)
{
    size_t n = strlen(from);

    if (n >= size)
        for (n = size - 1; n > 0 && ((unsigned char)from[n] & 0xc0) == 0x80;)
            n--;
    memcpy(to, from, n);
    to[n] = '\0';
}

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

/* proto/clean.h - text of any bytes, as file names are, in JSON, which is UTF-8. */
#pragma once
#include <jansson.h>
#include <stddef.h>

/* Where it is not UTF-8 every byte above 0x7f becomes '?'. New reference. NULL: out of memory. */
json_t *clean_string(const char *text);
/* Copies what has room, and never half a character of UTF-8. */
void clean_copy(char *to, size_t size, const char *from);

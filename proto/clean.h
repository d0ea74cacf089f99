/* proto/clean.h - text of any bytes, as file names are, in JSON, which is UTF-8. */
#pragma once
#include <jansson.h>

/* Where it is not UTF-8 every byte above 0x7f becomes '?'. New reference. NULL: out of memory. */
json_t *clean_string(const char *text);

/* SPDX-License-Identifier: Apache-2.0 */ /* proto/clean.h - text of others: of any bytes, as file names are, in JSON, which is UTF-8; and on a terminal, which obeys some characters. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where it is not UTF-8 every byte above 0x7f becomes '?'. New reference. NULL: out of memory. */
json_t *clean_string(const char *text);
/* Copies what has room, and never half a character of UTF-8. */
void clean_copy(char *to, size_t size, const char *from);
/* Reads the first character of len > 0 bytes. Returns its bytes, or 0 where more are needed to know it. A byte that is not UTF-8 is a character of its own,
 * whose code is the byte. */
size_t clean_next(const char *text, size_t len, uint32_t *ret_code);
/* Whether a terminal obeys the character instead of showing it: control characters (C0, DEL, C1), line separators, and format characters such as U+202E,
 * which turns the rest of a line around. The joiners U+200C and U+200D are shown: scripts need them. */
bool clean_is_obeyed(uint32_t code);
/* Whether a text of UTF-8 has such a character. */
bool clean_has_obeyed(const char *text);

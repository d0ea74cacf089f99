/* SPDX-License-Identifier: Apache-2.0 */ /* proto/clean.h - makes foreign text safe. File names have any bytes, JSON
 * has to be UTF-8, and a terminal obeys some characters. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In a text that is not UTF-8, every byte above 0x7f becomes '?'. Returns a new reference, or NULL: out of memory. */
json_t *clean_string(const char *text);
/* Copies as much as there is room for, and never half a character of UTF-8. */
void clean_copy(char *to, size_t size, const char *from);
/* Reads the first character of len > 0 bytes. Returns its length in bytes, or 0 if more bytes are needed. A byte that
 * is not UTF-8 counts as one character whose code is the byte. */
size_t clean_next(const char *text, size_t len, uint32_t *ret_code);
/* Whether a terminal obeys the character instead of showing it: control characters (C0, DEL, C1), line separators, and
 * format characters such as U+202E, which turns the rest of a line around. The joiners U+200C and U+200D are shown:
 * scripts need them. */
bool clean_is_obeyed(uint32_t code);
/* How a terminal may show such a character: ^[ for ESC, <U+202E> for one beyond ASCII. */
struct clean_shown {
    char s[12];
};
struct clean_shown clean_shown(uint32_t code);
/* The text with '?' in place of each byte that is in no whole character of UTF-8. The caller frees. NULL: out of
 * memory. */
char *clean_whole(const char *text);
/* Whether a text of UTF-8 has such a character. */
bool clean_has_obeyed(const char *text);

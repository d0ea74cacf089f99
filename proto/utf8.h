/* SPDX-License-Identifier: Apache-2.0 */ /* proto/utf8.h - tells whether foreign text is UTF-8. Names of classes and
 * files have to be, since JSON and terminals cannot show other bytes. Pure. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

/* Length of the well-formed sequence at p < end, or 0: no overlong forms, no surrogates, nothing above U+10FFFF. */
int utf8_length(const unsigned char *p, const unsigned char *end);
/* Whether the whole text is well-formed. */
bool utf8_good(const char *text, size_t len);

/* SPDX-License-Identifier: Apache-2.0 */ /* proto/utf8.h - is text from outside UTF-8? Names of classes and files are, or neither JSON nor a terminal could show them. Pure. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

/* Length of the well-formed sequence at p < end, or 0: no overlong forms, no surrogates, nothing above U+10FFFF. */
int utf8_length(const unsigned char *p, const unsigned char *end);
/* Whether all of it is. */
bool utf8_good(const char *text, size_t len);

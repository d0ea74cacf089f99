#include "proto/job/jobtext.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdbool.h>
#include <string.h>

#include "proto/err.h"

#define BOM "\xef\xbb\xbf"

/* The end of the string that begins at `at`: behind its closing quote, or at the end of its line. */
static size_t behind_string(const char *text, size_t len, size_t at)
{
    for (at++; at < len && text[at] != '\n' && text[at] != '"'; at++)
        if (text[at] == '\\' && at + 1 < len)
            at++;
    return at < len ? at + 1 : len;
}

static bool follows(const char *text, size_t len, size_t at, const char *word)
{
    return at + strlen(word) <= len && memcmp(text + at, word, strlen(word)) == 0;
}

void jobtext_blank(char *text, size_t len)
{
    for (size_t at = 0; at < len; at++)
        if (text[at] == '"')
            at = behind_string(text, len, at) - 1;
        else if (follows(text, len, at, "//"))
            while (at < len && text[at] != '\n')
                text[at++] = ' ';
}

static int tell(const char *text, size_t at, const char *path, const char *what, struct err *err)
{
    int line = 1, column = 1;

    for (size_t i = 0; i < at; i++) {
        if (text[i] == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)text[i] & 0xc0) != 0x80) {
            column++;
        }
    }
    return err_set(err, ERR_INPUT, "%s:%d:%d: %s", path, line, column, what);
}

/* The next character that is not a blank. */
static char next_of(const char *text, size_t len, size_t at)
{
    while (at < len && strchr(" \t\r\n", text[at]))
        at++;
    return at < len ? text[at] : '\0';
}

int jobtext_explain(const char *text, size_t len, const char *path, struct err *err)
{
    if (follows(text, len, 0, BOM))
        return tell(text, 0, path, "it begins with a byte order mark (BOM): save it as UTF-8 without one", err);
    for (size_t at = 0; at < len; at++) {
        char next = text[at] == ',' ? next_of(text, len, at + 1) : '\0';

        if (text[at] == '"')
            at = behind_string(text, len, at) - 1;
        else if (next == '}' || next == ']')
            return tell(text, at, path,
                        next == '}' ? "a comma before '}': the last member must not have a comma behind it"
                                    : "a comma before ']': the last element must not have a comma behind it",
                        err);
        else if (text[at] == '#' || follows(text, len, at, "/*"))
            return tell(text, at, path, "comments begin with // and end with their line", err);
        else if (text[at] == '\'')
            return tell(text, at, path, "strings stand between double quotes", err);
    }
    return 0;
}

#include "cuda/plan_table.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdio.h>
#include <string.h>

/* The assembler looks for the file from the compiler's working folder, which is the root of the source tree. */
__asm__(".section .rodata\n"
        "shipped_engines:\n"
        ".incbin \"cuda/engines.txt\"\n"
        ".byte 0\n"
        ".previous\n");
extern const char shipped_engines[] __attribute__((visibility("hidden")));

static const char *const title_mark = "GPU ";

static bool begins_with(const char *line, const char *what)
{
    return strncmp(line, what, strlen(what)) == 0;
}

static const char *next_line(const char *line)
{
    const char *end = strchr(line, '\n');

    return end ? end + 1 : line + strlen(line);
}

const char *plan_table_shipped(void)
{
    return shipped_engines;
}

const char *plan_table_rows(const char *text, const char *title)
{
    for (const char *line = text; *line; line = next_line(line))
        if (begins_with(line, title) && (line[strlen(title)] == '\n' || !line[strlen(title)]))
            return next_line(line);
    return NULL;
}

bool plan_table_next(const char **rows, const char *title, const char *key, char *ret_name, size_t size)
{
    const char *line = *rows, *after;

    while (line && *line) {
        after = begins_with(line, title_mark) ? plan_table_rows(line, title) : next_line(line);
        if (begins_with(line, key) && begins_with(line + strlen(key), ": ")) {
            line += strlen(key) + 2;
            snprintf(ret_name, size, "%.*s", (int)strcspn(line, "\n"), line);
            *rows = after;
            return true;
        }
        line = after;
    }
    return false;
}

#include "cuda/plan_table.h"

#include <stdio.h>
#include <string.h>

/* The assembler reads the file relative to the folder the compiler runs in, which is the root of the source tree. */
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

bool plan_table_next(const char **rows, const char *key, char *ret_name, size_t size)
{
    for (const char *line = *rows; *line && !begins_with(line, title_mark); line = next_line(line)) {
        const char *name = line + strlen(key) + 2;

        if (!begins_with(line, key) || !begins_with(line + strlen(key), ": "))
            continue;
        snprintf(ret_name, size, "%.*s", (int)strcspn(name, "\n"), name);
        *rows = next_line(line);
        return true;
    }
    return false;
}

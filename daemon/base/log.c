#include "daemon/base/log.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/host/tell.h"

/* JOURNAL_STREAM holds device and inode of the journal's socket. A program may inherit it although its stderr leads
 * elsewhere. */
static bool is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long device, inode;
    struct stat st;

    return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 && fstat(STDERR_FILENO, &st) == 0 && st.st_dev == device &&
           st.st_ino == inode;
}

static const char *prefix(const char *level)
{
    if (!is_journal())
        return "detd: ";
    return strcmp(level, "error") == 0 ? "<3>" : strcmp(level, "warning") == 0 ? "<4>" : "<6>";
}

void log_line(const char *level, const char *fmt, ...)
{
    char text[TELL_LINE_BYTES];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    tell_line(prefix(level), "%s", text);
}

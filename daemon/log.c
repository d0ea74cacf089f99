#include "daemon/log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 1024 };

/* JOURNAL_STREAM holds device and inode of the journal's socket, and is inherited by those whose stderr leads elsewhere. */
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
    char line[LINE_MAX_BYTES];
    size_t begin = (size_t)snprintf(line, sizeof line, "%s", prefix(level)), len;
    ssize_t n;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line + begin, sizeof line - begin - 1, fmt, ap);
    va_end(ap);
    len = strlen(line);
    for (size_t i = begin; i < len; i++) /* what others have said must not look like lines of ours */
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
            line[i] = ' ';
    line[len++] = '\n';
    n = write(STDERR_FILENO, line, len); /* at once: lines of threads do not mix */
    (void)n;
}

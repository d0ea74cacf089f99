#include "proto/host/output.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Some file systems, such as NFS, report a full disk when a file is closed. */
static int close_once(void)
{
    int fd = dup(STDOUT_FILENO);

    return fd < 0 ? 0 : close(fd);
}

/* Each write clears the errno of earlier writes. One more byte shows why it cannot be written either. */
static const char *find_cause(FILE *out)
{
    if (errno == 0) {
        clearerr(out);
        fputc('\n', out);
        fflush(out);
    }
    return errno ? strerror(errno) : "not all of it could be written";
}

int output_end(FILE *out, const char *program)
{
    errno = 0;
    if (fflush(out) == 0 && !ferror(out) && close_once() == 0)
        return 0;
    fprintf(stderr, "%s: standard output: %s\n", program, find_cause(out));
    return -1;
}

#include "proto/host/memory.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

void memory_out(void)
{
    dprintf(STDERR_FILENO, "%s: out of memory\n", program_invocation_short_name);
    _exit(1);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/proto/host/lock_file.h - a file that is to be locked, for a
 * test. */
#pragma once
#include <unistd.h>

#include "tests/stand/harness.h"

static char path[TEMP_MAX];

static int make_file(void **state)
{
    (void)state;
    close(mkstemp(temp_path(path, sizeof path, "detd-lock-XXXXXX")));
    return 0;
}

static int remove_file(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

/* proto/gpulock.h - one GPU, one job, on the whole machine: a lock file for each UUID in a folder that the daemons of all users share.
 *
 * The folder is /run/lock where everybody may write there, else /tmp. The file is never removed and its contents mean nothing; the kernel drops the
 * lock with the process that holds it, however it ends. A lock keeps daemons from sharing a GPU by accident, not from doing it on purpose:
 * whoever may write into the folder may also hold a lock for ever. */
#pragma once
#include <stdbool.h>

struct err;

/* Takes the lock and keeps it as long as *ret_fd is open; the descriptor is not inherited. -EWOULDBLOCK: another process has it,
 * or something lies in its place that cannot be locked: a link, a folder, a file with two names or that may not be read. Who put it there keeps the GPU
 * from all daemons, till somebody removes it. */
int gpulock_take(const char *uuid, int *ret_fd, struct err *err);
/* Whether a job of any daemon has it now, or it cannot be taken for what lies there. False too where that cannot be found out. */
bool gpulock_is_held(const char *uuid);

#include "proto/host/tasks.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define OF_TASKS  "a limit of processes (ulimit -u, or TasksMax of systemd)"
#define OF_MEMORY "a limit of the address space (ulimit -v)"

static bool is_limited(__rlimit_resource_t what)
{
    struct rlimit limit;

    return getrlimit(what, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

const char *process_lacks(int error)
{
    return error == EAGAIN ? OF_TASKS " is reached" : strerror(error);
}

const char *thread_lacks(int error)
{
    bool memory = is_limited(RLIMIT_AS), tasks = is_limited(RLIMIT_NPROC) && geteuid() != 0; /* root has no such limit */

    if (error != EAGAIN)
        return strerror(error);
    if (!memory)
        return OF_TASKS " is reached";
    return tasks ? OF_TASKS ", or one of the address space (ulimit -v), is too low" : OF_MEMORY " is too low";
}

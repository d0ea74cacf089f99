#include "supervisor/ranks/left.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

void left_adopt(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* Its parent, 0 where it is not there, and "process 12 (name, state D)"; the name may hold anything but ends at the
 * last ')'. */
static int look_at(pid_t pid, char *ret, size_t size)
{
    char path[64], text[512], *open, *close, state = '?';
    int parent = 0;
    FILE *f;

    snprintf(ret, size, "process %d", (int)pid);
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    f = fopen(path, "re");
    if (!f)
        return 0;
    if (fgets(text, sizeof text, f) && (open = strchr(text, '(')) && (close = strrchr(text, ')')) &&
        sscanf(close + 1, " %c %d", &state, &parent) == 2) {
        *close = '\0';
        snprintf(ret, size, "process %d (%.63s, state %c)", (int)pid, open + 1, state);
    }
    fclose(f);
    return parent;
}

void left_name(pid_t pid, char *ret, size_t size)
{
    look_at(pid, ret, size);
}

enum { SPARED = 16, LOOK_MS = 50 };
static pid_t spared[SPARED]; /* the newest; each lives for a minute at most */

void left_spare(pid_t pid)
{
    memmove(spared + 1, spared, sizeof spared - sizeof *spared);
    spared[0] = pid;
}

static bool is_spared(pid_t pid)
{
    for (int i = 0; i < SPARED; i++)
        if (spared[i] == pid)
            return true;
    return false;
}

void left_await_spared(int limit_ms)
{
    for (int waited = 0; waited < limit_ms; waited += LOOK_MS) {
        int live = 0;

        for (int i = 0; i < SPARED; i++)
            live += spared[i] > 0 && waitpid(spared[i], NULL, WNOHANG) == 0;
        if (live == 0)
            return;
        poll(NULL, 0, LOOK_MS);
    }
}

static int killed;

int left_killed(void)
{
    return killed;
}

void left_forget(void)
{
    killed = 0;
}

static int kill_children(char *ret, size_t size)
{
    DIR *proc = opendir("/proc");
    const struct dirent *entry;
    int found = 0;

    while (proc && (entry = readdir(proc))) {
        pid_t pid = (pid_t)atoi(entry->d_name);
        char who[128];

        if (pid <= 0 || is_spared(pid) || look_at(pid, who, sizeof who) != getpid())
            continue;
        killed += strstr(who, "state Z)") == NULL;
        kill(pid, SIGKILL); /* a child that nobody has waited for: the number is its own */
        snprintf(ret, size, "%s", who);
        found++;
    }
    if (proc)
        closedir(proc);
    return found;
}

int left_kill(char *ret, size_t size)
{
    int found;

    do {
        while (waitpid(-1, NULL, WNOHANG) > 0)
            continue;
        found = kill_children(ret, size);
    } while (found > 0 && waitpid(-1, NULL, WNOHANG) > 0);
    return found;
}

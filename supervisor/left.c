#include "supervisor/left.h"

#include <dirent.h>
#include <signal.h>
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

/* Parent, state and name of a process; the name may hold anything but ends at the last ')'. */
static int look_at(const char *pid, char *ret_state, char *ret_name, size_t size)
{
    char path[64], text[512], *open, *close;
    int parent = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    f = fopen(path, "re");
    if (!f)
        return 0;
    if (fgets(text, sizeof text, f) && (open = strchr(text, '(')) && (close = strrchr(text, ')')) &&
        sscanf(close + 1, " %c %d", ret_state, &parent) == 2) {
        *close = '\0';
        snprintf(ret_name, size, "%s", open + 1);
    }
    fclose(f);
    return parent;
}

static int kill_children(char *ret, size_t size)
{
    DIR *proc = opendir("/proc");
    const struct dirent *entry;
    int found = 0;

    while (proc && (entry = readdir(proc))) {
        char name[64] = "", state = '?';

        if (entry->d_name[0] < '1' || entry->d_name[0] > '9' || look_at(entry->d_name, &state, name, sizeof name) != getpid())
            continue;
        kill((pid_t)atoi(entry->d_name), SIGKILL); /* a child that nobody has waited for: the number is its own */
        snprintf(ret, size, "process %.20s (%s, state %c)", entry->d_name, name, state);
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

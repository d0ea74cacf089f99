#include "daemon/base/notify.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { FIRST_FD = 3 };

void notify_systemd(const char *state)
{
    static const struct timeval most = { .tv_sec = 1 }; /* longest wait for a full socket */
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    const char *path = getenv("NOTIFY_SOCKET");
    size_t len = path ? strlen(path) : 0;
    int fd;

    if (len < 2 || len >= sizeof addr.sun_path)
        return;
    memcpy(addr.sun_path, path, len);
    if (path[0] == '@') /* an abstract name */
        addr.sun_path[0] = '\0';
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
    sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&addr, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
    close(fd);
}

int notify_listen_fd(const char *admin, int *ret_admin)
{
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    struct sockaddr_un addr;
    int found = -1;

    *ret_admin = -1;
    if (!pid || !count || strtol(pid, NULL, 10) != getpid())
        return -1;
    for (int fd = FIRST_FD; fd < FIRST_FD + strtol(count, NULL, 10); fd++) {
        socklen_t len = sizeof addr;

        memset(&addr, 0, sizeof addr);
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        if (getsockname(fd, (struct sockaddr *)&addr, &len) == 0 && admin[0] && strcmp(addr.sun_path, admin) == 0)
            *ret_admin = fd;
        else if (found < 0)
            found = fd;
    }
    return found;
}

#include "supervisor/ranks/port.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/host/gpulock.h"

enum { FIRST = 20000, LAST_BY_DEFAULT = 32767, TRIES = 500, LOCKED_TRIES = 3 };

/* The last port below those that the kernel gives to clients. */
static int last_port(void)
{
    FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
    int first = 0;

    if (f && fscanf(f, "%d", &first) != 1)
        first = 0;
    if (f)
        fclose(f);
    return first > FIRST + TRIES ? first - 1 : LAST_BY_DEFAULT;
}

bool port_is_free(int number)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)number), .sin_addr.s_addr = htonl(INADDR_ANY) };
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool free;

    if (fd < 0)
        return true; /* a node without IPv4: the program will tell */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    free = bind(fd, (struct sockaddr *)&to, sizeof to) == 0 && listen(fd, 1) == 0;
    close(fd);
    return free;
}

/* The lock, or -1 if another job holds it. */
static int lock(int number)
{
    struct err err;
    char name[32];
    int fd;

    snprintf(name, sizeof name, "port-%d", number);
    fd = gpulock_open_shared(name, &err);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

int port_take(unsigned salt, struct port *ret, struct err *err)
{
    int count = last_port() - FIRST + 1, locked = 0;

    *ret = (struct port){ .lock_fd = -1 };
    for (int i = 0; i < TRIES; i++) {
        int number = FIRST + (int)((salt + (unsigned)i) % (unsigned)count), fd;

        if (!port_is_free(number))
            continue;
        fd = lock(number);
        if (fd < 0 && ++locked <= LOCKED_TRIES)
            continue;
        *ret = (struct port){ .number = number, .lock_fd = fd };
        return 0;
    }
    return err_set(err, -EADDRINUSE, "no port for MASTER_PORT: %d ports from %d on are in use", TRIES, FIRST);
}

void port_drop(struct port *p)
{
    if (p->lock_fd >= 0)
        close(p->lock_fd);
    *p = (struct port){ .lock_fd = -1 };
}

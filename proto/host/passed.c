#include "proto/host/passed.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <limits.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STACK_BYTES = 64 << 10 };

ssize_t passed_look(int fd, void *bytes, size_t room, bool *ret_passed)
{
    struct iovec iov = { bytes, room };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 }; /* without room for descriptors: so they are cut off */
    ssize_t n = recvmsg(fd, &msg, MSG_PEEK | MSG_DONTWAIT);

    *ret_passed = n > 0 && (msg.msg_flags & MSG_CTRUNC);
    return n < 0 ? -errno : n;
}

struct parting {
    int fd;
    sem_t copy, close;
};

/* Keeps the socket in a table of descriptors of its own, until the process has closed it. */
static void *part(void *arg)
{
    struct parting *p = arg;

    if (close_range((unsigned)p->fd + 1, ~0U, CLOSE_RANGE_UNSHARE) == 0 && p->fd > 0)
        close_range(0, (unsigned)p->fd - 1, 0);
    sem_post(&p->copy);
    sem_wait(&p->close);
    free(p);
    return NULL;
}

static int start(struct parting *p)
{
    pthread_attr_t attr;
    pthread_t thread;
    int rc;

    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, STACK_BYTES > PTHREAD_STACK_MIN ? STACK_BYTES : (size_t)PTHREAD_STACK_MIN);
    rc = pthread_create(&thread, &attr, part, p);
    pthread_attr_destroy(&attr);
    return rc;
}

void passed_drop(int fd)
{
    struct parting *p = calloc(1, sizeof *p);

    if (p) {
        p->fd = fd;
        sem_init(&p->copy, 0, 0);
        sem_init(&p->close, 0, 0);
    }
    if (!p || start(p) != 0) {
        free(p);
        close(fd);
        return;
    }
    sem_wait(&p->copy);
    close(fd);
    sem_post(&p->close);
}

/* After the shutdown nothing more comes. */
void passed_close(int fd)
{
    int unread = 1;

    shutdown(fd, SHUT_RD);
    if (ioctl(fd, FIONREAD, &unread) == 0 && unread == 0)
        close(fd);
    else
        passed_drop(fd);
}

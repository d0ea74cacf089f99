/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/supervisor/ranks/test_port.c - MASTER_PORT: which ports jobs
 * of this node get. uses: proto supervisor */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/err.h"
#include "supervisor/ranks/port.h"

/* Other tests and jobs of this machine begin elsewhere. */
static struct port take(void)
{
    struct err err = { 0 };
    struct port p;

    if (port_take((unsigned)getpid() * 13, &p, &err) < 0)
        fail_msg("%s", err.msg);
    assert_in_range(p.number, 20000, 65535);
    assert_true(port_is_free(p.number));
    return p;
}

static int listen_on(int number)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)number), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 1) == 0);
    return fd;
}

static void two_jobs_get_two_ports(void **state)
{
    struct port a = take(), b = take();
    int number = a.number;

    (void)state;
    assert_true(a.lock_fd >= 0 && b.lock_fd >= 0);
    assert_int_not_equal(a.number, b.number);
    port_drop(&a);
    assert_true(a.number == 0 && a.lock_fd == -1);
    a = take();
    assert_int_equal(a.number, number); /* its lock was given back */
    port_drop(&a);
    port_drop(&b);
}

static void a_port_that_is_in_use_is_left_out(void **state)
{
    struct port a = take(), b;
    int number = a.number, fd;

    (void)state;
    port_drop(&a);
    fd = listen_on(number);
    assert_false(port_is_free(number));
    b = take();
    assert_int_not_equal(b.number, number);
    close(fd);
    assert_true(port_is_free(number));
    port_drop(&b);
}

/* Any user can hold a lock: after three of them the next port is taken in spite of its lock. */
static void a_lock_is_a_hint(void **state)
{
    struct port held[4], more;

    (void)state;
    for (int i = 0; i < 4; i++) {
        held[i] = take();
        assert_true(held[i].lock_fd >= 0);
    }
    more = take();
    assert_int_equal(more.number, held[3].number);
    assert_int_equal(more.lock_fd, -1);
    port_drop(&more);
    for (int i = 0; i < 4; i++)
        port_drop(&held[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(two_jobs_get_two_ports), cmocka_unit_test(a_port_that_is_in_use_is_left_out),
                                        cmocka_unit_test(a_lock_is_a_hint) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

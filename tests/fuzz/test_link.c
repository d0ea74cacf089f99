/* SPDX-License-Identifier: Apache-2.0 */ /* tests/fuzz/test_link.c - uses: proto supervisor
 * Messages of detd to a supervisor: welcomes, acks and commands, on a connection with reports in the spool. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>
#include <jansson.h>
#include <uv.h>

#include "proto/err.h"
#include "supervisor/link.h"
#include "supervisor/spool/spool.h"
#include "tests/fuzz/fuzz.h"

const char fuzz_name[] = "link";
const int fuzz_places = 10;

enum { SEGMENT = 512 << 10, RECORDS = 3, HEARD_ROOM = 1 << 20 };

struct ends {
    struct spool *spool;
    int told, welcomed;
};

static int welcome(void *arg, const json_t *msg, struct err *err)
{
    struct ends *e = arg;

    e->welcomed++;
    return json_is_string(json_object_get(msg, "store_id")) ? 0 : err_set(err, ERR_PROTO, "of no store");
}

static void control(void *arg, const json_t *msg)
{
    const struct ends *e = arg;

    assert_true(e->welcomed > 0 && json_is_string(json_object_get(msg, "type")));
}

static void acked(void *arg)
{
    const struct ends *e = arg;

    assert_true(e->welcomed > 0 && spool_acked(e->spool) <= spool_last(e->spool));
}

static void trouble(void *arg, const char *text)
{
    struct ends *e = arg;

    assert_true(text[0]);
    e->told++;
}

static int listen_at(const char *path)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    strcpy(addr.sun_path, path);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof addr), 0);
    assert_int_equal(listen(fd, 4), 0);
    return fd;
}

static void take_in(int fd, char *heard, size_t *len)
{
    ssize_t n = recv(fd, heard + *len, HEARD_ROOM - *len, MSG_DONTWAIT);

    *len += n > 0 ? (size_t)n : 0;
}

/* Waits for the supervisor, sends the bytes, hangs up, and reads the supervisor's messages. */
static size_t talk(uv_loop_t *loop, int server, const struct ends *e, const uint8_t *bytes, size_t size, char *heard)
{
    size_t done = 0, len = 0;
    bool ended = false;
    int fd = -1;

    while (e->told == 0) { /* that detd has gone away, at the latest */
        uv_run(loop, UV_RUN_NOWAIT);
        if (fd < 0 && (fd = accept4(server, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) < 0)
            continue;
        if (done < size) {
            ssize_t n = send(fd, bytes + done, size - done, MSG_NOSIGNAL);

            done = n < 0 && errno != EAGAIN ? size : done + (size_t)(n > 0 ? n : 0);
        }
        if (done == size && !ended)
            ended = shutdown(fd, SHUT_WR) == 0;
        take_in(fd, heard, &len);
    }
    if (fd >= 0) {
        take_in(fd, heard, &len);
        close(fd);
    }
    return len;
}

/* Line by line, whole JSON; the last may be cut off. A report has a number that was not acked before. */
static void check_heard(const char *heard, size_t len)
{
    const char *end;

    while ((end = memchr(heard, '\n', len))) {
        json_t *msg = json_loadb(heard, (size_t)(end - heard), 0, NULL);

        assert_true(json_is_string(json_object_get(msg, "type")));
        json_decref(msg);
        len -= (size_t)(end - heard) + 1;
        heard = end + 1;
    }
}

static const char *hello(void *arg)
{
    (void)arg;
    return "{\"type\":\"hello\"}\n";
}

void fuzz_one(const uint8_t *bytes, size_t size)
{
    static char heard[HEARD_ROOM];
    char path[TEMP_MAX + 16];
    struct ends e = { 0 };
    struct link_config config = { .hello = hello, .welcome = welcome, .control = control, .acked = acked, .trouble = trouble, .arg = &e };
    struct err err = { 0 };
    struct link *l = NULL;
    uv_loop_t loop;
    uint64_t seq;
    int server;

    assert_int_equal(mkdir(fuzz_path(), 0700), 0);
    snprintf(path, sizeof path, "%s/sock", fuzz_path());
    assert_int_equal(spool_open(fuzz_path(), SEGMENT, 0, &e.spool, &err), 0);
    for (int i = 0; i < RECORDS; i++)
        assert_int_equal(spool_append(e.spool, "{\"type\":\"x\"}", 12, &seq, &err), 0);
    server = listen_at(path);
    uv_loop_init(&loop);
    config.loop = &loop;
    config.path = path;
    config.spool = e.spool;
    assert_int_equal(link_open(&config, &l, &err), 0);
    check_heard(heard, talk(&loop, server, &e, bytes, size, heard));
    assert_true(spool_acked(e.spool) <= RECORDS);
    link_close(l);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    close(server);
    spool_close(e.spool);
    unlink(path);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/spool.%d", fuzz_path(), i);
        unlink(path);
    }
    assert_int_equal(rmdir(fuzz_path()), 0);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/fuzz/test_sup.c - uses: proto daemon
 * Messages of a supervisor on sup.sock: daemon/run/ingest.c with the wires, jobs and store behind it. */
#include <errno.h>
#include <fcntl.h>
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

#include "daemon/jobs/event.h"
#include "daemon/run/ingest.h"
#include "daemon/jobs/jobs.h"
#include "daemon/store/store.h"
#include "daemon/socket/wire.h"
#include "proto/err.h"
#include "tests/fuzz/fuzz.h"

const char fuzz_name[] = "sup";
const int fuzz_places = 6;

enum { HEARD_ROOM = 1 << 20 };

static struct daemon {
    uv_loop_t loop;
    uv_timer_t awake; /* the store alone keeps no loop alive */
    struct wires wires;
    struct store *store;
    struct events events;
    struct jobs jobs;
    struct ingest *ingest;
    int64_t id;
    bool stored;
} d;

static void nothing(uv_timer_t *t)
{
    (void)t;
}

static bool wanted(void *arg, unsigned topic)
{
    (void)arg;
    (void)topic;
    return true;
}

/* Every message to listeners must be whole JSON. */
static void tell(void *arg, unsigned topic, int64_t job, const char *json)
{
    (void)arg;
    (void)topic;
    (void)job;
    assert_true(fuzz_is_json(json, strlen(json), 0));
}

static void no_word(void *arg, struct job *j, const char *word, const char *tier)
{
    (void)arg;
    (void)j;
    (void)word;
    (void)tier;
}

static void any_wish(void *arg)
{
    (void)arg;
}

static void any_end(void *arg, const struct job *j)
{
    (void)arg;
    (void)j;
}

static void any_connection(void *arg, struct job *j)
{
    (void)arg;
    (void)j;
}

static void on_stored(void *arg, int rc, int64_t value, const struct err *err)
{
    (void)arg;
    (void)err;
    assert_int_equal(rc, 0);
    d.id = value ? value : d.id;
    d.stored = true;
}

static void wait_stored(void)
{
    while (!d.stored)
        uv_run(&d.loop, UV_RUN_ONCE);
}

static void leave(void)
{
    static const char *const names[] = { "detd.db", "detd.db-wal", "detd.db-shm", "reserve", "sup.sock" };
    char path[TEMP_MAX + 16];

    ingest_close(d.ingest);
    store_close(d.store);
    uv_run(&d.loop, UV_RUN_NOWAIT);
    uv_close((uv_handle_t *)&d.wires.prepare, NULL);
    uv_close((uv_handle_t *)&d.wires.idle, NULL);
    uv_close((uv_handle_t *)&d.awake, NULL);
    uv_run(&d.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&d.loop), 0);
    ingest_free(d.ingest);
    jobs_free(&d.jobs);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", fuzz_path(), names[i]);
        unlink(path);
    }
    rmdir(fuzz_path());
    d.store = NULL;
}

static void leave_at_exit(void)
{
    if (d.store)
        leave();
}

static void enter(void)
{
    static const struct job_row row = {
        .state = JOB_QUEUED, .want_tier = -1, .tier = 1, .ranks = 1, .steps = 1000, .name = "a", .user = "ann"
    };
    int here = open(".", O_PATH | O_CLOEXEC);
    struct err err = { 0 };

    memset(&d, 0, sizeof d);
    assert_int_equal(mkdir(fuzz_path(), 0700), 0);
    assert_int_equal(chdir(fuzz_path()), 0); /* the folder of the socket; seeds are read from the folder before */
    uv_loop_init(&d.loop);
    uv_timer_init(&d.loop, &d.awake);
    uv_timer_start(&d.awake, nothing, 5, 5);
    assert_int_equal(wires_open(&d.wires, &d.loop, &err), 0);
    assert_int_equal(store_open(fuzz_path(), &d.loop, &d.store, &err), 0);
    d.events = (struct events){ .store = d.store, .wanted = wanted, .tell = tell };
    d.jobs = (struct jobs){ .store = d.store, .events = &d.events, .folder = "jobs", .hooks = { no_word, any_wish, any_end, NULL } };
    assert_int_equal(jobs_load(&d.jobs, &err), 0);
    jobs_submit(&d.jobs, &row, "token", "{}", "", on_stored, NULL);
    wait_stored();
    assert_int_equal(ingest_open(&(struct ingest_config){ .loop = &d.loop,
                                                          .wires = &d.wires,
                                                          .store = d.store,
                                                          .jobs = &d.jobs,
                                                          .events = &d.events,
                                                          .state = ".",
                                                          .connected = any_connection,
                                                          .gone = any_connection },
                                 &d.ingest, &err),
                     0);
    assert_int_equal(fchdir(here), 0);
    close(here);
}

/* The state of a job after its supervisor of attempt 1, with the nonce n1, was started; also if the supervisor before
 * it sent many messages. */
static void expect_supervisor(void)
{
    struct job *j = jobs_find(&d.jobs, d.id);

    assert_non_null(j);
    j->row.state = JOB_RUNNING;
    j->row.attempt = 1;
    j->row.last_seq = j->committed = j->attempt_seq = 0;
    j->attempted = 0;
    strcpy(j->row.nonce, "n1");
}

/* Line by line, each is whole JSON with a type. */
static void check_heard(const char *heard, size_t len)
{
    while (len > 0) {
        const char *end = memchr(heard, '\n', len);
        json_t *msg;

        assert_non_null(end);
        msg = json_loadb(heard, (size_t)(end - heard), 0, NULL);
        assert_true(json_is_string(json_object_get(msg, "type")));
        json_decref(msg);
        len -= (size_t)(end - heard) + 1;
        heard = end + 1;
    }
}

/* A supervisor that sends the bytes and hangs up. */
static void talk(const uint8_t *bytes, size_t size)
{
    static char heard[HEARD_ROOM];
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t len = 0, done = 0;
    ssize_t n = 1;

    snprintf(addr.sun_path, sizeof addr.sun_path, "%.90s/sup.sock", fuzz_path());
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof addr), 0);
    while (n != 0 && len < sizeof heard) {
        n = done < size ? send(fd, bytes + done, size - done, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
        done = n < 0 && errno != EAGAIN ? size : done + (size_t)(n > 0 ? n : 0);
        if (done == size)
            shutdown(fd, SHUT_WR);
        uv_run(&d.loop, UV_RUN_NOWAIT);
        n = recv(fd, heard + len, sizeof heard - len, MSG_DONTWAIT);
        len += n > 0 ? (size_t)n : 0;
        if (n < 0 && errno == ECONNRESET) /* it did not read all */
            n = 0;
    }
    close(fd);
    check_heard(heard, len);
}

void fuzz_one(const uint8_t *bytes, size_t size)
{
    static bool begun;
    const struct job *j;

    if (!begun)
        atexit(leave_at_exit);
    begun = true;
    if (!d.store)
        enter();
    expect_supervisor();
    talk(bytes, size);
    d.stored = false; /* all of its effects, before that */
    store_setting(d.store, "fuzz", "", on_stored, NULL);
    wait_stored();
    j = jobs_find(&d.jobs, d.id);
    assert_true(!j || (!j->sup && j->row.last_seq >= 0 && j->committed == j->row.last_seq && j->row.step <= j->row.steps));
    if (!j || !job_is_live(j->row.state))
        leave();
}

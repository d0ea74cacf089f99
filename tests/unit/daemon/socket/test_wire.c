/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/daemon/socket/test_wire.c - uses: proto daemon
 * Connections of lines: how much of them a turn of the loop does, the order of turns, the limit of kept bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/base/bounds.h"
#include "daemon/base/user_share.h"
#include "daemon/socket/gate.h"
#include "daemon/socket/listener.h"
#include "daemon/socket/wire.h"
#include "proto/err.h"
#include "tests/stand/harness.h"

enum { PEERS = 5, LINES = 40 };

struct room {
    char folder[TEMP_MAX], path[TEMP_MAX + 8];
    uv_loop_t loop;
    struct user_shares shares;
    struct listener *listener;
    struct wires wires;
    struct wire *accepted[128];
    int fds[128], ndialled; /* closed at the end, also of a test that failed */
    int count, closed, broken;
    char seen[PEERS * LINES + 1]; /* the first letter of each line */
    int nseen, in_turn, most_in_turn;
    uint64_t line_ns; /* of the loop's time that a line takes */
};
static struct room *room;

static void on_line(struct wire *w, const char *line, size_t len)
{
    uint64_t until = uv_hrtime() + room->line_ns;

    assert_true(len > 0);
    room->seen[room->nseen++] = line[0];
    if (++room->in_turn > room->most_in_turn)
        room->most_in_turn = room->in_turn;
    while (uv_hrtime() < until)
        ;
    if (line[0] == 'x')
        wire_close(w);
}

static void on_broken(struct wire *w, const struct err *err)
{
    assert_int_equal(err->code, ERR_STATE);
    room->broken++;
    wire_close(w);
}

static void on_closed(struct wire *w)
{
    (void)w;
    room->closed++;
}

static const struct wire_events events = { on_line, on_broken, NULL, NULL, on_closed };

static void on_connection(void *arg, int fd, uid_t uid)
{
    struct err err;

    (void)arg;
    assert_int_equal(uid, geteuid());
    room->accepted[room->count] = wire_accept(&room->wires, fd, 1 << 20, &events, &err);
    assert_non_null(room->accepted[room->count++]);
}

static int setup(void **state)
{
    static const struct listener_events listening = { on_connection, NULL };
    struct room *r = room = calloc(1, sizeof *r);
    struct err err;
    bool bound;
    int fd;

    (void)state;
    assert_non_null(mkdtemp(temp_path(r->folder, sizeof r->folder, "detd-wire-XXXXXX")));
    snprintf(r->path, sizeof r->path, "%s/sock", r->folder);
    uv_loop_init(&r->loop);
    assert_int_equal(wires_open(&r->wires, &r->loop, &err), 0);
    fd = gate_bind(&(struct gate){ r->path, true, false, (gid_t)-1 }, &bound, &err);
    assert_true(fd >= 0);
    assert_int_equal(listener_open(&r->loop, fd, 8, &r->shares, &listening, NULL, &r->listener, &err), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    while (room->ndialled > 0)
        close(room->fds[--room->ndialled]);
    while (room->closed < room->count) /* a waiting connection learns of it only then */
        uv_run(&room->loop, UV_RUN_ONCE);
    listener_close(room->listener);
    unlink(room->path);
    user_shares_free(&room->shares);
    uv_close((uv_handle_t *)&room->wires.prepare, NULL);
    uv_close((uv_handle_t *)&room->wires.idle, NULL);
    uv_run(&room->loop, UV_RUN_DEFAULT);
    assert_int_equal(room->closed, room->count);
    assert_int_equal(room->wires.long_bytes, 0);
    assert_int_equal(room->wires.queued_bytes, 0);
    assert_int_equal(uv_loop_close(&room->loop), 0);
    rmdir(room->folder);
    free(room);
    return 0;
}

static int dial(void)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), count = room->count;

    snprintf(addr.sun_path, sizeof addr.sun_path, "%s", room->path);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof addr), 0);
    while (room->count == count)
        uv_run(&room->loop, UV_RUN_ONCE);
    room->fds[room->ndialled++] = fd;
    return fd;
}

static void turn(void)
{
    room->in_turn = 0;
    uv_run(&room->loop, UV_RUN_NOWAIT);
}

/* Every line takes more time than a turn has. Then a turn does a single line of each connection with new bytes. The
 * connections take turns, each in its order, even if one has sent many lines. */
static void connections_take_turns(void **state)
{
    char lines[PEERS][3 * LINES + 1] = { "" };
    int fds[PEERS], counts[PEERS] = { 0 }, expected = 0;

    (void)state;
    room->line_ns = 2500000;
    for (int i = 0; i < PEERS; i++) {
        fds[i] = dial();
        for (int k = 0; k < (i == 0 ? LINES : 6); k++) {
            char line[] = { (char)('a' + i), '\n', '\0' };

            strcat(lines[i], line);
            expected++;
        }
    }
    for (int i = 0; i < PEERS; i++)
        assert_int_equal(write(fds[i], lines[i], strlen(lines[i])), strlen(lines[i]));
    while (room->nseen < expected)
        turn();
    for (int at = 0; at < PEERS * 6; at++) /* each had six turns: no connection was more than one ahead */
        counts[room->seen[at] - 'a']++;
    for (int i = 0; i < PEERS; i++)
        assert_in_range(counts[i], 5, 7);
    assert_true(room->most_in_turn <= PEERS + 1);
}

/* A line that closes its connection is its last, also if the turn was long and other lines had come with it. */
static void a_line_may_close(void **state)
{
    int fd = dial(), other = dial();

    (void)state;
    room->line_ns = 2500000;
    assert_int_equal(write(fd, "a\nx\nb\nb\n", 8), 8);
    assert_int_equal(write(other, "c\nc\nc\n", 6), 6);
    while (room->nseen < 5)
        turn();
    for (int i = 0; i < 10; i++)
        turn();
    assert_int_equal(room->nseen, 5);
    assert_null(strchr(room->seen, 'b'));
    assert_int_equal(room->closed, 1);
}

/* Lines that never end: the bytes kept of all connections have a common limit. A connection that needs more is closed,
 * one after the other. */
static void long_lines_share_a_bound(void **state)
{
    enum { HOGS = 100, PIECE = 64 << 10, SENT = (1 << 20) - PIECE };
    static char piece[PIECE];
    int own, fds[HOGS], fits = (int)bounds[BOUND_LONG_LINES].most / (SENT - WIRE_SHORT_BYTES);
    size_t most = 0;

    (void)state;
    memset(piece, ' ', sizeof piece);
    for (int i = 0; i < HOGS; i++)
        fds[i] = dial();
    for (int i = 0; i < HOGS; i++)
        for (int sent = 0; sent < SENT; sent += PIECE) {
            int broken = room->broken;

            if (send(fds[i], piece, PIECE, MSG_NOSIGNAL) < 0)
                break;
            for (int k = 0; k < 6 && room->broken == broken; k++)
                turn();
            most = room->wires.long_bytes > most ? room->wires.long_bytes : most;
        }
    assert_in_range(most, bounds[BOUND_LONG_LINES].most - SENT, bounds[BOUND_LONG_LINES].most);
    assert_int_equal(room->broken, HOGS - fits);
    most = room->wires.long_bytes;
    own = dial(); /* a connection with room of its own */
    wire_trust(room->accepted[HOGS]);
    for (int sent = 0; sent < SENT; sent += PIECE) {
        assert_int_equal(send(own, piece, PIECE, MSG_NOSIGNAL), PIECE);
        for (int k = 0; k < 6; k++)
            turn();
    }
    assert_int_equal(room->broken, HOGS - fits);
    assert_int_equal(room->wires.long_bytes, most);
    assert_int_equal(write(fds[0], "\nend\n", 5), 5); /* the first connection is served */
    while (room->nseen < 2)
        turn();
    assert_string_equal(room->seen, " e");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(connections_take_turns),
        TEST(a_line_may_close),
        TEST(long_lines_share_a_bound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

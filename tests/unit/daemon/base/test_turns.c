/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/daemon/base/test_turns.c - uses: proto daemon
 * Turns on the pool of threads, and threads for errands: order, limits, and which party waits for which. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/base/errand.h"
#include "daemon/base/turns.h"
#include "proto/err.h"

enum { PIECES = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static bool gate;              /* open: pieces may end */
static int inside[3], most[3]; /* pieces running now, and at most ever, of each user */
static char done[6 * PIECES];  /* names of pieces in the order in which they ended */
static int ended;

struct piece {
    char name;
    int user;
    int number, *ret_last; /* pieces of a party come in order */
    bool quick;
};

static void work(void *arg)
{
    struct piece *p = arg;

    pthread_mutex_lock(&lock);
    inside[p->user]++;
    if (inside[p->user] > most[p->user])
        most[p->user] = inside[p->user];
    while (!gate && !p->quick)
        pthread_cond_wait(&wake, &lock);
    inside[p->user]--;
    pthread_mutex_unlock(&lock);
}

static void after(void *arg)
{
    struct piece *p = arg;

    assert_int_equal(*p->ret_last + 1, p->number);
    *p->ret_last = p->number;
    done[ended++] = p->name;
}

static void set_gate(bool open)
{
    pthread_mutex_lock(&lock);
    gate = open;
    pthread_cond_broadcast(&wake);
    pthread_mutex_unlock(&lock);
}

static int clear(void **state)
{
    (void)state;
    memset(inside, 0, sizeof inside);
    memset(most, 0, sizeof most);
    memset(done, 0, sizeof done);
    ended = 0;
    gate = false;
    return 0;
}

/* Also runs after a failed test: the next test uses the same threads of the pool. */
static int open_gate(void **state)
{
    bool empty = false;

    (void)state;
    set_gate(true);
    while (!empty) {
        pthread_mutex_lock(&lock);
        empty = inside[0] + inside[1] + inside[2] == 0;
        pthread_mutex_unlock(&lock);
    }
    return 0;
}

static void add(struct turns *t, struct turns_party *p, struct piece *pieces, int n, struct piece like)
{
    for (int i = 0; i < n; i++) {
        pieces[i] = like;
        pieces[i].number = i + 1;
        assert_int_equal(turns_add(t, p, work, after, &pieces[i]), 0);
    }
}

/* Five parties, each with 64 pieces that do not end; another user's piece still runs at once. */
static void a_pile_delays_nobody_else(void **state)
{
    static struct piece pile[5][PIECES], other[2];
    struct turns_party hogs[5] = { { .uid = 1 }, { .uid = 1 }, { .uid = 1 }, { .uid = 1 }, { .uid = 1 } }, quick = { .uid = 2 };
    int last[6] = { 0 }, at_once;
    struct turns t;
    uv_loop_t loop;

    (void)state;
    uv_loop_init(&loop);
    turns_init(&t, &loop);
    for (int i = 0; i < 5; i++)
        add(&t, &hogs[i], pile[i], PIECES, (struct piece){ .name = (char)('a' + i), .user = 1, .ret_last = &last[i] });
    at_once = t.running;
    add(&t, &quick, other, 2, (struct piece){ .name = 'Q', .user = 2, .ret_last = &last[5], .quick = true });
    while (at_once < TURNS_MAX && ended < 2)
        uv_run(&loop, UV_RUN_ONCE);
    set_gate(true);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(at_once, TURNS_USER);
    assert_memory_equal(done, "QQ", 2);
    assert_int_equal(ended, 5 * PIECES + 2);
    assert_int_equal(most[1], TURNS_USER);
    assert_int_equal(most[2], 1);
    for (int i = 0; i < 5; i++)
        assert_int_equal(last[i], PIECES);
    assert_int_equal(uv_loop_close(&loop), 0);
}

/* There is room for a single thread only. Parties of a user take turns, however many pieces each party has queued. */
static void the_longest_waiting_goes_first(void **state)
{
    static struct piece pieces[5][PIECES];
    struct turns_party p[5] = { { .uid = 1 }, { .uid = 1 }, { .uid = 1 }, { .uid = 1 }, { .uid = 1 } };
    int last[5] = { 0 };
    struct turns t;
    uv_loop_t loop;

    (void)state;
    uv_loop_init(&loop);
    turns_init(&t, &loop);
    add(&t, &p[3], pieces[3], 1, (struct piece){ .name = 'x', .user = 1, .ret_last = &last[3] });
    add(&t, &p[4], pieces[4], 1, (struct piece){ .name = 'y', .user = 1, .ret_last = &last[4] });
    add(&t, &p[0], pieces[0], 6, (struct piece){ .name = 'a', .user = 1, .ret_last = &last[0], .quick = true });
    add(&t, &p[1], pieces[1], 3, (struct piece){ .name = 'b', .user = 1, .ret_last = &last[1], .quick = true });
    add(&t, &p[2], pieces[2], 1, (struct piece){ .name = 'c', .user = 1, .ret_last = &last[2], .quick = true });
    while (ended < 10)
        uv_run(&loop, UV_RUN_ONCE);
    assert_string_equal(done, "abcababaaa");
    set_gate(true);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(ended, 12);
    assert_int_equal(uv_loop_close(&loop), 0);
}

static bool may_now;

static bool may(const struct turns_party *p)
{
    (void)p;
    return may_now;
}

static void who_may_not_waits(void **state)
{
    static struct piece pieces[2][3];
    struct turns_party slow = { .uid = 1, .may = may }, other = { .uid = 1 };
    int last[2] = { 0 };
    struct turns t;
    uv_loop_t loop;

    (void)state;
    may_now = false;
    uv_loop_init(&loop);
    turns_init(&t, &loop);
    add(&t, &slow, pieces[0], 3, (struct piece){ .name = 's', .user = 1, .ret_last = &last[0], .quick = true });
    add(&t, &other, pieces[1], 3, (struct piece){ .name = 'o', .user = 1, .ret_last = &last[1], .quick = true });
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_string_equal(done, "ooo");
    may_now = true;
    turns_go(&t);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_string_equal(done, "ooosss");
    assert_int_equal(uv_loop_close(&loop), 0);
}

static void errands_are_done_in_order(void **state)
{
    static struct piece pieces[PIECES];
    struct errands *e;
    struct err err;
    uv_loop_t loop;
    int last = 0;

    (void)state;
    uv_loop_init(&loop);
    assert_int_equal(errands_open(&loop, &e, &err), 0);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0); /* without errands, the loop ends */
    for (int i = 0; i < PIECES; i++) {
        pieces[i] = (struct piece){ .name = 'e', .number = i + 1, .ret_last = &last, .quick = true };
        assert_int_equal(errands_add(e, work, after, &pieces[i]), 0);
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(last, PIECES);
    assert_int_equal(most[0], 1);
    for (int i = 0; i < PIECES; i++) {
        pieces[i].number += PIECES;
        assert_int_equal(errands_add(e, work, after, &pieces[i]), 0);
    }
    errands_close(e); /* the remaining pieces are done first */
    assert_int_equal(last, 2 * PIECES);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_pile_delays_nobody_else, clear, open_gate),
        cmocka_unit_test_setup_teardown(the_longest_waiting_goes_first, clear, open_gate),
        cmocka_unit_test_setup_teardown(who_may_not_waits, clear, open_gate),
        cmocka_unit_test_setup_teardown(errands_are_done_in_order, clear, open_gate),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

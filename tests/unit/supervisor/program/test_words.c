/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/supervisor/program/test_words.c - a word reaches all ranks at
 * one step, in every order of the accesses of four ranks and detd-job. uses: proto supervisor
 *
 * A rank does what PROTOCOL.md says. Its processor may keep a store back while it reads on, as processors do; the fence
 * ends that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "supervisor/program/words.h"

enum { RANKS = 4, ROOM = 1 << 22 };

/* What a rank does next. */
enum { ENTER, READ, DONE };

struct rank {
    uint64_t order; /* its page */
    int8_t entered; /* its page */
    int8_t kept;    /* a store of `entered` that others do not see yet; 0: none */
    int8_t step, does;
    int8_t obeyed; /* the step at which it answered yes; 0: none */
};

struct state {
    struct rank rank[RANKS];
    struct words words;
    bool given;
};

static struct state *states; /* a stack of those that are not looked at yet */
static size_t nstates;
static uint64_t *seen; /* hashes */
static size_t nseen;
static bool fenced; /* false: without the fence, to see that the test finds what it is for */
static int ranks, steps;
static bool found_fault;

/* ---- memory as detd-job has it ---- */

static int64_t get_entered(void *arg, int rank)
{
    return ((struct state *)arg)->rank[rank].entered;
}

static void put_order(void *arg, int rank, uint64_t order)
{
    ((struct state *)arg)->rank[rank].order = order;
}

static void fence(void *arg)
{
    struct state *s = arg;

    for (int i = 0; i < ranks && fenced; i++)
        if (s->rank[i].kept) {
            s->rank[i].entered = s->rank[i].kept;
            s->rank[i].kept = 0;
        }
}

static bool is_released(uint64_t order)
{
    return order >> WORD_RELEASED & 1;
}

/* ---- all orders ---- */

static uint64_t hash_of(const struct state *s)
{
    uint64_t words[sizeof *s / 8], h = 14695981039346656037u;

    memcpy(words, s, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        h = (h ^ words[i]) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    return h ? h : 1;
}

static bool is_new(const struct state *s)
{
    uint64_t h = hash_of(s);
    size_t at = h % ROOM;

    while (seen[at] && seen[at] != h)
        at = (at + 1) % ROOM;
    if (seen[at])
        return false;
    seen[at] = h;
    assert_true(++nseen < ROOM / 2);
    return true;
}

static void push(const struct state *s)
{
    if (!is_new(s))
        return;
    assert_true(nstates < ROOM / 8);
    states[nstates++] = *s;
}

/* A rank asks at its step: the second half of PROTOCOL.md's recipe. */
static void read_order(struct state *s, int i)
{
    struct rank *r = &s->rank[i];

    if (r->order && !is_released(r->order) && word_step(r->order) <= r->step)
        return; /* it waits, and reads again */
    if (r->order && is_released(r->order) && word_step(r->order) <= r->step && !r->obeyed)
        r->obeyed = r->step;
    r->does = ++r->step > steps ? DONE : ENTER;
}

/* All that can happen next. */
static void expand(const struct state *s)
{
    const struct words_memory m = { get_entered, put_order, fence, NULL };
    struct state next;

    for (int i = 0; i < ranks; i++) {
        const struct rank *r = &s->rank[i];

        next = *s;
        if (r->kept) { /* the store comes through */
            next.rank[i].entered = r->kept;
            next.rank[i].kept = 0;
            push(&next);
            next = *s;
        }
        if (r->does == ENTER && !r->kept) {
            next.rank[i].kept = r->step;
            next.rank[i].does = READ;
            push(&next);
        } else if (r->does == READ) {
            read_order(&next, i);
            push(&next);
        }
    }
    if (!s->given) {
        struct words_memory mine = m;

        next = *s;
        mine.arg = &next;
        next.given = !words_next(&next.words, &mine);
        push(&next);
    }
}

/* Ranks that have obeyed have done so at one step, and no rank has passed that step without obeying. */
static bool agrees(const struct state *s)
{
    int step = 0;

    for (int i = 0; i < ranks; i++)
        step = s->rank[i].obeyed ? s->rank[i].obeyed : step;
    for (int i = 0; i < ranks && step; i++)
        if ((s->rank[i].obeyed && s->rank[i].obeyed != step) || (!s->rank[i].obeyed && s->rank[i].step > step))
            return false;
    return true;
}

static size_t go_through(int n, bool with_fence)
{
    struct state first;

    ranks = n;
    steps = n < RANKS ? 3 : 2; /* more of them would take minutes */
    fenced = with_fence;
    found_fault = false;
    states = malloc(ROOM / 8 * sizeof *states);
    seen = calloc(ROOM, sizeof *seen);
    assert_true(states && seen);
    nstates = nseen = 0;
    memset(&first, 0, sizeof first);
    first.words.nranks = n;
    words_begin(&first.words, WORD_CHECKPOINT);
    for (int i = 0; i < n; i++)
        first.rank[i].step = 1;
    push(&first);
    while (nstates > 0 && !found_fault) {
        struct state s = states[--nstates];

        found_fault = !agrees(&s);
        expand(&s);
    }
    free(states);
    free(seen);
    return nseen;
}

static void four_ranks_in_every_order(void **state)
{
    size_t n;

    (void)state;
    for (int i = 1; i <= RANKS; i++) {
        n = go_through(i, true);
        print_message("%d ranks: %zu states\n", i, n);
        assert_false(found_fault);
    }
}

static void without_the_fence_a_rank_may_miss_it(void **state)
{
    (void)state;
    go_through(2, false);
    assert_true(found_fault);
}

/* An order is for the ranks that still ask. */
static void ranks_that_are_done_are_left_out(void **state)
{
    struct state s;
    struct words_memory m = { get_entered, put_order, fence, &s };

    (void)state;
    memset(&s, 0, sizeof s);
    ranks = 3;
    fenced = true;
    s.words.nranks = 3;
    s.words.left_out = 2;
    s.rank[1].entered = 9;
    s.rank[2].entered = 4;
    words_begin(&s.words, WORD_PAUSE);
    while (words_next(&s.words, &m))
        continue;
    assert_true(s.rank[1].order == 0 && s.rank[0].order == s.rank[2].order);
    assert_true(word_step(s.rank[0].order) == 5 && word_of(s.rank[0].order) == WORD_PAUSE && is_released(s.rank[0].order));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(four_ranks_in_every_order), cmocka_unit_test(without_the_fence_a_rank_may_miss_it),
                                        cmocka_unit_test(ranks_that_are_done_are_left_out) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

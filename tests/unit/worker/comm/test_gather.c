/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/comm/test_gather.c - uses: proto trainer cpu
 * Every rank reads the same records and heads, for any number of ranks, while the next ones are filled. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/worker/comm/ranks.h"
#include "worker/comm/gather.h"
#include "worker/core/shards.h"

enum { V = 8, RECORD = 5, HEAD = 3, STEPS = 40 };

struct job {
    enum gather_deal deal;
    int nrecords, buffers;
};

static double number(int step, int record, int i)
{
    return (double)((step * 131 + record * 17 + i * 7) % 1000) / 7.0 - 60.0;
}

static bool is_mine(const struct job *job, struct comm *c, int index)
{
    struct span mine = rank_shards(comm_rank(c), comm_ranks(c), job->nrecords);

    return job->deal == GATHER_TURNS ? index % comm_ranks(c) == comm_rank(c) : index >= mine.lo && index < mine.hi;
}

static void fill(struct gather *g, const struct job *job, struct comm *c, int step)
{
    uint64_t *head = gather_head(g);

    for (int i = 0; i < HEAD; i++)
        head[i] = (uint64_t)(step * 1000 + comm_rank(c) * 10 + i);
    for (int v = 0; v < job->nrecords; v++)
        for (int i = 0; is_mine(job, c, v) && i < RECORD; i++)
            ((double *)gather_record(g, v))[i] = number(step, v, i);
}

static void check(const struct gather *g, const struct job *job, int step, int nranks)
{
    const double *rows[V];

    gather_rows(g, 1, rows);
    for (int v = 0; v < job->nrecords; v++)
        for (int i = 0; i < RECORD; i++) {
            NEED(((const double *)gather_read(g, v))[i] == number(step, v, i));
            NEED(i == 0 || rows[v][i - 1] == number(step, v, i));
        }
    for (int r = 0; r < nranks; r++)
        for (int i = 0; i < HEAD; i++)
            NEED(((const uint64_t *)gather_read_head(g, r))[i] == (uint64_t)(step * 1000 + r * 10 + i));
}

/* With two buffers the next records are filled before the last are read. */
static void gather_ranks(struct comm *c, void *arg)
{
    const struct job *job = arg;
    const struct gather_options o = { c, job->deal, job->nrecords, job->buffers, RECORD * sizeof(double), HEAD * sizeof(uint64_t) };
    struct gather *g = NULL;
    unsigned seed = (unsigned)comm_rank(c) + 3;
    struct err err;

    NEED_OK(gather_open(&o, &g, &err));
    fill(g, job, c, 0);
    for (int step = 0; step < STEPS; step++) {
        NEED_OK(gather_all(g, &err));
        rank_delay(&seed, 200);
        if (job->buffers == 2)
            fill(g, job, c, step + 1);
        rank_delay(&seed, 200);
        check(g, job, step, comm_ranks(c));
        if (job->buffers == 2)
            continue;
        NEED_OK(comm_barrier(c, COMM_SYNC, &err));
        fill(g, job, c, step + 1);
    }
    gather_close(g);
}

/* Also with fewer records than ranks: some ranks fill no record, and all ranks read all records. */
static void every_rank_reads_all(void **state)
{
    (void)state;
    for (int n = 1; n <= 8; n++)
        for (int buffers = 1; buffers <= 2; buffers++) {
            struct job blocks = { GATHER_BLOCKS, V, buffers }, turns = { GATHER_TURNS, 7, buffers }, few = { GATHER_BLOCKS, 3, buffers };

            assert_int_equal(run_ranks(n, 20000, gather_ranks, &blocks), 0);
            assert_int_equal(run_ranks(n, 20000, gather_ranks, &turns), 0);
            assert_int_equal(run_ranks(n, 20000, gather_ranks, &few), 0);
        }
}

/* The records of each rank lie on cache lines of that rank alone. */
static void ranks_share_no_line(struct comm *c, void *arg)
{
    const struct gather_options o = { .comm = c, .nrecords = V, .buffers = 1, .record_bytes = 8, .head_bytes = 8 };
    struct gather *g = NULL;
    struct err err;

    (void)arg;
    NEED_OK(gather_open(&o, &g, &err));
    NEED_OK(gather_all(g, &err));
    for (int r = 0; r < comm_ranks(c); r++)
        NEED((uintptr_t)gather_read_head(g, r) % 64 == 0);
    gather_close(g);
}

static void lines_are_a_ranks_own(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(3, 20000, ranks_share_no_line, NULL), 0);
}

static void nothing_is_gathered(void **state)
{
    struct comm *c = rank_open(-1, 0, 1, 1000);
    struct gather_options o = { .comm = c, .nrecords = V, .buffers = 2 };
    struct gather *g = NULL;
    struct err err;

    (void)state;
    assert_int_equal(gather_open(&o, &g, &err), 0);
    assert_int_equal(gather_all(g, &err), 0);
    gather_close(g);
    o.nrecords = 0;
    assert_int_equal(gather_open(&o, &g, &err), ERR_INPUT);
    assert_string_equal(err.msg, "0 records that all ranks read");
    comm_close(c);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_reads_all),
        cmocka_unit_test(lines_are_a_ranks_own),
        cmocka_unit_test(nothing_is_gathered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

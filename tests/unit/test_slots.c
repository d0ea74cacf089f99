/* Slots: every rank reads the same records, words and sums, this step's and the last one's, whatever the number of ranks.
 * uses: proto trainer cpu */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/ranks.h"
#include "worker/core/tree.h"
#include "worker/train/slots.h"

enum { V = 8, CHANNELS = 3, RECORD = 2 + 2 * CHANNELS + 1, STEPS = 40 };

static double number(int step, int record, int i)
{
    return (double)((step * 131 + record * 17 + i * 7) % 1000) / 7.0 - 60.0;
}

/* Sums and merged statistics as one rank that knows everything has them. */
struct expected {
    double sum, rows[2], moments[2 * CHANNELS + 1];
};

static void fill(double *rec, int step, int record)
{
    for (int i = 0; i < RECORD; i++)
        rec[i] = number(step, record, i);
    rec[2] = 10.0 + record; /* the count of the statistics that start here */
}

static struct expected expect(int step)
{
    double rec[V][RECORD], first[V];
    const double *stats[V];
    struct expected e;

    for (int v = 0; v < V; v++) {
        fill(rec[v], step, v);
        first[v] = rec[v][0];
        stats[v] = rec[v] + 2;
    }
    e.sum = ((first[0] + first[1]) + (first[2] + first[3])) + ((first[4] + first[5]) + (first[6] + first[7]));
    e.rows[0] = e.sum;
    e.rows[1] = tree_sum(&rec[0][1], RECORD, V);
    tree_moments(e.moments, stats, V, CHANNELS);
    return e;
}

static void check(const struct slots *s, int age, int step, int nranks)
{
    struct expected want = expect(step), got = { .sum = slots_sum(s, age, 0) };
    const double *rows[V];

    slots_sum_rows(s, age, 0, 2, got.rows);
    slots_moments(s, age, 2, CHANNELS, got.moments);
    NEED(memcmp(&want, &got, sizeof(got)) == 0);
    slots_rows(s, age, 1, rows);
    for (int v = 0; v < V; v++) {
        NEED(rows[v][0] == number(step, v, 1));
        NEED(slots_read(s, age, v)[RECORD - 1] == number(step, v, RECORD - 1));
    }
    for (int r = 0; r < nranks; r++)
        for (int w = 0; w < SLOT_WORDS; w++)
            NEED(slots_read_words(s, age, r)[w] == (uint64_t)(step * 1000 + r * 10 + w));
}

static void slot_ranks(struct comm *c, void *arg)
{
    struct slots *s = NULL;
    int me = comm_rank(c);
    unsigned seed = (unsigned)me + 3;
    struct err err;

    (void)arg;
    NEED_OK(slots_open(c, V, RECORD, &s, &err));
    for (int step = 0; step < STEPS; step++) {
        struct span mine = slots_mine(s);

        for (int v = mine.lo; v < mine.hi; v++)
            fill(slots_record(s, v), step, v);
        for (int w = 0; w < SLOT_WORDS; w++)
            slots_words(s)[w] = (uint64_t)(step * 1000 + me * 10 + w);
        NEED_OK(slots_exchange(s, &err));
        rank_delay(&seed, 200);
        check(s, 0, step, comm_ranks(c));
        if (step > 0)
            check(s, 1, step - 1, comm_ranks(c));
    }
    slots_close(s);
}

static void test_ranks(void **state)
{
    (void)state;
    for (int n = 1; n <= 8; n++)
        assert_int_equal(run_ranks(n, 20000, slot_ranks, NULL), 0);
}

/* Fewer records than ranks: some have none, all read all. */
static void few_ranks(struct comm *c, void *arg)
{
    struct slots *s = NULL;
    struct span mine;
    struct err err;

    (void)arg;
    NEED_OK(slots_open(c, 3, 1, &s, &err));
    mine = slots_mine(s);
    for (int i = mine.lo; i < mine.hi; i++)
        *slots_record(s, i) = i + 1;
    NEED_OK(slots_exchange(s, &err));
    NEED(slots_sum(s, 0, 0) == 6);
    slots_close(s);
}

static void test_few_records(void **state)
{
    struct comm *c = rank_open(-1, 0, 1, 1000);
    struct slots *s = NULL;
    struct err err;

    (void)state;
    assert_int_equal(slots_open(c, 0, 1, &s, &err), ERR_INPUT);
    few_ranks(c, NULL);
    comm_close(c);
    assert_int_equal(run_ranks(5, 20000, few_ranks, NULL), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = { cmocka_unit_test(test_ranks), cmocka_unit_test(test_few_records) };

    return cmocka_run_group_tests_name("slots", tests, NULL, NULL);
}

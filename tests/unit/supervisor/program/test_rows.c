/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/supervisor/program/test_rows.c - shares of ranks become rows.
 * uses: proto supervisor */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "supervisor/program/rows.h"

static char told[4096]; /* rows and events, one a line */
static int nrows;

static void on_row(void *arg, const struct rows_row *row)
{
    char *at = told + strlen(told);
    size_t room = sizeof told - strlen(told);

    (void)arg;
    nrows++;
    snprintf(at, room, "%s %lld", row->val ? "val" : "train", (long long)row->step);
    for (int i = 0; i < row->n; i++)
        snprintf(told + strlen(told), sizeof told - strlen(told), " %s=%g/%g", row->terms[i].name, row->terms[i].num, row->terms[i].den);
    if (!isnan(row->images))
        snprintf(told + strlen(told), sizeof told - strlen(told), " images=%g", row->images);
    strncat(told, "\n", sizeof told - strlen(told) - 1);
}

static void on_event(void *arg, const char *kind, const char *text)
{
    (void)arg;
    snprintf(told + strlen(told), sizeof told - strlen(told), "%s: %s\n", kind, text);
}

static struct rows *begin(int nranks, int64_t resume_step)
{
    const struct rows_hooks hooks = { on_row, on_event, NULL };
    struct rows *r = rows_new(nranks, resume_step, &hooks);

    assert_non_null(r);
    told[0] = '\0';
    nrows = 0;
    return r;
}

static void share(struct rows *r, int rank, int64_t step, int n, const struct rows_term *terms)
{
    json_t *of = json_object(), *share = json_pack("{s:s, s:I, s:o}", "split", "train", "step", (json_int_t)step, "terms", of);

    assert_non_null(share);
    for (int i = 0; i < n; i++)
        json_object_set_new(of, terms[i].name,
                            json_pack("[o, f]", isnan(terms[i].num) ? json_null() : json_real(terms[i].num), terms[i].den));
    assert_int_equal(rows_take(r, rank, share), 0);
    json_decref(share);
}

static void total(struct rows *r, int rank, int64_t step, double num)
{
    share(r, rank, step, 1, &(struct rows_term){ "total", num, 1 });
}

static void expect(const char *text)
{
    assert_string_equal(told, text);
    told[0] = '\0';
}

static void a_row_is_the_sum_in_rank_order(void **state)
{
    struct rows *r = begin(3, 0);
    const double parts[] = { 1e17, 1, -1e17 };
    json_t *s = json_pack("{s:s, s:i, s:f, s:i, s:{s:[i, i], s:[i, i], s:[i, i]}}", "split", "val", "step", 4, "epoch", 1.5, "images", 8,
                          "terms", "a\"", 1, 1, "total", 1, 2, "a\n", 1, 1);

    (void)state;
    for (int k = 2; k >= 0; k--) /* they come in any order */
        total(r, k, 1, parts[k]);
    assert_true((parts[0] + parts[1]) + parts[2] == 0); /* the sum in another order would be 1 */
    expect("train 1 total=0/3\n");
    for (int rank = 0; rank < 3; rank++)
        assert_int_equal(rows_take(r, rank, s), 2); /* names that are not fit for a record */
    expect("val 4 total=3/6 images=24\n");
    json_decref(s);
    rows_free(r);
}

static void a_rank_that_is_done_counts_nothing(void **state)
{
    struct rows *r = begin(2, 0);

    (void)state;
    total(r, 0, 1, 1);
    total(r, 1, 1, 2);
    expect("train 1 total=3/2\n");
    total(r, 0, 2, 5);
    rows_done(r, 1);
    expect("train 2 total=5/1\n");
    total(r, 0, 3, 7);
    expect("train 3 total=7/1\n");
    total(r, 1, 3, 7); /* after it said that it is done */
    expect("");
    rows_free(r);
}

static void a_rank_that_leaves_early_is_told(void **state)
{
    struct rows *r = begin(3, 0);

    (void)state;
    rows_done(r, 2);
    rows_left(r, 2); /* it had said that it is done */
    total(r, 0, 1, 1);
    total(r, 1, 1, 2);
    rows_left(r, 1);
    expect("train 1 total=3/2\n");
    total(r, 0, 2, 5);
    expect("incomplete: rank 1 ended with status 0, without run.finish(), before others had reported their last step: from step 2 of "
           "train on, losses hold the shares of the other ranks alone\ntrain 2 total=5/1\n");
    total(r, 0, 3, 7);
    rows_left(r, 0);
    expect("train 3 total=7/1\n");
    rows_free(r);
}

static void a_row_that_a_rank_passed_is_given_up(void **state)
{
    struct rows *r = begin(2, 0);

    (void)state;
    for (int step = 1; step <= 8; step++)
        total(r, 0, step, step);
    total(r, 1, 4, 0);
    expect("incomplete: no loss of train is stored for step 1: rank 1 reports a later step and lacks this one\ntrain 4 total=4/2\n");
    total(r, 1, 8, 0);
    expect("train 8 total=8/2\n");
    rows_end(r);
    expect("incomplete: 6 rows of train were not stored, because not all ranks reported them; rank 0 reports every 1 steps; rank 1 reports "
           "every 4 steps\n");
    rows_done(r, 1);
    total(r, 0, 9, 9);
    expect("train 9 total=9/1\n");
    rows_free(r);
    r = begin(2, 0);
    total(r, 1, 5, 0);
    rows_done(r, 1);
    total(r, 0, 4, 4); /* rank 1 passed it before it was done */
    expect("incomplete: no loss of train is stored for step 4: rank 1 reports a later step and lacks this one\n");
    total(r, 0, 5, 5);
    expect("train 5 total=5/2\n");
    rows_free(r);
}

static void a_failed_rank_completes_nothing(void **state)
{
    struct rows *r = begin(2, 0);

    (void)state;
    total(r, 0, 1, 1);
    rows_failed(r, 1);
    expect("incomplete: no loss of train is stored for step 1: rank 1 failed before it reported it\n");
    rows_free(r);
}

static void terms_that_a_rank_lacks_are_left_out(void **state)
{
    struct rows *r = begin(2, 0);
    const struct rows_term both[] = { { "total", 1, 1 }, { "own", 1, 1 } }, loss = { "loss", 2, 1 }, turned[] = { both[1], loss };

    (void)state;
    share(r, 0, 1, 2, both);
    share(r, 1, 1, 1, both);
    expect("terms: term own of train is not stored, first at step 1: some rank does not report it\ntrain 1 total=2/2\n");
    share(r, 0, 2, 2, both);
    share(r, 1, 2, 1, both);
    expect("train 2 total=2/2\n"); /* told once */
    share(r, 0, 3, 2, both);
    share(r, 1, 3, 0, NULL); /* it had no data */
    expect("train 3 total=1/1 own=1/1\n");
    share(r, 0, 4, 1, &loss);
    share(r, 1, 4, 1, &loss);
    expect("terms: the ranks report no term total of train: the first term, loss, is stored as total\ntrain 4 total=4/2\n");
    for (int rank = 0; rank < 2; rank++)
        share(r, rank, 5, 2, turned);
    expect("train 5 own=2/2 total=4/2\n"); /* in whatever order they come */
    for (int rank = 0; rank < 2; rank++)
        share(r, rank, 6, 1, turned);
    expect("train 6 own=2/2\n");
    rows_free(r);
}

static void odd_numbers_are_told(void **state)
{
    struct rows *r = begin(2, 0);
    const struct rows_term bad = { "total", NAN, 1 }, none = { "total", 0, 0 };

    (void)state;
    total(r, 0, 1, 1);
    share(r, 1, 1, 1, &bad);
    expect("loss: train step 1: term total of rank 1 is not finite\ntrain 1 total=nan/2\n");
    share(r, 0, 2, 1, &none);
    share(r, 1, 2, 1, &none);
    expect("loss: train step 2: the denominators of term total of all ranks add up to 0: it has no value\ntrain 2 total=0/0\n");
    total(r, 0, 3, 1e308);
    total(r, 1, 3, 1e308);
    expect("loss: train step 3: the sum of term total over the ranks is not finite\ntrain 3 total=inf/2\n");
    for (int step = 4; step < 100; step++) {
        share(r, 0, step, 1, &none);
        share(r, 1, step, 1, &none);
        if (step > ROWS_TOLD + 2)
            assert_null(strstr(told, "loss:"));
        told[0] = '\0';
    }
    rows_free(r);
}

static void steps_never_go_back(void **state)
{
    struct rows *r = begin(1, 10);

    (void)state;
    total(r, 0, 10, 1);
    assert_non_null(strstr(told, "backwards: rank 0 reports step 10 of train after step 10, and it is dropped: steps must rise"));
    told[0] = '\0';
    total(r, 0, 12, 1);
    total(r, 0, 12, 1);
    total(r, 0, 11, 1);
    expect("train 12 total=1/1\n");
    rows_free(r);
    r = begin(1, 0);
    total(r, 0, 5, 1);
    total(r, 0, 4, 1);
    assert_non_null(strstr(told, "reports step 4 of train after step 5, and it is dropped"));
    rows_free(r);
}

/* A rank that reports nothing must not fill the memory, however much the other one reports. */
static void open_rows_are_bounded(void **state)
{
    struct rows *r = begin(2, 0);
    struct rows_term terms[ROWS_TERMS];
    char names[ROWS_TERMS][16], all[sizeof told] = "";

    (void)state;
    for (int step = 1; step <= 3 * ROWS_OPEN; step++)
        total(r, 0, step, 1);
    assert_int_equal(nrows, 0);
    for (int step = 3 * ROWS_OPEN - 10; step <= 3 * ROWS_OPEN; step++)
        total(r, 1, step, 1);
    assert_int_equal(nrows, 11);
    for (int round = 0; round < 10; round++) { /* 2560 names */
        told[0] = '\0';
        for (int i = 0; i < ROWS_TERMS; i++) {
            snprintf(names[i], sizeof names[i], "t%d-%d", round, i);
            terms[i] = (struct rows_term){ names[i], 1, 1 };
        }
        share(r, 0, 4 * ROWS_OPEN + round, ROWS_TERMS, terms);
        share(r, 1, 4 * ROWS_OPEN + round, ROWS_TERMS, terms);
        if (strncmp(told, "terms:", 6) == 0)
            snprintf(all, sizeof all, "%s", told);
    }
    assert_int_equal(nrows, 11 + ROWS_NAMES / ROWS_TERMS);
    assert_non_null(strstr(all, "more than 1024 different terms"));
    rows_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_is_the_sum_in_rank_order),
        cmocka_unit_test(a_rank_that_is_done_counts_nothing),
        cmocka_unit_test(a_rank_that_leaves_early_is_told),
        cmocka_unit_test(a_row_that_a_rank_passed_is_given_up),
        cmocka_unit_test(a_failed_rank_completes_nothing),
        cmocka_unit_test(terms_that_a_rank_lacks_are_left_out),
        cmocka_unit_test(odd_numbers_are_told),
        cmocka_unit_test(steps_never_go_back),
        cmocka_unit_test(open_rows_are_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

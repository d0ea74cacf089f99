/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/proto/evidence/test_evidence_diff.c - uses: proto
 * The evidence of two runs: the first step that differs is found anywhere, by chain and record by record, and missing
 * records are reported. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/err.h"
#include "proto/evidence/evidence_diff.h"
#include "proto/tier.h"
#include "tests/stand/harness.h"

enum { SHARDS = 8, TENSORS = 3, LONG_RUN = 1300 };

static struct evidence_tensor tensors[] = { { "conv.weight", 432, true }, { "bn.running_mean", 16, false }, { "head.bias", 16, true } };
static char dir[2][TEMP_MAX];

/* A run, and the step and part in which it begins to differ from the others. */
struct plan {
    struct evidence_head head;
    int64_t first, last;
    int64_t step; /* from this step on, this part and all later parts differ */
    int part;
    int64_t hole; /* the record of this step is damaged; 0: no damage */
    int ranks;
    int shard; /* that differs */
};

static struct plan plan_of(int64_t last)
{
    return (struct plan){ .head = { .tensors = true, .spec = { { 1, 2 } }, .shards = SHARDS, .ntensors = TENSORS, .tensor = tensors },
                          .first = 1,
                          .last = last,
                          .step = INT64_MAX,
                          .ranks = 1,
                          .shard = 5 };
}

static int make_dirs(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++)
        if (!mkdtemp(temp_path(dir[k], sizeof dir[k], "evidence.XXXXXX")))
            return -1;
    return 0;
}

static void empty(int k)
{
    static const char *const names[] = { "json", "log", "ring", "tensors" };
    char path[2 * TEMP_MAX + 32];

    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/evidence.%s", dir[k], names[i]);
        unlink(path);
    }
}

static int remove_dirs(void **state)
{
    (void)state;
    empty(0);
    empty(1);
    return rmdir(dir[0]) < 0 || rmdir(dir[1]) < 0 ? -1 : 0;
}

static struct hash128 some(int64_t step, int what, bool other)
{
    return hash_fold_u64(hash_fold_u64((struct hash128){ { 7, 8 } }, (uint64_t)step), (uint64_t)what * 2 + other);
}

/* A single shard differs, and the last two tensors. */
static void fill(const struct plan *p, int64_t step, struct evidence_record *r, struct evidence_detail *d)
{
    static const int rank[EVIDENCE_PARTS] = { 0, 1, 2, 4, 5 }; /* the rate is 3 */
    int from = step > p->step ? 0 : step < p->step ? 9 : p->part == EVIDENCE_RATE ? 3 : rank[p->part];

    *r = (struct evidence_record){ .step = step, .attempt = 1, .ranks = p->ranks, .tier = TIER_RERUN, .loss = NAN };
    r->lr = step >= p->step && p->part == EVIDENCE_RATE ? 0.25f : 0.5f;
    for (int i = 0; i < EVIDENCE_PARTS; i++)
        r->part[i] = some(step, i, rank[i] >= from);
    d->step = step;
    for (int i = 0; i < p->head.shards; i++) {
        d->data[i] = some(step, 100 + i, i == p->shard && from == 0);
        d->loss[i] = some(step, 200 + i, i == p->shard && from <= 1);
    }
    for (int i = 0; i < p->head.ntensors; i++) {
        d->gradient[i] = some(step, 300 + i, i > 0 && from <= 2);
        d->weight[i] = some(step, 400 + i, i > 0 && from <= 4);
    }
    for (int i = 0; i < EVIDENCE_STATES; i++)
        d->state[i] = some(step, 500 + i, from <= 5);
}

static void damage(int k, int64_t step)
{
    char path[2 * TEMP_MAX + 32];
    int fd;

    snprintf(path, sizeof path, "%s/evidence.log", dir[k]);
    fd = open(path, O_WRONLY);
    assert_true(fd >= 0 && pwrite(fd, "damaged!", 8, (step - 1) * EVIDENCE_RECORD_BYTES + 50) == 8);
    close(fd);
}

/* Adds the steps from .. last to the existing evidence of a run that began at its first step. */
static void write_steps(int k, const struct plan *p, int64_t from)
{
    struct hash128 chain = evidence_start(&p->head);
    struct evidence_record r, before;
    struct evidence_detail d;
    struct evidence_log *l;
    struct err err = { 0 };
    bool anew;

    assert_int_equal(evidence_log_open(dir[k], &p->head, &l, &anew, &err), 0);
    assert_int_equal(evidence_detail_new(&p->head, &d, &err), 0);
    for (int64_t s = p->first; s <= p->last; s++) {
        fill(p, s, &r, &d);
        chain = r.chain = evidence_chain(chain, &r);
        if (s >= from)
            assert_int_equal(evidence_log_write(l, &r, &d, &before, &err), 0);
    }
    evidence_detail_free(&d);
    evidence_log_close(l);
}

static void write_run(int k, const struct plan *p)
{
    empty(k);
    write_steps(k, p, p->first);
    if (p->hole)
        damage(k, p->hole);
}

/* Shard, tensor and state are in the JSON if they are known. */
static void check_located(const json_t *json, const struct evidence_difference *d)
{
    const json_t *shard = json_object_get(json, "shard"), *tensor = json_object_get(json, "tensor"),
                 *state = json_object_get(json, "state");

    if (!json_is_object(json))
        return;
    assert_int_equal(json_is_integer(shard) ? json_integer_value(shard) : -1, d->located ? d->shard : -1);
    assert_int_equal(json_is_string(tensor), d->located && d->tensor >= 0);
    assert_int_equal(json_is_string(state), d->located && d->part == EVIDENCE_STATE);
    if (json_is_string(tensor))
        assert_string_equal(json_string_value(tensor), tensors[d->tensor].name);
}

static struct evidence_diff diff(void)
{
    struct evidence *e[2];
    struct evidence_diff d;
    struct err err = { 0 };
    json_t *json;

    for (int k = 0; k < 2; k++)
        assert_int_equal(evidence_open(dir[k], &e[k], &err), 0);
    assert_int_equal(evidence_diff(e[0], e[1], 1, NULL, &d, &err), 0);
    json = evidence_diff_json(evidence_head(e[0]), &d);
    assert_non_null(json);
    assert_int_equal(json_is_null(json_object_get(json, "difference")), d.step == 0);
    assert_string_equal(json_string_value(json_object_get(json, "text")), d.text);
    check_located(json_object_get(json, "difference"), &d.difference);
    assert_int_equal(json_is_true(json_object_get(json, "equal")), strncmp(d.text, "equal", 5) == 0);
    json_decref(json);
    evidence_close(e[0]);
    evidence_close(e[1]);
    return d;
}

static struct evidence_diff diff_of(const struct plan *a, const struct plan *b)
{
    write_run(0, a);
    write_run(1, b);
    return diff();
}

static void equal(void **state)
{
    struct plan a = plan_of(LONG_RUN), b = plan_of(LONG_RUN);
    struct evidence_diff d;

    (void)state;
    b.ranks = 4;
    d = diff_of(&a, &b);
    assert_string_equal(d.text, "equal: steps 1 .. 1300");
    assert_true(d.from == 1 && d.to == LONG_RUN && d.missing == 0 && d.same_spec && d.same_tensors);
}

/* Finds the step anywhere. The second time the starts differ too, so every record is compared. */
static void finds_the_step(void **state)
{
    static const int64_t at[] = { 1, 2, 3, 511, 512, 513, 514, 1024, 1025, 1299, LONG_RUN };
    struct plan a = plan_of(LONG_RUN), b = plan_of(LONG_RUN);

    (void)state;
    write_run(0, &a);
    for (int other = 0; other < 2; other++)
        for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
            b.head.spec.lane[0] = 1 + (uint64_t)other;
            b.step = at[i];
            b.part = EVIDENCE_WEIGHT;
            write_run(1, &b);
            struct evidence_diff d = diff();

            assert_true(d.step == at[i] && d.to == at[i] && d.same_spec == !other && !d.apart);
            assert_true(d.difference.part == EVIDENCE_WEIGHT && d.side[0].record.step == at[i]);
            assert_true(d.side[0].kept == (at[i] > LONG_RUN - EVIDENCE_RING) && d.difference.located == d.side[0].kept);
            assert_string_equal(strstr(d.text, ": update"),
                                at[i] > LONG_RUN - EVIDENCE_RING
                                    ? ": update of bn.running_mean (2 of 3 tensors); data, losses, gradients and learning rate are "
                                      "equal; tier rerun | rerun; ranks 1 | 1"
                                    : ": update; data, losses, gradients and learning rate are equal; tier rerun | rerun; ranks 1 | 1");
        }
}

static void says_what(void **state)
{
    static const char *const want[] = {
        [EVIDENCE_DATA] = "step 700: data of shard 5 (of rank 0 | 2); tier rerun | rerun; ranks 1 | 3",
        [EVIDENCE_LOSS] =
            "step 700: loss of shard 5 (of rank 0 | 2), then gradient of head.bias (2 of 3 tensors); data are equal; tier rerun | "
            "rerun; ranks 1 | 3",
        [EVIDENCE_GRADIENT] =
            "step 700: gradient of head.bias (2 of 3 tensors); data and losses are equal; tier rerun | rerun; ranks 1 | 3",
        [EVIDENCE_WEIGHT] =
            "step 700: update of bn.running_mean (2 of 3 tensors); data, losses, gradients and learning rate are equal; tier "
            "rerun | rerun; ranks 1 | 3",
        [EVIDENCE_STATE] = "step 700: open log window; data, losses, gradients, learning rate and updates are equal; tier rerun | rerun; "
                           "ranks 1 | 3",
        [EVIDENCE_RATE] = "step 700: learning rate 0.5 | 0.25; data, losses and gradients are equal; tier rerun | rerun; ranks 1 | 3"
    };
    struct plan a = plan_of(701), b = plan_of(701);

    (void)state;
    b.ranks = 3;
    b.step = 700;
    for (b.part = 0; b.part <= EVIDENCE_RATE; b.part++) {
        struct evidence_diff d = diff_of(&a, &b);

        assert_string_equal(d.text, want[b.part]);
    }
}

/* For any number of ranks, compared with the rule of the specification. */
static void names_the_rank(void **state)
{
    static const int shards[] = { 0, 5, SHARDS - 1 };
    struct plan a = plan_of(2), b = plan_of(2);

    (void)state;
    b.step = 2;
    b.part = EVIDENCE_DATA;
    write_run(0, &a);
    for (size_t i = 0; i < 3; i++)
        for (b.ranks = 1; b.ranks <= SHARDS; b.ranks++) {
            int rank = 0;

            b.shard = shards[i];
            while ((rank + 1) * SHARDS / b.ranks <= b.shard)
                rank++;
            write_run(1, &b);
            assert_int_equal(diff().side[1].rank, rank);
            assert_int_equal(diff().side[0].rank, 0);
        }
    b.ranks = SHARDS + 1; /* cannot be */
    assert_int_equal(diff_of(&a, &b).side[1].rank, -1);
}

static void other_lengths(void **state)
{
    struct plan a = plan_of(900), b = plan_of(600);
    struct evidence_diff d;

    (void)state;
    d = diff_of(&a, &b);
    assert_string_equal(d.text, "equal: steps 1 .. 600");
    b.hole = 300; /* a comparison of chains does not read it */
    d = diff_of(&a, &b);
    assert_string_equal(d.text, "equal: steps 1 .. 600");
    b.hole = 600; /* torn */
    d = diff_of(&a, &b);
    assert_string_equal(
        d.text, "not shown to be equal: steps 1 .. 599 are, nothing after them can be compared; steps 600 .. 600 have no record in B");
    assert_true(d.cut && d.to == 599 && d.lacking == 1);
    b.hole = 300; /* where bisection looks */
    b.part = EVIDENCE_GRADIENT;
    b.step = 20;
    assert_int_equal(diff_of(&a, &b).step, 20);
    b.step = 580;
    assert_int_equal(diff_of(&a, &b).step, 580);
    b.step = 300;
    d = diff_of(&a, &b);
    assert_true(d.step == 301 && d.missing == 300 && d.missing_to == 300 && d.lacking == 1 && d.to == 301 && !d.apart);
    assert_string_equal(strstr(d.text, "; steps"), "; steps 300 .. 300 have no record in B");
}

/* A run that began at a later step, as a verifying run does; and two runs without a common step. */
static void begins_later(void **state)
{
    struct plan a = plan_of(900), b = plan_of(900);
    struct evidence_diff d;

    (void)state;
    b.head.spec.lane[0]++;
    b.first = 777;
    d = diff_of(&a, &b);
    assert_string_equal(d.text, "equal: steps 777 .. 900");
    b.step = 880;
    b.part = EVIDENCE_LOSS;
    assert_int_equal(diff_of(&a, &b).step, 880);
    a.last = 700;
    d = diff_of(&a, &b);
    assert_string_equal(d.text, "no step has a record in both");
    assert_true(d.from == 0 && d.to == 0);
}

static void parted_before(void **state)
{
    struct plan a = plan_of(900), b = plan_of(900);
    struct evidence_diff d;

    (void)state;
    b.first = 100; /* a chain of its own */
    d = diff_of(&a, &b);
    assert_true(d.apart && d.step == 0 && d.from == 100 && d.to == 900);
    assert_string_equal(d.text, "records are equal, chains are not: steps 100 .. 900");
    b.step = 450;
    b.part = EVIDENCE_LOSS;
    assert_int_equal(diff_of(&a, &b).step, 450);
}

/* An attempt continued after step 10 with other results, and did not get as far as the attempt before. */
static void trained_again(void **state)
{
    struct plan a = plan_of(20), again = plan_of(15);
    struct evidence_diff d;

    (void)state;
    again.step = 11;
    again.part = EVIDENCE_DATA;
    write_run(0, &a);
    write_run(1, &a);
    write_steps(1, &again, 11);
    d = diff();
    assert_true(d.step == 11 && d.difference.part == EVIDENCE_DATA && d.side[0].steps == 20 && d.side[1].steps == 15);
}

/* The gradients of one run are unknown. */
static void other_levels(void **state)
{
    struct plan a = plan_of(50), b = plan_of(50);
    struct evidence_diff d;

    (void)state;
    b.head.tensors = false;
    b.step = 20;
    b.part = EVIDENCE_GRADIENT;
    d = diff_of(&a, &b);
    assert_true(!d.same_level && d.same_tensors);
    assert_string_equal(d.text, "step 20: open log window; data, losses and learning rate are equal; tier rerun | rerun; ranks 1 | 1");
}

/* The same; the head does not name its tensors. */
static void untold_tensors(void **state)
{
    struct plan a = plan_of(50), b = plan_of(50);
    struct evidence_diff d;

    (void)state;
    b.head.tensors = false;
    b.head.ntensors = 0;
    d = diff_of(&a, &b);
    assert_true(!d.same_level && d.same_tensors && d.to == 50 && d.step == 0);
    b.step = 20;
    b.part = EVIDENCE_LOSS;
    d = diff_of(&a, &b);
    assert_true(d.step == 20 && d.difference.shard == 5);
}

/* Other shards and tensors: parts are compared, shards and tensors are not named. */
static void other_heads(void **state)
{
    struct plan a = plan_of(50), b = plan_of(50);
    struct evidence_diff d;

    (void)state;
    b.head.shards = 4;
    b.step = 20;
    b.part = EVIDENCE_LOSS;
    d = diff_of(&a, &b);
    assert_true(!d.same_shards && d.same_tensors && d.step == 20 && !d.difference.located && d.side[1].rank == -1);
    b.head.shards = SHARDS;
    b.head.ntensors = 2;
    d = diff_of(&a, &b);
    assert_true(d.same_shards && !d.same_tensors && d.step == 20 && !d.difference.located);
}

/* Starts differ, so only the records show the step. Records behind a gap are compared. */
static void compares_behind_gaps(void **state)
{
    struct plan a = plan_of(LONG_RUN), b = plan_of(LONG_RUN);
    struct evidence_diff d;

    (void)state;
    b.head.spec.lane[0]++;
    b.step = 700;
    b.part = EVIDENCE_LOSS;
    write_run(0, &a);
    write_run(1, &b);
    for (int64_t step = 289; step < 311; step++)
        damage(0, step);
    damage(1, 500);
    damage(1, 900); /* is not reached */
    d = diff();
    assert_true(d.step == 700 && d.from == 1 && d.missing == 289 && d.missing_to == 310 && d.lacking == 23);
    assert_true(d.side[0].lacks && !d.side[1].lacks);
    assert_string_equal(strstr(d.text, "; steps"), "; steps 289 .. 310 have no record in A; further steps without: 1");
    damage(1, 700); /* the step itself: the next record shows it */
    assert_int_equal(diff().step, 701);
}

/* The gap reaches to the end: no record shows that the rest is equal. */
static void nothing_behind_the_gap(void **state)
{
    struct plan a = plan_of(LONG_RUN), b = plan_of(LONG_RUN);
    struct evidence_diff d;

    (void)state;
    for (int other = 0; other < 2; other++) {
        b.head.spec.lane[0] = 1 + (uint64_t)other;
        write_run(0, &a);
        write_run(1, &b);
        for (int64_t step = 289; step <= LONG_RUN; step++)
            damage(step % 2, step);
        d = diff();
        assert_true(d.cut && d.step == 0 && d.from == 1 && d.to == 288 && d.missing == 289 && d.missing_to == 289);
        assert_string_equal(d.text, "not shown to be equal: steps 1 .. 288 are, nothing after them can be compared; steps 289 .. 289 "
                                    "have no record in B; further steps without: 1011");
    }
}

static void stops(void **state)
{
    struct plan a = plan_of(20), b = plan_of(20);
    static volatile sig_atomic_t stop = 1;
    struct evidence_diff d;
    struct evidence *e[2];
    struct err err = { 0 };

    (void)state;
    write_run(0, &a);
    write_run(1, &b);
    for (int k = 0; k < 2; k++)
        assert_int_equal(evidence_open(dir[k], &e[k], &err), 0);
    assert_int_equal(evidence_diff(e[0], e[1], 1, &stop, &d, &err), -EINTR);
    stop = 0;
    assert_int_equal(evidence_diff(e[0], e[1], 7, &stop, &d, &err), 0);
    assert_true(d.from == 7 && d.to == 20);
    evidence_close(e[0]);
    evidence_close(e[1]);
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, make_dirs, remove_dirs)
    const struct CMUnitTest tests[] = { TEST(equal),
                                        TEST(finds_the_step),
                                        TEST(says_what),
                                        TEST(names_the_rank),
                                        TEST(other_lengths),
                                        TEST(begins_later),
                                        TEST(parted_before),
                                        TEST(trained_again),
                                        TEST(other_levels),
                                        TEST(untold_tensors),
                                        TEST(other_heads),
                                        TEST(compares_behind_gaps),
                                        TEST(nothing_behind_the_gap),
                                        TEST(stops) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

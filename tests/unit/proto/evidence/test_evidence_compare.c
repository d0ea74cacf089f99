/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/proto/evidence/test_evidence_compare.c - uses: proto
 * Two records of a step: the comparison reports the first part that differs, and in it the shard or tensor that was
 * computed first. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "proto/evidence/evidence.h"
#include "proto/tier.h"

enum { SHARDS = 4, TENSORS = 3 };

static struct evidence_tensor tensors[] = { { "conv.weight", 432, true }, { "bn.running_mean", 16, false }, { "head.bias", 16, true } };
static struct evidence_head head = { .tensors = true, .shards = SHARDS, .ntensors = TENSORS, .tensor = tensors };
static struct evidence_record a, b;
static struct evidence_detail da, db;

/* Two equal steps. */
static int set_up(void **state)
{
    struct err err;

    (void)state;
    a = (struct evidence_record){ .step = 9, .attempt = 1, .ranks = 1, .lr = 0.5f, .loss = NAN };
    for (int i = 0; i < EVIDENCE_PARTS; i++)
        a.part[i].lane[1] = (uint64_t)i + 1;
    b = a;
    b.attempt = 2;
    b.ranks = 4;
    b.tier = TIER_WORLD;
    return evidence_detail_new(&head, &da, &err) < 0 || evidence_detail_new(&head, &db, &err) < 0 ? -1 : 0;
}

static int tear_down(void **state)
{
    (void)state;
    evidence_detail_free(&da);
    evidence_detail_free(&db);
    return 0;
}

static void check(const char *want, const char *without_detail)
{
    struct evidence_difference d;
    char text[200];

    assert_true(evidence_compare(&head, &a, &da, &b, &db, &d));
    assert_string_equal(evidence_difference_text(&head, &d, text, sizeof text), want);
    assert_true(evidence_compare(&head, &a, NULL, &b, &db, &d) && evidence_compare(&head, &a, &da, &b, NULL, &d));
    assert_string_equal(evidence_difference_text(&head, &d, text, sizeof text), without_detail);
}

static void check_then(const char *want)
{
    struct evidence_difference d;
    char text[200];

    assert_true(evidence_compare(&head, &a, &da, &b, &db, &d));
    assert_string_equal(evidence_difference_then(&head, &d, text, sizeof text), want);
}

static void equal(void **state)
{
    struct evidence_difference d;

    (void)state;
    assert_false(evidence_compare(&head, &a, &da, &b, &db, &d));
}

/* The later parts differ too, as they do in a run. */
static void each_part(void **state)
{
    struct evidence_difference d;

    (void)state;
    b.part[EVIDENCE_STATE].lane[0]++;
    db.state[EVIDENCE_VALIDATION].lane[0]++;
    db.state[EVIDENCE_SKIPS].lane[0]++;
    check("last and best validation", "state");
    b.part[EVIDENCE_WEIGHT].lane[1]++;
    db.weight[1].lane[1]++;
    db.weight[2].lane[0]++;
    check("update of bn.running_mean (2 of 3 tensors)", "update");
    b.lr = 0.25f;
    check("learning rate", "learning rate");
    b.part[EVIDENCE_GRADIENT].lane[0]++;
    db.gradient[0].lane[1]++;
    db.gradient[2].lane[1]++;
    check("gradient of head.bias (2 of 3 tensors)", "gradient"); /* backward computes the head first */
    check_then("");
    head.tensors = false;
    check("learning rate", "learning rate");
    b.lr = a.lr;
    check("last and best validation", "state");
    head.tensors = true;
    b.part[EVIDENCE_LOSS].lane[0]++;
    db.loss[3].lane[0]++;
    check("loss of shard 3", "loss");
    check_then(", then gradient of head.bias (2 of 3 tensors)");
    db.gradient[2].lane[1]--;
    check_then(", then gradient of conv.weight (1 of 3 tensors)");
    head.tensors = false;
    check_then("");
    head.tensors = true;
    db.gradient[0].lane[1]--;
    check_then("");
    b.part[EVIDENCE_DATA].lane[0]++;
    db.data[0].lane[0]++;
    db.data[2].lane[0]++;
    check("data of shard 0", "data");
    assert_true(evidence_compare(&head, &a, &da, &b, &db, &d) && d.part == EVIDENCE_DATA && d.shard == 0 && d.tensor == -1);
}

/* The place of a difference is known only if the details of that part are there. */
static void unlocated(void **state)
{
    static const struct {
        int part;
        const char *want;
    } parts[] = {
        { EVIDENCE_STATE, "state" }, { EVIDENCE_WEIGHT, "update" }, { EVIDENCE_GRADIENT, "gradient" }, { EVIDENCE_LOSS, "loss" }
    };
    struct evidence_difference d;

    (void)state;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        b.part[parts[i].part].lane[0]++;
        check(parts[i].want, parts[i].want);
        assert_true(evidence_compare(&head, &a, &da, &b, &db, &d) && !d.located);
    }
    b = a;
    b.lr = 0.25f;
    assert_true(evidence_compare(&head, &a, NULL, &b, NULL, &d) && d.located); /* the record tells all of it */
}

/* Floats are compared by their bits. Also: a step that only one of them skipped, and a part that differs though no
 * shard of it does. */
static void beside_hashes(void **state)
{
    (void)state;
    b.skipped = true;
    b.part[EVIDENCE_GRADIENT] = a.part[EVIDENCE_GRADIENT];
    check("gradient", "gradient");
    a.loss = 0.0f;
    b.loss = -0.0f;
    check("loss", "loss");
}

static void cut(void **state)
{
    struct evidence_difference d = { .part = EVIDENCE_WEIGHT, .located = true, .shard = -1, .tensor = 0, .ntensors = 1 };
    char text[12];

    (void)state;
    assert_string_equal(evidence_difference_text(&head, &d, text, sizeof text), "update of c");
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)
    const struct CMUnitTest tests[] = { TEST(equal), TEST(each_part), TEST(unlocated), TEST(beside_hashes), cmocka_unit_test(cut) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

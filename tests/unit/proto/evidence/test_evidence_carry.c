/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/proto/evidence/test_evidence_carry.c - uses: proto
 * A run that continues with more steps has the same evidence as a run that had them from the start. No evidence is lost
 * on the way there. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "proto/err.h"
#include "proto/evidence/evidence.h"
#include "proto/evidence/evidence_carry.h"
#include "proto/tier.h"
#include "tests/stand/harness.h"

enum { STEPS = 310, LAST = 300 }; /* more than the ring holds, and a kept detail before it */

static struct evidence_tensor tensors[] = { { "conv.weight", 432, true }, { "conv.bias", 16, true } };
static struct evidence_head few = {
    .tensors = true, .spec = { { 1, 2 } }, .data = { { 3, 4 } }, .shards = 2, .ntensors = 2, .tensor = tensors
};
static char dir[TEMP_MAX];

static struct evidence_head with_spec(uint64_t spec)
{
    struct evidence_head h = few;

    h.spec.lane[0] = spec;
    return h;
}

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(temp_path(dir, sizeof dir, "carry.XXXXXX")) ? 0 : -1;
}

static void shell(const char *fmt)
{
    char command[4 * TEMP_MAX + 256];

    snprintf(command, sizeof command, fmt, dir, dir, dir);
    assert_int_equal(system(command), 0);
}

static int remove_dir(void **state)
{
    (void)state;
    shell("rm -r '%s'");
    return 0;
}

static struct hash128 some(int64_t step, uint64_t what)
{
    return hash_fold_u64(hash_fold_u64((struct hash128){ { 7, 8 } }, (uint64_t)step), what);
}

static void train(const char *folder, const struct evidence_head *h, int64_t steps)
{
    struct evidence_log *log;
    struct evidence_detail d;
    struct evidence_record before;
    struct hash128 chain = evidence_start(h);
    struct err err;
    bool anew;

    assert_int_equal(evidence_log_open(folder, h, &log, &anew, &err), 0);
    assert_int_equal(evidence_detail_new(h, &d, &err), 0);
    for (int64_t step = 1; step <= steps; step++) {
        struct evidence_record r = { .step = step, .attempt = 1, .ranks = 2, .tier = TIER_RERUN, .lr = 0.5f, .loss = (float)step };

        for (int i = 0; i < EVIDENCE_PARTS; i++)
            r.part[i] = some(step, (uint64_t)i);
        chain = r.chain = evidence_chain(chain, &r);
        d.step = step;
        d.weight[1] = some(step, 9);
        assert_int_equal(evidence_log_write(log, &r, &d, &before, &err), 0);
    }
    evidence_detail_free(&d);
    evidence_log_close(log);
}

/* The evidence must equal that of a run with that head after so many steps, except for records that a longer run
 * overwrote in the ring. */
static void is_that_of(const struct evidence_head *h, int64_t steps)
{
    char other[TEMP_MAX + 8];
    struct evidence *ours, *theirs;
    struct evidence_record a, b;
    struct evidence_detail da, db;
    struct err err;
    int details = 0;

    snprintf(other, sizeof other, "%s/whole", dir);
    mkdir(other, 0700);
    train(other, h, steps);
    assert_int_equal(evidence_open(dir, &ours, &err), 0);
    assert_int_equal(evidence_open(other, &theirs, &err), 0);
    assert_int_equal(evidence_steps(ours), steps);
    evidence_detail_new(h, &da, &err);
    evidence_detail_new(h, &db, &err);
    for (int64_t step = 1; step <= steps; step++) {
        assert_true(evidence_read(ours, step, &a) && evidence_read(theirs, step, &b));
        assert_memory_equal(&a.chain, &b.chain, sizeof a.chain);
        assert_memory_equal(a.part, b.part, sizeof a.part);
        if (!evidence_read_detail(ours, step, &da))
            continue;
        details++;
        assert_true(evidence_read_detail(theirs, step, &db));
        assert_memory_equal(&da.weight[1], &db.weight[1], sizeof *da.weight);
    }
    assert_true(details >= EVIDENCE_RING - (STEPS - LAST) && details <= EVIDENCE_RING + 3);
    evidence_detail_free(&da);
    evidence_detail_free(&db);
    evidence_close(ours);
    evidence_close(theirs);
    shell("rm -r '%s/whole'");
}

static void steps_get_the_chain_of_the_longer_run(void **state)
{
    struct evidence_head more = with_spec(5);
    struct err err;

    (void)state;
    train(dir, &few, STEPS);
    assert_int_equal(evidence_carry(dir, &more, LAST, &err), 0);
    is_that_of(&more, LAST);
    assert_int_equal(evidence_carry(dir, &more, LAST, &err), 0); /* of the next attempt */
    is_that_of(&more, LAST);
    shell("test $(ls '%s' | wc -l) = 4");
}

/* It may be killed anywhere: either the folder is whole and some files are already moved, or the folder is not
 * whole. */
static void killed_on_the_way(void **state)
{
    struct evidence_head more = with_spec(5), most = with_spec(6);
    struct err err;

    (void)state;
    train(dir, &few, LAST);
    assert_int_equal(evidence_carry(dir, &more, LAST, &err), 0);
    shell("mkdir '%s/evidence.carried' && mv '%s'/evidence.ring '%s'/evidence.carried/");
    shell("mv '%s'/evidence.json '%s'/evidence.carried/ && echo old > '%s'/evidence.ring");
    assert_int_equal(evidence_carry(dir, &more, LAST, &err), 0);
    is_that_of(&more, LAST);
    shell("mkdir '%s/evidence.carry' && cp '%s'/evidence.log '%s'/evidence.carry/");
    assert_int_equal(evidence_carry(dir, &most, LAST, &err), 0);
    is_that_of(&most, LAST);
    shell("mkdir '%s/evidence.carried' && echo '{}' > '%s'/evidence.carried/evidence.json"); /* a folder of unknown origin */
    assert_int_equal(evidence_carry(dir, &most, LAST, &err), 0);
    is_that_of(&most, LAST);
}

static void what_cannot_be_carried_stays(void **state)
{
    struct evidence_head more = with_spec(5), other = with_spec(5);
    struct evidence_record r;
    struct evidence *e;
    struct err err;

    (void)state;
    assert_int_equal(evidence_carry(dir, &more, LAST, &err), -ENOENT);
    train(dir, &few, LAST - 1);
    assert_int_equal(evidence_carry(dir, &more, LAST, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "no record of step 300"));
    other.data.lane[0] = 9;
    assert_int_equal(evidence_carry(dir, &other, 10, &err), ERR_INPUT);
    assert_int_equal(evidence_open(dir, &e, &err), 0);
    assert_true(evidence_read(e, LAST - 1, &r));
    evidence_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(steps_get_the_chain_of_the_longer_run, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(killed_on_the_way, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(what_cannot_be_carried_stays, make_dir, remove_dir),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/evidence/test_replay.c - uses: proto trainer cpu
 * A step compared with the evidence of an earlier run. Comparable parts are compared, other parts are refused. On
 * devices with differing tiers, only the promised equality is checked. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "proto/err.h"
#include "tests/stand/harness.h"
#include "worker/evidence/replay.h"

enum { SHARDS = 2, TENSORS = 2, STEPS = 4 };

static struct evidence_tensor tensors[] = { { "conv.weight", 432, true }, { "bn.running_mean", 16, false } };
static char dir[TEMP_MAX];

static struct evidence_head head_of(bool level)
{
    return (struct evidence_head){
        .tensors = level, .spec = { { 1, 2 } }, .data = { { 3, 4 } }, .shards = SHARDS, .ntensors = level ? TENSORS : 0, .tensor = tensors
    };
}

static void empty(void)
{
    static const char *const names[] = { "json", "log", "ring", "tensors" };
    char path[TEMP_MAX + 32];

    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/evidence.%s", dir, names[i]);
        unlink(path);
    }
}

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(temp_path(dir, sizeof dir, "replay.XXXXXX")) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    empty();
    return rmdir(dir);
}

static struct evidence_record record_of(int64_t step, int tier, int ranks)
{
    struct evidence_record r = { .step = step, .attempt = 1, .ranks = ranks, .tier = tier, .lr = 0.5f, .loss = 2 };

    for (int i = 0; i < EVIDENCE_PARTS; i++)
        r.part[i] = hash_fold_u64((struct hash128){ { 7, 8 } }, (uint64_t)(step * 16 + i));
    return r;
}

/* STEPS steps in `dir`, which was empty. */
static void leave(bool level, int tier, int ranks)
{
    const struct evidence_head h = head_of(level);
    struct evidence_log *log;
    struct evidence_detail d;
    struct evidence_record was;
    struct err err;
    bool anew;

    empty();
    assert_int_equal(evidence_log_open(dir, &h, &log, &anew, &err), 0);
    assert_int_equal(evidence_detail_new(&h, &d, &err), 0);
    for (int64_t step = 1; step <= STEPS; step++) {
        struct evidence_record r = record_of(step, tier, ranks);

        if (!level)
            r.part[EVIDENCE_GRADIENT] = r.part[EVIDENCE_WEIGHT] = (struct hash128){ { 0, 0 } };
        d.step = step;
        assert_int_equal(evidence_log_write(log, &r, level ? &d : NULL, &was, &err), 0);
    }
    evidence_detail_free(&d);
    evidence_log_close(log);
}

/* Opening the evidence for a run of that head must fail with this code and a message with this word. */
static void refused(const struct evidence_head *h, int code, const char *word)
{
    struct replay *r = NULL;
    struct err err;

    assert_int_equal(replay_open(dir, h, &r, &err), code);
    assert_non_null(strstr(err.msg, word));
    assert_null(r);
}

static void others_are_refused(void **state)
{
    struct evidence_tensor wider[TENSORS] = { tensors[0], { "bn.running_mean", 32, false } };
    struct evidence_tensor frozen[TENSORS] = { { "conv.weight", 432, false }, tensors[1] };
    struct evidence_tensor renamed[TENSORS] = { tensors[0], { "bn.running_var", 16, false } };
    struct evidence_tensor *const networks[] = { wider, frozen, renamed };
    struct evidence_head h = head_of(true);

    (void)state;
    empty();
    refused(&h, -ENOENT, dir);
    leave(true, TIER_WORLD, 1);
    h.spec.lane[1] = 9;
    refused(&h, ERR_INPUT, "other keys");
    h = head_of(true);
    h.data.lane[0] = 9;
    refused(&h, ERR_INPUT, "other data");
    h = head_of(true);
    h.shards = 4;
    refused(&h, ERR_INPUT, "another network");
    h = head_of(true);
    h.ntensors = 1;
    refused(&h, ERR_INPUT, "another network");
    for (int i = 0; i < 3; i++) {
        h = head_of(true);
        h.tensor = networks[i];
        refused(&h, ERR_INPUT, "another network");
    }
}

static struct replay *opened(bool level)
{
    static struct evidence_head h;
    struct replay *r;
    struct err err;

    h = head_of(level);
    assert_int_equal(replay_open(dir, &h, &r, &err), 0);
    return r;
}

/* Weights and gradients are compared where both have them. */
static void levels_meet(void **state)
{
    (void)state;
    for (int theirs = 0; theirs < 2; theirs++)
        for (int ours = 0; ours < 2; ours++) {
            struct evidence_head h = head_of(ours);
            struct evidence_difference how;
            struct evidence_detail d;
            struct evidence_record now = record_of(2, TIER_WORLD, 1);
            const struct replay_step step = { &now, &d };
            struct replay *r;
            struct err err;

            leave(theirs, TIER_WORLD, 1);
            r = opened(ours);
            assert_int_equal(evidence_detail_new(&h, &d, &err), 0);
            if (!ours)
                now.part[EVIDENCE_GRADIENT] = now.part[EVIDENCE_WEIGHT] = (struct hash128){ { 0, 0 } };
            assert_int_equal(replay_tensors(r), theirs && ours);
            assert_int_equal(replay_compare(r, &step, &how), REPLAY_EQUAL);
            now.part[EVIDENCE_WEIGHT].lane[0] ^= 1;
            assert_int_equal(replay_compare(r, &step, &how), theirs && ours ? REPLAY_DIFFERS : REPLAY_EQUAL);
            now.part[EVIDENCE_LOSS].lane[0] ^= 1;
            assert_int_equal(replay_compare(r, &step, &how), REPLAY_DIFFERS);
            assert_int_equal(how.part, EVIDENCE_LOSS);
            now.step = STEPS + 1;
            assert_int_equal(replay_compare(r, &step, &how), REPLAY_NONE);
            evidence_detail_free(&d);
            replay_close(r);
        }
}

static void steps_are_there(void **state)
{
    struct replay *r;
    struct err err;

    (void)state;
    leave(true, TIER_WORLD, 1);
    r = opened(true);
    assert_int_equal(replay_has(r, 1, STEPS, &err), 0);
    assert_int_equal(replay_has(r, 2, STEPS + 1, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "step 5"));
    replay_close(r);
}

static void tiers_promise(void **state)
{
    static const struct {
        int tier, ranks, now_tier, now_ranks;
        const char *why; /* NULL: they promise it */
    } rows[] = {
        { TIER_WORLD, 1, TIER_WORLD, 1, NULL },      { TIER_WORLD, 1, TIER_WORLD, 4, NULL },
        { TIER_RERUN, 2, TIER_RERUN, 2, NULL },      { TIER_RERUN, 2, TIER_RERUN, 3, "there were 2, there are 3" },
        { TIER_RERUN, 2, TIER_WORLD, 2, "another" }, { TIER_OFF, 1, TIER_OFF, 1, "tier off" },
        { TIER_WORLD, 1, TIER_OFF, 1, "tier off" },  { TIER_OFF, 1, TIER_WORLD, 1, "tier off" },
    };
    const struct device gpu = { .host_memory = false }, cpu = { .host_memory = true };
    char why[200];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct evidence_record now = record_of(3, rows[i].now_tier, rows[i].now_ranks);
        struct replay *r;

        leave(true, rows[i].tier, rows[i].ranks);
        r = opened(true);
        assert_int_equal(replay_promised(r, &now, &gpu, why, sizeof why), rows[i].why == NULL);
        assert_true(rows[i].why ? strstr(why, rows[i].why) != NULL : why[0] == '\0');
        assert_true(replay_promised(r, &now, &cpu, why, sizeof why));
        replay_close(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(others_are_refused), cmocka_unit_test(levels_meet),
                                        cmocka_unit_test(steps_are_there), cmocka_unit_test(tiers_promise) };

    return cmocka_run_group_tests_name("replay", tests, make_dir, remove_dir);
}

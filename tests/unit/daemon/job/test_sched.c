/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/daemon/job/test_sched.c - uses: proto daemon */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "daemon/gpu/gpu.h"
#include "daemon/jobs/jobs.h"
#include "daemon/run/run.h"
#include "daemon/job/sched.h"
#include "daemon/run/slots.h"

static const struct sched_node idle8 = { .cpu_slots = 8, .cpu_free = 8, .gpus = 4, .gpus_free = 4 };

static struct sched_job cpu_job(int64_t id, int ranks, int threads, int priority)
{
    return (struct sched_job){ .id = id, .ranks = ranks, .threads = threads, .priority = priority };
}

static struct sched_job gpu_job(int64_t id, int ranks, int priority)
{
    return (struct sched_job){ .id = id, .ranks = ranks, .cuda = true, .priority = priority };
}

static void gang_all_or_none(void **state)
{
    struct sched_job queue[] = { gpu_job(1, 3, 0), gpu_job(2, 2, 0) };
    struct sched_grant grants[2];

    (void)state;
    /* Job 2 waits for its second GPU. */
    assert_int_equal(sched_pick(queue, 2, idle8, 0, grants), 1);
    assert_int_equal(grants[0].id, 1);
    assert_int_equal(grants[0].gpus, 3);
    assert_int_equal(grants[0].cpu_slots, 0);
    assert_false(grants[0].backfill);
}

static void priority_then_age(void **state)
{
    struct sched_job queue[] = { cpu_job(5, 1, 1, 0), cpu_job(4, 1, 1, -1), cpu_job(9, 1, 1, 7), cpu_job(2, 1, 1, 0) };
    struct sched_node node = idle8;
    struct sched_grant grants[4];

    (void)state;
    node.cpu_free = 3;
    assert_int_equal(sched_pick(queue, 4, node, 0, grants), 3);
    assert_int_equal(grants[0].id, 9);
    assert_int_equal(grants[1].id, 2);
    assert_int_equal(grants[2].id, 5);
}

static void more_ranks_than_slots_take_the_idle_node(void **state)
{
    struct sched_job wide = cpu_job(1, 20, 0, 0), queue[1] = { wide };
    struct sched_node node = idle8;
    struct sched_grant grants[1];

    (void)state;
    assert_int_equal(sched_cpu_need(&wide, &node), 8);
    node.cpu_free = 7;
    assert_int_equal(sched_pick(queue, 1, node, 0, grants), 0);
    node.cpu_free = 8;
    assert_int_equal(sched_pick(queue, 1, node, 0, grants), 1);
    assert_int_equal(grants[0].cpu_slots, 8);
    assert_int_equal(grants[0].threads, 1);
}

static void threads_are_shared_out(void **state)
{
    static const struct {
        int ranks, asked, threads, need;
    } cases[] = { { 1, 0, 8, 8 }, { 2, 0, 4, 8 }, { 3, 0, 2, 6 }, { 8, 0, 1, 8 }, { 2, 3, 3, 6 }, { 4, 16, 16, 8 }, { 64, 1024, 1024, 8 } };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sched_job job = cpu_job(1, cases[i].ranks, cases[i].asked, 0);

        assert_int_equal(sched_threads(&job, &idle8), cases[i].threads);
        assert_int_equal(sched_cpu_need(&job, &idle8), cases[i].need);
    }
}

static void two_queues_that_do_not_block_each_other(void **state)
{
    struct sched_job queue[] = { gpu_job(1, 5, 9), cpu_job(2, 1, 8, 0), gpu_job(3, 5, 0), cpu_job(4, 1, 1, 0) };
    struct sched_node node = idle8;
    struct sched_grant grants[4];

    (void)state;
    node.gpus = 5; /* the first job waits for the GPU that is in use, and the third job waits behind it */
    assert_int_equal(sched_pick(queue, 4, node, 0, grants), 1);
    assert_int_equal(grants[0].id, 2);
    assert_false(grants[0].backfill);
}

static void who_needs_more_gpus_than_are_healthy_holds_nobody_up(void **state)
{
    struct sched_job queue[] = { gpu_job(1, 4, 9), gpu_job(2, 2, 0) };
    struct sched_node node = idle8;
    struct sched_grant grants[2];

    (void)state;
    node.gpus = node.gpus_free = 3;
    assert_int_equal(sched_pick(queue, 2, node, 0, grants), 1);
    assert_int_equal(grants[0].id, 2);
    assert_false(grants[0].backfill);
    node.gpus = 4; /* released from quarantine, and in use: now it is waited for */
    assert_int_equal(sched_pick(queue, 2, node, 0, grants), 1);
    assert_int_equal(grants[0].id, 2);
    assert_true(grants[0].backfill);
}

static void a_later_retry_is_passed_over(void **state)
{
    struct sched_job queue[] = { cpu_job(1, 1, 8, 0), cpu_job(2, 1, 8, 0) };
    struct sched_grant grants[2];

    (void)state;
    queue[0].not_before = 100;
    assert_int_equal(sched_pick(queue, 2, idle8, 99, grants), 1);
    assert_int_equal(grants[0].id, 2);
    assert_int_equal(sched_pick(queue, 2, idle8, 100, grants), 1);
    assert_int_equal(grants[0].id, 1);
    assert_int_equal(sched_pick(queue, 0, idle8, 0, grants), 0);
}

static void ranks_share_gpus(void **state)
{
    static const struct {
        int ranks, share, need;
    } cases[] = { { 1, 0, 1 }, { 3, 1, 3 }, { 4, 2, 2 }, { 5, 2, 3 }, { 3, 8, 1 }, { 64, 8, 8 } };
    struct sched_job queue[2];
    struct sched_grant grants[2];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sched_job job = { .id = 1, .cuda = true, .ranks = cases[i].ranks, .ranks_per_gpu = cases[i].share };

        assert_int_equal(sched_gpu_need(&job), cases[i].need);
        job.cuda = false;
        assert_int_equal(sched_gpu_need(&job), 0);
    }
    /* Ranks of a single job share a GPU; two jobs never do. The first job leaves one GPU of four, and the second job
     * needs it whole. */
    queue[0] = (struct sched_job){ .id = 1, .cuda = true, .ranks = 5, .ranks_per_gpu = 2 };
    queue[1] = (struct sched_job){ .id = 2, .cuda = true, .ranks = 2, .ranks_per_gpu = 2 };
    assert_int_equal(sched_pick(queue, 2, idle8, 0, grants), 2);
    assert_int_equal(grants[0].gpus, 3);
    assert_int_equal(grants[1].gpus, 1);
}

static struct sched_job of(uint32_t uid, struct sched_job job)
{
    job.uid = uid;
    return job;
}

static void a_user_with_enough_is_passed_over(void **state)
{
    struct sched_job queue[] = { of(7, cpu_job(1, 1, 1, 0)), of(7, cpu_job(2, 1, 1, 0)), of(8, cpu_job(3, 1, 1, 0)),
                                 of(9, cpu_job(4, 1, 1, 0)), of(9, cpu_job(5, 1, 1, 0)), of(9, cpu_job(6, 1, 1, 0)) };
    struct sched_job held[] = { of(7, cpu_job(9, 1, 1, 0)) };
    struct sched_node node = idle8;
    struct sched_grant grants[6];
    int has;

    (void)state;
    for (int i = 3; i < 6; i++)
        queue[i].free = true;
    node.user_running = 2;
    node.holders = held;
    node.nholders = 1;
    assert_null(sched_user_limit(&queue[0], &node, &has));
    /* User 7 submits a further job. The jobs of this user do not hold the others up; an admin has no limit. */
    assert_int_equal(sched_pick(queue, 6, node, 0, grants), 5);
    assert_int_equal(grants[0].id, 1);
    assert_int_equal(grants[1].id, 3);
    assert_int_equal(grants[4].id, 6);
    assert_int_equal(queue[1].id, 2);
    node.user_running = 1;
    assert_string_equal(sched_user_limit(&queue[1], &node, &has), "user_running");
    assert_int_equal(has, 1);
}

static void a_users_gpus_are_counted(void **state)
{
    struct sched_job queue[] = { of(7, gpu_job(1, 2, 0)), of(7, gpu_job(2, 1, 0)), of(8, gpu_job(3, 1, 0)), of(7, cpu_job(4, 1, 1, 0)) };
    struct sched_job held[] = { of(7, gpu_job(9, 1, 0)), of(8, gpu_job(10, 1, 0)) };
    struct sched_node node = idle8;
    struct sched_grant grants[4];
    int has;

    (void)state;
    node.user_gpus = 2;
    node.holders = held;
    node.nholders = 2;
    assert_string_equal(sched_user_limit(&queue[0], &node, &has), "user_gpus");
    assert_int_equal(has, 1);
    assert_int_equal(sched_pick(queue, 4, node, 0, grants), 3); /* all but the job that needs more slots than its user has left */
    assert_int_equal(grants[0].id, 2);
    assert_int_equal(grants[1].id, 3);
    assert_int_equal(grants[2].id, 4);
}

static void who_was_granted_less_goes_first(void **state)
{
    struct sched_job queue[] = { of(7, cpu_job(1, 1, 8, 0)), of(8, cpu_job(2, 1, 8, 0)), of(8, cpu_job(3, 1, 8, 1)) };
    struct sched_grant grants[3];

    (void)state;
    queue[0].granted = 3600;
    queue[1].granted = queue[2].granted = 3599;
    assert_int_equal(sched_pick(queue, 3, idle8, 0, grants), 1);
    assert_int_equal(grants[0].id, 3); /* priority comes before shares */
    assert_int_equal(queue[1].id, 2);
    assert_true(sched_is_before(&queue[1], &queue[2]));
}

/* A week of hours on a node of eight slots. A flood of jobs of user 6 fills the queue at any time, with small and large
 * jobs. User 7 submits a job of one hour every three hours. Returns the longest wait of these, in hours. */
static int longest_wait(bool fair_share)
{
    enum { FLOOD = 40, HOURS = 7 * 24 };
    int64_t id = 0, waits = 0;
    int ends[FLOOD + 1] = { 0 }, slots[FLOOD + 1] = { 0 }, longest = 0, since = 0;
    double granted[2] = { 0 };

    for (int now = 0; now < HOURS; now++) {
        struct sched_job queue[FLOOD + 1];
        struct sched_grant grants[FLOOD + 1];
        struct sched_node node = idle8;
        int n = 0, count;

        for (int i = 0; i <= FLOOD; i++) {
            slots[i] = ends[i] > now ? slots[i] : 0;
            granted[i == FLOOD] += slots[i];
            node.cpu_free -= slots[i];
        }
        if (now % 3 == 0 && waits == 0 && ends[FLOOD] <= now) {
            waits = ++id;
            since = now;
        }
        for (int i = 0; i < FLOOD; i++)
            if (ends[i] <= now)
                queue[n++] = of(6, cpu_job(i - FLOOD, 1, 1 + i % 4, 0)); /* all older than user 7's */
        if (waits)
            queue[n++] = of(7, cpu_job(waits, 1, 2, 0));
        for (int i = 0; i < n && fair_share; i++)
            queue[i].granted = granted[queue[i].uid == 7];
        count = sched_pick(queue, n, node, now, grants);
        for (int i = 0; i < count; i++) {
            int which = grants[i].id > 0 ? FLOOD : (int)grants[i].id + FLOOD;

            ends[which] = now + (which == FLOOD ? 1 : 2 + which % 3);
            slots[which] = grants[i].cpu_slots;
            waits = which == FLOOD ? 0 : waits;
        }
        longest = waits && now - since > longest ? now - since : longest;
    }
    return longest;
}

static void a_flood_starves_nobody(void **state)
{
    (void)state;
    assert_true(longest_wait(false) > 100);
    assert_in_range(longest_wait(true), 0, 4); /* until jobs of the flood have ended: nothing is taken from them */
}

/* ---- backfill ---- */

static struct sched_job let_past(struct sched_job job)
{
    job.backfill = true;
    return job;
}

static struct sched_job on_its_way_out(struct sched_job job)
{
    job.leaves = true;
    return job;
}

/* The jobs that are asked to make room, as bits 1 << id; ids below 30. */
static unsigned yields(const struct sched_node *node, int64_t head)
{
    unsigned found = 0;

    for (int i = 0; i < node->nholders; i++)
        if (node->holders[i].yields_to) {
            assert_int_equal(node->holders[i].yields_to, head);
            found |= 1U << node->holders[i].id;
        }
    return found;
}

static void smaller_jobs_are_let_past(void **state)
{
    struct sched_job held[] = { gpu_job(1, 2, 0) };
    struct sched_job queue[] = { gpu_job(2, 3, 0), gpu_job(3, 3, 0), gpu_job(4, 1, 0), gpu_job(5, 2, 0), gpu_job(6, 1, 0) };
    struct sched_node node = idle8;
    struct sched_grant grants[5];

    (void)state;
    node.gpus_free = 2;
    node.holders = held;
    node.nholders = 1;
    /* Job 2 lacks one GPU and is the head; the free GPUs go to jobs 4 and 6 behind it, in order. */
    assert_int_equal(sched_pick(queue, 5, node, 0, grants), 2);
    assert_int_equal(grants[0].id, 4);
    assert_int_equal(grants[1].id, 6);
    assert_true(grants[0].backfill && grants[1].backfill);
    assert_int_equal(yields(&node, 2), 0);
}

/* The head needs 3 of 4 GPUs. */
static void they_make_room_when_that_suffices(void **state)
{
    struct sched_job held[] = { gpu_job(1, 2, 0), let_past(gpu_job(4, 1, 0)), let_past(gpu_job(6, 1, 0)) }, queue[2];
    struct sched_node node = idle8;
    struct sched_grant grants[2];

    (void)state;
    node.holders = held;
    node.nholders = 3;
    node.gpus_free = 0;
    queue[0] = gpu_job(2, 3, 0);
    assert_int_equal(sched_pick(queue, 1, node, 0, grants), 0);
    assert_int_equal(yields(&node, 2), 0); /* both together are not enough, so neither is asked */
    node.holders = held + 1;               /* job 1 has ended; the last of the two goes, and the GPUs that are free now go to no job */
    node.nholders = 2;
    node.gpus_free = 2;
    queue[0] = gpu_job(2, 3, 0);
    queue[1] = gpu_job(7, 1, 0);
    assert_int_equal(sched_pick(queue, 2, node, 0, grants), 0);
    assert_int_equal(yields(&node, 2), 1U << 6);
    held[1] = let_past(gpu_job(4, 1, 0)); /* it has been asked, and is leaving: no second job is asked */
    held[2] = on_its_way_out(let_past(gpu_job(6, 1, 0)));
    assert_int_equal(sched_pick(queue, 2, node, 0, grants), 0);
    assert_int_equal(yields(&node, 2), 0);
}

static void only_those_behind_the_head_make_room(void **state)
{
    struct sched_job held[] = { let_past(gpu_job(3, 1, 5)), let_past(gpu_job(1, 1, 0)), gpu_job(9, 1, 0), let_past(cpu_job(8, 1, 1, 0)) };
    struct sched_job queue[] = { gpu_job(2, 2, 0) };
    struct sched_node node = idle8;
    struct sched_grant grants[1];

    (void)state;
    node.gpus_free = 1;
    node.holders = held;
    node.nholders = 4;
    /* In turn: a higher priority, an older job, a job that did not run as backfill, a job on the CPU. */
    assert_int_equal(sched_pick(queue, 1, node, 0, grants), 0);
    assert_int_equal(yields(&node, 2), 0);
    for (int i = 0; i < 4; i++)
        held[i].backfill = true; /* 9 among them */
    assert_int_equal(sched_pick(queue, 1, node, 0, grants), 0);
    assert_int_equal(yields(&node, 2), 1U << 9);
}

/* Slots that come free without a request are waited for: a backfill job would take them from the head. */
static void what_comes_free_is_kept_for_the_head(void **state)
{
    struct sched_job held[] = { gpu_job(1, 2, 0), gpu_job(9, 1, 0), let_past(gpu_job(4, 1, 0)) };
    struct sched_job queue[] = { gpu_job(2, 3, 0), gpu_job(3, 1, 0) };
    struct sched_node node = idle8;
    struct sched_grant grants[2];

    (void)state;
    node.holders = held;
    node.nholders = 3;
    node.gpus = 5;
    node.gpus_free = 1;
    held[0].leaves = true;
    assert_int_equal(sched_pick(queue, 2, node, 0, grants), 0);
    assert_int_equal(yields(&node, 2), 0);
    node.holders = held + 1; /* it has left, and the memory of its GPUs is being checked */
    node.nholders = 2;
    node.gpus_soon = 2;
    assert_int_equal(sched_pick(queue, 2, node, 0, grants), 0);
    assert_int_equal(yields(&node, 2), 0);
    node.gpus_soon = 0; /* they are quarantined */
    assert_int_equal(sched_pick(queue, 2, node, 0, grants), 1);
    assert_int_equal(grants[0].id, 3);
}

/* A backfill job that its owner pauses may take its time until a job ahead wants its slots. Then it must go first, and
 * no other job goes in its place. */
static void who_is_paused_makes_room_first(void **state)
{
    struct sched_job held[] = { gpu_job(1, 2, 0), on_its_way_out(let_past(gpu_job(4, 1, 0))), let_past(gpu_job(6, 1, 0)) };
    struct sched_job queue[] = { gpu_job(2, 3, 0), gpu_job(7, 1, 0) };
    struct sched_node node = idle8;
    struct sched_grant grants[2];

    (void)state;
    held[1].lingers = true;
    node.holders = held;
    node.nholders = 3;
    node.gpus_free = 0;
    assert_int_equal(sched_pick(queue, 1, node, 0, grants), 0);
    assert_int_equal(yields(&node, 2), 0); /* that would be in vain */
    node.holders = held + 1;
    node.nholders = 2;
    node.gpus_free = 2;
    assert_int_equal(sched_pick(queue, 2, node, 0, grants), 0); /* the GPUs that are free now go to no job */
    assert_int_equal(yields(&node, 2), 1U << 4);
    for (int i = 1; i < 3; i++) {
        held[i].yields_to = 0;
        held[i].lingers = false; /* it has a deadline */
    }
    assert_int_equal(sched_pick(queue, 2, node, 0, grants), 0);
    assert_int_equal(yields(&node, 2), 0);
}

/* Jobs behind a second job that waits for slots make room for it, too. */
static void each_that_waits_is_a_head(void **state)
{
    struct sched_job held[] = { gpu_job(1, 2, 0), let_past(gpu_job(5, 1, 0)) };
    struct sched_job queue[] = { gpu_job(2, 4, 0), gpu_job(3, 2, 0), gpu_job(6, 1, 0) };
    struct sched_node node = idle8;
    struct sched_grant grants[3];

    (void)state;
    node.gpus_free = 1;
    node.holders = held;
    node.nholders = 2;
    assert_int_equal(sched_pick(queue, 3, node, 0, grants), 0);
    assert_int_equal(yields(&node, 3), 1U << 5);
}

/* The job that is asked last may suffice alone: then no other job goes. */
static void no_more_make_room_than_have_to(void **state)
{
    struct sched_job held[] = { let_past(gpu_job(3, 2, 0)), let_past(gpu_job(4, 1, 0)), gpu_job(1, 1, 0) }, queue[] = { gpu_job(2, 2, 0) };
    struct sched_node node = idle8;
    struct sched_grant grants[1];

    (void)state;
    node.gpus_free = 0;
    node.holders = held;
    node.nholders = 3;
    assert_int_equal(sched_pick(queue, 1, node, 0, grants), 0);
    assert_int_equal(yields(&node, 2), 1U << 3);
}

/* Slots that a job waits for count as its user's. Otherwise the user's small jobs would keep the large job over the
 * limit for ever. */
static void users_do_not_starve_themselves(void **state)
{
    struct sched_job queue[] = { of(7, gpu_job(2, 4, 0)), of(7, gpu_job(3, 1, 0)), of(8, gpu_job(4, 1, 0)) };
    struct sched_job held[] = { of(8, gpu_job(1, 1, 0)) };
    struct sched_node node = idle8;
    struct sched_grant grants[3];

    (void)state;
    node.gpus_free = 3;
    node.user_gpus = 4;
    node.holders = held;
    node.nholders = 1;
    assert_int_equal(sched_pick(queue, 3, node, 0, grants), 1);
    assert_int_equal(grants[0].id, 4);
    assert_true(grants[0].backfill);
}

/* A job that is retried a little later is passed over by the jobs that then make room. */
static void a_later_retry_keeps_its_place(void **state)
{
    struct sched_job queue[] = { gpu_job(1, 2, 0), gpu_job(2, 1, 0) };
    struct sched_grant grants[2];

    (void)state;
    queue[0].not_before = 100;
    assert_int_equal(sched_pick(queue, 2, idle8, 99, grants), 1);
    assert_int_equal(grants[0].id, 2);
    assert_true(grants[0].backfill);
}

static void who_does_not_leave_is_not_waited_for(void **state)
{
    const struct runner any = { .cpu_slots = 8 };
    struct job j = { .row = { .state = JOB_STOPPING, .backfill = true } };

    (void)state;
    assert_true(slots_view(&any, &j).leaves && slots_view(&any, &j).backfill && slots_view(&any, &j).lingers);
    j.life.phase = LIFE_STUCK;
    assert_false(slots_view(&any, &j).leaves || slots_view(&any, &j).backfill || slots_view(&any, &j).lingers);
    j.life.phase = LIFE_CONNECTED;
    j.row.want = JOB_WANT_CANCEL; /* it has a deadline, and so does a job that is sent away */
    assert_true(slots_view(&any, &j).leaves && !slots_view(&any, &j).lingers);
    j.row.want = JOB_WANT_PAUSE;
    assert_true(slots_view(&any, &j).leaves && slots_view(&any, &j).lingers);
    j.off_gpu = true;
    assert_true(slots_view(&any, &j).leaves && !slots_view(&any, &j).lingers);
    j.off_gpu = false;
    j.row.state = JOB_RUNNING;
    assert_false(slots_view(&any, &j).leaves || slots_view(&any, &j).lingers);
    j.yields_to = 3;
    assert_true(slots_view(&any, &j).leaves);
    snprintf(j.trouble, sizeof j.trouble, "its supervisor cannot be started");
    assert_false(slots_view(&any, &j).leaves || slots_view(&any, &j).backfill);
}

static void slots_of_the_cpu_make_room_too(void **state)
{
    struct sched_job held[] = { let_past(cpu_job(5, 2, 2, 0)), let_past(cpu_job(4, 2, 1, 0)), cpu_job(1, 1, 1, 0) };
    struct sched_job queue[] = { cpu_job(2, 1, 7, 0) };
    struct sched_node node = idle8;
    struct sched_grant grants[1];

    (void)state;
    node.cpu_free = 1;
    node.holders = held;
    node.nholders = 3;
    assert_int_equal(sched_pick(queue, 1, node, 0, grants), 0);
    assert_int_equal(yields(&node, 2), 1U << 5 | 1U << 4);
    held[0].yields_to = held[1].yields_to = held[2].yields_to = 0;
    node.cpu_free = 3;
    assert_int_equal(sched_pick(queue, 1, node, 0, grants), 0);
    assert_int_equal(yields(&node, 2), 1U << 5);
}

/* ---- when ---- */

static struct sched_job till(double ends, struct sched_job job)
{
    job.ends = ends;
    return job;
}

static double expected(int64_t id, struct sched_node node)
{
    struct sched_job queue[] = { gpu_job(7, 9, 0), gpu_job(4, 1, 0),    gpu_job(3, 2, 0),
                                 gpu_job(2, 2, 0), cpu_job(5, 1, 8, 0), cpu_job(6, 1, 1, 0) };
    struct sched_job held[] = { till(700, gpu_job(11, 2, 0)), till(900, gpu_job(12, 1, 0)), till(600, cpu_job(13, 1, 4, 0)),
                                till(INFINITY, cpu_job(14, 1, 4, 0)), till(800, gpu_job(15, 1, 0)) };

    node.holders = held;
    node.nholders = 5;
    return sched_expected(queue, 6, &node, id, 100);
}

static void when_a_job_starts(void **state)
{
    struct sched_node node = { .cpu_slots = 8, .gpus = 4 };

    (void)state;
    assert_true(expected(2, node) == 700);
    assert_true(expected(3, node) == 900);      /* both jobs that end next */
    assert_true(expected(4, node) == INFINITY); /* a job that has not begun has to end */
    assert_true(expected(7, node) == INFINITY); /* more than the node has, so the job does not wait for them */
    assert_true(expected(5, node) == INFINITY); /* the end of job 14 is unknown */
    assert_true(expected(99, node) == INFINITY);
    node.gpus_soon = 1;
    assert_true(expected(2, node) == 700);
    assert_true(expected(3, node) == 800); /* the slots that job 2 leaves, and those left then */
    node.gpus_free = 1;
    assert_true(expected(2, node) == 100);
    node.cpu_free = 8;
    assert_true(expected(5, node) == 100 && expected(6, node) == 600);
}

static void who_makes_room_is_not_waited_for(void **state)
{
    struct sched_job queue[] = { gpu_job(2, 3, 0) };
    struct sched_job held[] = { let_past(till(900, gpu_job(4, 1, 0))), till(500, gpu_job(1, 2, 0)),
                                on_its_way_out(till(800, gpu_job(3, 1, 0))) };
    struct sched_node node = { .gpus = 4, .holders = held, .nholders = 3 };

    (void)state;
    assert_true(sched_expected(queue, 1, &node, 2, 100) == 500);
}

/* GPUs that a job has just left are not free yet, and come free by themselves. Quarantined GPUs do not. */
static void what_the_node_has(void **state)
{
    struct gpus gpus = { .count = 4, .known = true };
    struct jobs jobs = { 0 };
    struct runner r = { .jobs = &jobs, .gpus = &gpus, .cpu_slots = 8 };
    struct sched_node node;

    (void)state;
    gpus.all[1].left_by = 7;
    gpus.all[2].job = 8;
    snprintf(gpus.all[3].quarantine, sizeof gpus.all[3].quarantine, "Xid 79");
    node = slots_node(&r);
    assert_int_equal(node.gpus, 3);
    assert_int_equal(node.gpus_free, 1);
    assert_int_equal(node.gpus_soon, 1);
    assert_int_equal(node.cpu_free, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gang_all_or_none),
        cmocka_unit_test(priority_then_age),
        cmocka_unit_test(more_ranks_than_slots_take_the_idle_node),
        cmocka_unit_test(threads_are_shared_out),
        cmocka_unit_test(two_queues_that_do_not_block_each_other),
        cmocka_unit_test(ranks_share_gpus),
        cmocka_unit_test(who_needs_more_gpus_than_are_healthy_holds_nobody_up),
        cmocka_unit_test(a_later_retry_is_passed_over),
        cmocka_unit_test(a_user_with_enough_is_passed_over),
        cmocka_unit_test(a_users_gpus_are_counted),
        cmocka_unit_test(who_was_granted_less_goes_first),
        cmocka_unit_test(a_flood_starves_nobody),
        cmocka_unit_test(smaller_jobs_are_let_past),
        cmocka_unit_test(they_make_room_when_that_suffices),
        cmocka_unit_test(only_those_behind_the_head_make_room),
        cmocka_unit_test(what_comes_free_is_kept_for_the_head),
        cmocka_unit_test(who_is_paused_makes_room_first),
        cmocka_unit_test(each_that_waits_is_a_head),
        cmocka_unit_test(no_more_make_room_than_have_to),
        cmocka_unit_test(users_do_not_starve_themselves),
        cmocka_unit_test(a_later_retry_keeps_its_place),
        cmocka_unit_test(who_does_not_leave_is_not_waited_for),
        cmocka_unit_test(slots_of_the_cpu_make_room_too),
        cmocka_unit_test(when_a_job_starts),
        cmocka_unit_test(who_makes_room_is_not_waited_for),
        cmocka_unit_test(what_the_node_has),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

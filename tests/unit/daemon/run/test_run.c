/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/daemon/run/test_run.c - uses: proto daemon
 * Deadlines that detd itself keeps for the processes of a job. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/base/clock.h"
#include "daemon/gpu/gpu.h"
#include "daemon/jobs/jobs.h"
#include "daemon/run/run.h"

enum { LATE_S = LIFE_HELLO_S - 10 };

/* The same as if detd had started so many seconds earlier. */
static void pass(struct life *l, double seconds)
{
    l->deadline -= l->deadline > 0 ? seconds : 0;
    l->obey_by -= l->obey_by > 0 ? seconds : 0;
}

/* The supervisor of a cancelled job gains no time by a late hello. Any other supervisor may be late. */
static void a_cancel_has_its_deadline_from_the_start(void **state)
{
    struct job runs = { .row = { .id = 1, .state = JOB_RUNNING, .ranks = 1, .ranks_per_gpu = 1, .threads = 1, .nonce = "n1" } };
    struct job ends = runs, *all[] = { &runs, &ends };
    struct jobs jobs = { .all = all, .count = 2 };
    struct gpus gpus = { 0 };
    struct runner r = { .jobs = &jobs, .gpus = &gpus, .cpu_slots = 2 };

    (void)state;
    ends.row.id = 2;
    ends.row.state = JOB_STOPPING;
    ends.row.want = JOB_WANT_CANCEL;
    run_adopt(&r);
    for (int i = 0; i < 2; i++) {
        pass(&all[i]->life, LATE_S);
        run_connected(&r, all[i]);
        assert_int_equal(all[i]->life.phase, LIFE_CONNECTED);
        assert_int_equal(life_clock(&all[i]->life, mono_s()), LIFE_FACT_COUNT);
        pass(&all[i]->life, LIFE_OBEY_S - LATE_S + 1);
    }
    assert_int_equal(life_clock(&runs.life, mono_s()), LIFE_FACT_COUNT);
    assert_int_equal(life_clock(&ends.life, mono_s()), LIFE_FACT_OVERDUE);
}

/* A job that detd has sent away keeps its slots until leave_by at most, whatever its supervisor reports. This holds for
 * a job that is to end because of its deaths too: an attempt that its supervisor reports takes away any other deadline.
 * A cancelled job has a deadline of its own. */
static void who_does_not_leave_is_killed(void **state)
{
    enum { STAYS, LATE, DIED, CANCELLED, COUNT };
    static const enum life_phase want[] = { LIFE_CONNECTED, LIFE_STUCK, LIFE_STUCK, LIFE_CONNECTED };
    struct job job[COUNT], *all[COUNT];
    struct jobs jobs = { .all = all, .count = COUNT };
    struct gpus gpus = { 0 };
    struct runner r = { .jobs = &jobs, .gpus = &gpus, .cpu_slots = COUNT };

    (void)state;
    for (int i = 0; i < COUNT; i++) {
        all[i] = &job[i];
        job[i] = (struct job){ .row = { .id = i + 1, .state = JOB_RUNNING, .ranks = 1, .ranks_per_gpu = 1, .threads = 1 },
                               .life = { .phase = LIFE_CONNECTED },
                               .leave_by = mono_s() + (i == STAYS ? LATE_S : -1) };
    }
    job[DIED].row.deaths = 1;
    job[CANCELLED].row.want = JOB_WANT_CANCEL;
    run_tick(&r);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(job[i].life.phase, want[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cancel_has_its_deadline_from_the_start),
        cmocka_unit_test(who_does_not_leave_is_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

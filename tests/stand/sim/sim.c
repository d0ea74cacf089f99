/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/sim/sim.c - detd's scheduler, life cycle, jobs, sup.sock
 * protocol and store under faults, without a process or a second of real time. README.md lists its real parts and its
 * invariants.
 *
 *     sim [--seed N] [--seeds COUNT] [--events N] [--verbose]
 *
 * Runs COUNT seeds (500; DETD_SIM_SEEDS; 5,000 with TEST_LONG=2) from N on (1), each in a process of its own. With
 * --verbose the seeds print their events. A seed that fails prints how to run it alone, and then behaves the same
 * again. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/stand/sim/world.h"

enum { SEEDS = 500, SEEDS_LONG = 5000, EVENTS = 600, SETTLE_STEPS = 20000, SECONDS_A_SEED = 60, PATIENT_S = 150, SHOWN = 10 };
enum { PATH_ROOM = 4096 };

/* ---- steps of the world ---- */

static void second(void)
{
    world.mono += 1;
    sups_tick();
    liars_tick();
    launch_tick();
    detd_tick();
}

static void fill_disk(void)
{
    world.disk_full = true;
    world.disk_full_till = world.steps + (int)roll(150);
    say("the disk is full");
}

/* ---- another program that writes to the database ---- */

static sqlite3 *other;

static void be_busy(void)
{
    char path[PATH_ROOM + 16];

    snprintf(path, sizeof path, "%s/detd.db", world.plan.folder);
    if (other || sqlite3_open_v2(path, &other, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK ||
        sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK)
        return;
    world.busy_till = world.steps + (int)roll(100);
    say("another program writes to the database");
}

static void rest(void)
{
    if (world.busy_till)
        say("the other program has left the database");
    world.busy_till = 0;
    sqlite3_close(other); /* which rolls back */
    other = NULL;
}

void power_off(void)
{
    say("the power goes off");
    rest();
    detd_power_off();
    sups_power_off();
    liars_power_off();
    disk_crash(true);
}

static void set_clock(double by)
{
    world.wall_offset += by;
    if (world.wall_offset < world.offset_min)
        world.offset_min = world.wall_offset;
    if (world.wall_offset > world.offset_max)
        world.offset_max = world.wall_offset;
}

static void cause(enum fault what)
{
    switch (what) {
    case FAULT_CRASH:
        if (detd_number)
            detd_crash();
        return;
    case FAULT_TORN:
        if (detd_number)
            disk_tear(true);
        return;
    case FAULT_POWER:
        power_off();
        return;
    case FAULT_STOP:
        if (detd_number && !world.disk_full && !world.busy_till)
            detd_stop();
        return;
    case FAULT_DISK:
        fill_disk();
        return;
    case FAULT_BUSY:
        be_busy();
        return;
    case FAULT_CLOCK:
        set_clock(chance(50) ? -3600 : 3600);
        return;
    case FAULT_IMPOSTOR:
        impostor_come();
        return;
    case FAULT_GPU:
        gpu_fault();
        return;
    default:
        sup_fault(what);
    }
}

static void fault(void)
{
    uint32_t sum = 0, at;
    int kind = 0;

    for (int i = 0; i < FAULT_KINDS; i++)
        sum += world.rates.weight[i];
    if (sum == 0)
        return;
    for (at = roll(sum); at >= world.rates.weight[kind]; kind++)
        at -= world.rates.weight[kind];
    cause((enum fault)kind);
}

static void mix(struct rates *r)
{
    static const uint32_t weights[] = { 0, 1, 1, 4, 12 };

    for (int i = 0; i < FAULT_KINDS; i++)
        r->weight[i] = weights[roll(5)];
    r->fault = 1 + (int)roll(7);
    r->wish = 2 + (int)roll(6);
    r->second = 3 + (int)roll(8);
    r->refused = chance(50) ? 0 : 5 + (int)roll(30);
    r->unreadable = chance(60) ? 0 : 5 + (int)roll(60);
    r->mute = chance(80) ? 0 : 20 + (int)roll(80);
    r->lost = chance(50) ? 0 : 1 + (int)roll(4);
    r->memory = chance(50) ? 0 : 1 + (int)roll(10);
}

static bool threads_and_check(void)
{
    if (!threads_step())
        return false;
    if (disk_is_torn()) {
        rest();
        detd_torn();
    } else {
        check_store();
    }
    return true;
}

/* Does one of the actions that are possible now; false: no action is possible, and time must pass. */
static bool happen(void)
{
    uint32_t at = roll(5);

    for (int i = 0; i < 5; i++, at++)
        switch (at % 5) {
        case 0:
            if (loop_turn())
                return true;
            break;
        case 1:
            if (threads_and_check())
                return true;
            break;
        case 2:
            if (pool_step())
                return true;
            break;
        case 3:
            if (links_step())
                return true;
            break;
        default:
            if ((world.plan.liars && chance(50) && liars_step()) || sups_step() || liars_step())
                return true;
        }
    return false;
}

static void step(void)
{
    world.steps++;
    if (world.disk_full && world.steps >= world.disk_full_till) {
        world.disk_full = false;
        say("the disk has room again");
    }
    if (world.busy_till && (world.steps >= world.busy_till || !detd_number)) /* a detd that starts finds its database free */
        rest();
    if (world.faults && chance(world.rates.wish))
        client_step();
    else if (world.faults && chance(world.rates.fault))
        fault();
    else if (world.faults && !detd_number && chance(10))
        detd_start();
    else if (chance(world.rates.second) || !happen())
        second();
    if (world.plan.liars)
        detd_check_shares();
}

/* Seconds for which the admin ends no job of the hostile user: detd itself must take back slots that it has lent, and a
 * GPU with errors. */
static double be_patient(void)
{
    if (!world.plan.liars || chance(50))
        return 0;
    gpu_fault();
    return PATIENT_S;
}

/* Faults have stopped, and time continues: every job comes to its end. */
static void settle(void)
{
    double patient_till;

    say("faults stop");
    world.faults = world.disk_full = false;
    disk_tear(false);
    rest();
    if (!detd_number)
        detd_start();
    patient_till = world.mono + be_patient();
    for (int i = 0; i < SETTLE_STEPS && !(check_done() && detd_is_idle()); i++) {
        if (i % 200 == 0)
            clients_resume(world.mono > patient_till);
        step();
    }
    check_end();
}

static void run_seed(void)
{
    struct itimerval cpu = { .it_value.tv_sec = SECONDS_A_SEED };

    world.faults = true;
    disk_take();
    setitimer(ITIMER_PROF, &cpu, NULL);
    alarm(10 * SECONDS_A_SEED); /* for a seed that waits and computes nothing, on a computer of any load */
    mix(&world.rates);
    world.plan.user_running = chance(50) ? 1 + (int)roll(3) : 0;
    world.plan.gpus = chance(50) ? 1 + (int)roll(WORLD_GPUS) : 0;
    world.plan.liars = chance(50);
    detd_start();
    while (world.steps < world.plan.events)
        step();
    settle();
    say("%d jobs have ended", world.njobs);
}

/* ---- seeds ---- */

static void remove_database(const char *folder)
{
    static const char *const names[] = { "detd.db", "detd.db-wal", "detd.db-shm" };
    char path[PATH_ROOM + 16];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
}

/* The file is kept for the next seed: making it each time costs disk work. */
static void remove_reserve(const char *folder)
{
    char path[PATH_ROOM + 16];

    snprintf(path, sizeof path, "%s/reserve", folder);
    unlink(path);
}

/* Returns 0 if all invariants held. */
static int try_seed(const struct plan *plan)
{
    int status;
    pid_t pid = fork();

    if (pid < 0)
        return -1;
    if (pid == 0) {
        world.plan = *plan;
        run_seed();
        fflush(stdout);
        _exit(0);
    }
    if (waitpid(pid, &status, 0) < 0)
        return -1;
    remove_database(plan->folder);
    if (WIFSIGNALED(status))
        fprintf(stderr, "seed %llu: died of signal %d (%s)\n", (unsigned long long)plan->seed, WTERMSIG(status),
                strsignal(WTERMSIG(status)));
    return status;
}

static uint64_t number(const char *text, const char *what)
{
    char *end;
    unsigned long long n = strtoull(text, &end, 10);

    if (!*text || *end) {
        fprintf(stderr, "sim: %s: '%s' is no number\n", what, text);
        exit(2);
    }
    return n;
}

static int take_options(int argc, char **argv, struct plan *plan, uint64_t *ret_seeds)
{
    static const struct option options[] = { { "seed", required_argument, NULL, 's' },
                                             { "seeds", required_argument, NULL, 'n' },
                                             { "events", required_argument, NULL, 'e' },
                                             { "verbose", no_argument, NULL, 'v' },
                                             { 0 } };
    const char *count = getenv("DETD_SIM_SEEDS");
    int c;

    *ret_seeds = count ? number(count, "DETD_SIM_SEEDS") : atoi(getenv("TEST_LONG") ? getenv("TEST_LONG") : "0") > 1 ? SEEDS_LONG : SEEDS;
    while ((c = getopt_long(argc, argv, "v", options, NULL)) >= 0)
        switch (c) {
        case 's':
            plan->seed = number(optarg, "--seed");
            if (!count)
                *ret_seeds = 1;
            break;
        case 'n':
            *ret_seeds = number(optarg, "--seeds");
            break;
        case 'e':
            plan->events = (int)number(optarg, "--events");
            break;
        case 'v':
            plan->verbose = true;
            break;
        default:
            return -1;
        }
    return 0;
}

int main(int argc, char **argv)
{
    struct plan plan = { .seed = 1, .events = EVENTS };
    char folder[PATH_ROOM];
    uint64_t seeds, failed = 0;

    if (take_options(argc, argv, &plan, &seeds) < 0)
        return 2;
    snprintf(folder, sizeof folder, "%s/sim-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(folder)) {
        perror(folder);
        return 2;
    }
    plan.folder = folder;
    for (uint64_t i = 0; i < seeds; i++, plan.seed++) {
        if (try_seed(&plan) == 0)
            continue;
        if (failed++ < SHOWN)
            fprintf(stderr, "    again: %s --seed %llu --events %d --verbose\n", argv[0], (unsigned long long)plan.seed, plan.events);
    }
    remove_reserve(folder);
    rmdir(folder);
    printf("%llu seeds, %llu failed\n", (unsigned long long)seeds, (unsigned long long)failed);
    puts(failed ? "[  FAILED  ] 1 test(s)." : "[  PASSED  ] 1 test(s)."); /* one, for tests/harness/run.py */
    return failed != 0;
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/launch/test_scope.c - uses: proto launch
 * Limits and CPU shares of jobs, by what is written into a made-up control group. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <glob.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "launch/scope.h"
#include "proto/err.h"

static char group[] = "/var/tmp/detd-scope-XXXXXX";

static const char *path(const char *folder, const char *file)
{
    static char ret[200];

    snprintf(ret, sizeof ret, "%s/%s/%s", group, folder, file);
    return ret;
}

static void put(const char *folder, const char *file)
{
    FILE *f = fopen(path(folder, file), "w");

    assert_non_null(f);
    fclose(f);
}

static const char *get(const char *folder, const char *file)
{
    static char text[64];
    FILE *f = fopen(path(folder, file), "r");

    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

/* A made-up group: the kernel would make these files. */
static void make(const char *folder)
{
    mkdir(path(folder, ""), 0755);
    put(folder, "cgroup.procs");
    put(folder, "cgroup.kill");
    put(folder, "cgroup.subtree_control");
    put(folder, "pids.max");
    put(folder, "memory.max");
    put(folder, "cpu.weight");
}

static int start(const struct launch_ticket *t, int slots)
{
    struct err err = { 0 };
    int fd = scope_make(t, slots, &err);

    assert_true(fd >= 0);
    return close(fd);
}

/* Like the kernel: a group whose controllers were taken away has default values when it gets them again. */
static void lose_controllers(const char *name)
{
    put(name, "pids.max");
    put(name, "memory.max");
    put(name, "cpu.weight");
}

/* The folder that the first start makes gets its files. Returns its name, as a new text. */
static char *make_scope(const struct launch_ticket *t)
{
    char pattern[100], *name;
    glob_t found;

    start(t, 1);
    snprintf(pattern, sizeof pattern, "%s/job-s*-%lld", group, (long long)t->job);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    name = strdup(found.gl_pathv[0] + strlen(group) + 1);
    globfree(&found);
    make(name);
    return name;
}

static void jobs_have_limits_and_shares(void **state)
{
    static const struct launch_ticket some = { .job = 1, .store = "s" }, many = { .job = 2, .store = "s" };
    const struct scope_limits limits = { .tasks = 7, .memory = 4096 };
    char *names[2], notes[64];

    (void)state;
    snprintf(notes, sizeof notes, "%s/notes", group);
    mkdir(notes, 0755);
    if (setxattr(group, "user.test", "", 0, 0) < 0)
        skip(); /* a folder of the kernel's has attributes since Linux 5.7 */
    make("");
    make("main");
    make("job-test");
    scope_open_at(group, &limits, notes);
    assert_true(scope_there_are());
    assert_string_equal(get("main", "cpu.weight"), "10000");
    assert_int_equal(strncmp(get("", "cgroup.subtree_control"), "+cpu", 4), 0); /* written last */
    names[0] = make_scope(&some);
    names[1] = make_scope(&many);
    start(&some, 6);
    start(&many, 5000);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(get(names[0], "cpu.weight"), "60");
        assert_string_equal(get(names[1], "cpu.weight"), "10000");
        assert_string_equal(get(names[0], "pids.max"), "7");
        assert_string_equal(get(names[0], "memory.max"), "4096");
        lose_controllers(names[0]);
        lose_controllers(names[1]);
        scope_open_at(group, &limits, notes); /* the next detd-launch */
    }
    free(names[0]);
    free(names[1]);
}

static int sum;

static void add(pid_t thread, uid_t user)
{
    sum += thread * (int)user;
}

static void each_thread_is_found(void **state)
{
    static const struct launch_ticket t = { .job = 1, .store = "s", .uid = 10 };
    char name[100];
    glob_t found;
    FILE *f;

    (void)state;
    if (!scope_there_are())
        skip();
    start(&t, 1);
    snprintf(name, sizeof name, "%s/job-s*-1", group);
    assert_int_equal(glob(name, 0, NULL, &found), 0);
    f = fopen(path(found.gl_pathv[0] + strlen(group) + 1, "cgroup.threads"), "w");
    assert_non_null(f);
    assert_true(fputs("100\n23\n", f) >= 0);
    assert_int_equal(fclose(f), 0);
    globfree(&found);
    scope_each(&t, add);
    assert_int_equal(sum, 1230);
}

static bool is_dying_with(pid_t first, pid_t second)
{
    static const struct launch_ticket t = { .job = 2, .store = "s" };
    char name[100];
    glob_t found;
    FILE *f;

    start(&t, 1);
    snprintf(name, sizeof name, "%s/job-s*-2", group);
    assert_int_equal(glob(name, 0, NULL, &found), 0);
    f = fopen(path(found.gl_pathv[0] + strlen(group) + 1, "cgroup.threads"), "w");
    assert_non_null(f);
    assert_true(fprintf(f, "%d\n%d\n", (int)first, (int)second) > 0);
    assert_int_equal(fclose(f), 0);
    globfree(&found);
    return scope_is_dying(&t);
}

/* A thread that is gone, one that has exited and is not waited for, and one that runs. */
static void a_thread_that_runs_is_not_dying(void **state)
{
    static const struct launch_ticket no_scope = { .job = 3, .store = "s" };
    siginfo_t info;
    pid_t gone = fork(), exited;

    (void)state;
    if (!scope_there_are())
        skip();
    if (gone == 0)
        _exit(0);
    assert_int_equal(waitpid(gone, NULL, 0), gone);
    exited = fork();
    if (exited == 0)
        _exit(0);
    assert_int_equal(waitid(P_PID, (id_t)exited, &info, WEXITED | WNOWAIT), 0);
    assert_true(is_dying_with(gone, exited));
    assert_false(is_dying_with(exited, getpid()));
    assert_false(is_dying_with(getpid(), gone));
    assert_false(scope_is_dying(&no_scope));
    waitpid(exited, NULL, 0);
}

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(group) ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[64];

    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", group);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(jobs_have_limits_and_shares), cmocka_unit_test(each_thread_is_found),
                                        cmocka_unit_test(a_thread_that_runs_is_not_dying) };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}

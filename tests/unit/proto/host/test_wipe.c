/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/proto/host/test_wipe.c - uses: proto daemon
 * Removal of folders with all their contents, and of no other file. */
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

#include "proto/host/wipe.h"
#include "proto/err.h"
#include "tests/stand/harness.h"

struct place {
    char root[TEMP_MAX], path[TEMP_MAX + 16];
    struct err err;
};

static int setup(void **state)
{
    struct place *p = calloc(1, sizeof *p);

    assert_non_null(mkdtemp(temp_path(p->root, sizeof p->root, "detd-wipe-XXXXXX")));
    snprintf(p->path, sizeof p->path, "%s/job", p->root);
    assert_int_equal(mkdir(p->path, 0700), 0);
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    struct place *p = *state;
    int rc = rmdir(p->root);

    free(p);
    return rc;
}

static void run(const char *fmt, const char *path)
{
    char command[512];

    snprintf(command, sizeof command, fmt, path);
    assert_int_equal(system(command), 0);
}

static int all(struct place *p, int max)
{
    int rc, turns = 0;

    while ((rc = wipe_folder(p->path, max, &p->err)) > 0)
        assert_true(++turns < 10000);
    if (rc < 0)
        print_error("%s\n", p->err.msg);
    assert_int_equal(rc, 0);
    assert_int_not_equal(access(p->path, F_OK), 0);
    return turns;
}

static void what_is_not_there_is_gone(void **state)
{
    struct place *p = *state;

    assert_int_equal(rmdir(p->path), 0);
    assert_int_equal(wipe_folder(p->path, 1, &p->err), 0);
    run("echo > %s", p->path);
    assert_int_equal(wipe_folder(p->path, 1, &p->err), 0);
    assert_int_not_equal(access(p->path, F_OK), 0);
}

static void a_little_at_a_time(void **state)
{
    struct place *p = *state;

    run("cd %s && mkdir -p a/b c && touch 1 2 3 a/4 a/5 a/b/6 c/7", p->path);
    assert_int_equal(wipe_folder(p->path, 1, &p->err), 1);
    run("test $(find %s | wc -l) = 10", p->path);
    assert_in_range(all(p, 2), 3, 12);
}

static void links_are_not_followed(void **state)
{
    struct place *p = *state;

    run("cd %s && mkdir ../other && touch ../other/kept && ln -s ../other folder && ln -s ../other/kept file && mkdir a && ln -s / a/root",
        p->path);
    all(p, 100);
    run("test -e %s/other/kept", p->root);
    run("rm -r %s/other", p->root);
}

static void the_place_itself_may_be_a_link(void **state)
{
    struct place *p = *state;

    run("rmdir %s", p->path);
    run("cd %s && mkdir other && touch other/kept && ln -s other job", p->root);
    all(p, 100);
    run("test -e %s/other/kept", p->root);
    run("rm -r %s/other", p->root);
}

static void rights_of_the_owner_do_not_matter(void **state)
{
    struct place *p = *state;

    run("cd %s && mkdir -p a/b c && touch a/1 a/b/2 c/3 && chmod 0 a/b c && chmod 0500 a && chmod 0400 .", p->path);
    all(p, 100);
}

static void any_depth_will_do(void **state)
{
    struct place *p = *state;

    run("cd %s && for i in $(seq 200); do mkdir d && touch f && cd d; done", p->path);
    all(p, 7);
}

/* The error names a file that cannot be removed. */
static void what_stays_is_named(void **state)
{
    struct place *p = *state;

    char path[TEMP_MAX + 32];

    snprintf(path, sizeof path, "%s/file/x", p->path);
    run("touch %s/file", p->path);
    assert_int_equal(wipe_folder(path, 100, &p->err), -ENOTDIR);
    assert_non_null(strstr(p->err.msg, path));
    all(p, 100);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_not_there_is_gone),
        TEST(a_little_at_a_time),
        TEST(links_are_not_followed),
        TEST(the_place_itself_may_be_a_link),
        TEST(rights_of_the_owner_do_not_matter),
        TEST(any_depth_will_do),
        TEST(what_stays_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

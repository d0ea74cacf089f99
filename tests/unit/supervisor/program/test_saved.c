/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/supervisor/program/test_saved.c - the published checkpoints of a
 * program: which one a start takes, and which ones are removed. uses: proto supervisor */
#include <fcntl.h>
#include <math.h>
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
#include "proto/host/wipe.h"
#include "supervisor/program/saved.h"

static char folder[] = "/tmp/detd-saved-XXXXXX";

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

/* Publishes a file below the folder, with that value of the validation. */
static void publish(struct saved *s, int64_t step, const char *name, double value)
{
    struct saved_one one = { .step = step, .value = value, .best = saved_is_best(s, value, true) };
    struct err err = { 0 };

    snprintf(one.path, sizeof one.path, "%s/%s", folder, name);
    write_file(one.path, name);
    assert_int_equal(saved_measure(&one, &err), 0);
    assert_int_equal(one.bytes, strlen(name));
    assert_int_equal(saved_add(s, &one, &err), 0);
}

static bool is_there(const char *name)
{
    char path[200];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static struct saved begin(void)
{
    struct err err = { 0 };
    struct saved s;

    unlink("published");
    assert_int_equal(saved_newest(), -1);
    assert_int_equal(saved_open(&s, &err), 0);
    assert_int_equal(s.n, 0);
    assert_int_equal(saved_newest(), 0);
    return s;
}

static void the_newest_that_is_unchanged_is_taken(void **state)
{
    struct saved s = begin();
    struct err err = { 0 };

    (void)state;
    publish(&s, 10, "a", NAN);
    publish(&s, 20, "b", NAN);
    publish(&s, 30, "c", NAN);
    saved_close(&s);
    assert_int_equal(saved_open(&s, &err), 0);
    assert_int_equal(s.n, 3);
    assert_int_equal(saved_rewind(&s, &err), 0);
    assert_int_equal(saved_newest(), 30);
    write_file("c", "longer");
    assert_int_equal(saved_rewind(&s, &err), 0);
    assert_int_equal(saved_newest(), 20);
    unlink("b");
    assert_int_equal(saved_rewind(&s, &err), 0);
    assert_int_equal(saved_newest(), 10);
    unlink("a");
    assert_int_equal(saved_rewind(&s, &err), 0);
    assert_int_equal(saved_newest(), 0);
    saved_close(&s);
}

static void a_folder_has_the_size_of_its_files(void **state)
{
    struct saved_one one = { .step = 1 };
    struct err err = { 0 };

    (void)state;
    mkdir("deep", 0700);
    mkdir("deep/er", 0700);
    write_file("deep/one", "12345");
    write_file("deep/er/two", "123");
    snprintf(one.path, sizeof one.path, "%s/deep", folder);
    assert_int_equal(saved_measure(&one, &err), 0);
    assert_int_equal(one.bytes, 8);
    assert_true(one.changed > 0);
    snprintf(one.path, sizeof one.path, "%s/nothing", folder);
    assert_int_equal(saved_measure(&one, &err), -2);
}

static void old_ones_are_removed_but_the_best(void **state)
{
    struct saved s = begin();
    struct err err = { 0 };

    (void)state;
    mkdir("checkpoints", 0700);
    publish(&s, 1, "checkpoints/s1", 5);
    publish(&s, 2, "checkpoints/s2", 3);
    publish(&s, 3, "checkpoints/s3", 4);
    publish(&s, 4, "outside", NAN);
    publish(&s, 5, "checkpoints/../evil", NAN);
    publish(&s, 6, "checkpoints/same", NAN);
    publish(&s, 7, "checkpoints/same", NAN);
    publish(&s, 8, "checkpoints/s8", NAN);
    assert_int_equal(saved_prune(&s, folder, 2, &err), 0);
    assert_int_equal(s.n, 3);
    assert_true(s.all[0].step == 2 && s.all[1].step == 7 && s.all[2].step == 8);
    assert_false(is_there("checkpoints/s1") || is_there("checkpoints/s3"));
    assert_true(is_there("checkpoints/s2") && is_there("checkpoints/same") && is_there("checkpoints/s8"));
    assert_true(is_there("outside") && is_there("evil")); /* of the user: never removed */
    assert_false(saved_is_best(&s, 4, true));
    assert_true(saved_is_best(&s, 2, true));
    assert_true(saved_is_best(&s, 4, false));
    assert_false(saved_is_best(&s, NAN, true));
    saved_close(&s);
}

/* A line that was cut short, or was never ours, ends the list. */
static void damage_is_left_out(void **state)
{
    struct saved s = begin();
    struct err err = { 0 };

    (void)state;
    saved_close(&s);
    write_file("published", "{\"step\":4,\"path\":\"/x\",\"bytes\":1,\"changed\":1.5,\"value\":null,\"best\":true}\n{\"step\":5,\"pa");
    assert_int_equal(saved_open(&s, &err), 0);
    assert_int_equal(s.n, 1);
    assert_true(s.all[0].step == 4 && s.all[0].best && isnan(s.all[0].value));
    assert_int_equal(saved_rewind(&s, &err), 0);
    assert_int_equal(s.n, 0);
    saved_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_newest_that_is_unchanged_is_taken),
                                        cmocka_unit_test(a_folder_has_the_size_of_its_files),
                                        cmocka_unit_test(old_ones_are_removed_but_the_best), cmocka_unit_test(damage_is_left_out) };
    struct err err;
    int rc;

    if (!mkdtemp(folder) || chdir(folder) < 0)
        return 1;
    rc = cmocka_run_group_tests(tests, NULL, NULL);
    while (wipe_folder(folder, 1000, &err) > 0)
        continue;
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/supervisor/spool/test_tiers.c - uses: proto supervisor
 * A job's changes of tier: the contents of the file after a crash, after a rewind and after many changes. */
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
#include "proto/line.h"
#include "supervisor/spool/tiers.h"
#include "tests/stand/harness.h"

static char folder[TEMP_MAX], path[TEMP_MAX + 32];

static void write_file(const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

static void file_is(const char *want)
{
    char text[256] = "";
    FILE *f = fopen(path, "r");

    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    assert_string_equal(text, want);
}

static struct tiers *open_tiers(void)
{
    struct tiers *t = NULL;
    struct err err;

    assert_int_equal(tiers_open(path, &t, &err), 0);
    return t;
}

static void tiers_are(const struct tiers *t, const char *want)
{
    char text[512];
    struct err err;
    struct line l;

    line_begin(&l, text, sizeof text, "go");
    tiers_write(t, &l);
    assert_int_equal(line_done(&l, &err), 0);
    assert_non_null(strstr(text, want));
}

/* A disk that is full later does not end the job. */
static void changes_have_their_room(void **state)
{
    struct tiers *t;
    struct stat st;
    struct err err;

    (void)state;
    unlink(path);
    t = open_tiers();
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_size == 0 && st.st_blocks >= 8 && !tiers_any(t));
    assert_int_equal(tiers_add(t, 20, "world", &err), 0);
    assert_true(tiers_any(t));
    tiers_close(t);
    tiers_close(open_tiers());
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_size == 9 && st.st_blocks >= 8);
    file_is("20 world\n");
}

/* A power cut in the middle of a line: the line was not promised to any rank. No part of it may stand behind a shorter
 * line that replaces it. */
static void a_torn_tail_is_cut(void **state)
{
    struct err err;
    struct tiers *t;

    (void)state;
    write_file("1 off\n20 rerun\n1000000 worl");
    t = open_tiers();
    file_is("1 off\n20 rerun\n");
    tiers_are(t, "\"tiers\":[{\"step\":1,\"tier\":\"off\"},{\"step\":20,\"tier\":\"rerun\"}]");
    assert_int_equal(tiers_add(t, 30, "off", &err), 0);
    assert_int_equal(tiers_sync(t, &err), 0);
    tiers_close(t);
    file_is("1 off\n20 rerun\n30 off\n");
    t = open_tiers();
    tiers_are(t, "{\"step\":20,\"tier\":\"rerun\"},{\"step\":30,\"tier\":\"off\"}]");
    tiers_close(t);
}

/* After a restart from a checkpoint, ranks may agree on a step again: later entries do not count then. */
static void a_later_line_wins(void **state)
{
    struct err err;
    struct tiers *t;

    (void)state;
    write_file("1 off\n20 rerun\n40 world\n");
    t = open_tiers();
    assert_int_equal(tiers_add(t, 20, "world", &err), 0);
    tiers_are(t, "[{\"step\":1,\"tier\":\"off\"},{\"step\":20,\"tier\":\"world\"}]");
    tiers_close(t);
    t = open_tiers();
    tiers_are(t, "[{\"step\":1,\"tier\":\"off\"},{\"step\":20,\"tier\":\"world\"}]");
    tiers_close(t);
}

static void what_is_no_entry_is_refused(void **state)
{
    struct tiers *t = NULL;
    struct err err;

    (void)state;
    write_file("1 off\nrerun\n");
    assert_int_equal(tiers_open(path, &t, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.msg, "line 2"));
    file_is("1 off\nrerun\n");
    assert_int_equal(tiers_open("/nonexistent/tiers", &t, &err), -2);
    assert_null(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(changes_have_their_room), cmocka_unit_test(a_torn_tail_is_cut),
                                        cmocka_unit_test(a_later_line_wins), cmocka_unit_test(what_is_no_entry_is_refused) };
    int failed;

    if (!mkdtemp(temp_path(folder, sizeof folder, "test_tiers.XXXXXX")))
        return 1;
    snprintf(path, sizeof path, "%s/tiers", folder);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    rmdir(folder);
    return failed;
}

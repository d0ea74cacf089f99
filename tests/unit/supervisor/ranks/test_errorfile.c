/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/supervisor/ranks/test_errorfile.c - which exception of a
 * program's ranks becomes the reason, and files that are none. uses: proto supervisor */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/err.h"
#include "proto/host/wipe.h"
#include "supervisor/ranks/errorfile.h"
#include "tests/stand/harness.h"

enum { RANKS = 3 };

static void write_file(int attempt, int rank, const char *text)
{
    char name[64];
    FILE *f;

    errorfile_name(attempt, rank, name, sizeof name);
    f = fopen(name, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    fclose(f);
}

static int prepare(void **state)
{
    struct err err;

    (void)state;
    return errorfile_prepare(1, RANKS, &err);
}

static void check(int first, int rank, const char *want)
{
    char text[400];

    assert_int_equal(errorfile_read(1, RANKS, first, text, sizeof text), rank);
    assert_string_equal(text, want);
}

static void files_of_an_earlier_start_are_removed(void **state)
{
    struct err err;

    (void)state;
    write_file(1, 0, "{\"message\":\"old\"}");
    write_file(2, 0, "{\"message\":\"of another attempt\"}");
    assert_int_equal(errorfile_prepare(1, RANKS, &err), 0);
    check(0, -1, "");
    assert_int_equal(access("errors/attempt-2-rank-0.json", F_OK), 0);
}

static void the_first_exception_counts(void **state)
{
    (void)state;
    check(1, -1, "");
    write_file(1, 0, "{\"message\":{\"message\":\"later\",\"extraInfo\":{\"timestamp\":\"20\"}}}");
    write_file(1, 1, "{\"message\":{\"message\":\"no time\"}}");
    write_file(1, 2, "{\"message\":{\"message\":\"sooner\",\"extraInfo\":{\"timestamp\":10.5}}}");
    check(1, 2, "sooner");
    write_file(1, 2, "");
    check(1, 0, "later");
}

/* Without times the rank that ended first is preferred, if it wrote one. */
static void without_times_the_first_to_end_counts(void **state)
{
    (void)state;
    write_file(1, 0, "{\"message\":\"zero\"}");
    write_file(1, 2, "{\"message\":\"two\"}");
    check(2, 2, "two");
    check(1, 0, "zero");
}

static void the_last_lines_are_the_reason(void **state)
{
    char line[3000], text[40];

    (void)state;
    write_file(1, 0, "{\"message\":\"1\\n2\\n3\\nValueError: no\\n \\n\"}");
    check(0, 0, "2 | 3 | ValueError: no");
    memset(line, 'x', sizeof line);
    memcpy(line, "{\"message\":\"", 12);
    memcpy(line + sizeof line - 8, "end\"}", 6);
    write_file(1, 0, line);
    assert_int_equal(errorfile_read(1, RANKS, 0, text, sizeof text), 0);
    assert_true(strlen(text) < sizeof text && strcmp(text + strlen(text) - 4, "xend") == 0);
}

static void anything_else_is_no_exception(void **state)
{
    static const char *const others[] = {
        "", "no JSON", "[]", "{}", "{\"message\":7}", "{\"message\":{\"message\":[]}}", "{\"message\":\""
    };
    char deep[1000];

    (void)state;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        write_file(1, 0, others[i]);
        check(0, -1, "");
    }
    memset(deep, '[', sizeof deep);
    deep[sizeof deep - 1] = '\0';
    write_file(1, 0, deep);
    assert_int_equal(mkfifo("errors/attempt-1-rank-1.json", 0600), 0); /* nobody writes there: it must not wait */
    write_file(9, 0, "{\"message\":\"a link leads here\"}");
    assert_int_equal(symlink("attempt-9-rank-0.json", "errors/attempt-1-rank-2.json"), 0);
    check(0, -1, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test_setup(files_of_an_earlier_start_are_removed, prepare),
                                        cmocka_unit_test_setup(the_first_exception_counts, prepare),
                                        cmocka_unit_test_setup(without_times_the_first_to_end_counts, prepare),
                                        cmocka_unit_test_setup(the_last_lines_are_the_reason, prepare),
                                        cmocka_unit_test_setup(anything_else_is_no_exception, prepare) };
    char folder[TEMP_MAX];
    struct err err;
    int rc;

    if (!mkdtemp(temp_path(folder, sizeof folder, "detd-errors-XXXXXX")) || chdir(folder) < 0)
        return 1;
    rc = cmocka_run_group_tests(tests, NULL, NULL);
    while (wipe_folder(folder, 1000, &err) > 0)
        continue;
    return rc;
}

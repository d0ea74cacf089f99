/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/client/base/test_print.c - uses: proto client
 * How detctl writes durations, sizes, numbers, foreign text, and columns. */
#include <fcntl.h>
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/base/print.h"
#include "tests/stand/harness.h"

static void durations(void **state)
{
    static const struct {
        double seconds;
        const char *want;
    } rows[] = {
        { -5, "0 s" },      { 0, "0 s" },         { 59.4, "59 s" },   { 59.5, "1m 00s" }, { 3599.4, "59m 59s" }, { 3600, "1h 00m" },
        { 7500, "2h 05m" }, { 86399, "23h 59m" }, { 86400, "1d 0h" }, { 97200, "1d 3h" }, { 1e12, "0 s" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(text_duration(rows[i].seconds).s, rows[i].want);
}

static void sizes(void **state)
{
    static const struct {
        double bytes;
        const char *want;
    } rows[] = {
        { 0, "0 B" },        { 1023, "1023 B" },     { 1024, "1.0 KiB" }, { 1536, "1.5 KiB" },
        { 10240, "10 KiB" }, { 1 << 20, "1.0 MiB" }, { 3e9, "2.8 GiB" },  { 1e15, "909 TiB" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(text_bytes(rows[i].bytes).s, rows[i].want);
}

static void times_and_numbers(void **state)
{
    json_t *whole = json_integer(123456789), *real = json_real(0.123456789), *text = json_string("x");

    (void)state;
    setenv("TZ", "UTC0", 1);
    assert_string_equal(text_time(0).s, "-");
    assert_string_equal(text_time(-1).s, "-");
    assert_string_equal(text_time(1e12).s, "-");
    assert_string_equal(text_time(1769868309).s, "2026-01-31 14:05:09");
    setenv("TZ", "EST5", 1);
    tzset();
    assert_string_equal(text_time(1769868309).s, "2026-01-31 09:05:09");
    print_times_in_utc();
    assert_string_equal(text_time(1769868309).s, "2026-01-31 14:05:09Z");
    assert_string_equal(text_time(0).s, "-");
    assert_string_equal(text_number(whole).s, "123456789");
    assert_string_equal(text_number(real).s, "0.123457");
    assert_string_equal(text_number(text).s, "-");
    assert_string_equal(text_number(NULL).s, "-");
    json_decref(whole);
    json_decref(real);
    json_decref(text);
}

/* Returns the output of `print`. The caller frees it. */
static char *written(void (*print)(FILE *out, const void *arg), const void *arg)
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);

    print(out, arg);
    fclose(out);
    return text;
}

static void clean(FILE *out, const void *arg)
{
    print_clean(out, arg);
}

static void real(FILE *out, const void *arg)
{
    print_real(out, arg);
}

static void columns(FILE *out, const void *arg)
{
    static const char *const headers[] = { ">ID", "<NAME", ">STEP" };
    struct table *t = table_new(3, headers);

    (void)arg;
    table_addf(t, "%d", 7);
    table_add(t, "caf\xc3\xa9\x1b[1m");
    table_add(t, "12/400");
    table_addf(t, "%d", 8);
    table_add(t, "\u65e5\u672c");
    table_add(t, "4");
    table_addf(t, "%d", 1234);
    table_add(t, "x");
    table_add(t, "-");
    table_print(t, out);
    table_free(t);
    table_free(NULL);
}

/* No control sequence in foreign text reaches the terminal. */
static void text_of_others_is_clean(void **state)
{
    static const struct {
        const char *text, *want;
    } rows[] = {
        { "plain ~ text", "plain ~ text" },
        { "\x1b[31mred\x7f\t\n", "?[31mred???" },
        { "caf\xc3\xa9 \xc2\xa0", "caf\xc3\xa9 \xc2\xa0" },
        { "\xc2\x9b"
          "31m \xc2\x80\xc2\x9f",
          "?31m ??" },
        { "ends \xc2", "ends \xc2" },
        { "ends \xe2\x80", "ends \xe2\x80" },
        { "a\u202eb\u2066c\u200ed\u2028e\ufefff", "a?b?c?d?e?f" },  /* turned around, or hidden */
        { "\u0645\u06cc\u200c\u062e", "\u0645\u06cc\u200c\u062e" }, /* a joiner, as Persian has it */
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *got = written(clean, rows[i].text);

        assert_string_equal(got, rows[i].want);
        free(got);
    }
}

static void all_digits_of_a_number(void **state)
{
    json_t *values[] = { json_real(0.1), json_integer(-3), json_null() };
    static const char *const want[] = { "0.10000000000000001", "-3", "" };

    (void)state;
    for (int i = 0; i < 3; i++) {
        char *got = written(real, values[i]);

        assert_string_equal(got, want[i]);
        free(got);
        json_decref(values[i]);
    }
}

static void widths_are_cells(void **state)
{
    static const struct {
        const char *text;
        int cells;
    } rows[] = {
        { "plain", 5 },   { "caf\u00e9", 4 }, { "\u65e5\u672c\u8a9e", 6 }, { "e\u0301", 1 }, { "\U0001f600!", 3 }, { "a\u202eb", 3 },
        { "\x1b[1m", 4 }, { "\xc2", 1 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(print_width(rows[i].text, strlen(rows[i].text)), rows[i].cells);
}

/* Replaces stdout and asks whether cursor moves may be used. */
static bool moves_with(const char *term, int terminal)
{
    FILE *f = fdopen(dup(terminal), "w");
    bool moves;

    if (term)
        setenv("TERM", term, 1);
    else
        unsetenv("TERM");
    moves = print_moves(f);
    fclose(f);
    return moves;
}

static void terminals_that_obey(void **state)
{
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);

    (void)state;
    if (terminal < 0)
        SKIP("no pseudo-terminal");
    assert_true(moves_with("xterm-256color", terminal));
    assert_true(moves_with("linux", terminal));
    assert_false(moves_with(NULL, terminal));
    assert_false(moves_with("", terminal));
    assert_false(moves_with("dumb", terminal));
    assert_false(moves_with("unknown", terminal));
    assert_false(moves_with("nonsense", terminal));
    assert_false(moves_with("../../dev/null", terminal));
    close(terminal);
}

/* The Linux console is recognised from stdout. */
static void consoles_lack_braille(void **state)
{
    int terminal = posix_openpt(O_RDWR | O_NOCTTY), before = dup(STDOUT_FILENO);
    bool console, other, utf8;

    (void)state;
    if (terminal < 0)
        SKIP("no pseudo-terminal");
    utf8 = setlocale(LC_CTYPE, "C.UTF-8") != NULL;
    dup2(terminal, STDOUT_FILENO);
    setenv("TERM", "linux", 1);
    console = print_utf8();
    setenv("TERM", "xterm", 1);
    other = print_utf8();
    dup2(before, STDOUT_FILENO);
    close(before);
    close(terminal);
    assert_false(console);
    assert_true(other == utf8);
}

static void columns_are_aligned(void **state)
{
    char *got = written(columns, NULL);

    (void)state;
    assert_string_equal(got, "  ID  NAME        STEP\n"
                             "   7  caf\xc3\xa9?[1m  12/400\n"
                             "   8  \u65e5\u672c           4\n"
                             "1234  x              -\n");
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations),
        cmocka_unit_test(sizes),
        cmocka_unit_test(times_and_numbers),
        cmocka_unit_test(text_of_others_is_clean),
        cmocka_unit_test(all_digits_of_a_number),
        cmocka_unit_test(widths_are_cells),
        cmocka_unit_test(columns_are_aligned),
        cmocka_unit_test(terminals_that_obey),
        cmocka_unit_test(consoles_lack_braille),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

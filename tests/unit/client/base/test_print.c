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
#include <termios.h>
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

/* The same on a terminal. */
static char *shown(void (*print)(FILE *out, const void *arg), const void *arg)
{
    int ours = posix_openpt(O_RDWR | O_NOCTTY), theirs;
    char *text = calloc(1, 1000);
    struct termios raw;
    FILE *out;

    if (ours < 0)
        SKIP("no pseudo-terminal");
    assert_true(grantpt(ours) == 0 && unlockpt(ours) == 0);
    theirs = open(ptsname(ours), O_RDWR | O_NOCTTY);
    assert_int_equal(tcgetattr(theirs, &raw), 0);
    cfmakeraw(&raw);
    tcsetattr(theirs, TCSANOW, &raw);
    out = fdopen(theirs, "w");
    fputs("<", out);
    print(out, arg);
    fputs(">", out);
    fflush(out);
    for (size_t n = 0; n == 0 || text[n - 1] != '>';)
        n += (size_t)read(ours, text + n, 999 - n);
    fclose(out);
    close(ours);
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

static void lines(FILE *out, const void *arg)
{
    print_lines(out, arg, strlen(arg));
}

/* No control sequence in foreign text reaches the terminal. A file or a pipe gets the bytes as they are. */
static void text_of_others_is_clean(void **state)
{
    static const struct {
        const char *text, *want;
    } rows[] = {
        { "plain ~ text", "plain ~ text" },
        { "\x1b[31mred\x7f\t\n", "^[[31mred^?^I^J" },
        { "caf\xc3\xa9 \xc2\xa0", "caf\xc3\xa9 \xc2\xa0" },
        { "\xc2\x9b"
          "31m \xc2\x80\xc2\x9f",
          "<U+009B>31m <U+0080><U+009F>" },
        { "ends \xc2", "ends \xc2" },
        { "ends \xe2\x80", "ends \xe2\x80" },
        { "a\u202eb\u2066c\u200ed\u2028e\ufefff", "a<U+202E>b<U+2066>c<U+200E>d<U+2028>e<U+FEFF>f" }, /* turned around, or hidden */
        { "\u0645\u06cc\u200c\u062e", "\u0645\u06cc\u200c\u062e" },                                   /* a joiner, as Persian has it */
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *got = written(clean, rows[i].text), *seen = shown(clean, rows[i].text);

        assert_string_equal(got, rows[i].text);
        assert_int_equal(strlen(seen), strlen(rows[i].want) + 2);
        assert_memory_equal(seen + 1, rows[i].want, strlen(rows[i].want));
        free(got);
        free(seen);
    }
}

/* Lines of a log may be coloured, to their end. */
static void logs_keep_colours(void **state)
{
    static const char log[] = "\x1b[1;31mbad\x1b[2J\n\tgood\r\x1b]0;owned\a\x1b[";
    char *got = written(lines, log), *seen = shown(lines, log);

    (void)state;
    assert_string_equal(got, log);
    assert_string_equal(seen, "<\x1b[1;31mbad^[[2J\n\tgood^M^[]0;owned^G^[[\x1b[0m>");
    free(got);
    free(seen);
}

/* JSON escapes them wherever it goes: the text stays the same. */
static void json_is_escaped(void **state)
{
    json_t *text = json_string("\x1b\x7f\xc2\x9b\u202e\U000e0041\u00e9");
    int saved = dup(STDOUT_FILENO), ends[2];
    char got[200] = "";

    (void)state;
    assert_int_equal(pipe(ends), 0);
    fflush(stdout);
    dup2(ends[1], STDOUT_FILENO);
    print_json(text);
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    assert_true(read(ends[0], got, sizeof got - 1) > 0);
    assert_string_equal(got, "\"\\u001B\\u007f\\u009b\\u202e\\udb40\\udc41\u00e9\"\n");
    close(saved);
    close(ends[0]);
    close(ends[1]);
    json_decref(text);
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
        { "plain", 5 },   { "caf\u00e9", 4 }, { "\u65e5\u672c\u8a9e", 6 }, { "e\u0301", 1 }, { "\U0001f600!", 3 }, { "a\u202eb", 10 },
        { "\x1b[1m", 5 }, { "\xc2", 1 },
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
    assert_string_equal(got, "  ID  NAME         STEP\n"
                             "   7  caf\xc3\xa9\x1b[1m  12/400\n" /* ^[[1m on a terminal */
                             "   8  \u65e5\u672c            4\n"
                             "1234  x               -\n");
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations),
        cmocka_unit_test(sizes),
        cmocka_unit_test(times_and_numbers),
        cmocka_unit_test(text_of_others_is_clean),
        cmocka_unit_test(logs_keep_colours),
        cmocka_unit_test(json_is_escaped),
        cmocka_unit_test(all_digits_of_a_number),
        cmocka_unit_test(widths_are_cells),
        cmocka_unit_test(columns_are_aligned),
        cmocka_unit_test(terminals_that_obey),
        cmocka_unit_test(consoles_lack_braille),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

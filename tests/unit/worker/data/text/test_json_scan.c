/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/data/text/test_json_scan.c -
 * uses: proto worker/core worker/mask worker/data */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "worker/data/text/json_scan.h"

static struct json_scan scan(const char *text)
{
    struct json_scan s;

    scan_open(&s, "t", text, strlen(text));
    return s;
}

/* Skips a whole document: NULL if it is legal, else the message (static). */
static const char *verdict(const char *text, size_t len)
{
    static struct json_scan s;

    scan_open(&s, "t", text, len);
    scan_skip(&s);
    return scan_finish(&s) ? NULL : s.err.msg;
}

static void legal_documents_pass(void **state)
{
    static const char *const good[] = {
        "{}",
        " [ ] ",
        "null",
        "true",
        "[1,2, 3]",
        "{\"a\":{\"b\":[{},[],\"x\"]}}",
        "-0.5e-3",
        "\"\\u00e9\\ud83d\\ude00\\n\"",
        "[1e5,1E+5,0,-0]",
        "[NaN, Infinity,-Infinity]",
        "{\"a\":NaN}",
        "\xef\xbb\xbf[]",
        "\"h\xc3\xa9\"",
        "\"\xf0\x9f\x98\x80\"",
        "\"long plain text of many words\"",
    };

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        if (verdict(good[i], strlen(good[i])))
            fail_msg("%s: %s", good[i], verdict(good[i], strlen(good[i])));
}

static void faults_are_named(void **state)
{
    static const char *const bad[][2] = {
        { "", "expected a value, but the file ends" },
        { "{", "expected a member name in quotes, but the file ends" },
        { "[1,]", "comma before ']'" },
        { "{\"a\":1,}", "comma before '}'" },
        { "[1 2]", "expected ',' or ']', found '2'" },
        { "{\"a\" 1}", "expected ':', found '1'" },
        { "{a:1}", "expected a member name in quotes, found 'a'" },
        { "[1}", "expected ',' or ']', found '}'" },
        { "01", "malformed number" },
        { "1.", "malformed number" },
        { "-", "malformed number" },
        { "1e", "malformed number" },
        { ".5", "expected a value, found '.'" },
        { "+1", "expected a value, found '+'" },
        { "Nan", "expected a value, found 'N'" },
        { "Inf", "expected a value, found 'I'" },
        { "-Inf", "malformed number" },
        { "-NaN", "malformed number" },
        { "NaNs", "text after the end" },
        { "[1 NaN]", "expected ',' or ']', found NaN" },
        { "nul", "expected 'null'" },
        { "[] []", "text after the end" },
        { "\"a", "the file ends inside a string" },
        { "\"\\", "the file ends inside a string" },
        { "\"\\x\"", "unknown escape" },
        { "\"\\u12g4\"", "four hex digits" },
        { "\"\\u0000\"", "NUL in a string" },
        { "\"\\ud800\"", "half of a surrogate pair" },
        { "\"\\ud800\\u0041\"", "half of a surrogate pair" },
        { "\"\\udc00\"", "half of a surrogate pair" },
        { "\"\t\"", "control character 0x09" },
        { "\"\xff\"", "invalid UTF-8" },
        { "\"\xc0\x80\"", "invalid UTF-8" },
        { "\"\xed\xa0\x80\"", "invalid UTF-8" },
        { "\"\xf4\x90\x80\x80\"", "invalid UTF-8" },
        { "\"\xe2\x82\"", "invalid UTF-8" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const char *got = verdict(bad[i][0], strlen(bad[i][0]));

        if (!got || !strstr(got, bad[i][1]))
            fail_msg("%s: \"%s\", wanted \"%s\"", bad[i][0], got ? got : "legal", bad[i][1]);
    }
    assert_string_equal(verdict("[1,\n 2,\n x]", 11), "t, line 3, byte 2: expected a value, found 'x'");
}

/* These words are no numbers: the error of a reader that needs a number repeats the word. */
static void numbers_are_finite(void **state)
{
    static const char *const words[] = { "NaN", "Infinity", "-Infinity" };
    struct json_num n;
    char want[64];

    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        struct json_scan s = scan(words[i]);

        assert_int_equal(scan_peek(&s), JSON_NONFINITE);
        assert_false(scan_number(&s, &n));
        snprintf(want, sizeof want, "t, line 1, byte 1: expected a number, found %s", words[i]);
        assert_string_equal(s.err.msg, want);
    }
}

static void nesting_is_bounded(void **state)
{
    char *deep = malloc(200000);

    (void)state;
    memset(deep, '[', 100000);
    memset(deep + 100000, ']', 100000);
    assert_non_null(strstr(verdict(deep, 200000), "nested more than 256 deep"));
    assert_null(verdict(deep + 100000 - 256, 512));
    free(deep);
}

static void numbers_are_exact(void **state)
{
    static const char *const texts[] = { "0.1",
                                         "1e22",
                                         "1e23",
                                         "123456789.123456789",
                                         "1.7976931348623157e308",
                                         "5e-324",
                                         "9007199254740993",
                                         "0.3",
                                         "2.2250738585072011e-308",
                                         "100000000000000000000000",
                                         "3.000025E4",
                                         "-17.25" };
    struct json_num n;

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct json_scan s = scan(texts[i]);

        assert_true(scan_number(&s, &n));
        if (n.real != strtod(texts[i], NULL))
            fail_msg("%s is read as %.17g", texts[i], n.real);
    }
    struct json_scan s = scan("[9223372036854775807, -900100329323, 1.0, 2.50e1, 2.5, 9223372036854775808, 1e400]");
    static const int64_t want[] = { INT64_MAX, -900100329323, 1, 25 };
    scan_array(&s);
    for (int i = 0; i < 4; i++) {
        scan_element(&s);
        assert_true(scan_number(&s, &n) && n.is_integer && n.integer == want[i]);
    }
    for (int i = 0; i < 2; i++) {
        scan_element(&s);
        assert_true(scan_number(&s, &n) && !n.is_integer);
    }
    scan_element(&s);
    assert_false(scan_number(&s, &n));
    assert_non_null(strstr(s.err.msg, "out of range"));
}

static void strings_are_decoded(void **state)
{
    struct json_scan s = scan("{\"a\\u0062\": \"x\\\"\\\\\\/\\b\\f\\n\\r\\t\\u20ac\\ud83d\\ude00y\", \"b\": \"12345\"}");
    char buf[32], *text = NULL;
    size_t len, cap = 0;

    (void)state;
    scan_object(&s);
    assert_true(scan_member(&s));
    assert_true(scan_key_is(&s, "ab") && !scan_key_is(&s, "a") && !scan_key_is(&s, "abc"));
    assert_true(scan_string(&s, buf, sizeof buf, &len));
    assert_string_equal(buf, "x\"\\/\b\f\n\r\t\xe2\x82\xac\xf0\x9f\x98\x80y");
    assert_true(scan_member(&s));
    struct json_scan copy = s;
    assert_true(scan_text(&copy, &text, &cap, &len) && len == 5);
    assert_string_equal(text, "12345");
    free(text);
    assert_false(scan_string(&s, buf, 5, &len));
    assert_non_null(strstr(s.err.msg, "over the limit of 4"));
    assert_false(scan_member(&s)); /* the first error sticks */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(legal_documents_pass), cmocka_unit_test(faults_are_named),  cmocka_unit_test(numbers_are_finite),
        cmocka_unit_test(nesting_is_bounded),   cmocka_unit_test(numbers_are_exact), cmocka_unit_test(strings_are_decoded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

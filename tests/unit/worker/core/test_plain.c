/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/core/test_plain.c - no control character comes through, however the bytes are cut, and all other text does.
 * uses: worker/core proto */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "worker/core/plain.h"

/* Writes that number of bytes at a time. */
static void becomes(const char *text, const char *wanted, size_t at_once)
{
    char got[256];
    ssize_t n;
    int ends[2];
    FILE *f;

    assert_int_equal(pipe(ends), 0);
    f = plain_open(ends[1]);
    assert_non_null(f);
    for (size_t i = 0, len = strlen(text); i < len; i += at_once) {
        fwrite(text + i, 1, len - i < at_once ? len - i : at_once, f);
        fflush(f);
    }
    assert_int_equal(fclose(f), 0);
    close(ends[1]);
    n = read(ends[0], got, sizeof got - 1);
    close(ends[0]);
    got[n < 0 ? 0 : n] = '\0';
    assert_string_equal(got, wanted);
}

static void cleans(void **state)
{
    static const char *const cases[][2] = {
        { "a\tb\nc", "a\tb\nc" },
        { "\033[31mred\r\x7f\a", "?[31mred???" },
        { "caf\xc3\xa9 \xc2\xa0 \xe2\x82\x9b \xf0\x9f\x98\x80.", "caf\xc3\xa9 \xc2\xa0 \xe2\x82\x9b \xf0\x9f\x98\x80." },
        { "\xc2\x9b"
          "31m \x9b"
          "31m",
          "?31m ?31m" },
        { "a\u202eb\ufeffc\U000e0041d", "a?b?c?d" },
        { "\xe2\x80"
          "x\xf0\x9f"
          "y",
          "\xe2?x\xf0?y" },
        { "\xc2\xc2\x9b\xc2\033\xc2\xa3", "\xc2?\xc2?\xc2\xa3" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t at_once = 1; at_once < 9; at_once++)
            becomes(cases[i][0], cases[i][1], at_once);
}

/* More than a piece, and a pipe without a reader. */
static void writes_all_or_says_so(void **state)
{
    char in[3000], out[3001];
    FILE *f, *full = fopen("/dev/full", "w");
    int ends[2];

    (void)state;
    memset(in, 'x', sizeof in);
    assert_int_equal(pipe(ends), 0);
    f = plain_open(ends[1]);
    assert_int_equal(fwrite(in, 1, sizeof in, f), sizeof in);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(read(ends[0], out, sizeof out), sizeof in);
    assert_memory_equal(in, out, sizeof in);
    close(ends[0]);
    close(ends[1]);
    assert_non_null(full);
    f = plain_open(fileno(full));
    fputs("a\n", f);
    assert_int_equal(fflush(f), EOF);
    fclose(f);
    fclose(full);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(cleans), cmocka_unit_test(writes_all_or_says_so) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

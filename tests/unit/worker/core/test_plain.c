/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/core/test_plain.c - no control character reaches a
 * terminal, however the bytes are cut, and all other text does. uses: worker/core proto */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/stand/harness.h"
#include "worker/core/plain.h"

/* Two ends of a raw terminal. */
static void open_terminal(int ends[2])
{
    struct termios raw;

    ends[0] = posix_openpt(O_RDWR | O_NOCTTY);
    if (ends[0] < 0)
        SKIP("no pseudo-terminal");
    assert_true(grantpt(ends[0]) == 0 && unlockpt(ends[0]) == 0);
    ends[1] = open(ptsname(ends[0]), O_RDWR | O_NOCTTY);
    assert_int_equal(tcgetattr(ends[1], &raw), 0);
    cfmakeraw(&raw);
    tcsetattr(ends[1], TCSANOW, &raw);
}

/* Writes that number of bytes at a time, and reads as many as are wanted. */
static void becomes(const int ends[2], const char *text, const char *wanted, size_t at_once)
{
    char got[256] = "";
    FILE *f = plain_open(ends[1]);

    assert_non_null(f);
    for (size_t i = 0, len = strlen(text); i < len; i += at_once) {
        fwrite(text + i, 1, len - i < at_once ? len - i : at_once, f);
        fflush(f);
    }
    assert_int_equal(fclose(f), 0);
    for (size_t n = 0; n < strlen(wanted);) {
        ssize_t more = read(ends[0], got + n, sizeof got - 1 - n);

        assert_true(more > 0);
        n += (size_t)more;
    }
    assert_string_equal(got, wanted);
}

static void cleans(void **state)
{
    static const char *const cases[][2] = {
        { "a\tb\nc", "a\tb\nc" },
        { "\033[31mred\r\x7f\a", "^[[31mred^M^?^G" },
        { "caf\xc3\xa9 \xc2\xa0 \xe2\x82\x9b \xf0\x9f\x98\x80.", "caf\xc3\xa9 \xc2\xa0 \xe2\x82\x9b \xf0\x9f\x98\x80." },
        { "\xc2\x9b"
          "31m \x9b"
          "31m",
          "<U+009B>31m <U+009B>31m" },
        { "a\u202eb\ufeffc\U000e0041d", "a<U+202E>b<U+FEFF>c<U+E0041>d" },
        { "\xe2\x80"
          "x\xf0\x9f"
          "y",
          "\xe2<U+0080>x\xf0<U+009F>y" },
        { "\xc2\xc2\x9b\xc2\033\xc2\xa3", "\xc2<U+009B>\xc2^[\xc2\xa3" },
    };

    int ends[2], files[2];

    (void)state;
    open_terminal(ends);
    assert_int_equal(pipe(files), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t at_once = 1; at_once < 9; at_once++) {
            becomes(ends, cases[i][0], cases[i][1], at_once);
            becomes(files, cases[i][0], cases[i][0], at_once);
        }
    for (int i = 0; i < 2; i++) {
        close(ends[i]);
        close(files[i]);
    }
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

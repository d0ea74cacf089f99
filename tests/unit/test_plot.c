/* The terminal curve. uses: proto client */
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/plot.h"

static const double steps[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 };

static int lines_of(const char *text)
{
    int n = 0;

    for (; *text; text++)
        n += *text == '\n';
    return n;
}

static void a_line_and_marks(void **state)
{
    static const double train[] = { 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 1 }, val_x[] = { 5, 10 }, val[] = { 7, 4 };
    struct plot p = {
        .width = 20, .height = 8, .title = "total", .curve = { { "train", steps, train, 11, false }, { "val", val_x, val, 2, true } }
    };
    char *text = plot_text(&p);

    (void)state;
    assert_string_equal(text, "total  ** train 1  o val 4\n"
                              "     10 |**\n"
                              "        |  ** o\n"
                              "    5.5 |    **\n"
                              "        |      **  o\n"
                              "      1 |        ***\n"
                              "        +-----------\n"
                              "         0        10\n");
    free(text);
}

/* A label that has no room is left out, its mark stays; what lies beyond the curves is not there. */
static void changes(void **state)
{
    static const double x[] = { 0, 10, 20, 30 }, y[] = { 4, 3, 2, 1 };
    struct plot p = { .width = 40,
                      .height = 6,
                      .curve = { { "train", x, y, 4, false } },
                      .nchanges = 5,
                      .change = { { 10, "world" }, { 13, "off" }, { 17, "rerun" }, { 29, "off" }, { 31, "world" } } };
    char *text = plot_text(&p);

    (void)state;
    assert_non_null(text);
    assert_string_equal(strstr(text, "        +"), "        +----------|--|---|-----------|-\n"
                                                   "         0         world  rerun       30\n");
    free(text);
}

/* Every corner of the grid in braille: one character has 2 x 4 dots. */
static void braille(void **state)
{
    static const double x[] = { 0, 0, 10, 10 }, y[] = { 1, 2, 2, 1 };
    struct plot p = { .width = 20, .height = 6, .utf8 = true, .curve = { { "train", x, y, 4, false } } };
    char *text = plot_text(&p);

    (void)state;
    assert_string_equal(text, "  ⠒⠒ train 1\n"
                              "      2 ┤⡏⠉⠉⠉⠉⠉⠉⠉⠉⠉⢹\n"
                              "    1.5 ┤⡇         ⢸\n"
                              "      1 ┤⡇         ⢸\n"
                              "        └───────────\n"
                              "         0        10\n");
    free(text);
}

static void log_axis(void **state)
{
    static const double y[] = { 1000, 100, 10, 1 };
    struct plot p = { .width = 40, .height = 10, .curve = { { "train", steps, y, 4, false } } };
    char *text = plot_text(&p);

    (void)state;
    assert_non_null(strstr(text, "(log scale)"));
    assert_non_null(strstr(text, "   1000 |"));
    assert_int_equal(lines_of(text), 10);
    free(text);
}

/* Whatever comes in, exactly `height` lines come out and nothing is drawn outside the grid. */
static void odd_input(void **state)
{
    static const double huge[] = { 1e308, -1e308, 0, NAN, INFINITY, 1, 2, 3, 4, 5, 6 }, none[] = { NAN, NAN, NAN }, same[] = { 3, 3, 3 },
                        tiny[] = { 5e-324, 1e-300, 1 };
    static const struct {
        const double *y;
        size_t n;
    } rows[] = { { huge, 11 }, { none, 3 }, { same, 3 }, { same, 1 }, { tiny, 3 }, { NULL, 0 } };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int width = -5; width < 130; width += 45) {
            for (int marks = 0; marks < 2; marks++) {
                struct plot p = { .width = width,
                                  .height = 12,
                                  .utf8 = marks == 0,
                                  .colour = width > 40,
                                  .title = "t",
                                  .curve = { { "train", steps, rows[i].y, rows[i].n, marks } } };
                char *text = plot_text(&p);

                assert_non_null(text);
                assert_int_equal(lines_of(text), 12);
                free(text);
            }
        }
    }
}

static void colours_end(void **state)
{
    static const double y[] = { 1, 2, 3 };
    struct plot p = {
        .width = 30, .height = 8, .colour = true, .curve = { { "train", steps, y, 3, false }, { "val", steps, y, 2, true } }
    };
    char *text = plot_text(&p), *line;

    (void)state;
    for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        if (strchr(line, '\033'))
            assert_true(strstr(line, "\033[0m") != NULL);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_and_marks), cmocka_unit_test(changes),   cmocka_unit_test(braille),
        cmocka_unit_test(log_axis),         cmocka_unit_test(odd_input), cmocka_unit_test(colours_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/client/base/test_plot.c - uses: proto client
 * The terminal curve. */
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

#include "client/base/plot.h"

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
    assert_string_equal(text, "total  ** train  o val\n"
                              "     10 |**\n"
                              "        |  ** o\n"
                              "    5.5 |    **\n"
                              "        |      **  o\n"
                              "      1 |        ***\n"
                              "        +-----------\n"
                              "         0        10\n");
    free(text);
}

/* A label without room is left out, its mark stays. Marks outside the range of the curves are not drawn. */
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

/* The first validation, with fresh running statistics, is an outlier: with it, the other points would be a line at the
 * bottom. */
static void outliers_are_clipped_and_told(void **state)
{
    static const double calm[] = { 9, 8.5, 8, 8, 7.5, 7, 7, 6.5, 6, 6, 6 }, val_x[] = { 2, 4, 6, 8 }, val[] = { 167, 9, 8, 7 },
                        low[] = { 9, 8.5, 8, -80, 7.5, 7, 7, 6.5, -90, 6, 6 }, falls[] = { 500, 200, 100, 60, 40, 25, 20, 15, 12, 10, 9 };
    struct plot p = {
        .width = 60, .height = 12, .title = "total", .curve = { { "train", steps, calm, 11, false }, { "val", val_x, val, 4, true } }
    };
    char *text = plot_text(&p);

    (void)state;
    assert_string_equal(strtok(text, "\n"), "total  ** train 6  o val 7  (1 value above, to 167)");
    assert_true(strncmp(strtok(NULL, "\n"), "      9 |", 9) == 0);
    free(text);
    p.curve[0].y = low;
    text = plot_text(&p);
    assert_string_equal(strtok(text, "\n"), "total  ** train 6  o val 7  (1 value above, to 167)  (2 values below, to -90)");
    free(text);
    /* A loss that falls by much has no outliers. A few values are not enough to find outliers. */
    p.curve[0].y = falls;
    p.curve[1].n = 0;
    text = plot_text(&p);
    assert_string_equal(strtok(text, "\n"), "total  ** train 9  (log scale)");
    free(text);
    p.curve[0] = (struct plot_curve){ "val", val_x, val, 4, true };
    text = plot_text(&p);
    assert_string_equal(strtok(text, "\n"), "total  o val 7  (log scale)");
    free(text);
}

/* Long numbers move the axis of all rows alike. */
static void labels_have_room(void **state)
{
    static const double y[] = { -1.25e-05, -1.5e-05, -2.125e-05 };
    struct plot p = { .width = 40, .height = 8, .curve = { { "train", steps, y, 3, false } } };
    char *text = plot_text(&p);
    int at = -1;

    (void)state;
    strtok(text, "\n");
    for (char *line; (line = strtok(NULL, "\n")) && strpbrk(line, "|+");) {
        char *axis = strchr(line, '|') ? strchr(line, '|') : strrchr(line, '+');

        assert_true(at < 0 || axis - line == at || axis > line + at); /* a label has e-05 and no + */
        at = at < 0 ? (int)(axis - line) : at;
        assert_int_equal(line[at] == '|' || line[at] == '+', 1);
        assert_true(strlen(line) <= 40);
    }
    assert_int_equal(at, 11);
    free(text);
}

/* Two jobs in a pipe. */
static void lines_without_colour_have_signs(void **state)
{
    static const double up[] = { 1, 2, 3 }, down[] = { 3, 2.5, 1 };
    struct plot p = {
        .width = 40, .height = 8, .utf8 = true, .curve = { { "job 1", steps, up, 3, false }, { "job 2", steps, down, 3, false } }
    };
    char *text = plot_text(&p);

    (void)state;
    assert_non_null(strstr(text, "  ** job 1 3  ++ job 2 1\n"));
    assert_non_null(strchr(strchr(text, '\n'), '*'));
    assert_non_null(strchr(strchr(text, '\n'), '+'));
    free(text);
    p.colour = true;
    text = plot_text(&p);
    assert_non_null(strstr(text, "⠒⠒ job 1"));
    assert_null(strchr(text, '*'));
    free(text);
}

/* For any input, exactly `height` lines come out and nothing is drawn outside the grid. */
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
        cmocka_unit_test(a_line_and_marks), cmocka_unit_test(changes),
        cmocka_unit_test(braille),          cmocka_unit_test(outliers_are_clipped_and_told),
        cmocka_unit_test(labels_have_room), cmocka_unit_test(lines_without_colour_have_signs),
        cmocka_unit_test(log_axis),         cmocka_unit_test(odd_input),
        cmocka_unit_test(colours_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

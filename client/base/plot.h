/* SPDX-License-Identifier: Apache-2.0 */ /* client/base/plot.h - draws loss curves with characters. Pure: points in, lines of text out. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum { PLOT_CURVES = 6, PLOT_CHANGES = 8 };

/* Values that are not finite are gaps. */
struct plot_curve {
    const char *label;
    const double *x, *y; /* x ascending */
    size_t n;
    bool marks; /* one 'o' a point instead of a line: for the curve with few points */
};

/* Something that is otherwise from here on, shown at the axis. */
struct plot_change {
    double x;
    const char *label; /* ASCII */
};

struct plot {
    int width, height; /* in characters, all included; at least 20 x 6 is drawn */
    bool utf8;         /* lines of braille dots (2 x 4 a character) instead of '*' */
    bool colour;
    const char *title; /* in front of the legend */
    struct plot_curve curve[PLOT_CURVES];
    struct plot_change change[PLOT_CHANGES]; /* x ascending */
    int nchanges;
};

/* The picture, exactly `height` lines each ending in '\n': legend, grid, axis, steps and what changed at them, as far as there is room. The value axis is logarithmic where all
 * values are positive and span more than a factor of 20. A few values that would make the others a line are drawn at its edge, and the legend counts them. Several lines
 * without colour have a sign each. Caller frees. NULL: out of memory. */
char *plot_text(const struct plot *p);

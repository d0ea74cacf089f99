/* SPDX-License-Identifier: Apache-2.0 */ /* client/base/plot.h - draws loss curves with characters. Pure: points in,
 * lines of text out. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum { PLOT_CURVES = 6, PLOT_CHANGES = 8 };

/* Values that are not finite are gaps. */
struct plot_curve {
    const char *label;
    const double *x, *y; /* x ascending */
    size_t n;
    bool marks; /* an 'o' for each point instead of a line: for the curve with few points */
};

/* A change at x, shown at the axis. */
struct plot_change {
    double x;
    const char *label; /* ASCII */
};

struct plot {
    int width, height; /* in characters, all included; smaller plots than 20 x 6 are drawn in that size */
    bool utf8;         /* lines of braille dots (2 x 4 a character) instead of '*' */
    bool colour;
    const char *title; /* in front of the legend */
    struct plot_curve curve[PLOT_CURVES];
    struct plot_change change[PLOT_CHANGES]; /* x ascending */
    int nchanges;
};

/* Draws the plot: exactly `height` lines, each ending in '\n', with legend, grid, axis, steps and changes at them, as
 * far as there is room. The value axis is logarithmic if all values are positive and span more than a factor of 20. A
 * few outliers that would flatten the curves are drawn at the edge, and the legend counts them. Without colour, several
 * lines have a sign each. Caller frees. NULL: out of memory. */
char *plot_text(const struct plot *p);

#include "client/base/plot.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/base/print.h"

enum { NUMBER_CHARS = 7 /* least width of a value at the axis */, MIN_WIDTH = 20, MIN_HEIGHT = 6, MAX_SIDE = 1000 };
/* Outliers: at most a twentieth of the values, or a few. They are left out only if there are enough values to judge. */
enum { OUTLIERS_PART = 20, OUTLIERS_FEW = 3, OUTLIERS_ENOUGH = 10 };
#define LOG_RATIO     20.0 /* values that span more get a logarithmic axis */
#define OUTLIER_RATIO 3.0  /* without outliers the axis must span so many times less */

struct range {
    double min, max;
};

/* Cells of the grid: dots[] has the dots of the lines (a bit per dot), owner[] the curve that drew last. */
struct grid {
    int columns, rows; /* characters */
    int label;         /* characters of a value at the axis */
    bool signs;        /* a sign for each curve, if colours do not tell them apart */
    int sx, sy;        /* dots a character: 2 x 4 in braille, else 1 x 1 */
    unsigned char *dots;
    unsigned char *owner; /* 1 + index of the curve; 0: empty */
    bool *mark;
    bool log_y;
    struct range x, y;   /* y: as transformed */
    struct range all;    /* range of y with outliers, not transformed */
    size_t above, below; /* outliers, drawn at the edge: above the axis, and below it */
};

static double transform(const struct grid *g, double y)
{
    return g->log_y ? log10(fmax(y, 5e-324)) : y;
}

/* ---- ranges ---- */

static bool usable(const struct plot_curve *c, size_t i)
{
    return isfinite(c->x[i]) && isfinite(c->y[i]);
}

static void widen(struct range *r, double v)
{
    r->min = fmin(r->min, v);
    r->max = fmax(r->max, v);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* All values in ascending order; the caller frees. NULL: out of memory. */
static double *sorted(const struct plot *p, size_t *ret_n)
{
    size_t n = 0, room = 1;
    double *v;

    for (int k = 0; k < PLOT_CURVES; k++)
        room += p->curve[k].n;
    v = malloc(room * sizeof *v);
    for (int k = 0; v && k < PLOT_CURVES; k++)
        for (size_t i = 0; i < p->curve[k].n; i++)
            if (usable(&p->curve[k], i))
                v[n++] = p->curve[k].y[i];
    if (n > 1)
        qsort(v, n, sizeof *v, compare);
    *ret_n = n;
    return v;
}

/* Finds how many of the largest and smallest values, together at most `most`, lie so far off that the axis is better
 * without them. */
static void find_outliers(struct grid *g, const double *v, size_t n, size_t most)
{
    double span = transform(g, v[n - 1]) - transform(g, v[0]);

    for (size_t out = 1; out <= most; out++)
        for (size_t above = 0; above <= out; above++) {
            double left = transform(g, v[n - 1 - above]) - transform(g, v[out - above]);

            if (left * OUTLIER_RATIO < span) {
                g->above = above;
                g->below = out - above;
                span = left;
            }
        }
}

static void choose_log(struct grid *g, double min, double max)
{
    g->log_y = min > 0 && max / min > LOG_RATIO;
}

/* Sets the value axis from n > 0 sorted values. */
static void measure_y(struct grid *g, const double *v, size_t n)
{
    size_t most = n / OUTLIERS_PART > OUTLIERS_FEW ? n / OUTLIERS_PART : OUTLIERS_FEW;

    g->all = (struct range){ v[0], v[n - 1] };
    choose_log(g, v[0], v[n - 1]);
    if (n >= OUTLIERS_ENOUGH)
        find_outliers(g, v, n, most);
    double min = v[g->below], max = v[n - 1 - g->above];

    choose_log(g, min, max);
    g->y = (struct range){ transform(g, min), transform(g, max) };
    if (g->y.min == g->y.max) {
        double room = min != 0 ? fabs(min) * 0.05 : 1;

        g->y.min -= room;
        g->y.max += room;
    }
}

static double value_of_row(const struct grid *g, int row)
{
    double y = g->y.max - (g->y.max - g->y.min) * row / (g->rows - 1);

    return g->log_y ? pow(10, y) : y;
}

static bool has_label(const struct grid *g, int row)
{
    return row == 0 || row == g->rows - 1 || row == g->rows / 2;
}

static void measure_labels(struct grid *g)
{
    g->label = NUMBER_CHARS;
    for (int row = 0; row < g->rows; row++) {
        int n = has_label(g, row) ? snprintf(NULL, 0, "%.4g", value_of_row(g, row)) : 0;

        g->label = n > g->label ? n : g->label;
    }
}

/* Returns false if there is nothing to draw. */
static bool measure(const struct plot *p, struct grid *g)
{
    size_t n;
    double *v = sorted(p, &n);

    g->x = (struct range){ INFINITY, -INFINITY };
    for (int k = 0; k < PLOT_CURVES; k++)
        for (size_t i = 0; i < p->curve[k].n; i++)
            if (usable(&p->curve[k], i))
                widen(&g->x, p->curve[k].x[i]);
    if (v && n > 0)
        measure_y(g, v, n);
    free(v);
    if (g->x.min == g->x.max)
        g->x.max = g->x.min + 1;
    measure_labels(g);
    return v && n > 0;
}

/* ---- drawing ---- */

/* Maps v from the range from..to to 0 .. dots - 1. The result stays inside even if a difference overflows. */
static int place(double from, double to, double v, int dots)
{
    double part = (v - from) / (to - from);

    return part > 0 ? (int)lround(fmin(part, 1) * (dots - 1)) : 0;
}

static int dot_x(const struct grid *g, double x)
{
    return place(g->x.min, g->x.max, x, g->columns * g->sx);
}

static int dot_y(const struct grid *g, double y)
{
    return place(g->y.max, g->y.min, transform(g, y), g->rows * g->sy);
}

static void set_dot(struct grid *g, int x, int y, int owner)
{
    /* the order in which Unicode numbers the dots of U+2800 */
    static const unsigned char bit[4][2] = { { 0x01, 0x08 }, { 0x02, 0x10 }, { 0x04, 0x20 }, { 0x40, 0x80 } };
    size_t cell = (size_t)(y / g->sy) * (size_t)g->columns + (size_t)(x / g->sx);

    g->dots[cell] |= bit[y % g->sy][x % g->sx];
    g->owner[cell] = (unsigned char)(owner + 1);
}

static void line(struct grid *g, int x0, int y0, int x1, int y1, int owner)
{
    int dx = abs(x1 - x0), dy = abs(y1 - y0), n = dx > dy ? dx : dy;

    for (int i = 0; i <= n; i++) {
        double part = n ? (double)i / n : 0;

        set_dot(g, x0 + (int)lround(part * (x1 - x0)), y0 + (int)lround(part * (y1 - y0)), owner);
    }
}

static void draw_line(struct grid *g, const struct plot_curve *c, int owner)
{
    bool pen = false;
    int px = 0, py = 0;

    for (size_t i = 0; i < c->n; i++) {
        if (!usable(c, i)) {
            pen = false;
            continue;
        }
        int x = dot_x(g, c->x[i]), y = dot_y(g, c->y[i]);

        line(g, pen ? px : x, pen ? py : y, x, y, owner);
        px = x;
        py = y;
        pen = true;
    }
}

static void draw_marks(struct grid *g, const struct plot_curve *c, int owner)
{
    for (size_t i = 0; i < c->n; i++) {
        if (!usable(c, i))
            continue;
        size_t cell = (size_t)(dot_y(g, c->y[i]) / g->sy) * (size_t)g->columns + (size_t)(dot_x(g, c->x[i]) / g->sx);

        g->mark[cell] = true;
        g->owner[cell] = (unsigned char)(owner + 1);
    }
}

/* ---- writing ---- */

static const char signs[PLOT_CURVES] = { '*', '+', 'x', '#', '%', '@' };
static const char *const colours[PLOT_CURVES] = { "\033[36m", "\033[33m", "\033[35m", "\033[32m", "\033[31m", "\033[34m" };

static void put_braille(FILE *out, unsigned dots)
{
    fputc(0xe2, out);
    fputc(0xa0 | (int)(dots >> 6), out);
    fputc(0x80 | (int)(dots & 0x3f), out);
}

static void put_row(FILE *out, const struct plot *p, const struct grid *g, int row)
{
    const size_t base = (size_t)row * (size_t)g->columns;
    int end = g->columns, now = -1;

    while (end > 0 && g->owner[base + (size_t)end - 1] == 0)
        end--;
    for (int x = 0; x < end; x++) {
        size_t cell = base + (size_t)x;
        int owner = g->owner[cell] - 1;

        if (p->colour && owner >= 0 && owner != now)
            fputs(colours[now = owner], out);
        if (owner < 0)
            fputc(' ', out);
        else if (g->mark[cell])
            fputc('o', out);
        else if (p->utf8 && !g->signs)
            put_braille(out, g->dots[cell]);
        else
            fputc(g->signs ? signs[owner] : '*', out);
    }
    if (now >= 0)
        fputs("\033[0m", out);
    fputc('\n', out);
}

static void put_grid(FILE *out, const struct plot *p, const struct grid *g)
{
    for (int row = 0; row < g->rows; row++) {
        if (has_label(g, row))
            fprintf(out, "%*.4g %s", g->label, value_of_row(g, row), p->utf8 ? "┤" : "|");
        else
            fprintf(out, "%*s%s", g->label + 1, "", p->utf8 ? "│" : "|");
        put_row(out, p, g, row);
    }
}

/* The column of the axis at which the change happened; -1: outside of the drawn range. */
static int column_of(const struct grid *g, const struct plot_change *c)
{
    return c->x >= g->x.min && c->x <= g->x.max ? dot_x(g, c->x) / g->sx : -1;
}

static bool is_blank(const char *row, int columns, int at, int n)
{
    for (int i = at - 1; i <= at + n; i++)
        if (i >= 0 && i < columns && row[i] != ' ')
            return false;
    return true;
}

/* Writes the steps at the ends of the axis, and the labels of changes between them. */
static void put_labels(FILE *out, const struct plot *p, const struct grid *g, const char *from, const char *to)
{
    char row[MAX_SIDE + 1];
    int columns = g->columns, end = columns - (int)strlen(to);

    memset(row, ' ', (size_t)columns);
    row[columns] = '\0';
    memcpy(row, from, strlen(from));
    memcpy(row + end, to, strlen(to));
    for (int i = 0; i < p->nchanges; i++) {
        int n = (int)strlen(p->change[i].label), at = column_of(g, &p->change[i]);

        if (at >= 0 && at + n <= columns && is_blank(row, columns, at, n))
            memcpy(row + at, p->change[i].label, (size_t)n);
    }
    fprintf(out, "\n%*s%s\n", g->label + 2, "", row);
}

static bool is_change(const struct plot *p, const struct grid *g, int column)
{
    for (int i = 0; i < p->nchanges; i++)
        if (column_of(g, &p->change[i]) == column)
            return true;
    return false;
}

static void put_axis(FILE *out, const struct plot *p, const struct grid *g)
{
    char from[32], to[32];

    fprintf(out, "%*s%s", g->label + 1, "", p->utf8 ? "└" : "+");
    for (int i = 0; i < g->columns; i++)
        if (is_change(p, g, i))
            fputs(p->utf8 ? "┼" : "|", out);
        else
            fputs(p->utf8 ? "─" : "-", out);
    snprintf(from, sizeof from, "%.10g", g->x.min);
    snprintf(to, sizeof to, "%.10g", g->x.max);
    if ((int)(strlen(from) + strlen(to)) < g->columns)
        put_labels(out, p, g, from, to);
    else
        fprintf(out, "\n%*s%s%*s\n", g->label + 2, "", from, g->columns - (int)strlen(from), to);
}

static void put_outliers(FILE *out, size_t n, const char *side, double farthest)
{
    if (n > 0)
        fprintf(out, "  (%zu value%s %s, to %.4g)", n, n == 1 ? "" : "s", side, farthest);
}

/* Writes the sign of curve k. */
static void put_sign(FILE *out, const struct plot *p, const struct grid *g, int k)
{
    if (p->curve[k].marks)
        fputc('o', out);
    else if (g->signs)
        fprintf(out, "%c%c", signs[k], signs[k]);
    else
        fputs(p->utf8 ? "⠒⠒" : "**", out);
}

/* values: writes the last value of each curve, too. */
static void put_curves(FILE *out, const struct plot *p, const struct grid *g, bool values)
{
    fputs(p->title ? p->title : "", out);
    for (int k = 0; k < PLOT_CURVES; k++) {
        const struct plot_curve *c = &p->curve[k];
        size_t last = c->n;

        while (last > 0 && !usable(c, last - 1))
            last--;
        if (!c->n)
            continue;
        fprintf(out, "  %s", p->colour ? colours[k] : "");
        put_sign(out, p, g, k);
        fprintf(out, " %s", c->label);
        if (last > 0 && values)
            fprintf(out, " %.6g", c->y[last - 1]);
        fputs(p->colour ? "\033[0m" : "", out);
    }
}

/* The number of cells that put_curves() needs. */
static int width_of_curves(const struct plot *p, const struct grid *g)
{
    struct plot plain = *p;
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    int width = 0;

    plain.colour = false;
    if (!out)
        return 0;
    put_curves(out, &plain, g, true);
    if (fclose(out) == 0)
        width = print_width(text, len);
    free(text);
    return width;
}

static void put_legend(FILE *out, const struct plot *p, const struct grid *g)
{
    put_curves(out, p, g, width_of_curves(p, g) <= p->width);
    put_outliers(out, g->above, "above", g->all.max);
    put_outliers(out, g->below, "below", g->all.min);
    fputs(g->log_y ? "  (log scale)\n" : "\n", out);
}

static int clamp(int v, int min)
{
    return v < min ? min : v > MAX_SIDE ? MAX_SIDE : v;
}

/* Used if there is nothing to draw yet: writes the same number of lines. */
static void put_empty(FILE *out, const struct plot *p, const struct grid *g, int height)
{
    put_legend(out, p, g);
    fputs("  no values yet\n", out);
    for (int i = 2; i < height; i++)
        fputc('\n', out);
}

static bool need_signs(const struct plot *p)
{
    int lines = 0;

    for (int k = 0; k < PLOT_CURVES; k++)
        lines += p->curve[k].n > 0 && !p->curve[k].marks;
    return lines > 1 && !p->colour;
}

static void put_all(FILE *out, const struct plot *p, struct grid *g)
{
    for (int k = 0; k < PLOT_CURVES; k++)
        (p->curve[k].marks ? draw_marks : draw_line)(g, &p->curve[k], k);
    put_legend(out, p, g);
    put_grid(out, p, g);
    put_axis(out, p, g);
}

char *plot_text(const struct plot *p)
{
    int height = clamp(p->height, MIN_HEIGHT);
    struct grid g = { .rows = height - 3, .signs = need_signs(p) };
    bool dots = p->utf8 && !g.signs, any = measure(p, &g);
    size_t cells, len;
    char *text = NULL;
    FILE *out = open_memstream(&text, &len);

    g.sx = dots ? 2 : 1;
    g.sy = dots ? 4 : 1;
    g.columns = clamp(p->width, MIN_WIDTH) - g.label - 2;
    cells = (size_t)g.columns * (size_t)g.rows;
    g.dots = calloc(cells, 1);
    g.owner = calloc(cells, 1);
    g.mark = calloc(cells, sizeof *g.mark);
    if (out && g.dots && g.owner && g.mark && any)
        put_all(out, p, &g);
    else if (out)
        put_empty(out, p, &g, height);
    free(g.dots);
    free(g.owner);
    free(g.mark);
    if (out && fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

#include "client/plot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LABEL_CHARS = 9, MIN_WIDTH = 20, MIN_HEIGHT = 6, MAX_SIDE = 1000 };
#define LOG_RATIO 20.0 /* values that span more are drawn on a logarithmic axis */

struct range {
    double min, max;
};

/* Cells of the grid; each has dots[] of the lines (bit per dot) and who drew last. */
struct grid {
    int columns, rows; /* characters */
    int sx, sy;        /* dots a character: 2 x 4 in braille, else 1 x 1 */
    unsigned char *dots;
    unsigned char *owner; /* 1 + index of the curve; 0: empty */
    bool *mark;
    bool log_y;
    struct range x, y; /* y is transformed */
};

static double transform(const struct grid *g, double y)
{
    return g->log_y ? log10(y) : y;
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

/* Returns whether there is anything to draw. */
static bool measure(const struct plot *p, struct grid *g)
{
    struct range y = { INFINITY, -INFINITY };

    g->x = y;
    for (int k = 0; k < PLOT_CURVES; k++)
        for (size_t i = 0; i < p->curve[k].n; i++)
            if (usable(&p->curve[k], i)) {
                widen(&g->x, p->curve[k].x[i]);
                widen(&y, p->curve[k].y[i]);
            }
    if (y.min > y.max)
        return false;
    g->log_y = y.min > 0 && y.max / y.min > LOG_RATIO;
    g->y.min = transform(g, y.min);
    g->y.max = transform(g, y.max);
    if (g->y.min == g->y.max) {
        double room = y.min != 0 ? fabs(y.min) * 0.05 : 1;

        g->y.min -= room;
        g->y.max += room;
    }
    if (g->x.min == g->x.max)
        g->x.max = g->x.min + 1;
    return true;
}

/* ---- drawing ---- */

/* Where in 0 .. dots - 1 the part from..to puts v; differences that overflow stay inside too. */
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
        else if (p->utf8)
            put_braille(out, g->dots[cell]);
        else
            fputc('*', out);
    }
    if (now >= 0)
        fputs("\033[0m", out);
    fputc('\n', out);
}

static void put_grid(FILE *out, const struct plot *p, const struct grid *g)
{
    for (int row = 0; row < g->rows; row++) {
        bool label = row == 0 || row == g->rows - 1 || row == g->rows / 2;
        double y = g->y.max - (g->y.max - g->y.min) * row / (g->rows - 1);

        if (label)
            fprintf(out, "%*.4g %s", LABEL_CHARS - 2, g->log_y ? pow(10, y) : y, p->utf8 ? "┤" : "|");
        else
            fprintf(out, "%*s%s", LABEL_CHARS - 1, "", p->utf8 ? "│" : "|");
        put_row(out, p, g, row);
    }
}

/* The column of the axis at which something changed, -1: beyond what is drawn. */
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

/* The steps at the ends of the axis, and between them what changed. */
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
    fprintf(out, "\n%*s%s\n", LABEL_CHARS, "", row);
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

    fprintf(out, "%*s%s", LABEL_CHARS - 1, "", p->utf8 ? "└" : "+");
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
        fprintf(out, "\n%*s%s%*s\n", LABEL_CHARS, "", from, g->columns - (int)strlen(from), to);
}

static void put_legend(FILE *out, const struct plot *p, bool log_y)
{
    fputs(p->title ? p->title : "", out);
    for (int k = 0; k < PLOT_CURVES; k++) {
        const struct plot_curve *c = &p->curve[k];
        size_t last = c->n;

        while (last > 0 && !usable(c, last - 1))
            last--;
        if (!c->n)
            continue;
        fprintf(out, "  %s%s %s", p->colour ? colours[k] : "", c->marks ? "o" : p->utf8 ? "⠒⠒" : "**", c->label);
        if (last > 0)
            fprintf(out, " %.6g", c->y[last - 1]);
        fputs(p->colour ? "\033[0m" : "", out);
    }
    fputs(log_y ? "  (log scale)\n" : "\n", out);
}

static int clamp(int v, int min)
{
    return v < min ? min : v > MAX_SIDE ? MAX_SIDE : v;
}

/* Nothing to draw yet: the same number of lines. */
static void put_empty(FILE *out, const struct plot *p, int height)
{
    put_legend(out, p, false);
    fputs("  no values yet\n", out);
    for (int i = 2; i < height; i++)
        fputc('\n', out);
}

char *plot_text(const struct plot *p)
{
    int height = clamp(p->height, MIN_HEIGHT);
    struct grid g = {
        .columns = clamp(p->width, MIN_WIDTH) - LABEL_CHARS, .rows = height - 3, .sx = p->utf8 ? 2 : 1, .sy = p->utf8 ? 4 : 1
    };
    size_t cells = (size_t)g.columns * (size_t)g.rows, len;
    char *text = NULL;
    FILE *out = open_memstream(&text, &len);

    g.dots = calloc(cells, 1);
    g.owner = calloc(cells, 1);
    g.mark = calloc(cells, sizeof *g.mark);
    if (out && g.dots && g.owner && g.mark) {
        if (measure(p, &g)) {
            for (int k = 0; k < PLOT_CURVES; k++)
                (p->curve[k].marks ? draw_marks : draw_line)(&g, &p->curve[k], k);
            put_legend(out, p, g.log_y);
            put_grid(out, p, &g);
            put_axis(out, p, &g);
        } else {
            put_empty(out, p, height);
        }
    }
    free(g.dots);
    free(g.owner);
    free(g.mark);
    if (out && fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

#include "client/base/print.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

#include "proto/clean.h"
#include "proto/grow.h"
#include "proto/host/memory.h"

/* A stream in memory is for the terminal that stdout may be. */
static bool is_terminal(FILE *out)
{
    return isatty(fileno(out) < 0 ? STDOUT_FILENO : fileno(out));
}

/* Length of a sequence that sets colours, such as ESC [1;31m; 0: the text begins with no such sequence. */
static size_t colour(const char *text, size_t len)
{
    size_t n = 2;

    if (len < 3 || strncmp(text, "\033[", 2) != 0)
        return 0;
    while (n < len && (text[n] == ';' || (text[n] >= '0' && text[n] <= '9')))
        n++;
    return n < len && text[n] == 'm' ? n + 1 : 0;
}

/* lines: keeps line ends, tabs and colours. */
static void show(FILE *out, const char *text, size_t len, bool lines)
{
    bool coloured = false;
    uint32_t code;
    size_t n;

    for (; len > 0; text += n, len -= n) {
        n = lines ? colour(text, len) : 0;
        if (n > 0) {
            coloured = true;
            fwrite(text, 1, n, out);
            continue;
        }
        n = clean_next(text, len, &code);
        n = n ? n : len; /* the text ends in a part of a character */
        if (clean_is_obeyed(code) && !(lines && (code == '\n' || code == '\t')))
            fputs(clean_shown(code).s, out);
        else
            fwrite(text, 1, n, out);
    }
    if (coloured)
        fputs("\033[0m", out);
}

static void put(FILE *out, const char *text, size_t len, bool lines)
{
    if (is_terminal(out))
        show(out, text, len, lines);
    else
        fwrite(text, 1, len, out);
}

void print_clean(FILE *out, const char *text)
{
    put(out, text, strlen(text), false);
}

void print_lines(FILE *out, const char *text, size_t len)
{
    put(out, text, len, true);
}

/* wcwidth() knows letters only in a locale that has them. */
static int cells_of(uint32_t code)
{
    static locale_t utf8;
    locale_t before;
    int cells;

    if (!utf8 && !(utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0)))
        return 1;
    before = uselocale(utf8);
    cells = wcwidth((wchar_t)code);
    uselocale(before);
    return cells < 0 ? 1 : cells;
}

int print_width(const char *text, size_t len)
{
    int width = 0;
    uint32_t code;
    size_t n;

    for (; len > 0; text += n, len -= n) {
        n = clean_next(text, len, &code);
        n = n ? n : len;
        width += clean_is_obeyed(code) ? (int)strlen(clean_shown(code).s) : cells_of(code);
    }
    return width;
}

const char *text_of(const json_t *obj, const char *name)
{
    const char *s = json_string_value(json_object_get(obj, name));

    return s ? s : "";
}

long long int_of(const json_t *obj, const char *name)
{
    return json_integer_value(json_object_get(obj, name));
}

double real_of(const json_t *obj, const char *name)
{
    return json_number_value(json_object_get(obj, name));
}

void print_json_as(const json_t *value, size_t flags)
{
    char *json = json_dumps(value, flags);
    uint32_t code;
    size_t n;

    if (!json)
        memory_out();
    for (const char *at = json; *at; at += n) {
        n = clean_next(at, strlen(at), &code);
        n = n ? n : 1;
        if (code < 0x7f || !clean_is_obeyed(code)) /* jansson escapes those below */
            fwrite(at, 1, n, stdout);
        else if (code < 0x10000)
            printf("\\u%04x", code);
        else
            printf("\\u%04x\\u%04x", 0xd7c0 + (code >> 10), 0xdc00 + (code & 0x3ff));
    }
    free(json);
}

void print_json(const json_t *value)
{
    print_json_as(value, JSON_INDENT(2) | JSON_ENCODE_ANY);
    fputc('\n', stdout);
}

void print_real(FILE *out, const json_t *value)
{
    if (json_is_integer(value))
        fprintf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        fprintf(out, "%.17g", json_real_value(value));
}

static bool begins_with_one_of(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (strncmp(text, *words, strlen(*words)) == 0)
            return true;
    return false;
}

/* Whether the node's terminfo has the terminal, or it is a usual one. */
static bool is_known(const char *term)
{
    static const char *const folders[] = { "/etc/terminfo", "/lib/terminfo", "/usr/share/terminfo", "/usr/lib/terminfo" };
    static const char *const usual[] = { "xterm", "screen", "tmux", "rxvt", "linux", "vt100", "vt220", NULL };
    char path[PATH_MAX];

    if (begins_with_one_of(term, usual))
        return true;
    for (size_t i = 0; i < sizeof folders / sizeof *folders && !strchr(term, '/'); i++)
        if (snprintf(path, sizeof path, "%s/%c/%s", folders[i], term[0], term) < (int)sizeof path && access(path, R_OK) == 0)
            return true;
    return false;
}

bool print_moves(FILE *out)
{
    static const char *const none[] = { "dumb", "unknown", NULL };
    const char *term = getenv("TERM");

    return isatty(fileno(out)) && term && *term && !begins_with_one_of(term, none) && is_known(term);
}

bool print_colour(FILE *out)
{
    const char *no = getenv("NO_COLOR");

    return print_moves(out) && !(no && *no);
}

bool print_utf8(void)
{
    const char *term = getenv("TERM");
    bool console = isatty(STDOUT_FILENO) && term && strncmp(term, "linux", 5) == 0; /* the console's font has 256 or 512 characters */

    return strcmp(nl_langinfo(CODESET), "UTF-8") == 0 && !console;
}

void print_size(int *ret_columns, int *ret_rows)
{
    struct winsize size;

    *ret_columns = 80;
    *ret_rows = 24;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
        *ret_columns = size.ws_col;
        *ret_rows = size.ws_row;
    }
}

void print_csv_text(const char *text)
{
    const bool quoted = strpbrk(text, ",\"\r\n");

    fputs(quoted ? "\"" : "", stdout);
    for (size_t n; *text; text += n) {
        n = strcspn(text, "\"");
        put(stdout, text, n, false);
        if (n == 0) {
            fputs("\"\"", stdout);
            n = 1;
        }
    }
    fputs(quoted ? "\"" : "", stdout);
}

/* ---- short texts ---- */

struct text_buf text_duration(double seconds)
{
    struct text_buf b;
    long long s = seconds > 0 && seconds < 1e12 ? (long long)(seconds + 0.5) : 0;

    if (s < 60)
        snprintf(b.s, sizeof b.s, "%lld s", s);
    else if (s < 3600)
        snprintf(b.s, sizeof b.s, "%lldm %02llds", s / 60, s % 60);
    else if (s < 86400)
        snprintf(b.s, sizeof b.s, "%lldh %02lldm", s / 3600, s / 60 % 60);
    else
        snprintf(b.s, sizeof b.s, "%lldd %lldh", s / 86400, s / 3600 % 24);
    return b;
}

struct text_buf text_bytes(double bytes)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    struct text_buf b;
    int u = 0;

    for (; bytes >= 1024 && u < 4; u++)
        bytes /= 1024;
    snprintf(b.s, sizeof b.s, "%.*f %s", u > 0 && bytes < 10, bytes, units[u]);
    return b;
}

static bool in_utc;

void print_times_in_utc(void)
{
    in_utc = true;
}

struct text_buf text_time(double unix_time)
{
    struct text_buf b = { "-" };
    time_t t = (time_t)unix_time;
    struct tm tm;

    if (unix_time > 0 && unix_time < 1e12 && (in_utc ? gmtime_r(&t, &tm) : localtime_r(&t, &tm)))
        strftime(b.s, sizeof b.s, in_utc ? "%Y-%m-%d %H:%M:%SZ" : "%Y-%m-%d %H:%M:%S", &tm);
    return b;
}

struct text_buf text_taken(const json_t *job)
{
    return real_of(job, "started") > 0 ? text_duration(real_of(job, "seconds")) : (struct text_buf){ "-" };
}

struct text_buf text_step(const json_t *job)
{
    struct text_buf b = { "-" };

    if (int_of(job, "steps") > 0)
        snprintf(b.s, sizeof b.s, "%lld/%lld", int_of(job, "step"), int_of(job, "steps"));
    else if (int_of(job, "step") > 0) /* a program that has not said how many there are */
        snprintf(b.s, sizeof b.s, "%lld", int_of(job, "step"));
    return b;
}

struct text_tags_buf text_tags(const json_t *job)
{
    struct text_tags_buf b = { "" };
    size_t len = 0, i;
    json_t *tag;

    json_array_foreach (json_object_get(job, "tags"), i, tag) {
        if (len < sizeof b.s)
            len +=
                (size_t)snprintf(b.s + len, sizeof b.s - len, "%s%s", i ? " " : "", json_string_value(tag) ? json_string_value(tag) : "");
    }
    return b;
}

struct text_buf text_number(const json_t *v)
{
    struct text_buf b = { "-" };

    if (json_is_integer(v))
        snprintf(b.s, sizeof b.s, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    else if (json_is_real(v))
        snprintf(b.s, sizeof b.s, "%.6g", json_real_value(v));
    return b;
}

/* ---- columns ---- */

struct table {
    int columns;
    size_t n, cap;
    char **cell; /* n cells, row by row, the headers first */
    bool *right, *hidden;
};

static void *must(void *p)
{
    if (!p)
        memory_out();
    return p;
}

static void append(struct table *t, char *cell)
{
    if (!GROW(t->cell, t->cap, t->n + 1))
        memory_out();
    t->cell[t->n++] = cell;
}

struct table *table_new(int columns, const char *const *headers)
{
    struct table *t = must(calloc(1, sizeof *t));

    t->columns = columns;
    t->right = must(calloc((size_t)columns, sizeof *t->right));
    t->hidden = must(calloc((size_t)columns, sizeof *t->hidden));
    for (int i = 0; i < columns; i++) {
        t->right[i] = headers[i][0] == '>';
        append(t, must(strdup(headers[i] + 1)));
    }
    return t;
}

void table_add(struct table *t, const char *cell)
{
    append(t, must(strdup(cell ? cell : "")));
}

void table_addf(struct table *t, const char *fmt, ...)
{
    char *cell;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&cell, fmt, ap) < 0)
        memory_out();
    va_end(ap);
    append(t, cell);
}

static int width_of(const char *s)
{
    return print_width(s, strlen(s));
}

static int last_column(const struct table *t)
{
    int last = t->columns - 1;

    while (last > 0 && t->hidden[last])
        last--;
    return last;
}

static int *widths(const struct table *t)
{
    int *width = must(calloc((size_t)t->columns, sizeof *width));

    for (size_t i = 0; i < t->n; i++) {
        int w = width_of(t->cell[i]), *best = &width[i % (size_t)t->columns];

        if (w > *best)
            *best = w;
    }
    return width;
}

void table_hide(struct table *t, int column)
{
    t->hidden[column] = true;
}

int table_width(const struct table *t)
{
    int *width = widths(t), sum = -2;

    for (int i = 0; i < t->columns; i++)
        sum += t->hidden[i] ? 0 : width[i] + 2;
    free(width);
    return sum;
}

static void print_cell(const struct table *t, size_t i, int width, FILE *out)
{
    int column = (int)(i % (size_t)t->columns), pad = width - width_of(t->cell[i]);
    bool last = column == last_column(t);

    if (t->hidden[column])
        return;
    if (t->right[column])
        fprintf(out, "%*s", pad, "");
    print_clean(out, t->cell[i]);
    if (!t->right[column] && !last)
        fprintf(out, "%*s", pad, "");
    fputs(last ? "\n" : "  ", out);
}

void table_print(struct table *t, FILE *out)
{
    int *width = widths(t);

    for (size_t i = 0; i < t->n; i++)
        print_cell(t, i, width[i % (size_t)t->columns], out);
    free(width);
}

void table_free(struct table *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n; i++)
        free(t->cell[i]);
    free(t->cell);
    free(t->right);
    free(t->hidden);
    free(t);
}

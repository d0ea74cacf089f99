#include "worker/models/yolo/cfg_text.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"

void cfg_fail(struct cfg_text *p, int line, const char *fmt, ...)
{
    char what[320];
    va_list ap;

    if (p->rc < 0)
        return;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    p->rc = err_set(p->err, ERR_INPUT, "%s:%d: %s", p->name, line, what);
}

void cfg_warn(struct cfg_text *p, int line, const char *fmt, ...)
{
    va_list ap;

    if (p->nwarnings++ >= CFG_MAX_WARNINGS)
        return;
    fprintf(p->warnings, line > 0 ? "%s:%d: " : "%s: ", p->name, line);
    va_start(ap, fmt);
    vfprintf(p->warnings, fmt, ap);
    va_end(ap);
    fputc('\n', p->warnings);
    if (p->nwarnings == CFG_MAX_WARNINGS)
        fprintf(p->warnings, "%s: further warnings are not shown\n", p->name);
}

/* Cuts the comment and removes all blanks, also those between letters, as darknet does. */
static void squeeze(char *line)
{
    char *to = line;

    line[strcspn(line, "#;")] = 0;
    for (const char *from = line; *from; from++)
        if (!strchr(" \t\r", *from))
            *to++ = *from;
    *to = 0;
}

static bool is_plain(const char *line)
{
    for (; *line; line++)
        if (*line <= ' ' || *line > '~')
            return false;
    return true;
}

static void add_section(struct cfg_text *p, char *line, int number)
{
    char *end = strchr(line, ']');

    if (!end || end[1] || end == line + 1) {
        cfg_fail(p, number, "'%.40s' is not a section; expected [name]", line);
        return;
    }
    *end = 0;
    p->sections[p->nsections++] = (struct cfg_section){ line + 1, number, p->nentries, p->nentries };
}

static void add_entry(struct cfg_text *p, char *line, int number)
{
    char *eq = strchr(line, '=');
    struct cfg_section *s = p->nsections ? &p->sections[p->nsections - 1] : NULL;

    if (!eq || eq == line || !eq[1]) {
        cfg_fail(p, number, "'%.40s' is neither [section] nor key=value", line);
        return;
    }
    if (!s) {
        cfg_fail(p, number, "'%.40s' stands before the first section", line);
        return;
    }
    *eq = 0;
    for (int i = s->from; i < s->to; i++)
        if (strcmp(p->entries[i].key, line) == 0) {
            cfg_warn(p, number, "'%.40s' is already set in line %d, which holds", line, p->entries[i].line);
            return;
        }
    if (s->to - s->from == CFG_MAX_KEYS) {
        cfg_fail(p, number, "more than %d keys in one section", CFG_MAX_KEYS);
        return;
    }
    p->entries[p->nentries++] = (struct cfg_entry){ line, eq + 1, number };
    s->to = p->nentries;
}

static void read_line(struct cfg_text *p, char *line, int number)
{
    if (strlen(line) > CFG_MAX_LINE) {
        cfg_fail(p, number, "line longer than %d bytes", CFG_MAX_LINE);
        return;
    }
    squeeze(line);
    if (!*line)
        return;
    if (!is_plain(line))
        cfg_fail(p, number, "unexpected character");
    else if (*line == '[')
        add_section(p, line, number);
    else
        add_entry(p, line, number);
}

/* Fills sections and entries. Neither has more elements than the text has lines. */
static void read_lines(struct cfg_text *p, size_t size)
{
    static const char mark[] = "\xef\xbb\xbf"; /* byte order mark */
    char *at = p->text + (strncmp(p->text, mark, 3) == 0 ? 3 : 0);
    size_t nlines = 1;

    for (size_t i = 0; i < size; i++)
        nlines += p->text[i] == '\n';
    p->sections = calloc(nlines, sizeof *p->sections);
    p->entries = calloc(nlines, sizeof *p->entries);
    if (!p->sections || !p->entries) {
        p->rc = err_set(p->err, -ENOMEM, "%s: out of memory", p->name);
        return;
    }
    for (int number = 1; at && p->rc == 0; number++) {
        char *end = strchr(at, '\n');

        if (end)
            *end = 0;
        read_line(p, at, number);
        at = end ? end + 1 : NULL;
    }
}

int cfg_text_open(struct cfg_text *p, const char *text, size_t size, const char *name, struct err *err)
{
    *p = (struct cfg_text){ .name = name, .err = err };
    if (size > CFG_MAX_BYTES)
        return p->rc = err_set(err, ERR_INPUT, "%s: larger than %d bytes", name, CFG_MAX_BYTES);
    if (memchr(text, 0, size))
        return p->rc = err_set(err, ERR_INPUT, "%s: not a text file", name);
    p->text = strndup(text, size);
    p->warnings = open_memstream(&p->warning_text, &p->warning_size);
    if (!p->text || !p->warnings)
        return p->rc = err_set(err, -ENOMEM, "%s: out of memory", name);
    read_lines(p, size);
    return p->rc;
}

int cfg_text_close(struct cfg_text *p, char **ret_warnings)
{
    if (p->warnings && fclose(p->warnings) != 0 && p->rc == 0)
        p->rc = err_set(p->err, -ENOMEM, "%s: out of memory", p->name);
    free(p->text);
    free(p->sections);
    free(p->entries);
    if (p->rc < 0)
        free(p->warning_text);
    else
        *ret_warnings = p->warning_text;
    return p->rc;
}

static const struct cfg_entry *find(const struct cfg_text *p, const struct cfg_section *s, const char *key)
{
    for (int i = s->from; i < s->to; i++)
        if (strcmp(p->entries[i].key, key) == 0)
            return &p->entries[i];
    return NULL;
}

/* The line of a key. If the key is missing, the line of its section. */
static int cfg_line(const struct cfg_text *p, const struct cfg_section *s, const char *key)
{
    const struct cfg_entry *e = find(p, s, key);

    return e ? e->line : s->line;
}

/* Reads one number at *at, up to a comma or the end, and moves *at behind it. Only decimal digits count: strtod() alone
 * would accept hex, inf and nan. */
static double number(struct cfg_text *p, const struct cfg_entry *e, const char **at, double min, double max, bool whole)
{
    size_t len = strcspn(*at, ",");
    char *end;
    double v = strtod(*at, &end);

    if (len == 0 || strspn(*at, "0123456789.eE+-") < len || end != *at + len)
        cfg_fail(p, e->line, "%.40s: '%.*s' is not a number", e->key, (int)(len < 40 ? len : 40), *at);
    else if (whole && v != floor(v))
        cfg_fail(p, e->line, "%.40s: must be a whole number, is %g", e->key, v);
    else if (!(v >= min && v <= max))
        cfg_fail(p, e->line, "%.40s: must be %g to %g, is %g", e->key, min, max, v);
    *at += len + ((*at)[len] == ',');
    return v;
}

static double get_number(struct cfg_text *p, const struct cfg_section *s, const char *key, double def, double min, double max, bool whole)
{
    const struct cfg_entry *e = find(p, s, key);
    const char *at;
    double v;

    if (!e)
        return def;
    at = e->value;
    v = number(p, e, &at, min, max, whole);
    if (*at || strchr(e->value, ','))
        cfg_fail(p, e->line, "%.40s: one number expected, is '%.40s'", key, e->value);
    return p->rc < 0 ? def : v;
}

double cfg_real(struct cfg_text *p, const struct cfg_section *s, const char *key, double def, double min, double max)
{
    return get_number(p, s, key, def, min, max, false);
}

int cfg_int(struct cfg_text *p, const struct cfg_section *s, const char *key, int def, int min, int max)
{
    return (int)get_number(p, s, key, def, min, max, true);
}

int cfg_list(struct cfg_text *p, const struct cfg_section *s, const char *key, double *v, int room, double min, double max, bool whole)
{
    const struct cfg_entry *e = find(p, s, key);
    const char *at = e ? e->value : "";
    int n = 0;

    while (*at && p->rc == 0) {
        double next;

        if (n == room) {
            cfg_fail(p, e->line, "%.40s: more than %d numbers", key, room);
            break;
        }
        next = number(p, e, &at, min, max, whole);
        if (p->rc == 0) /* a number out of range does not fit an int */
            v[n++] = next;
    }
    return p->rc < 0 ? 0 : n;
}

int cfg_word(struct cfg_text *p, const struct cfg_section *s, const char *key, int def, const char *const *words)
{
    const struct cfg_entry *e = find(p, s, key);
    char known[120] = "";
    size_t at = 0;

    if (!e)
        return def;
    for (int i = 0; words[i]; i++) {
        if (strcmp(words[i], e->value) == 0)
            return i;
        at += at < sizeof known ? (size_t)snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "", words[i]) : 0;
    }
    cfg_fail(p, e->line, "%.40s: '%.40s' is not supported; supported are %s", key, e->value, known);
    return def;
}

void cfg_only(struct cfg_text *p, const struct cfg_section *s, const char *key, double value)
{
    double v = cfg_real(p, s, key, value, -1e9, 1e9);

    if (v != value)
        cfg_fail(p, cfg_line(p, s, key), "%s=%g is not supported, only %g", key, v, value);
}

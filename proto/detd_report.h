/* SPDX-License-Identifier: Apache-2.0 */ /* detd_report.h - losses, checkpoints and words of a training program under
 * detd, for C and C++. One file without dependencies: include it where you need it. PROTOCOL.md describes the lines.
 *
 *     struct detd d;
 *     detd_init(&d, DETD_WORD(DETD_CHECKPOINT) | DETD_WORD(DETD_PAUSE));
 *     for (long long step = d.step + 1; step <= steps; step++) {
 *         ...
 *         detd_share(&d, "train", step, 2, (struct detd_term[]){ { "total", sum, n }, { "box", box_sum, n } });
 *         if (detd_wants(&d, step, DETD_CHECKPOINT))
 *             detd_checkpoint(&d, step, path);          // after fsync() of what this rank wrote; path: of rank 0
 *     }
 *
 * Outside detd nothing happens, and detd_wants() says no. Each rank reports its own numerators and denominators; detd
 * adds them. One thread of a rank calls these functions. A process that was forked must not call them. */
#ifndef DETD_REPORT_H
#define DETD_REPORT_H

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum detd_word { DETD_CHECKPOINT = 1, DETD_VALIDATE = 2, DETD_PAUSE = 3, DETD_CANCEL = 4 };
#define DETD_WORD(word) (1u << (word))
enum { DETD_LINE = 64 << 10, DETD_PAGE_BYTES = 4096 };

struct detd_term {
    const char *name; /* 1 to 63 bytes without quotes, backslashes and control characters */
    double num, den;
};

struct detd {
    int fd; /* -1: the program does not run under detd */
    volatile uint64_t *page;
    long long step;     /* to go on after; 0: from the beginning */
    const char *resume; /* path of the checkpoint of that step, or NULL */
    long long every;    /* steps between checkpoints (checkpoint.every); 0: only when asked */
    char line[DETD_LINE];
};

/* The descriptor that the variable names as NUMBER:INODE, or -1. */
static inline int detd_descriptor(const char *variable)
{
    const char *text = getenv(variable);
    unsigned long long inode = 0;
    struct stat st;
    int fd = -1;

    if (!text || sscanf(text, "%d:%llu", &fd, &inode) != 2 || fstat(fd, &st) < 0 || st.st_ino != inode)
        return -1;
    return fd;
}

static inline void detd_write(struct detd *d, size_t len)
{
    for (size_t at = 0; d->fd >= 0 && at < len;) {
        ssize_t n = write(d->fd, d->line + at, len - at);

        if (n < 0 && errno != EINTR)
            d->fd = -1; /* detd-job is gone */
        at += n > 0 ? (size_t)n : 0;
    }
}

static inline long long detd_number(const char *variable)
{
    const char *text = getenv(variable);

    return text ? strtoll(text, NULL, 10) : 0;
}

/* words: of DETD_WORD(), those that the program asks for with detd_wants(). All ranks name the same ones. */
static inline void detd_init(struct detd *d, unsigned words)
{
    static const char *const names[] = { "", "checkpoint", "validate", "pause", "cancel" };
    int page = detd_descriptor("DETD_PAGE"), n;
    void *memory = page < 0 ? MAP_FAILED : mmap(NULL, DETD_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);

    memset(d, 0, sizeof *d);
    d->fd = detd_descriptor("DETD_REPORT");
    d->page = memory == MAP_FAILED ? NULL : (volatile uint64_t *)memory;
    d->step = detd_number("DETD_RESUME_STEP");
    d->resume = getenv("DETD_RESUME");
    d->every = detd_number("DETD_CHECKPOINT_EVERY");
    if (d->page)
        d->page[0] = (uint64_t)3 << 32 | 0x64657464u;
    n = snprintf(d->line, sizeof d->line, "{\"type\":\"hello\",\"pid\":%d,\"words\":[", (int)getpid());
    for (int w = 1, first = 1; w <= 4; w++)
        if (words & DETD_WORD(w)) {
            n += snprintf(d->line + n, sizeof d->line - (size_t)n, "%s\"%s\"", first ? "" : ",", names[w]);
            first = 0;
        }
    n += snprintf(d->line + n, sizeof d->line - (size_t)n, "]}\n");
    detd_write(d, (size_t)n);
}

/* In any locale: what stands for the decimal point there, one byte or more, becomes a point. */
static inline int detd_put(char *to, size_t room, double value)
{
    int n = snprintf(to, room, "%.17g", value), len = 0;

    if (!isfinite(value))
        return snprintf(to, room, "null");
    for (int i = 0; i < n; i++)
        if (strchr("+-0123456789e", to[i]))
            to[len++] = to[i];
        else if (len > 0 && to[len - 1] != '.')
            to[len++] = '.';
    return len;
}

/* This rank's part of the losses of a step. split: "train" or "val". n is at most 256. n 0: this rank had no data. */
static inline void detd_share(struct detd *d, const char *split, long long step, int n, const struct detd_term *terms)
{
    size_t len = (size_t)snprintf(d->line, sizeof d->line, "{\"type\":\"share\",\"split\":\"%s\",\"step\":%lld,\"terms\":{", split, step);

    for (int i = 0; i < n && len + 160 < sizeof d->line; i++) {
        len += (size_t)snprintf(d->line + len, sizeof d->line - len, "%s\"%.63s\":[", i ? "," : "", terms[i].name);
        len += (size_t)detd_put(d->line + len, sizeof d->line - len, terms[i].num);
        d->line[len++] = ',';
        len += (size_t)detd_put(d->line + len, sizeof d->line - len, terms[i].den);
        d->line[len++] = ']';
    }
    len += (size_t)snprintf(d->line + len, sizeof d->line - len, "}}\n");
    detd_write(d, len);
    if (d->page && strcmp(split, "train") == 0)
        d->page[3] = (uint64_t)step;
    if (d->page)
        d->page[2] = d->page[2] + 1;
}

/* A number of one rank, such as AP; only that of rank 0 is kept. */
static inline void detd_metric(struct detd *d, long long step, const char *name, double value)
{
    int n = snprintf(d->line, sizeof d->line, "{\"type\":\"eval\",\"step\":%lld,\"metrics\":{\"%.63s\":", step, name);

    n += detd_put(d->line + n, sizeof d->line - (size_t)n, value);
    n += snprintf(d->line + n, sizeof d->line - (size_t)n, "}}\n");
    detd_write(d, (size_t)n);
}

/* This rank has written its part of the checkpoint, and synced it. path: NULL for ranks other than 0. */
static inline void detd_checkpoint(struct detd *d, long long step, const char *path)
{
    int n = snprintf(d->line, sizeof d->line, "{\"type\":\"checkpoint\",\"step\":%lld,\"phase\":\"ready\"", step);

    if (path && strlen(path) < 4096 && !strpbrk(path, "\"\\\n"))
        n += snprintf(d->line + n, sizeof d->line - (size_t)n, ",\"path\":\"%s\"", path);
    n += snprintf(d->line + n, sizeof d->line - (size_t)n, "}\n");
    detd_write(d, (size_t)n);
}

/* Whether the word is wanted at this step. All ranks ask for the same words at the same steps, and get the same
 * answer. */
static inline int detd_wants(struct detd *d, long long step, enum detd_word word)
{
    uint64_t order;

    if (!d->page)
        return 0;
    d->page[12] = (uint64_t)step;
    for (;;) {
        order = d->page[13];
        if (order == 0 || (long long)(order & (((uint64_t)1 << 48) - 1)) > step)
            order = 0;
        if (order == 0 || order >> 52 & 1)
            break;
        poll(NULL, 0, 1); /* the other ranks are being told */
    }
    if (order != 0 && (order >> 48 & 15) == (uint64_t)word && order != d->page[14]) {
        d->page[14] = order;
        return 1;
    }
    return word == DETD_CHECKPOINT && d->every > 0 && step % d->every == 0;
}

/* This rank reports no more losses and asks for no more words. */
static inline void detd_finish(struct detd *d)
{
    detd_write(d, (size_t)snprintf(d->line, sizeof d->line, "{\"type\":\"finish\"}\n"));
}

#endif

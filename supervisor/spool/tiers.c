#include "supervisor/spool/tiers.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/host/folder.h"
#include "proto/line.h"

enum { TIER_TEXT = 16, LINE_TEXT = 48, ROOM = 4096 };

struct entry {
    int64_t step;
    char tier[TIER_TEXT];
};

struct tiers {
    int fd, n;
    long end; /* offset behind the last whole line */
    struct entry entries[TIERS_MAX];
};

static void keep(struct tiers *t, int64_t step, const char *tier)
{
    struct entry *e;

    while (t->n > 0 && t->entries[t->n - 1].step >= step)
        t->n--;
    if (t->n == TIERS_MAX) {
        memmove(t->entries, t->entries + 1, sizeof *t->entries * (TIERS_MAX - 1));
        t->n--;
    }
    e = &t->entries[t->n++];
    e->step = step;
    snprintf(e->tier, sizeof e->tier, "%s", tier);
}

static int load(struct tiers *t, const char *path, struct err *err)
{
    char text[LINE_TEXT], tier[TIER_TEXT], newline;
    long long step;
    FILE *f = fopen(path, "re");
    int rc = 0, line = 0;

    if (!f)
        return err_sys(err, "open '%s'", path);
    while (rc == 0 && fgets(text, sizeof text, f) && strchr(text, '\n')) {
        line++;
        if (sscanf(text, "%lld %15s%c", &step, tier, &newline) != 3 || step < 0)
            rc = err_set(err, ERR_CORRUPT, "'%s', line %d: not a step and a tier", path, line);
        else
            keep(t, step, tier);
        t->end = ftell(f);
    }
    fclose(f);
    return rc;
}

int tiers_open(const char *path, struct tiers **ret, struct err *err)
{
    struct tiers *t = calloc(1, sizeof *t);
    int rc;

    if (!t)
        return err_set(err, -ENOMEM, "out of memory");
    t->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    rc = t->fd < 0 ? err_sys(err, "open '%s'", path) : load(t, path, err);
    if (rc == 0 && ftruncate(t->fd, t->end) < 0)
        rc = err_sys(err, "cut '%s'", path);
    if (rc == 0 && fallocate(t->fd, FALLOC_FL_KEEP_SIZE, 0, ROOM) < 0 && errno != EOPNOTSUPP && errno != ENOSYS)
        rc = err_sys(err, "keep room for '%s'", path); /* which a start waits for, and a change in mid-job cannot */
    if (rc == 0)
        rc = folder_sync_name(path, err);
    if (rc < 0)
        tiers_close(t);
    else
        *ret = t;
    return rc;
}

void tiers_close(struct tiers *t)
{
    if (!t)
        return;
    if (t->fd >= 0)
        close(t->fd);
    free(t);
}

bool tiers_any(const struct tiers *t)
{
    return t->n > 0;
}

int tiers_add(struct tiers *t, int64_t step, const char *tier, struct err *err)
{
    char text[LINE_TEXT];
    int n = snprintf(text, sizeof text, "%lld %s\n", (long long)step, tier);
    ssize_t done = pwrite(t->fd, text, (size_t)n, t->end);

    if (done < 0)
        return err_sys(err, "write the change of tier");
    if (done != n)
        return err_set(err, -EIO, "write the change of tier: cut short");
    t->end += n;
    keep(t, step, tier);
    return 0;
}

int tiers_sync(struct tiers *t, struct err *err)
{
    return fdatasync(t->fd) < 0 ? err_sys(err, "sync the changes of tier") : 0;
}

void tiers_write(const struct tiers *t, struct line *l)
{
    line_open(l, "tiers", '[');
    for (int i = 0; i < t->n; i++) {
        line_open(l, NULL, '{');
        line_int(l, "step", t->entries[i].step);
        line_str(l, "tier", t->entries[i].tier);
        line_close(l, '}');
    }
    line_close(l, ']');
}

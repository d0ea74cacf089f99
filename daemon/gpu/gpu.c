#include "daemon/gpu/gpu.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "proto/err.h"

/* ---- lines of the probe ---- */

static void copy(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from);
}

static int parse_processes(const json_t *list, struct gpu_seen *ret)
{
    json_t *item;
    size_t i;

    ret->nprocesses = json_is_array(list) ? 0 : -1;
    json_array_foreach (list, i, item) {
        struct gpu_process *p = &ret->processes[ret->nprocesses];
        json_int_t pid, bytes, session;
        const char *name;

        if (ret->nprocesses == GPU_PROCESSES)
            break;
        if (json_unpack(item, "{s:I, s:I, s:I, s:s}", "pid", &pid, "memory_bytes", &bytes, "session", &session, "name", &name) < 0)
            return -1;
        *p = (struct gpu_process){ .pid = pid, .memory_bytes = bytes, .session = (long)session };
        copy(p->name, sizeof p->name, name);
        ret->nprocesses++;
    }
    return 0;
}

static bool is_uuid(const char *uuid)
{
    size_t n = strspn(uuid, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-");

    return n > 0 && n <= JOB_UUID_MAX && uuid[n] == '\0';
}

int gpu_parse(const char *line, struct gpu_seen *ret, struct err *err)
{
    const char *uuid, *name, *driver = "";
    json_int_t total = -1, used = -1, ecc = -1;
    json_t *root = json_loads(line, JSON_REJECT_DUPLICATES, NULL), *processes = NULL;
    struct gpu_seen seen = { .utilisation = -1, .temperature = -1, .power_w = -1 };
    int divided = 0, rc = 0;

    if (json_unpack(root, "{s:s, s:s, s:i, s?s, s?b, s?I, s?I, s?i, s?i, s?i, s?I, s?o}", "uuid", &uuid, "name", &name, "index",
                    &seen.index, "driver", &driver, "divided", &divided, "memory_bytes", &total, "memory_used", &used, "utilisation",
                    &seen.utilisation, "temperature", &seen.temperature, "power_w", &seen.power_w, "ecc_errors", &ecc, "processes",
                    &processes) < 0 ||
        !is_uuid(uuid) || parse_processes(processes, &seen) < 0) {
        rc = err_set(err, ERR_PROTO, "GPU probe: a line that is no device");
    } else {
        copy(seen.uuid, sizeof seen.uuid, uuid);
        copy(seen.name, sizeof seen.name, name);
        copy(seen.driver, sizeof seen.driver, driver);
        seen.divided = divided;
        seen.memory_bytes = total;
        seen.memory_used = used;
        seen.ecc_errors = ecc;
        *ret = seen;
    }
    json_decref(root);
    return rc;
}

/* ---- states ---- */

enum gpu_state gpu_state(const struct gpu *g)
{
    if (g->quarantine[0])
        return GPU_QUARANTINED;
    if (g->job)
        return GPU_GRANTED;
    if (g->seen.divided)
        return GPU_DIVIDED;
    if (g->left_by)
        return GPU_CHECKING;
    return g->foreign[0] || g->locked[0] ? GPU_FOREIGN : GPU_FREE;
}

const char *gpu_state_name(enum gpu_state s)
{
#define X(ident, name) name,
    static const char *const names[] = { GPU_STATES(X) };
#undef X

    return names[s];
}

void gpu_reason(const struct gpu *g, char *ret, size_t size)
{
    if (g->quarantine[0])
        copy(ret, size, g->quarantine);
    else if (g->foreign[0])
        copy(ret, size, g->foreign);
    else if (g->locked[0])
        copy(ret, size, g->locked);
    else if (g->left_by)
        snprintf(ret, size, "job %lld has left; its memory is being verified free", (long long)g->left_by);
    else if (g->seen.divided)
        copy(ret, size, "in MIG mode: its instances are granted");
    else
        copy(ret, size, "");
}

struct gpu *gpus_find(struct gpus *all, const char *uuid)
{
    for (int i = 0; i < all->count; i++)
        if (strcmp(all->all[i].seen.uuid, uuid) == 0)
            return &all->all[i];
    return NULL;
}

struct gpu *gpus_add(struct gpus *all, const struct gpu_seen *seen)
{
    struct gpu *g = all->count < GPU_MAX ? &all->all[all->count] : NULL;

    if (!g)
        return NULL;
    *g = (struct gpu){ .seen = *seen, .idle_bytes = -1 };
    all->count++;
    return g;
}

void gpus_remove(struct gpus *all, struct gpu *g)
{
    size_t after = (size_t)(&all->all[all->count] - (g + 1));

    memmove(g, g + 1, after * sizeof *g);
    all->count--;
}

void gpus_count(const struct gpus *all, struct gpu_counts *ret)
{
    *ret = (struct gpu_counts){ 0 };
    for (int i = 0; i < all->count; i++) {
        enum gpu_state s = gpu_state(&all->all[i]);

        if (s == GPU_DIVIDED)
            continue;
        ret->devices++;
        ret->quarantined += s == GPU_QUARANTINED;
        ret->foreign += s == GPU_FOREIGN;
        ret->checking += s == GPU_CHECKING;
        ret->free += s == GPU_FREE && !all->trouble[0];
    }
    ret->usable = ret->devices - ret->quarantined;
}

/* ---- health ---- */

static void quarantine(struct gpu *g, double now, const char *why)
{
    if (g->quarantine[0]) /* the first reason stays: the others follow from it */
        return;
    copy(g->quarantine, sizeof g->quarantine, why);
    g->quarantined = now;
}

/* Errors (Xids) after which a GPU, or its link, cannot be trusted before a reset. Other Xids are the program's own
 * fault, or were repaired. */
static const struct {
    int64_t number;
    const char *text;
} fatal_xids[] = {
    { 48, "uncorrectable memory error (double-bit ECC)" },
    { 74, "NVLink error" },
    { 79, "it has fallen off the bus" },
    { 94, "contained memory error" },
    { 95, "uncontained memory error" },
};

bool gpu_xid(struct gpu *g, int64_t xid, double now)
{
    char why[GPU_REASON];

    for (size_t i = 0; i < sizeof fatal_xids / sizeof *fatal_xids; i++)
        if (fatal_xids[i].number == xid) {
            snprintf(why, sizeof why, "Xid %lld: %s", (long long)xid, fatal_xids[i].text);
            quarantine(g, now, why);
            return true;
        }
    return false;
}

/* The driver counts anew when it is loaded, so only a growth of the count means new errors. */
static void look_at_ecc(struct gpu *g, const struct gpu_seen *seen, double now)
{
    char why[GPU_REASON];

    if (g->seen.ecc_errors < 0 || seen->ecc_errors <= g->seen.ecc_errors)
        return;
    snprintf(why, sizeof why, "%lld uncorrected memory errors (ECC), %lld of them new", (long long)seen->ecc_errors,
             (long long)(seen->ecc_errors - g->seen.ecc_errors));
    quarantine(g, now, why);
}

bool gpu_vanish(struct gpu *g, double now)
{
    if (!g->job && strncmp(g->seen.uuid, "MIG-", 4) == 0)
        return true;
    quarantine(g, now, "disappeared: the driver does not list it any more");
    return false;
}

/* ---- use ---- */

static double gigabytes(int64_t bytes)
{
    return (double)bytes / 1e9;
}

/* A process that is not visible from here (of another container) counts as the job's own while the job uses the GPU. */
static bool is_foreign(const struct gpu *g, const struct gpu_process *p, long session)
{
    bool has_job = g->job || g->left_by;

    return !has_job || (session > 0 && p->session >= 0 && p->session != session);
}

static void tell_process(const struct gpu_process *p, int others, char *ret, size_t size)
{
    const char *name = p->session < 0 ? "not visible from here" : p->name[0] ? p->name : "of another user";
    char memory[40] = "", more[40] = "";

    if (p->memory_bytes >= 0)
        snprintf(memory, sizeof memory, " with %.1f GB", gigabytes(p->memory_bytes));
    if (others > 0)
        snprintf(more, sizeof more, ", and %d more", others);
    snprintf(ret, size, "used by process %lld (%s)%s%s", (long long)p->pid, name, memory, more);
}

static void look_at_processes(struct gpu *g, long session)
{
    const struct gpu_process *first = NULL;
    int n = 0;

    for (int i = 0; i < g->seen.nprocesses; i++)
        if (is_foreign(g, &g->seen.processes[i], session)) {
            first = first ? first : &g->seen.processes[i];
            n++;
        }
    g->foreign[0] = '\0';
    if (first)
        tell_process(first, n - 1, g->foreign, sizeof g->foreign);
}

static bool is_empty(const struct gpu *g)
{
    int64_t limit = g->idle_bytes < 0 ? GPU_IDLE_BYTES : g->idle_bytes + GPU_SLACK_BYTES;

    return g->seen.nprocesses <= 0 && g->seen.memory_used <= limit;
}

/* The memory of a job that has left must be free again. Processes that are still listed are named and waited for.
 * Memory in use without a listed process quarantines the GPU. */
static void look_after_job(struct gpu *g, double now)
{
    char why[GPU_REASON];

    if (is_empty(g)) {
        g->left_by = 0;
        return;
    }
    if (now - g->left_at < GPU_LEAVE_S)
        return;
    snprintf(why, sizeof why, "%.1f GB are still in use %.0f s after job %lld left, and no process is listed",
             gigabytes(g->seen.memory_used), now - g->left_at, (long long)g->left_by);
    g->left_by = 0;
    if (g->seen.nprocesses > 0)
        look_at_processes(g, 0);
    else
        quarantine(g, now, why);
}

/* Memory in use without a listed process: it belongs to a process of another container. */
static void look_at_memory(struct gpu *g)
{
    if (g->seen.nprocesses != 0 || g->seen.memory_used < 0)
        return;
    if (!is_empty(g))
        snprintf(g->foreign, sizeof g->foreign, "%.1f GB are in use and no process is listed", gigabytes(g->seen.memory_used));
    else if (g->idle_bytes < 0 || g->seen.memory_used < g->idle_bytes)
        g->idle_bytes = g->seen.memory_used;
}

void gpu_take(struct gpu *g, const struct gpu_seen *seen, long session, double now)
{
    look_at_ecc(g, seen, now);
    g->seen = *seen;
    look_at_processes(g, session);
    if (g->left_by)
        look_after_job(g, now);
    else if (!g->job && !g->foreign[0])
        look_at_memory(g);
}

void gpu_leave(struct gpu *g, double now)
{
    g->left_by = g->job;
    g->left_at = now;
    g->job = 0;
}

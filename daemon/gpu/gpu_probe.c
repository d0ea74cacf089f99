#include "daemon/gpu/gpu_probe.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "daemon/gpu/gpu.h"
#include "daemon/gpu/gpu_nvml.h"
#include "proto/err.h"

enum { EVENT_WAIT_MS = 1000, NO_INSTANCE = -1, NAME_ROOM = 2 * NVML_NAME_BYTES };

static pthread_mutex_t print_lock = PTHREAD_MUTEX_INITIALIZER;

/* Takes over the caller's reference to `line`. */
static void print_line(json_t *line)
{
    pthread_mutex_lock(&print_lock);
    json_dumpf(line, stdout, JSON_COMPACT);
    putchar('\n');
    fflush(stdout);
    pthread_mutex_unlock(&print_lock);
    json_decref(line);
}

/* ---- devices: whole GPUs and their MIG instances, in this order ---- */

struct device {
    void *handle, *whole; /* the device, and the GPU that it is or is part of */
    int index, instance;  /* NO_INSTANCE: a whole GPU */
    bool divided;
    char uuid[NVML_UUID_BYTES];
};

struct devices {
    struct device all[GPU_MAX];
    int count;
};

/* CUDA_VISIBLE_DEVICES: numbers in PCI order, as NVML has them, or beginnings of UUIDs. Unset: all devices. */
static bool is_visible(const char *list, int index, const char *uuid)
{
    while (*list) {
        size_t len = strcspn(list, ",");
        char *end;
        long number = strtol(list, &end, 10);

        if (len > 0 && ((end == list + len && number == index) || strncmp(list, uuid, len) == 0))
            return true;
        list += len + (list[len] == ',');
    }
    return false;
}

static void add(struct devices *list, const struct device *d, const char *whole_uuid)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    if (list->count < GPU_MAX && (!visible || is_visible(visible, d->index, whole_uuid) || is_visible(visible, -1, d->uuid)))
        list->all[list->count++] = *d;
}

static void add_instances(const struct nvml *n, struct devices *list, const struct device *whole)
{
    unsigned most = 0;

    if (!n->mig_count || !n->mig_handle || n->mig_count(whole->handle, &most) != 0)
        return;
    for (unsigned i = 0; i < most && i < GPU_MAX; i++) {
        struct device d = { .whole = whole->handle, .index = whole->index, .instance = NO_INSTANCE };
        unsigned instance;

        if (n->mig_handle(whole->handle, i, &d.handle) != 0 || n->uuid(d.handle, d.uuid, sizeof d.uuid) != 0)
            continue; /* the numbers of instances have gaps */
        if (n->mig_instance && n->mig_instance(d.handle, &instance) == 0)
            d.instance = (int)instance;
        add(list, &d, whole->uuid);
    }
}

/* A GPU that fell off the bus has no UUID any more and is left out. The reader sees that a GPU it knew is missing. */
static int find_devices(const struct nvml *n, struct devices *ret)
{
    unsigned count = 0;
    int rc = n->count(&count);

    ret->count = 0;
    if (rc != 0)
        return rc;
    for (unsigned i = 0; i < count && i < GPU_MAX; i++) {
        struct device d = { .index = (int)i, .instance = NO_INSTANCE };
        unsigned mig = 0, pending;

        if (n->handle(i, &d.handle) != 0 || n->uuid(d.handle, d.uuid, sizeof d.uuid) != 0)
            continue;
        d.whole = d.handle;
        d.divided = n->mig_mode && n->mig_mode(d.handle, &mig, &pending) == 0 && mig == 1;
        add(ret, &d, d.uuid);
        if (d.divided)
            add_instances(n, ret, &d);
    }
    return 0;
}

/* ---- one device as JSON ---- */

static void read_memory(const struct nvml *n, const struct device *d, json_int_t *ret_total, json_int_t *ret_used)
{
    struct nvml_memory m = { .version = sizeof m | 2u << 24 };
    struct nvml_memory_v1 old;

    if (n->memory && n->memory(d->handle, &m) == 0) {
        *ret_total = (json_int_t)m.total;
        *ret_used = (json_int_t)m.used;
    } else if (n->memory_v1(d->handle, &old) == 0) {
        *ret_total = (json_int_t)old.total;
        *ret_used = (json_int_t)old.used;
    }
}

static json_int_t read_ecc(const struct nvml *n, const struct device *d)
{
    unsigned long long errors;

    return n->ecc && n->ecc(d->whole, NVML_ECC_UNCORRECTED, NVML_ECC_SINCE_LOAD, &errors) == 0 ? (json_int_t)errors : -1;
}

static int read_utilisation(const struct nvml *n, const struct device *d)
{
    struct nvml_utilisation u;

    return n->utilisation && n->utilisation(d->handle, &u) == 0 ? (int)u.gpu : -1;
}

static int read_number(int (*fn)(void *, unsigned *), void *handle, unsigned unit)
{
    unsigned value;

    return fn && fn(handle, &value) == 0 ? (int)(value / unit) : -1;
}

static int read_temperature(const struct nvml *n, const struct device *d)
{
    unsigned value;

    return n->temperature && n->temperature(d->whole, NVML_TEMPERATURE_GPU, &value) == 0 ? (int)value : -1;
}

/* Writes "" if /proc hides the process, for example one of another user. */
static void read_name(unsigned pid, char *ret, size_t size)
{
    char path[64];
    size_t n = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%u/comm", pid);
    f = fopen(path, "re");
    if (f) {
        n = fread(ret, 1, size - 1, f);
        fclose(f);
    }
    ret[n > 0 && ret[n - 1] == '\n' ? n - 1 : n] = '\0';
}

static json_t *process_json(const struct nvml_process *p)
{
    char name[GPU_PROCESS_NAME] = "";
    json_int_t session = getsid((pid_t)p->pid); /* -1: no such process in this container, or hidden by /proc */
    json_int_t used = p->used_bytes == ~0ull ? -1 : (json_int_t)p->used_bytes;
    json_t *text;

    if (session >= 0)
        read_name(p->pid, name, sizeof name);
    text = json_string(name);
    return json_pack("{s:I, s:I, s:I, s:o}", "pid", (json_int_t)p->pid, "memory_bytes", used, "session", session, "name",
                     text ? text : json_string("?"));
}

/* null: the driver does not tell, or the GPU is divided; its instances list their processes. */
static json_t *processes_json(const struct nvml *n, const struct device *d)
{
    struct nvml_process all[NVML_PROCESSES];
    unsigned count = NVML_PROCESSES;
    json_t *list;
    int rc;

    if (!n->processes || d->divided)
        return json_null();
    rc = n->processes(d->handle, &count, all);
    if (rc == NVML_TOO_SMALL) /* NVML has written the first ones */
        count = NVML_PROCESSES;
    else if (rc != 0 || count > NVML_PROCESSES)
        return json_null();
    list = json_array();
    for (unsigned i = 0; i < count && i < GPU_PROCESSES; i++)
        json_array_append_new(list, process_json(&all[i]));
    return list;
}

static void print_device(const struct nvml *n, const struct device *d)
{
    char name[NVML_NAME_BYTES] = "", whole[NAME_ROOM] = "", driver[NVML_DRIVER_BYTES] = "";
    json_int_t total = -1, used = -1;

    n->name(d->handle, name, sizeof name);
    if (d->handle != d->whole && !strstr(name, "MIG")) /* some drivers name an instance as they name its GPU */
        snprintf(whole, sizeof whole, "%s MIG instance %d", name, d->instance);
    else
        snprintf(whole, sizeof whole, "%s", name);
    if (!n->driver || n->driver(driver, sizeof driver) != 0)
        driver[0] = '\0';
    read_memory(n, d, &total, &used);
    print_line(json_pack("{s:s, s:s, s:i, s:s, s:b, s:I, s:I, s:i, s:i, s:i, s:I, s:o}", "uuid", d->uuid, "name", whole, "index", d->index,
                         "driver", driver, "divided", d->divided, "memory_bytes", total, "memory_used", used, "utilisation",
                         read_utilisation(n, d), "temperature", read_temperature(n, d), "power_w", read_number(n->power_mw, d->whole, 1000),
                         "ecc_errors", read_ecc(n, d), "processes", processes_json(n, d)));
}

static int look(const struct nvml *n)
{
    static struct devices found; /* static: looks come one after the other */
    int rc = find_devices(n, &found);

    if (rc != 0) {
        print_line(json_pack("{s:s+}", "trouble", "the NVIDIA driver cannot be asked: ", n->error_string(rc)));
        return -1;
    }
    for (int i = 0; i < found.count; i++)
        print_device(n, &found.all[i]);
    print_line(json_pack("{s:i}", "done", found.count));
    return 0;
}

/* ---- errors as they come ---- */

/* An error of a divided GPU belongs to the instance that the event names, or to all of them. */
static void print_xid(const struct nvml *n, const struct nvml_event *e)
{
    static struct devices found; /* used by this thread alone */

    if (find_devices(n, &found) != 0)
        return;
    for (int i = 0; i < found.count; i++) {
        const struct device *d = &found.all[i];
        bool instance = d->handle != d->whole;

        if (d->whole != e->device || (instance && e->gpu_instance != ~0u && d->instance != (int)e->gpu_instance))
            continue;
        print_line(json_pack("{s:I, s:s}", "xid", (json_int_t)e->data, "uuid", d->uuid));
    }
}

static void *watch_events(void *arg)
{
    const struct nvml *n = arg;
    struct nvml_event e;
    unsigned count = 0;
    void *events, *handle;

    if (n->events_new(&events) != 0 || n->count(&count) != 0)
        return NULL;
    for (unsigned i = 0; i < count; i++)
        if (n->handle(i, &handle) == 0)
            n->events_register(handle, NVML_EVENT_XID, events);
    for (;;) {
        int rc = n->events_wait(events, &e, EVENT_WAIT_MS);

        if (rc == 0 && e.type & NVML_EVENT_XID)
            print_xid(n, &e);
        else if (rc != 0 && rc != NVML_TIMEOUT) /* a GPU that is gone makes every wait fail at once */
            sleep(1);
    }
}

static void start_watching(struct nvml *n)
{
    pthread_t thread;

    if (n->events_new && n->events_register && n->events_wait && pthread_create(&thread, NULL, watch_events, n) == 0)
        pthread_detach(thread);
}

/* ---- the two ways to be called ---- */

static int begin(struct nvml *n)
{
    struct err err = { 0 };
    int rc = nvml_open(n, &err);

    if (rc < 0)
        print_line(json_pack("{s:s}", rc == ERR_UNSUPPORTED ? "absent" : "trouble", err.msg));
    return rc;
}

int gpu_probe_main(void)
{
    struct nvml n;

    if (begin(&n) < 0)
        return 1;
    return look(&n) < 0 ? 1 : 0;
}

int gpu_watch_main(void)
{
    static struct nvml n;
    char line[64];

    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a hung driver may keep us from seeing the end of stdin */
    if (begin(&n) < 0)
        return 1;
    start_watching(&n);
    while (fgets(line, sizeof line, stdin) && look(&n) == 0)
        continue;
    _exit(0); /* the thread is in the driver, so nothing may be torn down under it */
}

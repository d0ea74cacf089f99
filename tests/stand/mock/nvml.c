/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/mock/nvml.c - a libnvidia-ml.so.1 with GPUs that are described
 * in a text file, so that a test can change them at run time. $MOCK_NVML names the file; its lines are
 *
 *     gpu UUID NAME_WITH_UNDERSCORES MEMORY_MB USED_MB [ecc=N] [lost] [mig]
 *     mig UUID PARENT_UUID NAME_WITH_UNDERSCORES MEMORY_MB USED_MB INSTANCE
 *     process UUID PID USED_MB
 *     xid UUID NUMBER [INSTANCE]   reported once for each further line of this kind
 *     sleep SECONDS                every call that asks a device takes so long
 *     fail CODE                    nvmlInit_v2 returns it
 *
 * Files are replaced by rename(), so every reading of a file is whole. Built by the test that needs it; nothing else is
 * linked with it. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, TIMEOUT = 10, LOST = 15 };
enum { DEVICES = 128, WORD = 96, PROCESSES = 64 };

struct device {
    char uuid[WORD], parent[WORD], name[WORD];
    unsigned long long total, used, ecc;
    unsigned instance;
    bool lost, divided;
};

struct process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

struct memory_v1 {
    unsigned long long total, free, used;
};

struct memory {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

struct event {
    void *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

/* A handle is the address of a name in this array, so that it stays the same when the file changes. */
static char handles[DEVICES][WORD];

int nvmlInit_v2(void);
int nvmlShutdown(void);
const char *nvmlErrorString(int code);
int nvmlSystemGetDriverVersion(char *ret, unsigned size);
int nvmlDeviceGetCount_v2(unsigned *ret);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **ret);
int nvmlDeviceGetUUID(void *handle, char *ret, unsigned size);
int nvmlDeviceGetName(void *handle, char *ret, unsigned size);
int nvmlDeviceGetMemoryInfo(void *handle, struct memory_v1 *ret);
int nvmlDeviceGetMemoryInfo_v2(void *handle, struct memory *ret);
int nvmlDeviceGetUtilizationRates(void *handle, unsigned ret[2]);
int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *ret);
int nvmlDeviceGetPowerUsage(void *handle, unsigned *ret);
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, struct process *ret);
int nvmlDeviceGetTotalEccErrors(void *handle, int type, int counter, unsigned long long *ret);
int nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *pending);
int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *ret);
int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **ret);
int nvmlDeviceGetGpuInstanceId(void *handle, unsigned *ret);
int nvmlEventSetCreate(void **ret);
int nvmlDeviceRegisterEvents(void *handle, unsigned long long types, void *set);
int nvmlEventSetWait_v2(void *set, struct event *ret, unsigned timeout_ms);

static void *handle_of(const char *uuid)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    void *found = NULL;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < DEVICES && !found; i++) {
        if (!handles[i][0])
            snprintf(handles[i], WORD, "%s", uuid);
        if (strcmp(handles[i], uuid) == 0)
            found = handles[i];
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* Calls each(arg, line) for the lines that begin with `word`, till it returns true. */
static bool each_line(const char *word, bool (*each)(void *arg, const char *line), void *arg)
{
    const char *path = getenv("MOCK_NVML");
    FILE *f = path ? fopen(path, "re") : NULL;
    char line[512], first[32];
    bool found = false;

    while (f && !found && fgets(line, sizeof line, f))
        found = sscanf(line, "%31s", first) == 1 && strcmp(first, word) == 0 && each(arg, line);
    if (f)
        fclose(f);
    return found;
}

static bool read_number(void *arg, const char *line)
{
    *(int *)arg = atoi(strchr(line, ' '));
    return true;
}

static void dawdle(void)
{
    int seconds = 0;

    if (each_line("sleep", read_number, &seconds))
        sleep((unsigned)seconds);
}

static bool parse(const char *line, struct device *ret)
{
    const char *ecc = strstr(line, "ecc=");
    unsigned long long total, used;

    memset(ret, 0, sizeof *ret);
    if (sscanf(line, "gpu %95s %95s %llu %llu", ret->uuid, ret->name, &total, &used) != 4 &&
        sscanf(line, "mig %95s %95s %95s %llu %llu %u", ret->uuid, ret->parent, ret->name, &total, &used, &ret->instance) != 6)
        return false;
    for (char *p = ret->name; *p; p++)
        *p = *p == '_' ? ' ' : *p;
    ret->total = total << 20;
    ret->used = used << 20;
    ret->ecc = ecc ? strtoull(ecc + 4, NULL, 10) : 0;
    ret->lost = strstr(line, " lost") != NULL;
    ret->divided = strstr(line, " mig") != NULL;
    return true;
}

/* ---- looking a device up ---- */

struct query {
    const char *uuid, *parent;
    int index; /* of the n-th that fits; counts down */
    struct device found;
};

static bool fits(void *arg, const char *line)
{
    struct query *q = arg;

    if (!parse(line, &q->found))
        return false;
    if (q->uuid)
        return strcmp(q->uuid, q->found.uuid) == 0;
    return strcmp(q->parent, q->found.parent) == 0 && q->index-- == 0;
}

static int look_up(void *handle, struct device *ret)
{
    struct query q = { .uuid = handle };

    dawdle();
    if (!handle)
        return INVALID;
    if (!each_line("gpu", fits, &q) && !each_line("mig", fits, &q))
        return NOT_FOUND;
    *ret = q.found;
    return q.found.lost ? LOST : OK;
}

static int by_index(const char *word, const char *parent, unsigned index, void **ret)
{
    struct query q = { .parent = parent, .index = (int)index };

    dawdle();
    if (!each_line(word, fits, &q))
        return INVALID;
    *ret = handle_of(q.found.uuid);
    return q.found.lost ? LOST : OK;
}

/* ---- the interface ---- */

int nvmlInit_v2(void)
{
    int code = OK;

    each_line("fail", read_number, &code);
    return code;
}

int nvmlShutdown(void)
{
    return OK;
}

const char *nvmlErrorString(int code)
{
    return code == 18 ? "Driver/library version mismatch" : code == 9 ? "Driver Not Loaded" : "Some Error";
}

int nvmlSystemGetDriverVersion(char *ret, unsigned size)
{
    snprintf(ret, size, "580.65.06");
    return OK;
}

static bool count_line(void *arg, const char *line)
{
    (void)line;
    (*(unsigned *)arg)++;
    return false;
}

int nvmlDeviceGetCount_v2(unsigned *ret)
{
    *ret = 0;
    each_line("gpu", count_line, ret);
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **ret)
{
    return by_index("gpu", "", index, ret);
}

int nvmlDeviceGetUUID(void *handle, char *ret, unsigned size)
{
    snprintf(ret, size, "%s", (char *)handle);
    return OK;
}

int nvmlDeviceGetName(void *handle, char *ret, unsigned size)
{
    struct device d;
    int rc = look_up(handle, &d);

    if (rc == OK)
        snprintf(ret, size, "%s", d.name);
    return rc;
}

int nvmlDeviceGetMemoryInfo(void *handle, struct memory_v1 *ret)
{
    struct device d;
    int rc = look_up(handle, &d);

    if (rc == OK)
        *ret = (struct memory_v1){ d.total, d.total - d.used, d.used };
    return rc;
}

int nvmlDeviceGetMemoryInfo_v2(void *handle, struct memory *ret)
{
    struct device d;
    int rc = look_up(handle, &d);

    if (ret->version != (sizeof *ret | 2u << 24))
        return INVALID;
    if (rc == OK)
        *ret = (struct memory){ ret->version, d.total, 0, d.total - d.used, d.used };
    return rc;
}

int nvmlDeviceGetUtilizationRates(void *handle, unsigned ret[2])
{
    struct device d;
    int rc = look_up(handle, &d);

    ret[0] = d.used ? 97 : 0;
    ret[1] = 0;
    return rc == OK && d.parent[0] ? NOT_SUPPORTED : rc;
}

int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *ret)
{
    (void)handle;
    *ret = 41;
    return sensor == 0 ? OK : INVALID;
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned *ret)
{
    (void)handle;
    *ret = 123456;
    return OK;
}

struct listing {
    const char *uuid;
    struct process *to;
    unsigned room, count;
};

static bool add_process(void *arg, const char *line)
{
    struct listing *l = arg;
    unsigned long long used;
    struct process p = { 0 };
    char uuid[WORD];

    if (sscanf(line, "process %95s %u %llu", uuid, &p.pid, &used) != 3 || strcmp(uuid, l->uuid) != 0)
        return false;
    p.used = used << 20;
    if (l->count < l->room)
        l->to[l->count] = p;
    l->count++;
    return false;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, struct process *ret)
{
    struct listing l = { handle, ret, *count, 0 };

    each_line("process", add_process, &l);
    *count = l.count;
    return l.count > l.room ? TOO_SMALL : OK;
}

int nvmlDeviceGetTotalEccErrors(void *handle, int type, int counter, unsigned long long *ret)
{
    struct device d;
    int rc = look_up(handle, &d);

    *ret = d.ecc;
    return type == 1 && counter == 0 ? rc : NOT_SUPPORTED;
}

int nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *pending)
{
    struct device d;
    int rc = look_up(handle, &d);

    *now = *pending = d.divided;
    return rc;
}

int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *ret)
{
    (void)handle;
    *ret = 7;
    return OK;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **ret)
{
    int rc = by_index("mig", handle, index, ret);

    return rc == INVALID ? NOT_FOUND : rc;
}

int nvmlDeviceGetGpuInstanceId(void *handle, unsigned *ret)
{
    struct device d;
    int rc = look_up(handle, &d);

    *ret = d.instance;
    return rc == OK && !d.parent[0] ? NOT_FOUND : rc;
}

/* ---- events ---- */

static unsigned told; /* lines of kind xid so far */

struct xid {
    unsigned skip;
    struct event event;
};

static bool next_xid(void *arg, const char *line)
{
    struct xid *x = arg;
    char uuid[WORD];

    if (x->skip > 0) {
        x->skip--;
        return false;
    }
    x->event = (struct event){ .type = 8, .gpu_instance = ~0u, .compute_instance = ~0u };
    if (sscanf(line, "xid %95s %llu %u", uuid, &x->event.data, &x->event.gpu_instance) < 2)
        return false;
    x->event.device = handle_of(uuid);
    return true;
}

/* Events before the set was made are not reported. */
int nvmlEventSetCreate(void **ret)
{
    static char set;

    told = 0;
    each_line("xid", count_line, &told);
    *ret = &set;
    return OK;
}

int nvmlDeviceRegisterEvents(void *handle, unsigned long long types, void *set)
{
    return handle && set && types & 8 ? OK : INVALID;
}

int nvmlEventSetWait_v2(void *set, struct event *ret, unsigned timeout_ms)
{
    (void)set;
    for (unsigned waited = 0; waited < timeout_ms; waited += 20) {
        struct xid x = { .skip = told };

        if (each_line("xid", next_xid, &x)) {
            told++;
            *ret = x.event;
            return OK;
        }
        usleep(20000);
    }
    return TIMEOUT;
}

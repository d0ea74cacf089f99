#include "daemon/gpu.h"

#include <dlfcn.h>
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/frame.h"

enum { LINE_MAX_BYTES = 4096 };

/* ---- the child: NVML by name, so that nothing of it is needed to build ---- */

struct nvml_memory {
    unsigned long long total, free, used;
};

struct nvml {
    int (*init)(void);
    int (*count)(unsigned *ret);
    int (*handle)(unsigned index, void **ret);
    int (*uuid)(void *device, char *ret, unsigned size);
    int (*name)(void *device, char *ret, unsigned size);
    int (*memory)(void *device, struct nvml_memory *ret);
};

/* POSIX wants a function pointer to fit into a data pointer; C has no cast for it. */
static int find(void *lib, const char *symbol, void *ret_fn)
{
    void *p = dlsym(lib, symbol);

    memcpy(ret_fn, &p, sizeof p);
    return p ? 0 : -1;
}

static int load(struct nvml *n)
{
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW);

    if (!lib || find(lib, "nvmlInit_v2", &n->init) < 0 || find(lib, "nvmlDeviceGetCount_v2", &n->count) < 0 ||
        find(lib, "nvmlDeviceGetHandleByIndex_v2", &n->handle) < 0 || find(lib, "nvmlDeviceGetUUID", &n->uuid) < 0 ||
        find(lib, "nvmlDeviceGetName", &n->name) < 0 || find(lib, "nvmlDeviceGetMemoryInfo", &n->memory) < 0)
        return -1;
    return 0;
}

/* CUDA_VISIBLE_DEVICES: numbers in PCI order, which is NVML's, or beginnings of UUIDs. Unset: all. */
static bool is_visible(const char *list, unsigned index, const char *uuid)
{
    if (!list)
        return true;
    while (*list) {
        size_t len = strcspn(list, ",");
        char *end;
        unsigned long number = strtoul(list, &end, 10);

        if (len > 0 && ((end == list + len && number == index) || strncmp(list, uuid, len) == 0))
            return true;
        list += len + (list[len] == ',');
    }
    return false;
}

static int print_device(const struct nvml *n, unsigned index)
{
    char uuid[96] = "", name[96] = "";
    struct nvml_memory memory = { 0 };
    void *device;
    json_t *line;

    if (n->handle(index, &device) != 0 || n->uuid(device, uuid, sizeof uuid) != 0 || n->name(device, name, sizeof name) != 0 ||
        n->memory(device, &memory) != 0)
        return -1;
    if (!is_visible(getenv("CUDA_VISIBLE_DEVICES"), index, uuid))
        return 0;
    line = json_pack("{s:s, s:s, s:I}", "uuid", uuid, "name", name, "memory_bytes", (json_int_t)memory.total);
    json_dumpf(line, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(line);
    return 0;
}

int gpu_probe_main(void)
{
    struct nvml n;
    unsigned count = 0;
    int rc;

    if (load(&n) < 0) {
        fprintf(stderr, "detd --probe-gpus: no NVML (libnvidia-ml.so.1) on this machine\n");
        return 1;
    }
    if ((rc = n.init()) != 0 || (rc = n.count(&count)) != 0) {
        fprintf(stderr, "detd --probe-gpus: NVML error %d\n", rc);
        return 1;
    }
    for (unsigned i = 0; i < count && i < GPU_MAX; i++)
        if (print_device(&n, i) < 0)
            fprintf(stderr, "detd --probe-gpus: device %u does not answer\n", i);
    return 0;
}

/* ---- the parent ---- */

int gpu_parse(const char *line, struct gpu *ret, struct err *err)
{
    const char *uuid, *name;
    json_int_t bytes;
    json_error_t where;
    json_t *root = json_loads(line, JSON_REJECT_DUPLICATES, &where);
    int rc = 0;

    if (json_unpack(root, "{s:s, s:s, s:I}", "uuid", &uuid, "name", &name, "memory_bytes", &bytes) < 0 || !uuid[0] ||
        strlen(uuid) > JOB_UUID_MAX || strchr(uuid, ',')) {
        rc = err_set(err, ERR_PROTO, "GPU probe: a line that is no device");
    } else {
        *ret = (struct gpu){ .memory_bytes = bytes };
        snprintf(ret->uuid, sizeof ret->uuid, "%s", uuid);
        snprintf(ret->name, sizeof ret->name, "%s", name);
    }
    json_decref(root);
    return rc;
}

/* One probe at a time; static, since its handles may outlive a daemon that stops in the middle. */
static struct probe {
    uv_process_t process;
    uv_pipe_t out;
    uv_timer_t deadline;
    struct frame *frame;
    struct gpus found;
    int waiting; /* for end of output and exit */
    void (*done)(void *arg, const struct gpus *found);
    void *arg;
} probe;

static void finish(void)
{
    if (--probe.waiting > 0)
        return;
    uv_close((uv_handle_t *)&probe.process, NULL);
    uv_close((uv_handle_t *)&probe.out, NULL);
    uv_close((uv_handle_t *)&probe.deadline, NULL);
    frame_free(probe.frame);
    probe.frame = NULL;
    probe.done(probe.arg, &probe.found);
}

static void on_exit_child(uv_process_t *process, int64_t status, int signal)
{
    (void)process;
    if (status != 0 || signal != 0)
        snprintf(probe.found.trouble, sizeof probe.found.trouble,
                 signal ? "the GPU probe did not answer in time" : "the GPU driver cannot be asked");
    finish();
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    static char shared[LINE_MAX_BYTES];

    (void)handle;
    (void)suggested;
    *buf = uv_buf_init(shared, sizeof shared);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    const char *line;
    struct err err;

    if (n < 0 || (n > 0 && frame_push(probe.frame, buf->base, (size_t)n, &err) < 0)) {
        uv_read_stop(stream);
        finish();
        return;
    }
    while (probe.found.count < GPU_MAX && (line = frame_next(probe.frame, NULL)))
        if (gpu_parse(line, &probe.found.all[probe.found.count], &err) == 0)
            probe.found.count++;
}

static void on_deadline(uv_timer_t *timer)
{
    (void)timer;
    uv_process_kill(&probe.process, SIGKILL);
}

static int start(uv_loop_t *loop, char *program)
{
    char *args[] = { program, "--probe-gpus", NULL };
    uv_stdio_container_t stdio[3] = { { .flags = UV_IGNORE },
                                      { .flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&probe.out },
                                      { .flags = UV_IGNORE } };
    uv_process_options_t options = { .exit_cb = on_exit_child, .file = program, .args = args, .stdio_count = 3, .stdio = stdio };
    int rc;

    uv_pipe_init(loop, &probe.out, 0);
    uv_timer_init(loop, &probe.deadline);
    rc = uv_spawn(loop, &probe.process, &options);
    if (rc == 0) {
        uv_read_start((uv_stream_t *)&probe.out, on_alloc, on_read);
        uv_timer_start(&probe.deadline, on_deadline, GPU_PROBE_MS, 0);
    }
    uv_unref((uv_handle_t *)&probe.process);
    uv_unref((uv_handle_t *)&probe.out);
    uv_unref((uv_handle_t *)&probe.deadline);
    return rc;
}

void gpu_probe(uv_loop_t *loop, void (*done)(void *arg, const struct gpus *found), void *arg)
{
    static char program[] = "/proc/self/exe";
    static const struct gpus none;
    int rc;

    if (access("/dev/nvidiactl", F_OK) < 0) {
        done(arg, &none);
        return;
    }
    probe = (struct probe){ .done = done, .arg = arg, .waiting = 2, .frame = frame_new(LINE_MAX_BYTES) };
    rc = probe.frame ? start(loop, program) : -ENOMEM;
    if (rc < 0) {
        snprintf(probe.found.trouble, sizeof probe.found.trouble, "the GPU probe could not be started: %s", uv_strerror(rc));
        done(arg, &probe.found);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/bench/bench_link.c - uses: proto worker/backend trainer cpu
 * The cost of the sum of gradients in the canonical tree between GPUs, beside NCCL's own all-reduce of the same bytes.
 * Usage: bench_link [ranks=P] [sizes=1,16,64,248] [repeats=20] [seconds=300] [shared=nccl] sizes in MiB; 248 is the
 * gradient of yolov3
 *
 * One process a GPU, as in a job: worker/gradients/gradients.c over the device's link, one shard a rank, backward that
 * costs nothing. The peer is the NCCL that the link has found: one ncclAllReduce of the whole array, both arrays in
 * memory of NCCL's, no limit on its blocks. There is a rank for every visible GPU. With a single GPU, a rank is first
 * alone on NCCL: no data crosses a link, but communicators, windows and their end are real. Then two and four ranks
 * share the GPU, by way of the host's memory, without a peer. With shared=nccl ranks share the GPU by way of NCCL: 2.30
 * or newer, with NCCL_MULTI_RANK_GPU_ENABLE=1 in the environment; its times mean nothing, since the GPU gives the ranks
 * turns. Ranks that take longer than `seconds` are ended. */
#include <dlfcn.h>
#include <link.h>

#include "tests/unit/worker/comm/ranks.h"
#include "worker/comm/staged.h"
#include "worker/core/device.h"
#include "worker/backend/devices.h"
#include "worker/core/shards.h"
#include "worker/gradients/gradients.h"

enum { MAX_SIZES = 8, MAX_PARAMS = 64, PARAM = 4 << 20, TIMEOUT = 60000, ID_TEXT = 1024, MAX_RANKS = 64 };

struct options {
    int ranks, repeats, seconds, nsizes, sizes[MAX_SIZES]; /* MiB */
    bool shared;                                           /* ranks share a GPU through NCCL */
};

/* In shared memory; rank 0 writes. */
struct result {
    struct options o;
    bool own_gpus; /* one a rank */
    bool by_nccl;  /* else by way of the host's memory */
    bool links;    /* the device has a link: NCCL */
    int devices, nccl;
    char name[96];
    struct err why; /* code 0: the ranks may start */
    double tree_ms[MAX_SIZES], peer_ms[MAX_SIZES];
};

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* ---- NCCL and the driver, which this program is not linked with ---- */

struct nccl_id { /* ncclUniqueId */
    char internal[128];
};
enum { NCCL_SUM = 0, NCCL_FLOAT = 7, NCCL_SYMMETRIC = 1, STREAM_NON_BLOCKING = 1 };

/* Results: 0 is success in both. For NCCL 2.25 and later. */
#define NCCL_CALLS(X)                                                           \
    X(ncclGetVersion, (int *version))                                           \
    X(ncclGetUniqueId, (struct nccl_id * id))                                   \
    X(ncclCommInitRank, (void **comm, int nranks, struct nccl_id id, int rank)) \
    X(ncclCommDestroy, (void *comm))                                            \
    X(ncclMemAlloc, (void **mem, size_t bytes))                                 \
    X(ncclMemFree, (void *mem))                                                 \
    X(ncclAllReduce, (const void *from, void *to, size_t count, int type, int op, void *comm, void *stream))
#define DRIVER_CALLS(X)                                \
    X(cuStreamCreate, (void **stream, unsigned flags)) \
    X(cuStreamSynchronize, (void *stream))

struct peer {
#define X(name, params) int(*name) params;
    NCCL_CALLS(X)
    DRIVER_CALLS(X)
#undef X
    int (*ncclCommWindowRegister)(void *comm, void *mem, size_t bytes, void **window, int flags); /* both NULL: NCCL is older than 2.27 */
    int (*ncclCommWindowDeregister)(void *comm, void *window);
    void *comm, *stream;
    struct device *dev;
    struct comm *host;
};

static int is_nccl(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    if (strstr(info->dlpi_name, "libnccl.so"))
        *(void **)arg = dlopen(info->dlpi_name, RTLD_NOW | RTLD_NOLOAD);
    return *(void **)arg != NULL;
}

static void peer_open(struct peer *p, struct device *dev, struct comm *host, struct result *res)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *nccl = NULL;
    struct nccl_id id;
    struct err err;
    int version;

    *p = (struct peer){ .dev = dev, .host = host };
    dl_iterate_phdr(is_nccl, &nccl);
    NEED(driver && nccl);
#define X(name, params) NEED((p->name = (__typeof__(p->name))dlsym(nccl, #name)));
    NCCL_CALLS(X)
#undef X
#define X(name, params) NEED((p->name = (__typeof__(p->name))dlsym(driver, #name)));
    DRIVER_CALLS(X)
#undef X
    p->ncclCommWindowRegister = (__typeof__(p->ncclCommWindowRegister))dlsym(nccl, "ncclCommWindowRegister");
    p->ncclCommWindowDeregister = (__typeof__(p->ncclCommWindowDeregister))dlsym(nccl, "ncclCommWindowDeregister");
    NEED(p->ncclGetVersion(&version) == 0);
    if (comm_rank(host) == 0) {
        NEED(p->ncclGetUniqueId(&id) == 0);
        res->nccl = version;
    }
    NEED_OK(comm_broadcast(host, COMM_SYNC, &id, sizeof(id), &err));
    NEED(p->cuStreamCreate(&p->stream, STREAM_NON_BLOCKING) == 0);
    NEED(p->ncclCommInitRank(&p->comm, comm_ranks(host), id, comm_rank(host)) == 0);
}

/* NCCL's preferred memory; without windows it continues without them. */
struct array {
    void *mem, *window;
};

static void array_open(struct peer *p, size_t bytes, struct array *ret)
{
    *ret = (struct array){ NULL, NULL };
    NEED(p->ncclMemAlloc(&ret->mem, bytes) == 0);
    if (p->ncclCommWindowRegister && p->ncclCommWindowRegister(p->comm, ret->mem, bytes, &ret->window, NCCL_SYMMETRIC) != 0)
        ret->window = NULL;
}

static void array_close(struct peer *p, struct array *a)
{
    if (a->window)
        NEED(p->ncclCommWindowDeregister(p->comm, a->window) == 0);
    NEED(p->ncclMemFree(a->mem) == 0);
}

/* ---- one rank ---- */

struct bench {
    const struct options *o;
    struct device *dev, *side;
    struct comm *host, *link;
    struct param param[MAX_PARAMS], *list[MAX_PARAMS];
    int nparams, nshards;
    float *host_memory; /* [PARAM / sizeof(float)] */
};

static void fill(struct bench *b, float *to, size_t bytes, float value)
{
    struct err err;

    for (size_t i = 0; i < PARAM / sizeof(float); i++)
        b->host_memory[i] = value;
    for (size_t at = 0; at < bytes; at += PARAM)
        NEED_OK(b->dev->ops->upload(b->dev, to + at / sizeof(float), b->host_memory, bytes - at < PARAM ? bytes - at : PARAM, &err));
}

/* Every element must be `value`: a benchmark of sums must check that the sums are right. */
static void expect(struct bench *b, const float *from, size_t bytes, float value)
{
    struct err err;

    for (size_t at = 0; at < bytes; at += PARAM) {
        size_t n = bytes - at < PARAM ? bytes - at : PARAM;

        NEED_OK(b->dev->ops->download(b->dev, b->host_memory, from + at / sizeof(float), n, &err));
        for (size_t i = 0; i < n / sizeof(float); i++)
            NEED(b->host_memory[i] == value);
    }
}

/* Parameters of so many MiB, like a job's gradient. */
static void make_params(struct bench *b, int mib)
{
    size_t left = (size_t)mib << 20;

    for (b->nparams = 0; left > 0; b->nparams++) {
        size_t bytes = left < PARAM ? left : PARAM;

        b->param[b->nparams] = (struct param){ .kind = PARAM_CONV, .trainable = true, .count = bytes / sizeof(float), .index = b->nparams };
        b->list[b->nparams] = &b->param[b->nparams];
        left -= bytes;
    }
}

/* The first step sets every shard's gradient to 1; later steps reuse it. */
static void step(struct bench *b, struct gradients *r, struct span mine, bool first)
{
    struct err err;
    bool written;

    gradients_begin(r);
    gradients_wave(r, 0);
    for (int p = b->nparams - 1; p >= 0; p--) {
        for (int s = 0; s < mine.hi - mine.lo; s++) {
            float *g = gradients_dest(r, b->list[p], s, &written);

            NEED(g);
            if (first)
                fill(b, g, b->param[p].count * sizeof(float), 1);
        }
        NEED_OK(gradients_ready(r, b->list[p], &err));
    }
    NEED_OK(gradients_wait(r, &err));
}

static double time_tree(struct bench *b, int mib)
{
    struct gradients_options opt = { .dev = b->dev, .side = b->side, .comm = b->link, .nshards = b->nshards, .nwaves = 1 };
    struct span mine = rank_shards(comm_rank(b->host), comm_ranks(b->host), b->nshards);
    struct gradients *r = NULL;
    double best = 1e9;
    struct err err;

    make_params(b, mib);
    NEED_OK(gradients_open(&opt, b->list, b->nparams, &r, &err));
    step(b, r, mine, true);
    for (int p = 0; p < b->nparams; p++)
        expect(b, gradients_sum(r, b->list[p]), b->param[p].count * sizeof(float), (float)b->nshards);
    for (int i = 0; i < b->o->repeats; i++) {
        double from, took;

        NEED_OK(comm_barrier(b->host, COMM_SYNC, &err));
        from = now_ms();
        step(b, r, mine, false);
        took = now_ms() - from;
        best = took < best ? took : best;
    }
    gradients_close(r);
    return best;
}

static double time_peer(struct bench *b, struct peer *p, int mib)
{
    size_t bytes = (size_t)mib << 20;
    struct array from, to;
    double best = 1e9;
    struct err err;

    array_open(p, bytes, &from);
    array_open(p, bytes, &to);
    fill(b, from.mem, bytes, 1);
    NEED_OK(b->dev->ops->sync(b->dev, &err));
    for (int i = -1; i < b->o->repeats; i++) { /* the first makes connections */
        double start, took;

        NEED_OK(comm_barrier(p->host, COMM_SYNC, &err));
        start = now_ms();
        NEED(p->ncclAllReduce(from.mem, to.mem, bytes / sizeof(float), NCCL_FLOAT, NCCL_SUM, p->comm, p->stream) == 0);
        NEED(p->cuStreamSynchronize(p->stream) == 0);
        took = now_ms() - start;
        best = i >= 0 && took < best ? took : best;
    }
    expect(b, to.mem, bytes, (float)comm_ranks(p->host));
    array_close(p, &from);
    array_close(p, &to);
    return best;
}

static void open_link(struct bench *b, bool by_nccl)
{
    struct comm_options opt = {
        .fd = -1, .rank = comm_rank(b->host), .nranks = comm_ranks(b->host), .timeout_ms = TIMEOUT, .host = b->host
    };
    const struct device_ops *ops = b->dev->ops;
    char id[ID_TEXT] = "";
    struct err err;

    if (!by_nccl) {
        NEED_OK(comm_open_staged(b->host, b->dev, b->side, &b->link, &err));
        return;
    }
    if (opt.rank == 0)
        NEED_OK(ops->link_id(id, sizeof(id), &err));
    NEED_OK(comm_broadcast(b->host, COMM_SYNC, id, sizeof(id), &err));
    NEED_OK(ops->link_open(b->dev, b->side, &opt, id, &b->link, &err));
}

/* Rank r's numbers are r + 1: each rank must get the numbers of every other rank, and all must have the same sum. */
static void try_channel(struct bench *b, enum comm_channel ch, float *sent, float *gathered)
{
    int me = comm_rank(b->host), nranks = comm_ranks(b->host), planes[MAX_RANKS];
    struct device *dev = ch == COMM_SYNC ? b->dev : b->side;
    size_t part = (size_t)PARAM / (size_t)nranks / 256 * 256, cut[MAX_RANKS + 1] = { 0 };
    const struct comm_planes x = { sent, part * (size_t)nranks, planes, cut };
    const void *views[MAX_RANKS];
    struct err err;

    for (int r = 0; r < nranks; r++) {
        planes[r] = 1;
        cut[r + 1] = cut[r] + part;
    }
    fill(b, sent, x.plane_bytes, (float)me + 1);
    fill(b, gathered + cut[me] / sizeof(float), part, (float)me + 1);
    NEED_OK(b->dev->ops->sync(b->dev, &err));
    NEED_OK(comm_alltoall(b->link, ch, &x, views, &err));
    NEED_OK(comm_allgather(b->link, ch, gathered, cut, &err));
    NEED_OK(dev->ops->sync(dev, &err));
    NEED_OK(comm_check(b->link, ch, &err));
    for (int r = 0; r < nranks; r++) {
        expect(b, gathered + cut[r] / sizeof(float), part, (float)r + 1);
        expect(b, views[r], part, (float)r + 1);
    }
}

/* Runs before the timed runs, and for a rank that is alone, since its tree moves no data: the link's own memory and
 * both of its channels. */
static void try_link(struct bench *b)
{
    float *mem[COMM_CHANNELS][2];
    struct err err;

    for (int ch = 0; ch < COMM_CHANNELS; ch++) {
        mem[ch][0] = comm_alloc(b->link, PARAM, &err);
        mem[ch][1] = mem[ch][0] ? comm_alloc_shared(b->link, PARAM, &err) : NULL;
        NEED_OK(mem[ch][1] ? 0 : err.code);
    }
    for (int ch = 0; ch < COMM_CHANNELS; ch++)
        try_channel(b, (enum comm_channel)ch, mem[ch][0], mem[ch][1]);
}

static void measure_peer(struct bench *b, struct result *res)
{
    struct peer peer;

    peer_open(&peer, b->dev, b->host, res);
    for (int i = 0; i < b->o->nsizes; i++) {
        double ms = time_peer(b, &peer, b->o->sizes[i]);

        if (comm_rank(b->host) == 0)
            res->peer_ms[i] = ms;
    }
    NEED(peer.ncclCommDestroy(peer.comm) == 0);
}

static void measure(struct bench *b, struct result *res)
{
    int nranks = comm_ranks(b->host);

    b->host_memory = malloc(PARAM);
    NEED(b->host_memory);
    for (b->nshards = 1; b->nshards < nranks;)
        b->nshards *= 2;
    b->dev->ops->set_tier(b->dev, TIER_WORLD);
    open_link(b, res->by_nccl);
    try_link(b);
    for (int i = 0; i < b->o->nsizes; i++) {
        double ms = time_tree(b, b->o->sizes[i]);

        if (comm_rank(b->host) == 0)
            res->tree_ms[i] = ms;
    }
    if (res->by_nccl)
        measure_peer(b, res);
    comm_close(b->link);
    free(b->host_memory);
}

/* Makes the n-th visible GPU the only one, and sets the other variables that detd-job sets for a rank. */
static void see_one_gpu(int n)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    char one[96];

    for (int i = 0; list && i < n; i++) {
        list = strchr(list, ',');
        list = list ? list + 1 : NULL;
    }
    if (list)
        snprintf(one, sizeof(one), "%.*s", (int)strcspn(list, ","), list);
    else
        snprintf(one, sizeof(one), "%d", n);
    NEED(setenv("CUDA_VISIBLE_DEVICES", one, 1) == 0 && setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1) == 0 &&
         setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1) == 0 && setenv("NCCL_SOCKET_IFNAME", "lo", 1) == 0);
}

static void rank_main(struct comm *host, void *arg)
{
    struct result *res = arg;
    const struct device_options opt = { .threads = 1, .precision = PRECISION_FP32 };
    const struct device_ops *ops;
    struct bench b = { .o = &res->o, .host = host };
    struct err err;

    alarm((unsigned)res->o.seconds); /* a collective of the peer that never ends */
    if (res->own_gpus)
        see_one_gpu(comm_rank(host));
    else if (res->by_nccl)
        see_one_gpu(0);
    NEED_OK(device_backend("cuda", "auto", &ops, &err));
    NEED_OK(ops->open(0, &opt, &b.dev, &err));
    NEED_OK(ops->open(0, &opt, &b.side, &err));
    measure(&b, res);
    b.side->ops->close(b.side);
    b.dev->ops->close(b.dev);
}

/* ---- the program ---- */

/* In a process of its own: a process that has opened a GPU must not fork ranks. */
static int look(struct result *res)
{
    pid_t pid = fork();
    int status = -1;

    if (pid == 0) {
        const struct device_options opt = { .precision = PRECISION_FP32 };
        const struct device_ops *ops;
        struct device_info info;
        struct device *dev;
        struct err err;
        int rc = device_backend("cuda", "auto", &ops, &err);

        if (rc == 0)
            rc = ops->open(0, &opt, &dev, &err);
        if (rc < 0) {
            res->why = err;
            _exit(1);
        }
        ops->info(dev, &info);
        res->devices = info.devices;
        res->links = ops->link_open != NULL;
        snprintf(res->name, sizeof(res->name), "%s", info.name);
        ops->close(dev);
        _exit(0);
    }
    if (waitpid(pid, &status, 0) == pid && status == 0)
        return 0;
    fprintf(stderr, "bench_link: %s\n", res->why.code ? res->why.msg : "the process that looked for GPUs was killed");
    return -1;
}

static void print(const struct result *res, int nranks)
{
    double share = nranks == 1 ? 1 : 2.0 * (nranks - 1) / nranks; /* the least share of the bytes that each rank must send; alone: copy */

    if (res->own_gpus)
        printf("link: %d rank%s, a GPU (%s) each, NCCL %d\n", nranks, nranks == 1 ? "" : "s", res->name, res->nccl);
    else if (res->by_nccl)
        printf("link: %d ranks share one GPU (%s), NCCL %d\n", nranks, res->name, res->nccl);
    else
        printf("link: %d rank%s one GPU (%s), by way of the host's memory\n", nranks, nranks == 1 ? " on" : "s share", res->name);
    for (int i = 0; i < res->o.nsizes; i++) {
        double gb = share * (double)((size_t)res->o.sizes[i] << 20) / 1e9, tree = res->tree_ms[i], peer = res->peer_ms[i];

        printf("link: ranks %d, %3d MiB: tree %8.3f ms, %6.1f GB/s", nranks, res->o.sizes[i], tree, gb / tree * 1e3);
        if (res->by_nccl)
            printf("; ncclAllReduce %8.3f ms, %6.1f GB/s; tree over it %.2f", peer, gb / peer * 1e3, tree / peer);
        printf("\n");
    }
}

static int run(struct result *res, int nranks, bool own_gpus)
{
    int bad;

    res->own_gpus = own_gpus;
    res->by_nccl = own_gpus || res->o.shared;
    fflush(stdout);
    bad = run_ranks(nranks, TIMEOUT, rank_main, res);
    if (bad == 0)
        print(res, nranks);
    else
        fprintf(stderr, "bench_link: %d of %d ranks failed\n", bad, nranks);
    return bad ? -1 : 0;
}

/* The runs that are possible with a single GPU. A failed run does not stop the next. */
static int run_one_gpu(struct result *res)
{
    int rc = res->links ? run(res, 1, true) : 0;

    for (int nranks = 2; nranks <= 4; nranks *= 2)
        rc |= run(res, nranks, false);
    return rc;
}

static int parse_sizes(struct options *o, const char *text)
{
    for (o->nsizes = 0; o->nsizes < MAX_SIZES; text++) {
        char *end;
        long mib = strtol(text, &end, 10);

        if (end == text || mib < 1 || (size_t)mib << 20 > (size_t)MAX_PARAMS * PARAM)
            return -1;
        o->sizes[o->nsizes++] = (int)mib;
        text = end;
        if (*text != ',')
            return *text ? -1 : 0;
    }
    return -1;
}

static int parse(struct options *o, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        int bad = -1;

        if (strncmp(argv[i], "ranks=", 6) == 0)
            bad = (o->ranks = atoi(argv[i] + 6)) < 1 || o->ranks > MAX_RANKS;
        else if (strncmp(argv[i], "repeats=", 8) == 0)
            bad = (o->repeats = atoi(argv[i] + 8)) < 1;
        else if (strncmp(argv[i], "seconds=", 8) == 0)
            bad = (o->seconds = atoi(argv[i] + 8)) < 1;
        else if (strncmp(argv[i], "sizes=", 6) == 0)
            bad = parse_sizes(o, argv[i] + 6);
        else if (strcmp(argv[i], "shared=nccl") == 0)
            o->shared = true, bad = 0;
        if (bad) {
            fprintf(stderr, "bench_link: '%s': takes ranks=1..%d sizes=MIB,... (up to %d of at most %d) repeats=N seconds=N shared=nccl\n",
                    argv[i], MAX_RANKS, MAX_SIZES, (int)((size_t)MAX_PARAMS * PARAM >> 20));
            return -1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct result *res = shared_memory(sizeof(*res));

    if (!res)
        return 1;
    setvbuf(stdout, NULL, _IOLBF, 0); /* a run that is interrupted has printed the rows so far */
    res->o = (struct options){ .repeats = 20, .seconds = 300, .nsizes = 4, .sizes = { 1, 16, 64, 248 } };
    if (parse(&res->o, argc, argv) < 0 || look(res) < 0)
        return 1;
    if (res->o.shared)
        return run(res, res->o.ranks ? res->o.ranks : 2, false) < 0;
    if (res->devices > 1 && res->o.ranks > res->devices) {
        fprintf(stderr, "bench_link: ranks=%d, but this process sees %d GPUs\n", res->o.ranks, res->devices);
        return 1;
    }
    if (res->o.ranks)
        return run(res, res->o.ranks, res->links && res->o.ranks <= res->devices) < 0;
    if (res->devices > 1)
        return run(res, res->devices, true) < 0;
    printf("link: NCCL needs two GPUs to move anything, this process sees one\n");
    return run_one_gpu(res) < 0;
}

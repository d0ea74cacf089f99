/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/nccl.c - a link: collectives over device memory through NCCL
 * (worker/comm/comm.h has the contract of a link). Opening, memory, closing.
 *
 * Rank 0's link_id() makes two ids, one for each channel, as text. Every rank's link_open() joins both communicators.
 * NCCL listens for the others inside rank 0's process from link_id() on, so rank 0 must live until all have joined.
 * Errors are final for the process: detd-job starts all ranks again with a new id, which also clears any state left in
 * the driver. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/nccl_impl.h"

enum {
    OPEN_MS = 300 * 1000, /* joining takes seconds; all ranks said hello before */
    CLOSE_MS = 10 * 1000, /* for a rank that closes while another one still works or is gone */
    GRAD_CTAS = 16,       /* blocks that NCCL may take from the multiprocessors during backward */
    SYNC_CTAS = 4,        /* few: operations are small, and both channels must fit on the GPU together */
    ID_HEX = 2 * COMM_CHANNELS * NCCL_UNIQUE_ID_BYTES
};

/* ---- id: "nccl VERSION HEX"; HEX holds both ids ---- */

int cuda_link_id(char *ret, size_t size, struct err *err)
{
    const struct nccl_api *api;
    ncclUniqueId id[COMM_CHANNELS];
    int version = 0, rc = libs_nccl(&api, err), n;

    if (rc < 0)
        return rc;
    for (int ch = 0; ch < COMM_CHANNELS; ch++) {
        ncclResult_t r = api->ncclGetUniqueId(&id[ch]);

        if (r != ncclSuccess)
            return err_set(err, ERR_DEVICE, "NCCL gives no id: %s: %s", api->ncclGetErrorString(r), api->ncclGetLastError(NULL));
    }
    (void)api->ncclGetVersion(&version);
    n = snprintf(ret, size, "nccl %d ", version);
    if (n < 0 || (size_t)n + ID_HEX >= size)
        return err_set(err, ERR_INPUT, "an NCCL id takes %d bytes of text, there is room for %zu", n + ID_HEX, size);
    for (size_t i = 0; i < ID_HEX / 2; i++)
        snprintf(ret + n + 2 * i, 3, "%02x", ((const unsigned char *)id)[i]);
    return 0;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int parse_id(const struct nccl_api *api, const char *text, ncclUniqueId *ret_id, struct err *err)
{
    int mine = 0, theirs = 0, at = 0;

    if (!text || sscanf(text, "nccl %9d %n", &theirs, &at) != 1 || at == 0 || strlen(text + at) != ID_HEX)
        return err_set(err, ERR_PROTO, "rank 0 gave no NCCL id but '%.40s'", text ? text : "");
    (void)api->ncclGetVersion(&mine);
    if (mine != theirs)
        return err_set(err, ERR_UNSUPPORTED, "rank 0 uses NCCL %d, this rank NCCL %d: all ranks need the same", theirs, mine);
    for (int i = 0; i < ID_HEX / 2; i++) {
        int hi = hex_digit(text[at + 2 * i]), lo = hex_digit(text[at + 2 * i + 1]);

        if (hi < 0 || lo < 0)
            return err_set(err, ERR_PROTO, "the NCCL id that rank 0 gave is damaged at digit %d", 2 * i);
        ((unsigned char *)ret_id)[i] = (unsigned char)(hi << 4 | lo);
    }
    return 0;
}

/* ---- memory ---- */

/* Symmetric windows let NCCL copy between peers without a stage of its own. This is a collective. If the machine cannot
 * do it, NCCL leaves the handle unset. */
static int register_window(struct link *l, enum comm_channel ch, size_t bytes, struct link_region *g, struct err *err)
{
    struct link_channel *c = &l->channel[ch];
    ncclResult_t r = ncclInProgress;

    pthread_mutex_lock(&c->lock);
    if (c->nccl)
        r = l->api->ncclCommWindowRegister(c->nccl, g->mem, bytes, &g->window[ch], NCCL_WIN_COLL_SYMMETRIC);
    pthread_mutex_unlock(&c->lock);
    return link_settle(l, ch, r, "registering memory", OPEN_MS, err);
}

static void *link_alloc(struct comm *c, size_t bytes, bool shared, struct err *err)
{
    struct link *l = (struct link *)c;
    struct device *dev = l->channel[COMM_SYNC].dev;
    struct link_region *g = &l->region[l->nregions];
    size_t length = (bytes + COMM_ALIGN) / COMM_ALIGN * COMM_ALIGN; /* never 0 */
    ncclResult_t r;
    int rc = link_state(l, err);

    (void)shared; /* in both cases each rank has its own memory */
    if (rc < 0)
        return NULL;
    if (l->nregions == LINK_REGIONS) {
        err_set(err, ERR_STATE, "more than %d allocations of memory for collectives", LINK_REGIONS);
        return NULL;
    }
    *g = (struct link_region){ 0 };
    r = l->api->ncclMemAlloc(&g->mem, length);
    if (r != ncclSuccess) {
        err_set(err, ERR_DEVICE, "no device memory for %zu bytes that ranks exchange: %s", length, l->api->ncclGetErrorString(r));
        return NULL;
    }
    l->nregions++; /* from here on link_close() frees it */
    rc = dev->ops->zero(dev, g->mem, length, err);
    if (rc == 0)
        rc = dev->ops->sync(dev, err); /* so that all queues see zeros */
    for (int ch = 0; rc == 0 && l->api->ncclCommWindowRegister && ch < COMM_CHANNELS; ch++)
        rc = register_window(l, (enum comm_channel)ch, length, g, err);
    return rc < 0 ? NULL : g->mem;
}

/* ---- closing ---- */

static void link_abort(struct comm *c)
{
    struct err why;

    err_set(&why, ERR_ABORTED, "rank %d has left the job", c->rank);
    link_fail((struct link *)c, &why, NULL);
}

static bool link_aborted(const struct comm *c)
{
    const struct link *l = (const struct link *)c;

    return atomic_load_explicit(&l->failed, memory_order_acquire) || l->host->ops->aborted(l->host);
}

/* Waits until this rank's work on a channel is done and no peer needs it. After a failure the watchdog aborts the
 * rest. */
static void leave(struct link *l, enum comm_channel ch)
{
    struct link_channel *c = &l->channel[ch];
    ncclResult_t r = ncclSuccess;
    int rc = c->dev->ops->sync(c->dev, NULL);

    for (int i = 0; rc == 0 && i < l->nregions; i++) {
        if (!l->region[i].window[ch])
            continue;
        pthread_mutex_lock(&c->lock);
        if (c->nccl)
            r = l->api->ncclCommWindowDeregister(c->nccl, l->region[i].window[ch]);
        pthread_mutex_unlock(&c->lock);
        rc = link_settle(l, ch, r, "releasing memory", CLOSE_MS, NULL);
    }
    if (rc < 0)
        return;
    pthread_mutex_lock(&c->lock);
    r = c->nccl ? l->api->ncclCommFinalize(c->nccl) : ncclSuccess;
    pthread_mutex_unlock(&c->lock);
    if (link_settle(l, ch, r, "closing", CLOSE_MS, NULL) < 0)
        return;
    pthread_mutex_lock(&c->lock);
    if (c->nccl)
        (void)l->api->ncclCommDestroy(c->nccl);
    c->nccl = NULL;
    pthread_mutex_unlock(&c->lock);
}

static void free_channel(struct link_channel *c)
{
    for (int i = 0; i < FLIGHTS; i++)
        if (c->flight[i].done)
            cudaEventDestroy(c->flight[i].done);
    for (int i = 0; i < c->nstages; i++)
        c->dev->ops->free(c->dev, c->stage[i]);
    pthread_mutex_destroy(&c->lock);
}

static void link_close(struct comm *comm)
{
    struct link *l = (struct link *)comm;

    for (int ch = 0; ch < COMM_CHANNELS && link_state(l, NULL) == 0; ch++)
        if (l->channel[ch].nccl)
            leave(l, (enum comm_channel)ch);
    link_unwatch(l);
    (void)cudaDeviceSynchronize(); /* after an abort, work queued behind it still uses this memory */
    for (int ch = 0; ch < COMM_CHANNELS; ch++)
        free_channel(&l->channel[ch]);
    for (int i = 0; i < l->nregions; i++)
        (void)l->api->ncclMemFree(l->region[i].mem);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static const struct comm_ops link_ops = {
    .name = "NCCL",
    .alloc = link_alloc,
    .alltoall = link_alltoall,
    .allgather = link_allgather,
    .exchange = link_exchange,
    .check = link_check,
    .abort = link_abort,
    .aborted = link_aborted,
    .close = link_close,
};

/* ---- opening ---- */

static int check_options(const struct comm_options *opt, struct err *err)
{
    if (!opt->host)
        return err_set(err, ERR_INPUT, "NCCL link: no comm over host memory beside it");
    if (opt->rank != opt->host->rank || opt->nranks != opt->host->nranks)
        return err_set(err, ERR_INPUT, "NCCL link: rank %d of %d, but rank %d of %d over host memory", opt->rank, opt->nranks,
                       opt->host->rank, opt->host->nranks);
    if (opt->timeout_ms <= 0)
        return err_set(err, ERR_INPUT, "timeout of collectives must be > 0 ms, is %d", opt->timeout_ms);
    return 0;
}

static int join(struct link *l, enum comm_channel ch, const ncclUniqueId *id, struct err *err)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    struct link_channel *c = &l->channel[ch];
    int timeout = l->timeout_ms < OPEN_MS ? l->timeout_ms : OPEN_MS;
    ncclResult_t r;

    config.blocking = 0;
    config.commName = ch == COMM_GRAD ? "detd grad" : "detd sync";
    config.maxCTAs = ch == COMM_GRAD ? GRAD_CTAS : SYNC_CTAS;
    config.CTAPolicy = ch == COMM_GRAD ? NCCL_CTA_POLICY_EFFICIENCY : NCCL_CTA_POLICY_DEFAULT;
    pthread_mutex_lock(&c->lock);
    r = l->api->ncclCommInitRankConfig(&c->nccl, l->comm.nranks, *id, l->comm.rank, &config);
    pthread_mutex_unlock(&c->lock);
    return link_settle(l, ch, r, "joining the other ranks", timeout, err);
}

static int make_events(struct link_channel *c, struct err *err)
{
    int rc = 0;

    for (int i = 0; rc == 0 && i < FLIGHTS; i++)
        rc = cuda_check(cudaEventCreateWithFlags(&c->flight[i].done, cudaEventDisableTiming), "link_open", err);
    return rc;
}

int cuda_link_open(struct device *sync, struct device *grad, const struct comm_options *opt, const char *id, struct comm **ret_comm,
                   struct err *err)
{
    const struct nccl_api *api;
    ncclUniqueId ids[COMM_CHANNELS];
    struct link *l;
    int rc = check_options(opt, err);

    if (rc == 0)
        rc = libs_nccl(&api, err);
    if (rc == 0)
        rc = parse_id(api, id, ids, err);
    if (rc < 0)
        return rc;
    l = calloc(1, sizeof(*l));
    if (!l)
        return err_set(err, -ENOMEM, "NCCL link: out of memory");
    l->comm = (struct comm){ .ops = &link_ops, .rank = opt->rank, .nranks = opt->nranks, .hook = opt->hook };
    l->api = api;
    l->host = opt->host;
    l->timeout_ms = opt->timeout_ms;
    pthread_mutex_init(&l->lock, NULL);
    l->channel[COMM_SYNC].dev = sync;
    l->channel[COMM_GRAD].dev = grad;
    for (int ch = 0; ch < COMM_CHANNELS; ch++)
        pthread_mutex_init(&l->channel[ch].lock, NULL);
    for (int ch = 0; rc == 0 && ch < COMM_CHANNELS; ch++)
        rc = make_events(&l->channel[ch], err);
    if (rc == 0)
        rc = link_watch(l, err);
    for (int ch = 0; rc == 0 && ch < COMM_CHANNELS; ch++)
        rc = join(l, (enum comm_channel)ch, &ids[ch], err);
    if (rc < 0) {
        link_abort(&l->comm);
        link_close(&l->comm);
        return rc;
    }
    *ret_comm = &l->comm;
    return 0;
}

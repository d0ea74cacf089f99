/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/staging.c - uploads, downloads and tables through rings of pinned
 * memory.
 *
 * A ring has segments that are filled in turn. The event of a segment is recorded when it is left, and waited for when
 * the ring comes around. So small pieces cost one copy each, and large ones overlap: the GPU reads one segment while
 * the host writes the next. */
#include "cuda/staging.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/memory.h"
#include "proto/err.h"

enum {
    SEGMENTS = 4,
    PIECE_BYTES = 4 << 20,   /* segment of transfers */
    TABLE_BYTES = 256 << 10, /* segment of tables, and the largest table */
    ALIGN_BYTES = 256,
};

struct ring {
    const char *what;
    size_t segment_bytes, used; /* bytes used in the current segment */
    int at;
    char *host;
    char *device; /* device copy of tables; NULL for transfers */
    cudaEvent_t left[SEGMENTS];
};

struct staging {
    struct cuda_device *owner;
    struct ring transfers, tables;
};

static int ring_open(struct ring *r, const char *what, size_t segment_bytes, struct err *err)
{
    int rc = 0;

    r->what = what;
    r->segment_bytes = segment_bytes;
    for (int i = 0; i < SEGMENTS && rc == 0; i++)
        rc = cuda_check(cudaEventCreateWithFlags(&r->left[i], cudaEventDisableTiming | cudaEventBlockingSync), what, err);
    return rc;
}

static void ring_close(struct ring *r)
{
    for (int i = 0; i < SEGMENTS; i++)
        if (r->left[i])
            (void)cudaEventDestroy(r->left[i]);
    (void)cudaFreeHost(r->host);
    (void)cudaFree(r->device);
}

int staging_open(struct cuda_device *d, struct staging **ret_staging, struct err *err)
{
    struct staging *s = calloc(1, sizeof *s);
    int rc;

    if (!s)
        return err_set(err, -ENOMEM, "out of memory: staging of the CUDA device");
    s->owner = d;
    rc = ring_open(&s->transfers, "transfer", PIECE_BYTES, err);
    if (rc == 0)
        rc = ring_open(&s->tables, "table", TABLE_BYTES, err);
    if (rc < 0) {
        staging_close(s);
        return rc;
    }
    *ret_staging = s;
    return 0;
}

void staging_close(struct staging *s)
{
    if (!s)
        return;
    ring_close(&s->transfers);
    ring_close(&s->tables);
    free(s);
}

/* Allocates the ring at its first use: a queue that only computes needs no ring. */
static int ring_memory(struct ring *r, bool device, struct err *err)
{
    size_t bytes = SEGMENTS * r->segment_bytes;
    void *host = NULL, *twin = NULL;
    int rc;

    if (r->host)
        return 0;
    if (cudaHostAlloc(&host, bytes, cudaHostAllocDefault) != cudaSuccess) {
        (void)cudaGetLastError();
        return err_set(err, -ENOMEM, "out of pinned host memory: %zu bytes for the ring of %ss", bytes, r->what);
    }
    if (device) {
        rc = cuda_malloc(&twin, bytes, "table", err);
        if (rc < 0) {
            (void)cudaFreeHost(host);
            return rc;
        }
    }
    r->host = host;
    r->device = twin;
    return 0;
}

/* Leaves the segment, which the GPU may read until the event has passed. Enters the next one. */
static int ring_turn(struct ring *r, cudaStream_t stream, struct err *err)
{
    int rc = cuda_check(cudaEventRecord(r->left[r->at], stream), r->what, err);

    r->at = (r->at + 1) % SEGMENTS;
    r->used = 0;
    return rc < 0 ? rc : cuda_check(cudaEventSynchronize(r->left[r->at]), r->what, err);
}

/* Finds room for a piece of at most a segment. ret_offset counts from the start of the ring. */
static int ring_take(struct ring *r, cudaStream_t stream, size_t bytes, size_t *ret_offset, struct err *err)
{
    int rc = 0;

    assert(bytes <= r->segment_bytes);
    if (bytes > r->segment_bytes - r->used)
        rc = ring_turn(r, stream, err);
    if (rc < 0)
        return rc;
    *ret_offset = (size_t)r->at * r->segment_bytes + r->used;
    r->used += (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    return 0;
}

static size_t piece_of(size_t bytes)
{
    return bytes < PIECE_BYTES ? bytes : PIECE_BYTES;
}

int cuda_upload(struct device *dev, void *dst, const void *host, size_t bytes, struct err *err)
{
    struct cuda_device *d = cuda_device(dev);
    struct ring *r = &d->staging->transfers;
    const char *from = host;
    char *to = dst;
    int rc = ring_memory(r, false, err);

    while (rc == 0 && bytes > 0) {
        size_t n = piece_of(bytes), offset = 0;

        rc = ring_take(r, d->stream, n, &offset, err);
        if (rc < 0)
            break;
        memcpy(r->host + offset, from, n);
        rc = cuda_check(cudaMemcpyAsync(to, r->host + offset, n, cudaMemcpyHostToDevice, d->stream), "upload", err);
        from += n;
        to += n;
        bytes -= n;
    }
    return rc;
}

/* A piece of a download: its segment, and its destination. */
struct piece {
    int segment;
    char *to;
    size_t bytes;
};

static int piece_begin(struct cuda_device *d, struct piece *p, char *to, const char *from, size_t bytes, struct err *err)
{
    struct ring *r = &d->staging->transfers;
    int rc = r->used ? ring_turn(r, d->stream, err) : 0;

    if (rc < 0)
        return rc;
    *p = (struct piece){ r->at, to, bytes };
    r->used = r->segment_bytes; /* only this piece uses the segment: its event tells when the bytes are complete */
    rc = cuda_check(cudaMemcpyAsync(r->host + (size_t)r->at * r->segment_bytes, from, bytes, cudaMemcpyDeviceToHost, d->stream), "download",
                    err);
    return rc < 0 ? rc : cuda_check(cudaEventRecord(r->left[r->at], d->stream), "download", err);
}

static int piece_end(struct cuda_device *d, const struct piece *p, struct err *err)
{
    struct ring *r = &d->staging->transfers;
    int rc;

    if (p->bytes == 0)
        return 0;
    rc = cuda_check(cudaEventSynchronize(r->left[p->segment]), "download", err);
    if (rc == 0)
        memcpy(p->to, r->host + (size_t)p->segment * r->segment_bytes, p->bytes);
    return rc;
}

int cuda_download(struct device *dev, void *host, const void *src, size_t bytes, struct err *err)
{
    struct cuda_device *d = cuda_device(dev);
    struct piece now = { 0 }, before = { 0 };
    int rc = ring_memory(&d->staging->transfers, false, err);

    for (size_t at = 0; at < bytes && rc == 0; at += now.bytes) {
        before = now;
        rc = piece_begin(d, &now, (char *)host + at, (const char *)src + at, piece_of(bytes - at), err);
        if (rc == 0)
            rc = piece_end(d, &before, err);
    }
    return rc < 0 ? rc : piece_end(d, &now, err);
}

/* The copy on the GPU needs no event: it is overwritten later on the same stream. */
const void *cuda_table(struct device *dev, const void *host, size_t bytes, struct err *err)
{
    struct cuda_device *d = cuda_device(dev);
    struct ring *r = &d->staging->tables;
    size_t offset = 0;

    if (bytes > r->segment_bytes) {
        err_set(err, ERR_DEVICE, "a table of %zu bytes for a kernel; at most %zu are possible", bytes, r->segment_bytes);
        return NULL;
    }
    if (ring_memory(r, true, err) < 0 || ring_take(r, d->stream, bytes, &offset, err) < 0)
        return NULL;
    memcpy(r->host + offset, host, bytes);
    if (cuda_check(cudaMemcpyAsync(r->device + offset, r->host + offset, bytes, cudaMemcpyHostToDevice, d->stream), "table", err) < 0)
        return NULL;
    return r->device + offset;
}

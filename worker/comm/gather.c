#include "worker/comm/gather.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "proto/err.h"
#include "worker/comm/comm.h"
#include "worker/core/shards.h"

enum { LINE = 64 };

struct gather {
    struct gather_options opt;
    int rank, nranks;
    char *buffer[2];
    unsigned gathered; /* number of gathers; modulo opt.buffers it is the buffer being filled */
    size_t *cut;       /* [nranks + 1], bytes: each rank's head and records start here, at a cache line */
    size_t *at;        /* [nrecords], bytes: start of each record */
};

static int rank_of(const struct gather *g, int index)
{
    return g->opt.deal == GATHER_TURNS ? index % g->nranks : rank_of_shard(index, g->nranks, g->opt.nrecords);
}

/* Places heads and records. Returns the total size in bytes. */
static size_t place(struct gather *g)
{
    const struct gather_options *o = &g->opt;
    size_t end = 0;

    for (int r = 0; r < g->nranks; r++) {
        g->cut[r] = end;
        end += o->head_bytes;
        for (int i = 0; i < o->nrecords; i++)
            if (rank_of(g, i) == r) {
                g->at[i] = end;
                end += o->record_bytes;
            }
        end = (end + LINE - 1) / LINE * LINE;
    }
    g->cut[g->nranks] = end;
    return end;
}

static int take_buffers(struct gather *g, struct err *err)
{
    size_t bytes = place(g);

    for (int b = 0; b < g->opt.buffers && bytes > 0; b++) {
        struct err local;

        g->buffer[b] = comm_alloc_shared(g->opt.comm, bytes, &local);
        if (!g->buffer[b])
            return err_set(err, local.code, "%d records that all ranks read: %s", g->opt.nrecords, local.msg);
    }
    return 0;
}

int gather_open(const struct gather_options *opt, struct gather **ret_gather, struct err *err)
{
    struct gather *g;
    int rc;

    assert(opt->buffers >= 1 && opt->buffers <= 2 && opt->record_bytes % 8 == 0 && opt->head_bytes % 8 == 0);
    if (opt->nrecords < 1)
        return err_set(err, ERR_INPUT, "%d records that all ranks read", opt->nrecords);
    g = calloc(1, sizeof *g);
    if (!g)
        return err_set(err, -ENOMEM, "%d records that all ranks read: out of memory", opt->nrecords);
    *g = (struct gather){ .opt = *opt, .rank = comm_rank(opt->comm), .nranks = comm_ranks(opt->comm) };
    g->cut = calloc((size_t)g->nranks + 1, sizeof *g->cut);
    g->at = calloc((size_t)opt->nrecords, sizeof *g->at);
    if (g->cut && g->at)
        rc = take_buffers(g, err);
    else
        rc = err_set(err, -ENOMEM, "%d records that all ranks read: out of memory", opt->nrecords);
    if (rc < 0) {
        gather_close(g);
        return rc;
    }
    *ret_gather = g;
    return 0;
}

void gather_close(struct gather *g)
{
    if (!g)
        return;
    free(g->cut);
    free(g->at);
    free(g);
}

static char *filled(const struct gather *g)
{
    return g->buffer[g->gathered % (unsigned)g->opt.buffers];
}

void *gather_record(struct gather *g, int index)
{
    assert(index >= 0 && index < g->opt.nrecords && rank_of(g, index) == g->rank);
    return filled(g) + g->at[index];
}

void *gather_head(struct gather *g)
{
    return filled(g) + g->cut[g->rank];
}

int gather_all(struct gather *g, struct err *err)
{
    int rc = g->cut[g->nranks] > 0 ? comm_allgather(g->opt.comm, COMM_SYNC, filled(g), g->cut, err) : 0;

    if (rc == 0)
        g->gathered++;
    return rc;
}

static const char *gathered(const struct gather *g)
{
    assert(g->gathered > 0);
    return g->buffer[(g->gathered - 1) % (unsigned)g->opt.buffers];
}

const void *gather_read(const struct gather *g, int index)
{
    return gathered(g) + g->at[index];
}

const void *gather_read_head(const struct gather *g, int rank)
{
    return gathered(g) + g->cut[rank];
}

void gather_rows(const struct gather *g, size_t at, const double **ret_rows)
{
    for (int i = 0; i < g->opt.nrecords; i++)
        ret_rows[i] = (const double *)gather_read(g, i) + at;
}

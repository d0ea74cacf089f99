/* worker/train/exchange.c - numbers of all shards of the job in device memory, on every rank. */
#include "proto/err.h"
#include "worker/comm/comm.h"
#include "worker/train/trainer_impl.h"

int exchange_open(struct exchange *x, struct trainer *t, size_t record, struct err *err)
{
    int nshards = (int)t->spec->train_shards;

    *x = (struct exchange){ .record = record };
    for (int r = 0; r < t->opt.nranks; r++)
        x->cut[r + 1] = (size_t)rank_shards(r, t->opt.nranks, nshards).hi * record * sizeof(double);
    for (int i = 0; i < 2 && record > 0; i++) {
        x->buffer[i] = comm_alloc_shared(t->link, x->cut[t->opt.nranks], err);
        if (!x->buffer[i])
            return err->code;
    }
    return t->dev->host_memory
               ? 0
               : exchange_all(x, t, err); /* zeros: ranks connect with the first, which later could wait for the gradients' */
}

double *exchange_record(const struct exchange *x, int shard)
{
    return x->buffer[x->used % 2] + (size_t)shard * x->record;
}

int exchange_all(struct exchange *x, struct trainer *t, struct err *err)
{
    int rc = x->record > 0 ? comm_allgather(t->link, COMM_SYNC, x->buffer[x->used % 2], x->cut, err) : 0;

    x->used++;
    return rc;
}

void exchange_rows(const struct exchange *x, const struct trainer *t, size_t at, const double **ret_rows)
{
    for (int v = 0; v < t->spec->train_shards; v++)
        ret_rows[v] = x->buffer[(x->used - 1) % 2] + (size_t)v * x->record + at;
}

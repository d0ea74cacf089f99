#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "proto/err.h"
#include "worker/comm/comm.h"
#include "worker/core/tree.h"
#include "worker/train/slots.h"

enum { BUFFERS = 3, LINE = 64 };

struct slots {
    struct comm *comm;
    int nrecords, rank, nranks;
    size_t record;
    char *buffer[BUFFERS];
    unsigned exchanges; /* done so far; the buffer being filled is that number modulo BUFFERS */
    size_t *cut;        /* [nranks + 1], bytes: a rank's words, then its records, whole cache lines */
    size_t *at;         /* [nrecords], bytes: where each record lies */
    const double **row; /* [nrecords], working memory of the sums */
};

static size_t place(struct slots *s)
{
    const size_t words = SLOT_WORDS * sizeof(uint64_t), bytes = s->record * sizeof(double);
    size_t end = 0;

    for (int r = 0; r < s->nranks; r++) {
        struct span mine = rank_shards(r, s->nranks, s->nrecords);

        s->cut[r] = end;
        for (int i = mine.lo; i < mine.hi; i++)
            s->at[i] = end + words + (size_t)(i - mine.lo) * bytes;
        end += (words + (size_t)(mine.hi - mine.lo) * bytes + LINE - 1) / LINE * LINE;
    }
    s->cut[s->nranks] = end;
    return end;
}

static int take_buffers(struct slots *s, struct err *err)
{
    size_t bytes = place(s);

    for (int b = 0; b < BUFFERS; b++) {
        struct err local;

        s->buffer[b] = comm_alloc_shared(s->comm, bytes, &local);
        if (!s->buffer[b])
            return err_set(err, local.code, "slots of %d records: %s", s->nrecords, local.msg);
    }
    return 0;
}

int slots_open(struct comm *c, int nrecords, size_t record, struct slots **ret_slots, struct err *err)
{
    struct slots *s;
    int rc;

    if (nrecords < 1)
        return err_set(err, ERR_INPUT, "slots of %d records", nrecords);
    s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(err, -ENOMEM, "slots of %d records: out of memory", nrecords);
    *s = (struct slots){ .comm = c, .nrecords = nrecords, .rank = comm_rank(c), .nranks = comm_ranks(c), .record = record };
    s->cut = calloc((size_t)s->nranks + 1, sizeof(*s->cut));
    s->at = calloc((size_t)nrecords, sizeof(*s->at));
    s->row = calloc((size_t)nrecords, sizeof(*s->row));
    if (s->cut && s->at && s->row)
        rc = take_buffers(s, err);
    else
        rc = err_set(err, -ENOMEM, "slots of %d records: out of memory", nrecords);
    if (rc < 0) {
        slots_close(s);
        return rc;
    }
    *ret_slots = s;
    return 0;
}

void slots_close(struct slots *s)
{
    if (!s)
        return;
    free(s->cut);
    free(s->at);
    free(s->row);
    free(s);
}

struct span slots_mine(const struct slots *s)
{
    return rank_shards(s->rank, s->nranks, s->nrecords);
}

double *slots_record(struct slots *s, int index)
{
    struct span mine = slots_mine(s);

    assert(index >= mine.lo && index < mine.hi);
    return (double *)(void *)(s->buffer[s->exchanges % BUFFERS] + s->at[index]);
}

uint64_t *slots_words(struct slots *s)
{
    return (uint64_t *)(void *)(s->buffer[s->exchanges % BUFFERS] + s->cut[s->rank]);
}

int slots_exchange(struct slots *s, struct err *err)
{
    int rc = comm_allgather(s->comm, COMM_SYNC, s->buffer[s->exchanges % BUFFERS], s->cut, err);

    if (rc == 0)
        s->exchanges++;
    return rc;
}

static const char *buffer_of(const struct slots *s, int age)
{
    assert(age >= 0 && age <= 1 && s->exchanges > (unsigned)age);
    return s->buffer[(s->exchanges - 1 - (unsigned)age) % BUFFERS];
}

const double *slots_read(const struct slots *s, int age, int index)
{
    return (const double *)(const void *)(buffer_of(s, age) + s->at[index]);
}

const uint64_t *slots_read_words(const struct slots *s, int age, int rank)
{
    return (const uint64_t *)(const void *)(buffer_of(s, age) + s->cut[rank]);
}

void slots_rows(const struct slots *s, int age, size_t at, const double **ret_rows)
{
    for (int i = 0; i < s->nrecords; i++)
        ret_rows[i] = slots_read(s, age, i) + at;
}

void slots_sum_rows(const struct slots *s, int age, size_t at, size_t count, double *ret)
{
    slots_rows(s, age, at, s->row);
    tree_sum_rows(ret, s->row, s->nrecords, count);
}

double slots_sum(const struct slots *s, int age, size_t at)
{
    double sum;

    slots_sum_rows(s, age, at, 1, &sum);
    return sum;
}

void slots_moments(const struct slots *s, int age, size_t at, int c, double *ret)
{
    slots_rows(s, age, at, s->row);
    tree_moments(ret, s->row, s->nrecords, c);
}

#include "worker/core/shards.h" /* SPDX-License-Identifier: Apache-2.0 */

struct span rank_shards(int rank, int nranks, int nshards)
{
    return (struct span){ (int)((long long)rank * nshards / nranks), (int)((rank + 1LL) * nshards / nranks) };
}

int rank_of_shard(int shard, int nranks, int nshards)
{
    return (int)(((shard + 1LL) * nranks - 1) / nshards);
}

struct span wave_shards(struct span rank, int wave, int nwaves)
{
    long long m = rank.hi - rank.lo;

    return (struct span){ rank.lo + (int)(wave * m / nwaves), rank.lo + (int)((wave + 1) * m / nwaves) };
}

int val_shards(int nimages, int batch)
{
    return (nimages + batch - 1) / batch;
}

int val_shards_of_rank(int nshards, int rank, int nranks)
{
    return rank < nshards ? (nshards - 1 - rank) / nranks + 1 : 0;
}

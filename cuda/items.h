/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/items.h - kernels that go through several arrays in one launch: each
 * array has its own blocks of threads. */
#pragma once
#include "cuda/vec.h"

/* In a kernel: the item of a block of threads, which is the last item with `first` at or before the block. Items
 * without numbers have no block. */
template <class ITEM> DEVICE_FN const ITEM *item_of_block(const ITEM *items, int n)
{
    int lo = 0, hi = n;

    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;

        if (items[mid].first <= blockIdx.x)
            lo = mid;
        else
            hi = mid;
    }
    return &items[lo];
}

/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/conv_stream.c - decides on results of convolutions that are
 * written past the caches. */
#include "worker/cpu/conv.h"

#include "worker/core/simd.h"

enum { STREAM_BYTES = 8 << 20 }; /* results this large are written past the caches: loading a line only to overwrite it costs more */

bool conv_streams(const struct conv_call *q)
{
    size_t bytes = 0;

    if (!VSTREAMS || q->beta != 0.0f)
        return false;
    for (int v = 0; v < q->nshards; v++) {
        const struct tensor *y = &q->y[v];

        if ((uintptr_t)y->data % 64 != 0 || y->c % 16 != 0 || y->stride % 16 != 0)
            return false;
        bytes += tensor_count(y) * dtype_bytes(y->dtype);
    }
    return bytes >= STREAM_BYTES;
}

#include <errno.h> /* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "proto/err.h"
#include "worker/data/image/image.h"
#include "worker/data/sample/task.h"

void *hand_memory(struct hand *h, size_t bytes, struct err *err)
{
    if (bytes <= h->bytes)
        return h->memory;
    free(h->memory);
    h->memory = malloc(bytes);
    h->bytes = h->memory ? bytes : 0;
    if (!h->memory)
        err_set(err, -ENOMEM, "no memory to make a sample: %zu bytes", bytes);
    return h->memory;
}

void hand_free(struct hand *h)
{
    decoder_free(h->decoder);
    free(h->memory);
}

#include "worker/data/make/batch.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <string.h>

int batch_array_of(const struct batch_form *f, const char *name)
{
    for (int i = 0; i < f->narrays; i++)
        if (strcmp(f->array[i].name, name) == 0)
            return i;
    return -1;
}

int batch_list_of(const struct batch_form *f, const char *name)
{
    for (int i = 0; i < f->nlists; i++)
        if (strcmp(f->list[i].name, name) == 0)
            return i;
    return -1;
}

struct tensor batch_tensor(const struct batch_form *f, const struct shard_batch *b, int array)
{
    const struct batch_array *a = &f->array[array];
    int h = a->canvas ? b->canvas.h : 1, w = a->canvas ? b->canvas.w : 1;

    return (struct tensor){
        .data = b->array[array], .n = batch_rows(b, a->of), .h = h, .w = w, .c = a->width, .stride = a->width, .dtype = a->dtype
    };
}

size_t batch_bytes(const struct batch_form *f, const struct shard_batch *b, int array)
{
    struct tensor t = batch_tensor(f, b, array);

    return tensor_count(&t) * dtype_bytes(t.dtype);
}

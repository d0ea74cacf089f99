#include <errno.h> /* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/core/file.h"
#include "worker/core/safetensors.h"

/* Puts wide elements first, so that every array in the file is aligned to its element. */
static int compare_layout(const void *a, const void *b)
{
    const struct st_array *p = *(const struct st_array *const *)a, *q = *(const struct st_array *const *)b;
    unsigned wp = st_dtype_bytes(p->dtype), wq = st_dtype_bytes(q->dtype);

    return wp != wq ? (wp < wq ? 1 : -1) : strcmp(p->name, q->name);
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp((*(const struct st_meta *const *)a)->key, (*(const struct st_meta *const *)b)->key);
}

static json_t *describe(const struct st_array *a, uint64_t offset)
{
    json_t *shape = json_array();
    json_int_t from = (json_int_t)offset, to = from + (json_int_t)st_bytes(a);

    for (int i = 0; i < a->ndims; i++)
        json_array_append_new(shape, json_integer(a->shape[i]));
    return json_pack("{s:s,s:o,s:[I,I]}", "dtype", st_dtype_name(a->dtype), "shape", shape, "data_offsets", from, to);
}

/* Sorted pointers to the n elements of an array. NULL: out of memory. */
static const void **sorted(const void *elements, size_t n, size_t size, int (*compare)(const void *, const void *))
{
    const void **order = malloc((n + 1) * sizeof *order);

    for (size_t i = 0; order && i < n; i++)
        order[i] = (const char *)elements + i * size;
    if (order && n > 0)
        qsort(order, n, sizeof *order, compare);
    return order;
}

static int add_metadata(json_t *header, const struct st_meta *const *order, size_t n, struct err *err)
{
    json_t *map;

    if (n == 0)
        return 0;
    map = json_object();
    if (json_object_set_new(header, SAFETENSORS_METADATA, map) < 0) /* takes the reference, also when it fails */
        return err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++)
        if (json_object_get(map, order[i]->key) || json_object_set_new(map, order[i]->key, json_string(order[i]->value)) < 0)
            return err_set(err, ERR_INPUT, "metadata '%.80s' stands there twice or is not UTF-8", order[i]->key);
    return 0;
}

static int add_arrays(json_t *header, const struct st_array *const *order, size_t n, struct err *err)
{
    uint64_t offset = 0;

    for (size_t i = 0; i < n; i++) {
        const struct st_array *a = order[i];

        if (strlen(a->name) > SAFETENSORS_MAX_NAME || strcmp(a->name, SAFETENSORS_METADATA) == 0 || json_object_get(header, a->name))
            return err_set(err, ERR_INPUT, "array '%.80s': a name that is too long, reserved or there twice", a->name);
        if (json_object_set_new(header, a->name, describe(a, offset)) < 0)
            return err_set(err, ERR_INPUT, "array '%.80s': its name is not UTF-8", a->name);
        offset += st_bytes(a);
    }
    return 0;
}

/* The header's text, padded with blanks so that the data starts at a multiple of 8. The caller frees it. */
static int header_text(const json_t *header, char **ret_text, uint64_t *ret_len, struct err *err)
{
    size_t len = json_dumpb(header, NULL, 0, JSON_COMPACT), padded = (len + 7) / 8 * 8;
    char *text = len ? malloc(padded) : NULL;

    if (!text)
        return err_set(err, -ENOMEM, "out of memory");
    if (padded > SAFETENSORS_MAX_HEADER) {
        free(text);
        return err_set(err, ERR_INPUT, "the header would have %zu bytes; the limit is %d", padded, SAFETENSORS_MAX_HEADER);
    }
    json_dumpb(header, text, len, JSON_COMPACT);
    memset(text + len, ' ', padded - len);
    *ret_text = text;
    *ret_len = padded;
    return 0;
}

static const struct st_meta own = { "written_by", "detd export" };

static bool is_own(const char *path)
{
    struct safetensors *f;
    struct err ignored;
    const char *by;
    bool is;

    if (safetensors_open(path, &f, &ignored) < 0)
        return false;
    by = safetensors_meta(f, own.key);
    is = by && strcmp(by, own.value) == 0;
    safetensors_close(f);
    return is;
}

/* exported: the user named the file. */
static int write_file(const char *path, bool exported, const char *text, uint64_t len, const struct st_array *const *order, size_t n,
                      struct err *err)
{
    struct file_out *o;
    int rc = exported ? file_out_open_named(path, is_own, &o, err) : file_out_open(path, &o, err);

    if (rc < 0)
        return rc;
    rc = file_out_write(o, &len, 8, err);
    if (rc == 0)
        rc = file_out_write(o, text, (size_t)len, err);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = file_out_write(o, order[i]->data, (size_t)st_bytes(order[i]), err);
    if (rc == 0)
        return file_out_commit(o, err);
    file_out_abort(o);
    return rc;
}

static int write_sorted(const char *path, bool exported, const struct st_array *const *arrays, size_t narrays,
                        const struct st_meta *const *meta, size_t nmeta, struct err *err)
{
    json_t *header = json_object();
    char *text = NULL;
    uint64_t len = 0;
    int rc = add_metadata(header, meta, nmeta, err);

    if (rc == 0)
        rc = add_arrays(header, arrays, narrays, err);
    if (rc == 0)
        rc = header_text(header, &text, &len, err);
    if (rc < 0)
        err_prefix(err, "write '%s'", path);
    else
        rc = write_file(path, exported, text, len, arrays, narrays, err);
    free(text);
    json_decref(header);
    return rc;
}

static int write_any(const char *path, bool exported, const struct st_array *arrays, size_t narrays, const struct st_meta *meta,
                     size_t nmeta, struct err *err)
{
    const void **by_layout = sorted(arrays, narrays, sizeof *arrays, compare_layout),
               **by_key = sorted(meta, nmeta, sizeof *meta, compare_keys);
    int rc;

    if (by_layout && by_key)
        rc = write_sorted(path, exported, (const struct st_array *const *)by_layout, narrays, (const struct st_meta *const *)by_key, nmeta,
                          err);
    else
        rc = err_set(err, -ENOMEM, "write '%s': out of memory", path);
    free(by_layout);
    free(by_key);
    return rc;
}

int safetensors_write(const char *path, const struct st_array *arrays, size_t narrays, const struct st_meta *meta, size_t nmeta,
                      struct err *err)
{
    return write_any(path, false, arrays, narrays, meta, nmeta, err);
}

int safetensors_export(const char *path, const struct st_array *arrays, size_t narrays, const struct st_meta *meta, size_t nmeta,
                       struct err *err)
{
    struct st_meta *more = malloc((nmeta + 1) * sizeof *more);
    int rc;

    if (!more)
        return err_set(err, -ENOMEM, "write '%s': out of memory", path);
    if (nmeta > 0)
        memcpy(more, meta, nmeta * sizeof *more);
    more[nmeta] = own;
    rc = write_any(path, true, arrays, narrays, more, nmeta + 1, err);
    free(more);
    return rc;
}

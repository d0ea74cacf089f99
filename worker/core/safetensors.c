#include "worker/core/safetensors.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/core/file.h"
#include "worker/core/file_kind.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format is little endian and so are we");

static const struct {
    const char *name;
    unsigned bytes;
} dtypes[ST_NDTYPES] = {
#define X(name, bytes) { #name, bytes },
    ST_DTYPES(X)
#undef X
};

struct safetensors {
    struct file_map map; /* size 0 if the bytes belong to the caller */
    char *label;
    json_t *header; /* owns all names and metadata strings */
    struct st_array *arrays;
    size_t narrays;
};

uint64_t st_count(const struct st_array *a)
{
    uint64_t count = 1;

    for (int i = 0; i < a->ndims; i++)
        count *= (uint64_t)a->shape[i];
    return count;
}

uint64_t st_bytes(const struct st_array *a)
{
    return st_count(a) * dtypes[a->dtype].bytes;
}

unsigned st_dtype_bytes(enum st_dtype dtype)
{
    return dtypes[dtype].bytes;
}

const char *st_dtype_name(enum st_dtype dtype)
{
    return dtypes[dtype].name;
}

static int array_err(const struct safetensors *f, const char *name, struct err *err, const char *what)
{
    return err_set(err, ERR_CORRUPT, "%s: array '%.80s': %s", f->label, name, what);
}

static int read_dtype(const struct safetensors *f, struct st_array *a, const json_t *value, struct err *err)
{
    const char *name = json_string_value(value);

    for (int i = 0; name && i < ST_NDTYPES; i++)
        if (strcmp(name, dtypes[i].name) == 0) {
            a->dtype = (enum st_dtype)i;
            return 0;
        }
    return array_err(f, a->name, err, name ? "unknown dtype" : "dtype is missing");
}

/* Also checks that the size in bytes does not overflow. */
static int read_shape(const struct safetensors *f, struct st_array *a, const json_t *value, struct err *err)
{
    uint64_t bytes = dtypes[a->dtype].bytes;

    if (!json_is_array(value) || json_array_size(value) > SAFETENSORS_MAX_DIMS)
        return array_err(f, a->name, err, "shape is not a list of at most 8 numbers");
    a->ndims = (int)json_array_size(value);
    for (int i = 0; i < a->ndims; i++) {
        const json_t *dim = json_array_get(value, (size_t)i);

        a->shape[i] = json_integer_value(dim);
        if (!json_is_integer(dim) || a->shape[i] < 0)
            return array_err(f, a->name, err, "a dimension is not a number >= 0");
        if (__builtin_mul_overflow(bytes, (uint64_t)a->shape[i], &bytes))
            return array_err(f, a->name, err, "its shape is too large");
    }
    return 0;
}

static int read_offsets(const struct safetensors *f, struct st_array *a, const json_t *value, const unsigned char *data, uint64_t size,
                        struct err *err)
{
    const json_t *from = json_array_get(value, 0), *to = json_array_get(value, 1);
    json_int_t lo = json_integer_value(from), hi = json_integer_value(to);

    if (json_array_size(value) != 2 || !json_is_integer(from) || !json_is_integer(to))
        return array_err(f, a->name, err, "data_offsets is not a pair of numbers");
    if (lo < 0 || hi < lo || (uint64_t)hi > size)
        return array_err(f, a->name, err, "data_offsets lie outside the file");
    if ((uint64_t)(hi - lo) != st_bytes(a))
        return array_err(f, a->name, err, "data_offsets do not fit its shape and dtype");
    a->data = data + lo;
    return 0;
}

static int read_array(const struct safetensors *f, struct st_array *a, const char *name, const json_t *info, const unsigned char *data,
                      uint64_t size, struct err *err)
{
    int rc;

    a->name = name;
    if (strlen(name) > SAFETENSORS_MAX_NAME)
        return array_err(f, name, err, "name longer than 255 bytes");
    if (!json_is_object(info))
        return array_err(f, name, err, "its description is not an object");
    rc = read_dtype(f, a, json_object_get(info, "dtype"), err);
    if (rc == 0)
        rc = read_shape(f, a, json_object_get(info, "shape"), err);
    if (rc == 0)
        rc = read_offsets(f, a, json_object_get(info, "data_offsets"), data, size, err);
    return rc;
}

static int read_metadata(const struct safetensors *f, json_t *meta, struct err *err)
{
    const char *key;
    json_t *value;

    if (meta && !json_is_object(meta))
        return err_set(err, ERR_CORRUPT, "%s: __metadata__ is not an object", f->label);
    json_object_foreach ((json_t *)(uintptr_t)meta, key, value)
        if (!json_is_string(value))
            return err_set(err, ERR_CORRUPT, "%s: metadata '%.80s' is not a string", f->label, key);
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct st_array *)a)->name, ((const struct st_array *)b)->name);
}

static int compare_places(const void *a, const void *b)
{
    const struct st_array *p = a, *q = b;

    if (p->data != q->data)
        return (const char *)p->data < (const char *)q->data ? -1 : 1;
    return (st_bytes(p) > st_bytes(q)) - (st_bytes(p) < st_bytes(q));
}

/* Checks that each array starts at the end of the one before, and the last one ends the file. So no bytes are hidden or
 * used twice. */
static int check_cover(struct safetensors *f, const unsigned char *data, uint64_t size, struct err *err)
{
    const unsigned char *at = data;

    qsort(f->arrays, f->narrays, sizeof *f->arrays, compare_places);
    for (size_t i = 0; i < f->narrays; i++) {
        if ((const unsigned char *)f->arrays[i].data != at)
            return array_err(f, f->arrays[i].name, err,
                             (const unsigned char *)f->arrays[i].data < at ? "overlaps another" : "a hole before it");
        at += st_bytes(&f->arrays[i]);
    }
    if ((uint64_t)(at - data) != size)
        return err_set(err, ERR_CORRUPT, "%s: %llu bytes behind the last array", f->label,
                       (unsigned long long)(size - (uint64_t)(at - data)));
    qsort(f->arrays, f->narrays, sizeof *f->arrays, compare_names);
    return 0;
}

static int read_entries(struct safetensors *f, const unsigned char *data, uint64_t size, struct err *err)
{
    const char *name;
    json_t *info;
    int rc = read_metadata(f, json_object_get(f->header, SAFETENSORS_METADATA), err);

    f->arrays = calloc(json_object_size(f->header) + 1, sizeof *f->arrays);
    if (!f->arrays)
        return err_set(err, -ENOMEM, "%s: out of memory", f->label);
    json_object_foreach (f->header, name, info) {
        if (rc < 0)
            return rc;
        if (strcmp(name, SAFETENSORS_METADATA) != 0)
            rc = read_array(f, &f->arrays[f->narrays++], name, info, data, size, err);
    }
    return rc < 0 ? rc : check_cover(f, data, size, err);
}

static int read_json(struct safetensors *f, const unsigned char *bytes, size_t size, const unsigned char **ret_data, struct err *err)
{
    json_error_t je;
    uint64_t len;

    if (size < 8)
        return err_set(err, ERR_CORRUPT, "%s: %zu bytes are no safetensors file", f->label, size);
    memcpy(&len, bytes, 8);
    if (len > SAFETENSORS_MAX_HEADER)
        return err_set(err, ERR_CORRUPT, "%s: header of %llu bytes; the limit is %d", f->label, (unsigned long long)len,
                       SAFETENSORS_MAX_HEADER);
    if (len > size - 8)
        return err_set(err, ERR_CORRUPT, "%s: header of %llu bytes in a file of %zu", f->label, (unsigned long long)len, size);
    f->header = json_loadb((const char *)bytes + 8, (size_t)len, JSON_REJECT_DUPLICATES, &je);
    if (!f->header)
        return err_set(err, ERR_CORRUPT, "%s: header, byte %d: %s", f->label, je.position, je.text);
    *ret_data = bytes + 8 + len;
    return 0;
}

static int read_header(struct safetensors *f, const unsigned char *bytes, size_t size, struct err *err)
{
    const unsigned char *data = NULL;
    int rc = read_json(f, bytes, size, &data, err);
    const char *kind = rc < 0 ? file_kind(bytes, size, WEIGHTS_SAFETENSORS) : NULL;

    if (kind)
        return err_set(err, ERR_CORRUPT, "%s: not a .safetensors file; it is %s", f->label, kind);
    if (rc < 0)
        return rc;
    if (!json_is_object(f->header))
        return err_set(err, ERR_CORRUPT, "%s: the header is not an object", f->label);
    return read_entries(f, data, size - (size_t)(data - bytes), err);
}

int safetensors_parse(const void *bytes, size_t size, const char *label, struct safetensors **ret_file, struct err *err)
{
    struct safetensors *f = calloc(1, sizeof *f);
    int rc;

    if (!f || !(f->label = strdup(label))) {
        free(f);
        return err_set(err, -ENOMEM, "%s: out of memory", label);
    }
    rc = read_header(f, bytes, size, err);
    if (rc < 0)
        safetensors_close(f);
    else
        *ret_file = f;
    return rc;
}

int safetensors_open(const char *path, struct safetensors **ret_file, struct err *err)
{
    struct file_map map;
    int rc = file_map_open(path, SIZE_MAX, &map, err);

    if (rc < 0)
        return rc;
    rc = safetensors_parse(map.data, map.size, path, ret_file, err);
    if (rc < 0)
        file_map_close(&map);
    else
        (*ret_file)->map = map;
    return rc;
}

void safetensors_close(struct safetensors *f)
{
    if (!f)
        return;
    file_map_close(&f->map);
    json_decref(f->header);
    free(f->arrays);
    free(f->label);
    free(f);
}

size_t safetensors_count(const struct safetensors *f)
{
    return f->narrays;
}

const char *safetensors_unwrap(struct safetensors *f)
{
    static const char *const wrappers[] = { "module.model.", "model.module.", "module.", "model.", "_orig_mod.", "state_dict." };
    for (size_t w = 0; w < sizeof wrappers / sizeof *wrappers; w++) {
        size_t len = strlen(wrappers[w]), n = 0;

        while (n < f->narrays && strncmp(f->arrays[n].name, wrappers[w], len) == 0 && f->arrays[n].name[len])
            n++;
        if (n < f->narrays || n == 0)
            continue;
        for (size_t i = 0; i < n; i++)
            f->arrays[i].name += len;
        return wrappers[w];
    }
    return NULL;
}

const struct st_array *safetensors_at(const struct safetensors *f, size_t i)
{
    return &f->arrays[i];
}

const struct st_array *safetensors_find(const struct safetensors *f, const char *name)
{
    struct st_array key = { .name = name };

    return bsearch(&key, f->arrays, f->narrays, sizeof *f->arrays, compare_names);
}

const char *safetensors_meta(const struct safetensors *f, const char *key)
{
    return json_string_value(json_object_get(json_object_get(f->header, SAFETENSORS_METADATA), key));
}

static float from_bits(uint32_t bits)
{
    float v;

    memcpy(&v, &bits, 4);
    return v;
}

/* Converts an IEEE half. A subnormal is value * 2^-24. The largest exponent is infinity or a NaN, with its payload
 * kept. */
static float from_half(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, fraction = h & 1023;

    if (exponent == 31)
        return from_bits(sign | 0x7f800000u | fraction << 13);
    if (exponent == 0)
        return (sign ? -1.0f : 1.0f) * (float)fraction * 0x1p-24f;
    return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

int safetensors_f32(const struct st_array *a, float *dst, struct err *err)
{
    const unsigned char *src = a->data;
    size_t n = (size_t)st_count(a);

    if (n == 0)
        return 0;
    if (a->dtype == ST_F32) {
        memcpy(dst, src, n * 4);
    } else if (a->dtype == ST_F64) {
        for (size_t i = 0; i < n; i++) {
            double v;

            memcpy(&v, src + 8 * i, 8);
            dst[i] = (float)v;
        }
    } else if (a->dtype == ST_F16 || a->dtype == ST_BF16) {
        for (size_t i = 0; i < n; i++) {
            uint16_t v;

            memcpy(&v, src + 2 * i, 2);
            dst[i] = a->dtype == ST_F16 ? from_half(v) : from_bits((uint32_t)v << 16);
        }
    } else {
        return err_set(err, ERR_UNSUPPORTED, "array '%.80s': %s cannot be read as numbers of a network", a->name, st_dtype_name(a->dtype));
    }
    return 0;
}

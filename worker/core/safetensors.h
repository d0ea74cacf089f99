/* SPDX-License-Identifier: Apache-2.0 */ /* worker/core/safetensors.h - .safetensors files: named arrays behind a JSON
 * header. Reads any valid file and refuses every other one by name. Writes the same bytes for the same content, in
 * whichever order it is given.
 *
 * Format: 8 bytes length of the header (little endian), the header {"name": {"dtype", "shape", "data_offsets": [from,
 * to]}, ..., "__metadata__": {"key": "value"}}, then the data without holes. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct err;

/* Limits. The limit of the header is the format's own. */
enum { SAFETENSORS_MAX_HEADER = 100000000, SAFETENSORS_MAX_DIMS = 8, SAFETENSORS_MAX_NAME = 255 };

#define SAFETENSORS_METADATA "__metadata__" /* reserved: no array has this name */

/* clang-format off */
/*    name  bytes */
#define ST_DTYPES(X)                                                                                                                       \
    X(F64, 8) X(I64, 8) X(U64, 8) X(F32, 4) X(I32, 4) X(U32, 4) X(F16, 2) X(BF16, 2) X(I16, 2) X(U16, 2) X(I8, 1) X(U8, 1) X(BOOL, 1)
/* clang-format on */
#define X(name, bytes) ST_##name,
enum st_dtype { ST_DTYPES(X) ST_NDTYPES };
#undef X

/* One array. `data` of an opened file lies in the map: it is valid while the file is open and may stand at any address
 * (memcpy, or safetensors_f32()). Empty arrays (a dimension of 0) and scalars (no dimension) are legal. */
struct st_array {
    const char *name;
    enum st_dtype dtype;
    int ndims;
    int64_t shape[SAFETENSORS_MAX_DIMS];
    const void *data;
};
struct st_meta {
    const char *key, *value;
};

uint64_t st_count(const struct st_array *a); /* elements */
uint64_t st_bytes(const struct st_array *a);
unsigned st_dtype_bytes(enum st_dtype dtype); /* of an element */
const char *st_dtype_name(enum st_dtype dtype);

struct safetensors;
/* Maps and checks a whole file: header length, JSON, duplicate names, dtypes, shapes, offsets (no overlap, no hole,
 * nothing outside, the bytes of the shape). ERR_CORRUPT names the file and the array. Caller closes. */
int safetensors_open(const char *path, struct safetensors **ret_file, struct err *err);
/* The same from memory, which stays the caller's and must outlive the result. Errors call it `label`. */
int safetensors_parse(const void *bytes, size_t size, const char *label, struct safetensors **ret_file, struct err *err);
void safetensors_close(struct safetensors *f);

/* Removes a prefix that programs put before every name (PyTorch's DataParallel "module.", Lightning "model.",
 * torch.compile "_orig_mod.") and returns it; one prefix a call. NULL: not all names have it. From then on other
 * functions see the rest of the names. */
const char *safetensors_unwrap(struct safetensors *f);

size_t safetensors_count(const struct safetensors *f);
/* In the order of names (bytewise). Borrowed until safetensors_close(). */
const struct st_array *safetensors_at(const struct safetensors *f, size_t i);
/* NULL if it is missing. */
const struct st_array *safetensors_find(const struct safetensors *f, const char *name);
const char *safetensors_meta(const struct safetensors *f, const char *key);
/* Copies all elements as fp32; F16, BF16 and F32 convert exactly, F64 rounds. ERR_UNSUPPORTED for integers. */
int safetensors_f32(const struct st_array *a, float *dst, struct err *err);

/* Writes durably and atomically (file.h). Arrays are laid out by element size, then name; metadata by key. Names must
 * differ, hold UTF-8 of at most SAFETENSORS_MAX_NAME bytes and not be "__metadata__". */
int safetensors_write(const char *path, const struct st_array *arrays, size_t narrays, const struct st_meta *meta, size_t nmeta,
                      struct err *err);
/* The same to a file that a user has named (file_out_open_named()), with one more metadata key, by which detd
 * recognises its own exports. */
int safetensors_export(const char *path, const struct st_array *arrays, size_t narrays, const struct st_meta *meta, size_t nmeta,
                       struct err *err);

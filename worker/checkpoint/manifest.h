/* SPDX-License-Identifier: Apache-2.0 */ /* worker/checkpoint/manifest.h - manifest.json of a checkpoint folder: its
 * files with sizes and hashes, its step and its owner. */
#pragma once
#include "worker/checkpoint/ckpt.h"

enum { CKPT_MODEL, CKPT_STATE, CKPT_FILES, CKPT_PATH_BYTES = 4096 };

struct file_facts {
    int64_t bytes;
    char hash[33];
};

struct manifest {
    int64_t step, bytes; /* bytes: of all files, including the manifest */
    struct ckpt_identity id;
    struct file_facts facts[CKPT_FILES];
};

/* model.safetensors, state.safetensors */
const char *manifest_file(int file);
/* "FOLDER/NAME". -ENAMETOOLONG. */
int manifest_path(char ret[CKPT_PATH_BYTES], const char *folder, const char *name, struct err *err);
/* Hashes the files in folder and writes the manifest, durably. */
int manifest_write(const char *folder, int64_t step, const struct ckpt_identity *id, int64_t *ret_bytes, struct err *err);
/* Reads it and compares the files. ERR_CORRUPT: something is missing, damaged or of another step. ERR_STATE: another
 * owner than id (NULL: any owner). ERR_UNSUPPORTED: a newer format. */
int manifest_verify(const char *folder, int64_t step, const struct ckpt_identity *id, struct manifest *ret, struct err *err);

#include <errno.h> /* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/core/file.h"
#include "proto/hash/hash.h"
#include "worker/checkpoint/manifest.h"

enum { MANIFEST_BYTES = 64 << 10 };

#define MANIFEST "manifest.json"

static const char *const file_names[CKPT_FILES] = { "model.safetensors", "state.safetensors" };

const char *manifest_file(int file)
{
    return file_names[file];
}

int manifest_path(char ret[CKPT_PATH_BYTES], const char *folder, const char *name, struct err *err)
{
    int n = snprintf(ret, CKPT_PATH_BYTES, "%s/%s", folder, name);

    return n < CKPT_PATH_BYTES ? 0 : err_set(err, -ENAMETOOLONG, "'%.200s...': the path is too long", folder);
}

/* Maps a file. A missing path, or one that is no regular file of at most max_bytes, is damage: ERR_CORRUPT. A lack of
 * memory or rights is not: its code is returned. */
static int map_file(const char *path, size_t max_bytes, struct file_map *ret_map, struct err *err)
{
    int rc = file_map_open(path, max_bytes, ret_map, err);

    if (rc == -ENOENT || rc == -EISDIR || rc == -ENOTDIR || rc == ERR_INPUT || rc == ERR_DATA)
        return err_set(err, ERR_CORRUPT, "'%s' is missing or no file of at most %zu bytes", path, max_bytes);
    return rc;
}

static int facts_of(const char *folder, int file, struct file_facts *ret, struct err *err)
{
    char path[CKPT_PATH_BYTES];
    struct file_map map;
    int rc = manifest_path(path, folder, file_names[file], err);

    if (rc == 0)
        rc = map_file(path, SIZE_MAX, &map, err);
    if (rc < 0)
        return rc;
    ret->bytes = (int64_t)map.size;
    hash_hex(hash_bytes(map.data, map.size, hash_name(file_names[file])), ret->hash);
    file_map_close(&map);
    return 0;
}

/* Hash of the whole manifest in one canonical spelling: with a flipped bit in it, a checkpoint must not pass for
 * another job's. */
static void hash_manifest(json_t *m, char ret[33])
{
    char *text = json_dumps(m, JSON_COMPACT | JSON_SORT_KEYS);

    hash_hex(hash_bytes(text ? text : "", text ? strlen(text) : 0, hash_name(MANIFEST)), ret);
    free(text);
}

static char *manifest_text(int64_t step, const struct ckpt_identity *id, const struct file_facts facts[CKPT_FILES])
{
    const struct file_facts *model = &facts[CKPT_MODEL], *state = &facts[CKPT_STATE];
    json_t *m = json_pack("{s:i, s:I, s:s, s:s, s:{s:{s:I, s:s}, s:{s:I, s:s}}}", "format", CKPT_FORMAT, "step", (json_int_t)step,
                          "store_id", id->store_id, "spec", id->spec, "files", file_names[CKPT_MODEL], "bytes", (json_int_t)model->bytes,
                          "hash", model->hash, file_names[CKPT_STATE], "bytes", (json_int_t)state->bytes, "hash", state->hash);
    char *text = NULL, hash[33];

    if (!m)
        return NULL;
    hash_manifest(m, hash);
    if (json_object_set_new(m, "hash", json_string(hash)) == 0)
        text = json_dumps(m, JSON_INDENT(2) | JSON_SORT_KEYS);
    json_decref(m);
    return text;
}

static int write_text(const char *folder, const char *text, struct err *err)
{
    char path[CKPT_PATH_BYTES];
    struct file_out *out = NULL;
    int rc = manifest_path(path, folder, MANIFEST, err);

    if (rc == 0)
        rc = file_out_open(path, &out, err);
    if (rc < 0)
        return rc;
    file_out_printf(out, err, "%s\n", text); /* a failure stays in out and the commit returns it */
    return file_out_commit(out, err);
}

int manifest_write(const char *folder, int64_t step, const struct ckpt_identity *id, int64_t *ret_bytes, struct err *err)
{
    struct file_facts facts[CKPT_FILES];
    char *text;
    int rc = 0;

    for (int f = 0; rc == 0 && f < CKPT_FILES; f++)
        rc = facts_of(folder, f, &facts[f], err);
    if (rc < 0)
        return rc;
    text = manifest_text(step, id, facts);
    if (!text)
        return err_set(err, ERR_INPUT, "manifest of step %lld: store id or spec hash is not UTF-8", (long long)step);
    rc = write_text(folder, text, err);
    if (rc == 0)
        *ret_bytes = facts[CKPT_MODEL].bytes + facts[CKPT_STATE].bytes + (int64_t)strlen(text) + 1;
    free(text);
    return rc;
}

static int check_hash(json_t *json, const char *path, struct err *err)
{
    const char *said = json_string_value(json_object_get(json, "hash"));
    char want[33], found[33];

    if (!said || strlen(said) != 32)
        return err_set(err, ERR_CORRUPT, "'%s': no hash", path);
    memcpy(want, said, sizeof(want));
    json_object_del(json, "hash");
    hash_manifest(json, found);
    return strcmp(want, found) == 0 ? 0 : err_set(err, ERR_CORRUPT, "'%s': its hash is %s, it says %s", path, found, want);
}

static int unpack_manifest(json_t *json, const char *path, struct manifest *ret, struct err *err)
{
    const char *store_id, *spec, *hash[CKPT_FILES];
    json_int_t step, bytes[CKPT_FILES];
    json_error_t why;
    int format;

    if (json_unpack_ex(json, &why, 0, "{s:i}", "format", &format) < 0)
        return err_set(err, ERR_CORRUPT, "'%s': %s", path, why.text);
    if (format > CKPT_FORMAT)
        return err_set(err, ERR_UNSUPPORTED, "'%s': checkpoint format %d; this program reads up to %d", path, format, CKPT_FORMAT);
    if (json_unpack_ex(json, &why, JSON_STRICT, "{s:i, s:I, s:s, s:s, s:{s:{s:I, s:s !}, s:{s:I, s:s !} !}}", "format", &format, "step",
                       &step, "store_id", &store_id, "spec", &spec, "files", file_names[CKPT_MODEL], "bytes", &bytes[CKPT_MODEL], "hash",
                       &hash[CKPT_MODEL], file_names[CKPT_STATE], "bytes", &bytes[CKPT_STATE], "hash", &hash[CKPT_STATE]) < 0)
        return err_set(err, ERR_CORRUPT, "'%s': %s", path, why.text);
    if (strlen(store_id) >= CKPT_IDENTITY || strlen(spec) >= CKPT_IDENTITY)
        return err_set(err, ERR_CORRUPT, "'%s': store_id or spec is too long", path);
    ret->step = step;
    snprintf(ret->id.store_id, sizeof(ret->id.store_id), "%s", store_id);
    snprintf(ret->id.spec, sizeof(ret->id.spec), "%s", spec);
    for (int f = 0; f < CKPT_FILES; f++) {
        ret->facts[f].bytes = bytes[f];
        snprintf(ret->facts[f].hash, sizeof(ret->facts[f].hash), "%s", hash[f]);
    }
    return 0;
}

static int read_manifest(const char *folder, struct manifest *ret, struct err *err)
{
    char path[CKPT_PATH_BYTES];
    struct file_map map;
    json_error_t why;
    json_t *json;
    int rc = manifest_path(path, folder, MANIFEST, err);

    if (rc == 0)
        rc = map_file(path, MANIFEST_BYTES, &map, err);
    if (rc < 0)
        return rc;
    json = json_loadb((const char *)map.data, map.size, JSON_REJECT_DUPLICATES, &why);
    if (json)
        rc = check_hash(json, path, err);
    if (json && rc == 0)
        rc = unpack_manifest(json, path, ret, err);
    if (!json)
        rc = err_set(err, ERR_CORRUPT, "'%s': line %d: %s", path, why.line, why.text);
    ret->bytes = (int64_t)map.size;
    file_map_close(&map);
    json_decref(json);
    return rc;
}

static int check_identity(const char *folder, const char *what, const char *theirs, const char *ours, struct err *err)
{
    if (!theirs[0] || !ours[0] || strcmp(theirs, ours) == 0)
        return 0;
    return err_set(err, ERR_STATE, "'%s': its %s is %s, the job's is %s", folder, what, theirs, ours);
}

static int verify_file(const char *folder, int file, const struct file_facts *want, struct err *err)
{
    const char *name = file_names[file];
    struct file_facts found;
    int rc = facts_of(folder, file, &found, err);

    if (rc < 0)
        return rc;
    if (found.bytes != want->bytes)
        return err_set(err, ERR_CORRUPT, "'%s/%s' has %lld bytes, the manifest says %lld", folder, name, (long long)found.bytes,
                       (long long)want->bytes);
    if (strcmp(found.hash, want->hash) != 0)
        return err_set(err, ERR_CORRUPT, "'%s/%s': its hash is %s, the manifest says %s", folder, name, found.hash, want->hash);
    return 0;
}

int manifest_verify(const char *folder, int64_t step, const struct ckpt_identity *id, struct manifest *ret, struct err *err)
{
    struct manifest m;
    int rc = read_manifest(folder, &m, err);

    if (rc == 0 && id)
        rc = check_identity(folder, "store_id", m.id.store_id, id->store_id, err);
    if (rc == 0 && id)
        rc = check_identity(folder, "spec", m.id.spec, id->spec, err);
    if (rc == 0 && m.step != step)
        rc = err_set(err, ERR_CORRUPT, "'%s': its manifest is of step %lld", folder, (long long)m.step);
    for (int f = 0; rc == 0 && f < CKPT_FILES; f++) {
        rc = verify_file(folder, f, &m.facts[f], err);
        m.bytes += m.facts[f].bytes;
    }
    if (rc == 0)
        *ret = m;
    return rc;
}

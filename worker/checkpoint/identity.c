#include "worker/checkpoint/identity.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <dlfcn.h>
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/hash/hash.h"
#include "proto/identity.h"
#include "proto/version.h"
#include "worker/core/device.h"
#include "worker/core/file.h"
#include "worker/data/image/image.h"
#include "worker/ops/families.h"
#include "worker/report/report.h"

enum { PATH_BYTES = 4096 + 32, SAID_BYTES = 2000 };
enum { FILE_MAX = 4 << 20 };                                          /* largest identity.json that is read, in bytes; users may edit it */
enum { NAME_MAX_BYTES = 63, VALUE_MAX = 100, ENVIRONMENT_MAX = 900 }; /* bytes: a variable's name, its value, the whole environment */

struct identity {
    struct identity_options opt;
    json_t *root;  /* without the plans and the hash */
    char told[33]; /* hash of the last reported identity */
};

static void path_of(const struct identity *id, char ret[PATH_BYTES])
{
    snprintf(ret, PATH_BYTES, "%s/identity.json", id->opt.job_dir);
}

/* The identity.json of before. NULL: it does not exist or cannot be read, and is not compared. */
static json_t *read_old(const struct identity *id)
{
    char path[PATH_BYTES];
    struct file_map map;
    struct err ignored;
    json_t *root;

    path_of(id, path);
    if (id->opt.other)
        snprintf(path, sizeof path, "%s/identity.json", id->opt.other);
    if (file_map_open(path, FILE_MAX, &map, &ignored) < 0)
        return NULL;
    root = json_loadb((const char *)map.data, map.size, JSON_REJECT_DUPLICATES, NULL);
    file_map_close(&map);
    return root;
}

/* version may be NULL: not written. A file that cannot be read gets no hash, and such a file is not compared. */
static json_t *file_json(const char *version, const char *path)
{
    struct file_map map;
    struct err ignored;
    char hex[33];

    json_t *out = json_object();

    if (version)
        json_object_set_new(out, "version", json_string(version));
    if (!path || !path[0] || file_map_open(path, SIZE_MAX, &map, &ignored) < 0)
        return out;
    hash_hex(hash_bytes(map.data, map.size, hash_name("file")), hex);
    file_map_close(&map);
    json_object_set_new(out, "hash", json_string(hex));
    return out;
}

/* The program, the plugin, the network's .cfg and the picture libraries. The program and the libraries are hashed as
 * they were executed and loaded, not as they lie on disk by now. */
static json_t *files_json(const struct identity *id)
{
    struct image_codec codecs[IMAGE_CODECS];
    json_t *files = json_object();
    Dl_info plugin;

    json_object_set_new(files, "worker", file_json(DETD_VERSION, "/proc/self/exe"));
    if (!id->opt.dev->host_memory)
        json_object_set_new(files, "plugin",
                            file_json(id->opt.dev->ops->version, dladdr(id->opt.dev->ops, &plugin) ? plugin.dli_fname : NULL));
    if (id->opt.cfg)
        json_object_set_new(files, "model.cfg", file_json(NULL, id->opt.cfg));
    image_codecs(codecs);
    for (int i = 0; i < IMAGE_CODECS; i++)
        json_object_set_new(files, codecs[i].name, file_json(codecs[i].version, codecs[i].path));
    return files;
}

/* ---- environment ---- */

static bool is_read(const char *name, size_t len)
{
    static const char *const groups[] = { "CUBLAS_", "CUBLASLT_", "CUDNN_", "NCCL_", "CUDA_", "NVIDIA_TF32_OVERRIDE=" };
    static const char *const places[] = {
        "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_HOME", "CUDA_PATH",
        "CUDA_CACHE_PATH",      "NCCL_SOCKET_IFNAME"
    }; /* locations and counts: they change no bits */

    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (strlen(places[i]) == len && strncmp(name, places[i], len) == 0)
            return false;
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        if (strncmp(name, groups[i], strlen(groups[i])) == 0)
            return true;
    return false;
}

static bool is_plain(const char *text)
{
    size_t n = strlen(text);

    for (size_t i = 0; i < n; i++)
        if (text[i] < ' ' || text[i] > '~')
            return false;
    return n <= VALUE_MAX;
}

static struct hash128 text_hash(const char *text)
{
    return hash_bytes(text, strlen(text), hash_name("text"));
}

/* Variables that the libraries of the GPU read. A long value is replaced by its hash. All variables beyond
 * ENVIRONMENT_MAX share one hash, "others": an identity must stay small. */
static json_t *environment_json(char **env)
{
    json_t *out = json_object();
    struct hash128 rest = { { 0, 0 } }, one;
    size_t bytes = 0, more = 0;
    char hex[33], name[NAME_MAX_BYTES + 1];

    for (; env && *env; env++) {
        size_t len = strcspn(*env, "=");
        const char *value = *env + len + ((*env)[len] == '=');

        if (!is_read(*env, len))
            continue;
        hash_hex(text_hash(value), hex);
        value = is_plain(value) ? value : hex;
        snprintf(name, sizeof name, "%.*s", (int)(len > NAME_MAX_BYTES ? NAME_MAX_BYTES : len), *env);
        if (len <= NAME_MAX_BYTES && is_plain(name) && bytes + len + 2 * strlen(value) <= ENVIRONMENT_MAX) {
            json_object_set_new(out, name, json_string(value));
            bytes += len + 2 * strlen(value) + 6; /* a byte may need an escape */
            continue;
        }
        one = text_hash(*env);
        rest.lane[0] += one.lane[0]; /* a sum does not depend on their order */
        rest.lane[1] += one.lane[1];
        more++;
    }
    hash_hex(rest, hex);
    if (more > 0)
        json_object_set_new(out, "others", json_string(hex));
    return out;
}

static json_t *data_json(const struct identity *id)
{
    char train[33], val[33];

    hash_hex(id->opt.train, train);
    if (!id->opt.val)
        return json_pack("{s:s}", "train", train);
    hash_hex(*id->opt.val, val);
    return json_pack("{s:s, s:s}", "train", train, "val", val);
}

/* NULL: out of memory. */
static json_t *describe(const struct identity *id)
{
    struct device *dev = id->opt.dev;
    struct device_info info;
    json_t *root = json_object(), *versions = json_object();

    dev->ops->info(dev, &info);
    json_object_set_new(root, "spec", json_string(id->opt.spec));
    json_object_set_new(root, "data", data_json(id));
    json_object_set_new(root, "device", json_string(dev->host_memory ? "cpu" : info.name));
    json_object_set_new(root, "precision", json_string(id->opt.precision));
    json_object_set_new(root, "files", files_json(id));
    for (int i = 0; i < info.nversions && !dev->host_memory; i++)
        json_object_set_new(versions, info.version[i].name, json_string(info.version[i].value));
    json_object_set_new(root, "versions", versions);
    if (json_object_set_new(root, "environment", dev->host_memory ? json_object() : environment_json(environ)) < 0) {
        json_decref(root);
        return NULL;
    }
    return root;
}

int identity_open(const struct identity_options *opt, struct identity **ret_identity, struct err *err)
{
    struct identity *id = calloc(1, sizeof *id);

    if (!id)
        return err_set(err, ERR_DEVICE, "out of memory: identity.json");
    id->opt = *opt;
    id->root = describe(id);
    if (!id->root) {
        free(id);
        return err_set(err, ERR_DEVICE, "out of memory: identity.json");
    }
    *ret_identity = id;
    return 0;
}

void identity_close(struct identity *id)
{
    if (!id)
        return;
    json_decref(id->root);
    free(id);
}

/* ---- plans: lines "KEY: CHOICE", or "KEY: CHOICE; REMARK" on how it came about ---- */

static size_t key_length(const char *line)
{
    const char *end = strstr(line, ": ");

    return end ? (size_t)(end - line) : strlen(line);
}

/* Length of key and choice, without the remark. */
static size_t choice_length(const char *line)
{
    const char *end = strstr(line, "; ");

    return end ? (size_t)(end - line) : strlen(line);
}

static bool same_choice(const char *a, const char *b)
{
    return choice_length(a) == choice_length(b) && strncmp(a, b, choice_length(a)) == 0;
}

/* Appends the lines of `old` with keys that the new lines lack. Returns the number of keys with a changed choice;
 * *ret_first is the first of these lines. */
static int keep_others(json_t *plans, const json_t *old, const char **ret_first)
{
    size_t nnew = json_array_size(plans), i, k;
    int changed = 0;
    json_t *line;

    json_array_foreach (old, i, line) {
        const char *was = json_string_value(line);
        size_t length = was ? key_length(was) : 0;

        for (k = 0; was && k < nnew; k++) {
            const char *is = json_string_value(json_array_get(plans, k));

            if (key_length(is) != length || strncmp(is, was, length) != 0)
                continue;
            if (!same_choice(is, was) && changed++ == 0)
                *ret_first = is;
            break;
        }
        if (was && k == nnew)
            json_array_append(plans, line);
    }
    return changed;
}

static json_t *split_lines(char *text)
{
    json_t *list = json_array();

    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        json_array_append_new(list, json_string(line));
    return list;
}

/* Hashes keys and choices without remarks, in any order. */
static void add_plans(json_t *root, const json_t *plans)
{
    struct hash128 sum = { { 0, 0 } };
    json_t *line;
    char hex[33];
    size_t i;

    json_array_foreach (plans, i, line) {
        const char *text = json_string_value(line);

        if (text)
            hash_add(sum.lane, text, choice_length(text), hash_name("plan"), 0);
    }
    hash_hex(sum, hex);
    json_object_set_new(root, "plan_count", json_integer((json_int_t)json_array_size(plans)));
    json_object_set_new(root, "plan_hash", json_string(hex));
}

/* ---- the whole ---- */

/* The identity with these plans. NULL: out of memory. */
static json_t *whole(const struct identity *id, const json_t *plans)
{
    json_t *root = json_copy(id->root);
    char *text, hex[33];

    add_plans(root, plans);
    text = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
    if (text) {
        hash_hex(hash_bytes(text, strlen(text), hash_name("identity")), hex);
        json_object_set_new(root, "hash", json_string(hex));
        free(text);
        return root;
    }
    json_decref(root);
    return NULL;
}

/* Reports each hash once. */
static int tell(struct identity *id, const json_t *whole, struct err *err)
{
    const char *hash = json_string_value(json_object_get(whole, "hash"));
    char *text = json_dumps(whole, JSON_COMPACT);
    int rc = 0;

    if (!text || !hash) {
        rc = err_set(err, ERR_DEVICE, "out of memory: identity");
    } else if (strcmp(id->told, hash) != 0) {
        rc = report_identity(id->opt.report, text, err);
        snprintf(id->told, sizeof id->told, "%s", hash);
    }
    free(text);
    return rc;
}

/* Writes identity.json with the plans in it. */
static int write_new(const struct identity *id, const json_t *whole, const json_t *plans, struct err *err)
{
    json_t *root = json_copy((json_t *)whole);
    char path[PATH_BYTES], *text;
    struct file_out *out = NULL;
    int rc;

    json_object_set(root, "plans", (json_t *)plans);
    text = root ? json_dumps(root, JSON_INDENT(1) | JSON_SORT_KEYS) : NULL;
    path_of(id, path);
    rc = text ? file_out_open(path, &out, err) : err_set(err, ERR_DEVICE, "out of memory: identity.json");
    if (rc >= 0 && text) {
        file_out_printf(out, err, "%s\n", text);
        rc = file_out_commit(out, err);
    }
    free(text);
    json_decref(root);
    return rc;
}

/* Adds hashes of the files with initial weights. A resumed run does not read them, so it takes the hashes of the old
 * identity. */
static void add_inits(struct identity *id, int64_t step, const json_t *old)
{
    json_t *files = json_object_get(id->root, "files");

    for (int i = 0; i < id->opt.ninits; i++) {
        const struct jobspec_init *init = &id->opt.init[i];
        const json_t *was = json_object_get(json_object_get(old, "files"), init->key);
        const char *hash = json_string_value(json_object_get(was, "hash"));

        if (step == 0)
            json_object_set_new(files, init->key, file_json(NULL, init->path));
        else if (hash && is_plain(hash))
            json_object_set_new(files, init->key, json_pack("{s:s}", "hash", hash));
    }
}

int identity_begin(struct identity *id, int64_t step, bool longer, struct err *err)
{
    json_t *old = step > 0 || id->opt.other ? read_old(id) : NULL, *now;
    char said[SAID_BYTES] = "";
    int rc;

    add_inits(id, step, old);
    now = whole(id, json_object_get(old, "plans"));
    if (longer && old)
        json_object_set(old, "spec", json_object_get(now, "spec"));
    rc = now ? tell(id, now, err) : err_set(err, ERR_DEVICE, "out of memory: identity");
    if (rc >= 0 && old && identity_compare(old, now, said, sizeof said) > 0)
        rc = report_event(id->opt.report, err, "warning", "identity", "from step %lld on the bits may be others than %s: %s",
                          (long long)step + 1, id->opt.other ? "in the run that is verified" : "before", said);
    json_decref(old);
    json_decref(now);
    return rc;
}

/* The plans of this attempt, and those of earlier attempts with keys that this attempt has not met. */
static int all_plans(const struct identity *id, json_t **ret_plans, struct err *err)
{
    const struct plan_ops *plan = id->opt.dev->on->plan;
    json_t *old = read_old(id);
    const char *first = NULL;
    char *text = NULL;
    int rc = plan ? plan->text(id->opt.dev, &text, err) : 0, changed;

    if (rc >= 0) {
        *ret_plans = text ? split_lines(text) : json_array();
        changed = keep_others(*ret_plans, json_object_get(old, "plans"), &first);
        if (changed > 0)
            rc = report_event(id->opt.report, err, "warning", "identity",
                              "%d convolutions are computed by other algorithms than before, as %.100s", changed, first);
    }
    free(text);
    json_decref(old);
    return rc;
}

int identity_save(struct identity *id, struct err *err)
{
    json_t *plans = NULL, *now = NULL;
    struct err why;
    int rc = all_plans(id, &plans, err);

    if (rc >= 0) {
        now = whole(id, plans);
        rc = now ? tell(id, now, err) : err_set(err, ERR_DEVICE, "out of memory: identity");
    }
    if (rc >= 0 && write_new(id, now, plans, &why) < 0) /* identity.json only serves warnings: a failed write must not end the training */
        rc = report_event(id->opt.report, err, "warning", "identity", "not kept: %s", why.msg);
    json_decref(plans);
    json_decref(now);
    return rc;
}

#include "worker/checkpoint/identity.h"

#include <dlfcn.h>
#include <errno.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/version.h"
#include "worker/core/device.h"
#include "worker/core/file.h"
#include "proto/hash.h"
#include "worker/data/image.h"
#include "worker/ops/families.h"
#include "worker/report/report.h"

enum { PATH_BYTES = 4096 + 32, SAID_BYTES = 2000 };

struct identity {
    struct identity_options opt;
    json_t *root; /* without the algorithms */
};

static void path_of(const struct identity *id, char ret[PATH_BYTES])
{
    snprintf(ret, PATH_BYTES, "%s/identity.json", id->opt.job_dir);
}

/* NULL: none yet, or none that can be read; it only serves to warn. */
static json_t *read_old(const struct identity *id)
{
    char path[PATH_BYTES];

    path_of(id, path);
    return json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
}

/* What cannot be read has no hash, and what has none is not compared. */
static json_t *file_json(const char *version, const char *path)
{
    struct file_map map;
    struct err ignored;
    char hex[33];

    if (!path || !path[0] || file_map_open(path, SIZE_MAX, &map, &ignored) < 0)
        return json_pack("{s:s}", "version", version);
    hash_hex(hash_bytes(map.data, map.size, hash_name("file")), hex);
    file_map_close(&map);
    return json_pack("{s:s, s:s}", "version", version, "hash", hex);
}

/* The program, the plugin and what decodes pictures: as they were executed and loaded, not what lies in their place by now. */
static json_t *files_json(const struct identity *id)
{
    struct image_codec codecs[IMAGE_CODECS];
    json_t *files = json_object();
    Dl_info plugin;

    json_object_set_new(files, "worker", file_json(DETD_VERSION, "/proc/self/exe"));
    if (!id->opt.dev->host_memory)
        json_object_set_new(files, "plugin",
                            file_json(id->opt.dev->ops->version, dladdr(id->opt.dev->ops, &plugin) ? plugin.dli_fname : NULL));
    image_codecs(codecs);
    for (int i = 0; i < IMAGE_CODECS; i++)
        json_object_set_new(files, codecs[i].name, file_json(codecs[i].version, codecs[i].path));
    return files;
}

/* NULL: out of memory. */
static json_t *describe(const struct identity *id)
{
    struct device *dev = id->opt.dev;
    struct device_info info;
    json_t *root = json_object(), *versions = json_object();

    dev->ops->info(dev, &info);
    json_object_set_new(root, "device", json_string(dev->host_memory ? "cpu" : info.name));
    json_object_set_new(root, "precision", json_string(id->opt.precision));
    json_object_set_new(root, "files", files_json(id));
    for (int i = 0; i < info.nversions && !dev->host_memory; i++)
        json_object_set_new(versions, info.version[i].name, json_string(info.version[i].value));
    if (json_object_set_new(root, "versions", versions) < 0) {
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

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "none";
}

/* Adds ", cudnn 9.19.0 (was 9.18.0)" where a value is another one; `of` stands before the key. */
static void compare(const json_t *old, const json_t *new, const char *of, const char *key, char *said)
{
    const char *was = text_of(old, key), *is = text_of(new, key);
    size_t at = strlen(said);

    if (strcmp(was, is) != 0)
        snprintf(said + at, SAID_BYTES - at, "%s%s%s%s %s (was %s)", at ? ", " : "", of, *of ? " " : "", key, is, was);
}

/* Of files that both know: an older version kept none. */
static void compare_files(const json_t *old, const json_t *new, char *said)
{
    static const char *const keys[] = { "version", "hash" };
    const char *name;
    json_t *is, *was;

    json_object_foreach ((json_t *)new, name, is) {
        was = json_object_get(old, name);
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            if (json_object_get(was, keys[k]) && json_object_get(is, keys[k]))
                compare(was, is, name, keys[k], said);
    }
}

static int write_new(const struct identity *id, json_t *root, struct err *err)
{
    char path[PATH_BYTES], hex[33], *text = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
    struct file_out *out = NULL;
    int rc;

    if (!text)
        return err_set(err, ERR_DEVICE, "out of memory: identity.json");
    hash_hex(hash_bytes(text, strlen(text), hash_name("identity")), hex);
    free(text);
    json_object_set_new(root, "hash", json_string(hex));
    text = json_dumps(root, JSON_INDENT(1) | JSON_SORT_KEYS);
    path_of(id, path);
    rc = text ? file_out_open(path, &out, err) : err_set(err, ERR_DEVICE, "out of memory: identity.json");
    if (rc >= 0) {
        file_out_printf(out, err, "%s\n", text);
        rc = file_out_commit(out, err);
    }
    free(text);
    return rc;
}

int identity_check(const struct identity *id, int64_t step, struct err *err)
{
    char said[SAID_BYTES] = "";
    json_t *old = step > 0 ? read_old(id) : NULL, *versions, *value;
    const char *name;
    int rc = 0;

    if (!old)
        return 0;
    compare(old, id->root, "", "device", said);
    compare(old, id->root, "", "precision", said);
    compare_files(json_object_get(old, "files"), json_object_get(id->root, "files"), said);
    versions = json_object_get(id->root, "versions");
    json_object_foreach (versions, name, value) {
        compare(json_object_get(old, "versions"), versions, "", name, said);
    }
    if (said[0])
        rc = report_event(id->opt.report, err, "warning", "identity", "from step %lld on the bits may be others than before: %s",
                          (long long)step + 1, said);
    json_decref(old);
    return rc;
}

/* ---- plans: lines "KEY: CHOICE", or "KEY: CHOICE; REMARK" on how it came about ---- */

static size_t key_length(const char *line)
{
    const char *end = strstr(line, ": ");

    return end ? (size_t)(end - line) : strlen(line);
}

/* Key and choice. */
static size_t choice_length(const char *line)
{
    const char *end = strstr(line, "; ");

    return end ? (size_t)(end - line) : strlen(line);
}

static bool same_choice(const char *a, const char *b)
{
    return choice_length(a) == choice_length(b) && strncmp(a, b, choice_length(a)) == 0;
}

/* Keeps the lines of `old` whose key is not among the new ones; counts the keys whose choice has changed. */
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

int identity_save(const struct identity *id, struct err *err)
{
    json_t *old = read_old(id), *new = json_copy(id->root), *plans = NULL;
    const struct plan_ops *plan = id->opt.dev->on->plan;
    const char *first = NULL;
    char *text = NULL;
    struct err why;
    int rc = new ? 0 : err_set(err, ERR_DEVICE, "out of memory: identity.json"), changed;

    if (rc >= 0 && plan)
        rc = plan->text(id->opt.dev, &text, err);
    if (rc >= 0 && text) {
        plans = split_lines(text);
        changed = keep_others(plans, json_object_get(old, "plans"), &first);
        if (changed > 0)
            rc = report_event(id->opt.report, err, "warning", "identity",
                              "%d convolutions are computed by other algorithms than before, as %.100s", changed, first);
        json_object_set_new(new, "plans", plans);
    }
    if (rc >= 0 && write_new(id, new, &why) < 0) /* what only serves to warn does not end a training */
        rc = report_event(id->opt.report, err, "warning", "identity", "not kept: %s", why.msg);
    free(text);
    json_decref(old);
    json_decref(new);
    return rc;
}

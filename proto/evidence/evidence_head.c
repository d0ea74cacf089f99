#include <errno.h> /* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/evidence/evidence_form.h"

/* True for printable ASCII: names go to terminals and into JSON. */
static bool is_name(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (s[i] < 0x20 || s[i] > 0x7e)
            return false;
    return len > 0 && len < EVIDENCE_NAME;
}

static int check_tensor(const struct evidence_tensor *t, int i, struct err *err)
{
    if (!is_name(t->name, strnlen(t->name, sizeof t->name)))
        return err_field(err, ERR_INPUT, "tensors", "tensors: name %d must be 1 to %d printable ASCII characters", i, EVIDENCE_NAME - 1);
    if (t->count < 1)
        return err_field(err, ERR_INPUT, "tensors", "tensors: '%s' must have 1 element or more, has %lld", t->name, (long long)t->count);
    return 0;
}

int evidence_head_check(const struct evidence_head *h, struct err *err)
{
    int rc = 0;

    if (h->shards < 1 || h->shards > EVIDENCE_MAX_SHARDS)
        return err_field(err, ERR_INPUT, "shards", "shards: must be 1 to %d, is %d", EVIDENCE_MAX_SHARDS, h->shards);
    if (h->ntensors < 0 || h->ntensors > EVIDENCE_MAX_TENSORS)
        return err_field(err, ERR_INPUT, "tensors", "tensors: must be at most %d, are %d", EVIDENCE_MAX_TENSORS, h->ntensors);
    for (int i = 0; i < h->ntensors && rc == 0; i++)
        rc = check_tensor(&h->tensor[i], i, err);
    return rc;
}

static bool same_hash(struct hash128 a, struct hash128 b)
{
    return a.lane[0] == b.lane[0] && a.lane[1] == b.lane[1];
}

bool evidence_head_equal(const struct evidence_head *a, const struct evidence_head *b)
{
    if (a->tensors != b->tensors || !same_hash(a->spec, b->spec) || !same_hash(a->data, b->data) || a->shards != b->shards ||
        a->ntensors != b->ntensors)
        return false;
    for (int i = 0; i < a->ntensors; i++)
        if (strcmp(a->tensor[i].name, b->tensor[i].name) != 0 || a->tensor[i].count != b->tensor[i].count ||
            a->tensor[i].gradient != b->tensor[i].gradient)
            return false;
    return true;
}

/* A head with room for n tensors. */
static struct evidence_head *head_new(size_t n)
{
    struct evidence_head *h = calloc(1, sizeof *h + n * sizeof *h->tensor);

    if (h)
        h->tensor = (struct evidence_tensor *)(h + 1);
    return h;
}

struct evidence_head *evidence_head_copy(const struct evidence_head *h)
{
    struct evidence_head *copy = head_new((size_t)h->ntensors);

    if (!copy)
        return NULL;
    struct evidence_tensor *tensor = copy->tensor;
    *copy = *h;
    copy->tensor = tensor;
    if (h->ntensors > 0)
        memcpy(tensor, h->tensor, (size_t)h->ntensors * sizeof *tensor);
    return copy;
}

/* ---- writing ---- */

static json_t *tensors_json(const struct evidence_head *h)
{
    json_t *list = json_array();

    for (int i = 0; i < h->ntensors; i++) {
        const struct evidence_tensor *t = &h->tensor[i];

        if (json_array_append_new(list, json_pack("[s,I,b]", t->name, (json_int_t)t->count, t->gradient)) < 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *head_json(const struct evidence_head *h)
{
    char spec[33], data[33];
    json_t *tensors = tensors_json(h);

    hash_hex(h->spec, spec);
    hash_hex(h->data, data);
    return tensors ? json_pack("{s:i,s:s,s:s,s:s,s:i,s:o}", "format", EVIDENCE_FORMAT, "level", h->tensors ? "tensors" : "losses", "spec",
                               spec, "data", data, "shards", h->shards, "tensors", tensors)
                   : NULL;
}

int evidence_head_text(const struct evidence_head *h, char **ret_text, size_t *ret_len, struct err *err)
{
    json_t *root = head_json(h);
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;

    json_decref(root);
    if (!text)
        return err_set(err, -ENOMEM, "out of memory");
    *ret_len = strlen(text);
    if (*ret_len > EVIDENCE_HEAD_BYTES) {
        free(text);
        return err_field(err, ERR_INPUT, "tensors", "tensors: their names take %zu bytes, more than %d", *ret_len, EVIDENCE_HEAD_BYTES);
    }
    *ret_text = text;
    return 0;
}

/* ---- reading ---- */

static int read_hash(const json_t *root, const char *name, struct hash128 *ret, struct err *err)
{
    const char *text = json_string_value(json_object_get(root, name));

    if (!text || hash_parse(text, ret) < 0)
        return err_field(err, ERR_INPUT, name, "%s: must be 32 hexadecimal digits", name);
    return 0;
}

static int read_level(const json_t *root, bool *ret_tensors, struct err *err)
{
    const char *level = json_string_value(json_object_get(root, "level"));

    if (!level || (strcmp(level, "tensors") != 0 && strcmp(level, "losses") != 0))
        return err_field(err, ERR_INPUT, "level", "level: must be one of losses, tensors");
    *ret_tensors = level[0] == 't';
    return 0;
}

static int read_shards(const json_t *root, int *ret_shards, struct err *err)
{
    const json_t *v = json_object_get(root, "shards");
    json_int_t n = json_integer_value(v);

    if (n < 1 || n > EVIDENCE_MAX_SHARDS)
        return err_field(err, ERR_INPUT, "shards", "shards: must be an integer of 1 to %d", EVIDENCE_MAX_SHARDS);
    *ret_shards = (int)n;
    return 0;
}

static int read_tensor(const json_t *v, size_t i, struct evidence_tensor *ret, struct err *err)
{
    const json_t *name = json_array_get(v, 0), *count = json_array_get(v, 1), *gradient = json_array_get(v, 2);

    if (json_array_size(v) != 3 || !json_is_string(name) || !json_is_integer(count) || !json_is_boolean(gradient))
        return err_field(err, ERR_INPUT, "tensors", "tensors: element %zu must be [name, count, whether it trains]", i);
    if (!is_name(json_string_value(name), json_string_length(name)))
        return err_field(err, ERR_INPUT, "tensors", "tensors: name %zu must be 1 to %d printable ASCII characters", i, EVIDENCE_NAME - 1);
    memcpy(ret->name, json_string_value(name), json_string_length(name) + 1);
    ret->count = json_integer_value(count);
    ret->gradient = json_is_true(gradient);
    return check_tensor(ret, (int)i, err);
}

static int read_head(const json_t *root, const json_t *tensors, struct evidence_head *h, struct err *err)
{
    json_t *v;
    size_t i;
    int rc = read_level(root, &h->tensors, err);

    if (rc == 0)
        rc = read_hash(root, "spec", &h->spec, err);
    if (rc == 0)
        rc = read_hash(root, "data", &h->data, err);
    if (rc == 0)
        rc = read_shards(root, &h->shards, err);
    json_array_foreach (tensors, i, v) {
        if (rc == 0)
            rc = read_tensor(v, i, &h->tensor[i], err);
    }
    h->ntensors = (int)i;
    return rc;
}

static int parse_root(const json_t *root, struct evidence_head **ret_head, struct err *err)
{
    const json_t *format = json_object_get(root, "format"), *tensors = json_object_get(root, "tensors");
    struct evidence_head *h;
    int rc;

    if (!json_is_integer(format))
        return err_field(err, ERR_INPUT, "format", "format: must be an integer");
    if (json_integer_value(format) != EVIDENCE_FORMAT)
        return err_field(err, ERR_UNSUPPORTED, "format", "format: is %lld, this version reads %d", (long long)json_integer_value(format),
                         EVIDENCE_FORMAT);
    if (!json_is_array(tensors) || json_array_size(tensors) > EVIDENCE_MAX_TENSORS)
        return err_field(err, ERR_INPUT, "tensors", "tensors: must be an array of at most %d", EVIDENCE_MAX_TENSORS);
    h = head_new(json_array_size(tensors));
    if (!h)
        return err_set(err, -ENOMEM, "out of memory");
    rc = read_head(root, tensors, h, err);
    if (rc == 0)
        *ret_head = h;
    else
        free(h);
    return rc;
}

int evidence_head_parse(const char *text, size_t len, struct evidence_head **ret_head, struct err *err)
{
    json_error_t je;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
    int rc;

    if (!root)
        return err_set(err, ERR_INPUT, "not JSON: line %d: %s", je.line, je.text);
    rc = parse_root(root, ret_head, err);
    json_decref(root);
    return rc;
}

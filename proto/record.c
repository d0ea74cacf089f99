#include "proto/record.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdbool.h>
#include <string.h>

#include "proto/err.h"
#include "proto/hash/hash.h"
#include "proto/identity.h"
#include "proto/rpc.h"

/* COUNT: integer from 0 to RECORD_MAX_COUNT. WORD: one of `words`. WORDS: array of them. PAIRS: {name: [num, den]}.
 * NUMBERS: {name: num}. IDENTITY: proto/identity.h. NULL_OK and MAYBE may be added. */
enum kind { COUNT, NUMBER, STRING, WORD, BOOLEAN, PAIRS, NUMBERS, STRINGS, IDENTITY, WORDS, KIND_MASK = 15, NULL_OK = 16, MAYBE = 32 };

struct field {
    const char *name;
    int kind;
    const char *words; /* separated by '|' */
};

#define TIERS "off|rerun|world"

static const struct field hello[] = { { "rank", COUNT, 0 },
                                      { "local_rank", COUNT, 0 },
                                      { "nranks", COUNT, 0 },
                                      { "device", STRING, 0 },
                                      { "nccl_id", STRING | MAYBE, 0 },
                                      { "uuid", STRING | NULL_OK | MAYBE, 0 },
                                      { "devices", COUNT | MAYBE, 0 },
                                      { 0 } };
static const struct field start[] = { { "resume_step", COUNT, 0 }, { "checkpoint", STRING | NULL_OK, 0 }, { 0 } };
static const struct field loss[] = { { "split", WORD, "train|val" },
                                     { "step", COUNT, 0 },
                                     { "epoch", NUMBER | NULL_OK | MAYBE, 0 },
                                     { "tier", WORD, TIERS },
                                     { "time", NUMBER, 0 },
                                     { "images_per_s", NUMBER | NULL_OK | MAYBE, 0 },
                                     { "terms", PAIRS, 0 },
                                     { "nonfinite", STRINGS | MAYBE, 0 },
                                     { 0 } };
static const struct field eval[] = { { "step", COUNT, 0 }, { "time", NUMBER, 0 }, { "metrics", NUMBERS, 0 }, { 0 } };
static const struct field checkpoint[] = { { "step", COUNT, 0 },
                                           { "phase", WORD, "ready|published" },
                                           { "path", STRING, 0 },
                                           { "bytes", COUNT | MAYBE, 0 },
                                           { "val_loss", NUMBER | NULL_OK | MAYBE, 0 },
                                           { "best", BOOLEAN | MAYBE, 0 },
                                           { 0 } };
static const struct field tier[] = { { "step", COUNT, 0 }, { "tier", WORD, TIERS }, { 0 } };
static const struct field data[] = { { "split", STRING, 0 },  { "images", COUNT, 0 },        { "boxes", COUNT | MAYBE, 0 },
                                     { "skipped", COUNT, 0 }, { "bad", STRINGS | MAYBE, 0 }, { 0 } };
static const struct field identity[] = { { "identity", IDENTITY, 0 }, { 0 } };
static const struct field event[] = {
    { "level", WORD, "info|warning|error" }, { "kind", STRING, 0 }, { "text", STRING, 0 }, { "tier", WORD | MAYBE, TIERS }, { 0 }
};
static const struct field end[] = { { "outcome", WORD, "completed|failed|cancelled|paused" },
                                    { "reason", STRING | NULL_OK | MAYBE, 0 },
                                    { "class", WORD | NULL_OK | MAYBE, "user|data|nonfinite|missing|fault|" },
                                    { 0 } };

static const struct type {
    const char *name; /* NULL: there is no such message */
    const struct field *fields;
} types[RECORD_UNKNOWN] = { [RECORD_HELLO] = { "hello", hello },
                            [RECORD_START] = { "start", start },
                            [RECORD_LOSS] = { "loss", loss },
                            [RECORD_EVAL] = { "eval", eval },
                            [RECORD_CHECKPOINT] = { "checkpoint", checkpoint },
                            [RECORD_TIER] = { "tier", tier },
                            [RECORD_DATA] = { "data", data },
                            [RECORD_IDENTITY] = { "identity", identity },
                            [RECORD_EVENT] = { "event", event },
                            [RECORD_END] = { "end", end } };

/* ---- of programs ---- */

static const struct field program_hello[] = {
    { "pid", COUNT | MAYBE, 0 },     { "stacks", COUNT | MAYBE, 0 },  { "words", WORDS | MAYBE, "checkpoint|validate|pause|cancel" },
    { "tier", WORD | MAYBE, TIERS }, { "device", STRING | MAYBE, 0 }, { 0 }
};
static const struct field share[] = { { "split", WORD, "train|val" },
                                      { "step", COUNT, 0 },
                                      { "terms", PAIRS, 0 },
                                      { "epoch", NUMBER | NULL_OK | MAYBE, 0 },
                                      { "images", NUMBER | NULL_OK | MAYBE, 0 },
                                      { 0 } };
static const struct field program_eval[] = { { "step", COUNT, 0 }, { "metrics", NUMBERS, 0 }, { 0 } };
static const struct field program_checkpoint[] = {
    { "step", COUNT, 0 }, { "phase", WORD, "ready" }, { "path", STRING | NULL_OK | MAYBE, 0 }, { 0 }
};
static const struct field program_event[] = {
    { "level", WORD, "info|warning|error" }, { "kind", STRING, 0 }, { "text", STRING, 0 }, { 0 }
};
static const struct field finish[] = { { 0 } };

static const struct type program_types[RECORD_UNKNOWN] = {
    [RECORD_HELLO] = { "hello", program_hello }, [RECORD_SHARE] = { "share", share },
    [RECORD_EVAL] = { "eval", program_eval },    [RECORD_CHECKPOINT] = { "checkpoint", program_checkpoint },
    [RECORD_EVENT] = { "event", program_event }, [RECORD_FINISH] = { "finish", finish }
};

static bool is_word(const char *words, const char *value)
{
    size_t n = value ? strlen(value) : 0;

    for (const char *w = words; value && w; w = strchr(w, '|') ? strchr(w, '|') + 1 : NULL)
        if (strncmp(w, value, n) == 0 && (w[n] == '|' || w[n] == '\0'))
            return true;
    return false;
}

static bool is_number(const json_t *v)
{
    return json_is_number(v) || json_is_null(v);
}

static bool is_pair(const json_t *v)
{
    return json_array_size(v) == 2 && is_number(json_array_get(v, 0)) && is_number(json_array_get(v, 1));
}

static bool is_name(const char *name)
{
    return name[0] && strlen(name) <= RECORD_MAX_NAME;
}

/* Returns the first name with a malformed value, or NULL. */
static const char *find_bad_value(const json_t *object, bool pairs)
{
    const char *name;
    json_t *v;

    json_object_foreach ((json_t *)object, name, v) {
        if (pairs ? !is_pair(v) : !is_number(v))
            return name;
    }
    return NULL;
}

static bool are_values(const json_t *object, bool pairs)
{
    const char *name;
    json_t *v;

    if (!json_is_object(object) || json_object_size(object) > RECORD_MAX_VALUES)
        return false;
    json_object_foreach ((json_t *)object, name, v) {
        if (!is_name(name))
            return false;
    }
    return !find_bad_value(object, pairs);
}

static bool are_strings(const json_t *array)
{
    json_t *v;
    size_t i;

    json_array_foreach (array, i, v) {
        if (!json_is_string(v))
            return false;
    }
    return json_is_array(array);
}

static bool are_words(const char *words, const json_t *array)
{
    json_t *v;
    size_t i;

    json_array_foreach (array, i, v) {
        if (!is_word(words, json_string_value(v)))
            return false;
    }
    return json_is_array(array);
}

/* Its content is for people and for comparison. A program that forwards it checks only its size and its hash. */
static bool is_identity(const json_t *object)
{
    size_t bytes = json_dumpb(object, NULL, 0, JSON_COMPACT);
    struct hash128 hash;
    const char *hex = json_string_value(json_object_get(object, "hash"));

    return json_is_object(object) && bytes > 0 && bytes <= IDENTITY_MAX_BYTES && hex && hash_parse(hex, &hash) == 0;
}

static bool fits(const struct field *f, const json_t *v)
{
    if (!v)
        return f->kind & MAYBE;
    if (json_is_null(v) && f->kind & NULL_OK)
        return true;
    switch (f->kind & KIND_MASK) {
    case COUNT:
        return json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) <= RECORD_MAX_COUNT;
    case NUMBER:
        return json_is_number(v);
    case STRING:
        return json_is_string(v);
    case WORD:
        return is_word(f->words, json_string_value(v));
    case BOOLEAN:
        return json_is_boolean(v);
    case STRINGS:
        return are_strings(v);
    case IDENTITY:
        return is_identity(v);
    case WORDS:
        return are_words(f->words, v);
    default:
        return are_values(v, (f->kind & KIND_MASK) == PAIRS);
    }
}

static const char *wanted(const struct field *f)
{
    static const char *const names[] = { "an integer, 0 or more and below 2^62",
                                         "a number",
                                         "a string",
                                         "one of ",
                                         "true or false",
                                         "an object of at most 256 [number, number], names of 1 to 63 bytes",
                                         "an object of at most 256 numbers, names of 1 to 63 bytes",
                                         "an array of strings",
                                         "an object of at most 3072 bytes with a hash of 32 hexadecimal digits",
                                         "an array of " };

    return names[f->kind & KIND_MASK];
}

static int refuse(const char *type, const struct field *f, const json_t *v, struct err *err)
{
    int kind = f->kind & KIND_MASK;
    const char *bad = kind == PAIRS || kind == NUMBERS ? find_bad_value(v, kind == PAIRS) : NULL;

    if (bad && is_name(bad))
        return err_field(err, ERR_PROTO, f->name, "%s: %s: the value of '%s' must be %s, in the notation of JSON", type, f->name, bad,
                         kind == PAIRS ? "[number, number]" : "a number");
    return err_field(err, ERR_PROTO, f->name, "%s: %s: must be %s%s", type, f->name, wanted(f), f->words ? f->words : "");
}

static int check(const struct type *known, const json_t *msg, enum record_type *ret_type, struct err *err)
{
    const char *name = json_string_value(json_object_get(msg, "type"));
    int type = 0;

    if (!name)
        return err_field(err, ERR_PROTO, "type", "type: must be a string");
    while (type < RECORD_UNKNOWN && (!known[type].name || strcmp(known[type].name, name) != 0))
        type++;
    for (const struct field *f = type < RECORD_UNKNOWN ? known[type].fields : NULL; f && f->name; f++)
        if (!fits(f, json_object_get(msg, f->name)))
            return refuse(name, f, json_object_get(msg, f->name), err);
    *ret_type = (enum record_type)type;
    return 0;
}

static int parse(const struct type *known, const char *text, size_t len, enum record_type *ret_type, json_t **ret_msg, struct err *err)
{
    json_error_t je;
    json_t *msg;
    int depth, rc;

    rpc_marks(text, len, &depth);
    if (depth > RECORD_MAX_DEPTH)
        return err_set(err, ERR_PROTO, "nested %d levels deep, at most %d may be", depth, RECORD_MAX_DEPTH);
    msg = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
    if (!msg)
        return err_set(err, ERR_PROTO, "not JSON: %s", je.text);
    rc = check(known, msg, ret_type, err);
    if (rc == 0)
        *ret_msg = msg;
    else
        json_decref(msg);
    return rc;
}

int record_parse(const char *text, size_t len, enum record_type *ret_type, json_t **ret_msg, struct err *err)
{
    return parse(types, text, len, ret_type, ret_msg, err);
}

int record_parse_program(const char *text, size_t len, enum record_type *ret_type, json_t **ret_msg, struct err *err)
{
    return parse(program_types, text, len, ret_type, ret_msg, err);
}

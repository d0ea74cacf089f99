/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/proto/test_protocol_doc.c - uses: proto
 * Every line that PROTOCOL.md shows is JSON, and the parser of ranks' lines accepts the ranks' lines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/err.h"
#include "proto/methods.h"
#include "proto/record.h"
#include "proto/report.h"
#include "proto/rpc.h"

/* The sender of the messages in a part of the document. */
enum place { CONTROL_SOCKET, RANKS, PROGRAMS, SUPERVISORS };

static enum place place_of(const char *heading)
{
    static const char *const headings[] = {
        [RANKS] = "## Descriptor 3: ranks", [PROGRAMS] = "## Descriptor 3: programs", [SUPERVISORS] = "## sup.sock"
    };

    for (int i = RANKS; i <= SUPERVISORS; i++)
        if (strncmp(heading, headings[i], strlen(headings[i])) == 0)
            return (enum place)i;
    return CONTROL_SOCKET;
}

/* Calls fn for each example line of the document that starts with this arrow; returns how many there were. */
static int each(const char *arrow, void (*fn)(const char *json, enum place at))
{
    FILE *f = fopen("proto/PROTOCOL.md", "r");
    enum place at = CONTROL_SOCKET;
    char *line = NULL;
    size_t cap = 0;
    int n = 0;

    assert_non_null(f);
    while (getline(&line, &cap, f) > 0) {
        if (strncmp(line, "## ", 3) == 0)
            at = place_of(line);
        if (strncmp(line, arrow, strlen(arrow)) != 0 || line[strlen(arrow)] != ' ')
            continue;
        line[strcspn(line, "\n")] = '\0';
        fn(line + strlen(arrow) + 1, at);
        n++;
    }
    free(line);
    fclose(f);
    return n;
}

static void is_request(const char *text, enum place at)
{
    struct rpc_request req;
    struct err err = { 0 };
    int code;

    (void)at;
    if (rpc_request_parse(text, strlen(text), &req, &code, &err) < 0)
        fail_msg("%s: %s", text, err.msg);
    rpc_request_clear(&req);
}

static void is_reply(const char *text, enum place at)
{
    json_t *result = NULL;
    struct err err = { 0 };
    long id;

    (void)at;
    if (rpc_reply_parse(text, strlen(text), &id, &result, &err) == ERR_PROTO)
        fail_msg("%s: %s", text, err.msg);
    assert_true(id > 0);
    json_decref(result);
}

/* ---- messages without a reply: the messages checked by record.h, and the shapes of the others ---- */

/* members: "name:kind name?:kind ..."; no others are allowed. kind: the name of a JSON type, as below. */
static struct shape {
    enum place place;
    const char *type, *members;
    int seen;
} shapes[] = {
    { CONTROL_SOCKET, "losses", "job:int split:str step:int tier:tier epoch:num time:num terms:obj", 0 },
    { CONTROL_SOCKET, "events", "job:int time:num level:str kind:str text:str", 0 },
    { CONTROL_SOCKET, "dropped", "count:int", 0 },
    { RANKS, "go", "nccl_id:null store_id:str attempt:int tiers:changes", 0 },
    { PROGRAMS, "go", "attempt:int resume_step:int checkpoint?:str", 0 },
    { RANKS, "publish", "step:int", 0 },
    { RANKS, "tier_ok", "step:int tier:tier", 0 },
    { RANKS, "control", "word:word tier?:tier", 0 },
    { SUPERVISORS, "welcome", "last_seq:int store_id:str control:commands", 0 },
    { SUPERVISORS, "ack", "seq:int", 0 },
    { SUPERVISORS, "control", "word:word tier?:tier deadline?:num", 0 },
    { SUPERVISORS, "hello", "protocol:int job:int attempt:int nonce:str pid:int beats?:bool first?:int", 0 },
    { SUPERVISORS, "report", "seq:int rec:obj", 0 },
    { SUPERVISORS, "status", "attempt:int step:int phase:str images_per_s:num cpu_seconds:num max_rss:int rss:int ranks:list seconds:num",
      0 },
    { SUPERVISORS, "attempt", "attempt:int resume_step:int time:num ranks:int device:str", 0 },
    { SUPERVISORS, "identity", "attempt:int time:num identity:obj", 0 },
    { SUPERVISORS, "ended", "attempt:int outcome:str reason:str class:str time:num cpu_seconds:num seconds:num max_rss:int", 0 },
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static bool has_members(const json_t *o, const char *members);

static bool is_word(const json_t *v, const char *words)
{
    const char *word = json_string_value(v), *at = word && *word ? strstr(words, word) : NULL;

    return at && (at == words || at[-1] == '|') && (at[strlen(word)] == '|' || at[strlen(word)] == '\0');
}

static bool is_list(const json_t *v, const char *members)
{
    json_t *entry;
    size_t i;

    json_array_foreach (v, i, entry) {
        if (!has_members(entry, members))
            return false;
    }
    return json_is_array(v);
}

static bool is_kind(const json_t *v, const char *kind)
{
    if (strcmp(kind, "int") == 0)
        return json_is_integer(v) && json_integer_value(v) >= 0;
    if (strcmp(kind, "num") == 0)
        return json_is_number(v);
    if (strcmp(kind, "str") == 0)
        return json_is_string(v);
    if (strcmp(kind, "bool") == 0)
        return json_is_boolean(v);
    if (strcmp(kind, "obj") == 0)
        return json_is_object(v);
    if (strcmp(kind, "null") == 0)
        return json_is_null(v);
    if (strcmp(kind, "tier") == 0)
        return is_word(v, "off|rerun|world");
    if (strcmp(kind, "word") == 0)
        return is_word(v, "pause|cancel|checkpoint|tier|eval");
    if (strcmp(kind, "changes") == 0)
        return is_list(v, "step:int tier:tier");
    if (strcmp(kind, "commands") == 0)
        return is_list(v, "word:word tier?:tier deadline?:num");
    if (strcmp(kind, "list") == 0)
        return is_list(v, "rank:int phase:str step:int pid:int");
    fail_msg("no kind '%s'", kind);
    return false;
}

/* An object with these members and, where the word is "tier", with a tier. */
static bool has_members(const json_t *o, const char *members)
{
    const char *word = json_string_value(json_object_get(o, "word"));
    char copy[256], *save = NULL;
    size_t n = 0;

    snprintf(copy, sizeof copy, "%s", members);
    for (char *name = strtok_r(copy, " ", &save); name; name = strtok_r(NULL, " ", &save)) {
        char *kind = strchr(name, ':') + 1, *end = kind[-2] == '?' ? kind - 2 : kind - 1;
        json_t *v;

        *end = '\0';
        v = json_object_get(o, name);
        n += v != NULL;
        if (v ? !is_kind(v, kind) : kind - end == 1)
            return false;
    }
    return json_object_size(o) == n && (!word || (strcmp(word, "tier") == 0) == (json_object_get(o, "tier") != NULL));
}

/* Whether there is a shape of that type; the message, without the type, must have it. */
static bool has_shape(json_t *msg, enum place at, const char *text)
{
    char type[32];

    snprintf(type, sizeof type, "%s", json_string_value(json_object_get(msg, "type")));
    for (int i = 0; i < SHAPES; i++) {
        if (shapes[i].place != at || strcmp(shapes[i].type, type) != 0)
            continue;
        json_object_del(msg, "type");
        if (!has_members(msg, shapes[i].members))
            fail_msg("%s: must have %s", text, shapes[i].members);
        shapes[i].seen++;
        return true;
    }
    return false;
}

static json_t *object_of(const char *text)
{
    json_t *msg = json_loads(text, JSON_REJECT_DUPLICATES, NULL);

    if (!json_is_object(msg))
        fail_msg("%s: no object", text);
    return msg;
}

/* A message of a rank, checked by a parser that accepts unknown types. */
static void is_record(const char *text, enum place at)
{
    enum record_type type;
    struct err err = { 0 };
    json_t *msg = NULL;
    int rc =
        at == PROGRAMS ? record_parse_program(text, strlen(text), &type, &msg, &err) : record_parse(text, strlen(text), &type, &msg, &err);

    if (rc < 0)
        fail_msg("%s: %s", text, err.msg);
    if (type == RECORD_UNKNOWN)
        fail_msg("%s: no type of a rank's message", text);
    json_decref(msg);
}

static void is_report(const char *text, enum place at)
{
    json_t *msg = object_of(text), *rec = json_incref(json_object_get(msg, "rec"));
    char *inner;

    if (at == RANKS || at == PROGRAMS)
        is_record(text, at);
    else if (!has_shape(msg, at, text))
        fail_msg("%s: no type of detd-job's", text);
    if (rec) {
        inner = json_dumps(rec, JSON_COMPACT);
        if (!has_shape(rec, at, inner))
            is_record(inner, RANKS);
        free(inner);
    }
    json_decref(rec);
    json_decref(msg);
}

static void is_order(const char *text, enum place at)
{
    json_t *msg = object_of(text), *params;

    if (at == CONTROL_SOCKET) { /* a notification is identified by its method, and has no id */
        assert_string_equal(json_string_value(json_object_get(msg, "jsonrpc")), "2.0");
        assert_int_equal(json_object_size(msg), 3);
        params = json_incref(json_object_get(msg, "params"));
        assert_true(json_is_object(params) && !json_object_get(params, "type"));
        json_object_set(params, "type", json_object_get(msg, "method"));
        json_decref(msg);
        msg = params;
    }
    if (!has_shape(msg, at, text))
        fail_msg("%s: no message of that type", text);
    json_decref(msg);
}

static void lines_are_what_they_say(void **state)
{
    (void)state;
    assert_true(each("→", is_request) > 20);
    assert_int_equal(each("→", is_request), each("←", is_reply));
    assert_true(each("⇒", is_report) > 15);
    assert_true(each("⇐", is_order) > 5);
    for (int i = 0; i < SHAPES; i++)
        if (shapes[i].seen == 0)
            fail_msg("PROTOCOL.md has no example of %s", shapes[i].type);
}

static void every_method_has_an_example(void **state)
{
    char *text = calloc(1, 1 << 18), want[80];
    FILE *f = fopen("proto/PROTOCOL.md", "r");

    (void)state;
    assert_non_null(f);
    text[fread(text, 1, (1 << 18) - 1, f)] = '\0';
    fclose(f);
#define X(ident, name, ...)                                 \
    snprintf(want, sizeof want, "\"method\":\"%s\"", name); \
    if (!strstr(text, want))                                \
        fail_msg("PROTOCOL.md has no example of %s", name);
    METHODS(X)
#undef X
    free(text);
}

static const char *wanted_type;
static char shown[1 << 16]; /* the examples of wanted_type */

static void note_example(const char *text, enum place at)
{
    char start[48];

    snprintf(start, sizeof start, "{\"type\":\"%s\",", wanted_type);
    if (at == RANKS && strncmp(text, start, strlen(start)) == 0 && strlen(shown) + strlen(text) < sizeof shown)
        strcat(shown, text);
}

/* members: the names in an object of report.h, after its '{'. An optional name ends with '?'. */
static int members_are_shown(const char *members)
{
    int depth = 0, n = 0;

    for (const char *at = members; *at && depth >= 0; at++) {
        size_t len = depth == 0 && (at == members || at[-1] == ' ') ? strspn(at, "abcdefghijklmnopqrstuvwxyz_") : 0;
        char want[48];

        depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
        if (len == 0 || at[len] == '?')
            continue;
        snprintf(want, sizeof want, "\"%.*s\":", (int)len, at);
        if (!strstr(shown, want))
            fail_msg("no example of %s in PROTOCOL.md has %s", wanted_type, want);
        n++;
    }
    return n;
}

/* Each line about ranks' messages in report.h: no described member may be without a sender. */
static void every_member_has_an_example(void **state)
{
    FILE *f = fopen("proto/report.h", "r");
    bool of_ranks = false;
    char *line = NULL, type[32];
    size_t cap = 0;
    int n = 0;

    (void)state;
    assert_non_null(f);
    while (getline(&line, &cap, f) > 0) {
        of_ranks = strncmp(line, " * fd 3, rank", 13) == 0 || (of_ranks && strncmp(line, " * fd 3", 7) != 0);
        if (!of_ranks || sscanf(line, " *   %31[a-z]%*[ (0)]", type) != 1 || line[strcspn(line, "{")] == '\0' || line[5] == ' ')
            continue;
        wanted_type = type;
        shown[0] = '\0';
        each("⇒", note_example);
        n += members_are_shown(strchr(line, '{') + 1);
    }
    free(line);
    fclose(f);
    assert_true(n > 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_what_they_say),
        cmocka_unit_test(every_member_has_an_example),
        cmocka_unit_test(every_method_has_an_example),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

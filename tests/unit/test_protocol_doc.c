/* Every line that PROTOCOL.md shows is JSON, and ranks' lines are what the parser of ranks' lines takes. uses: proto */
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

/* Calls fn for each example line of the document that starts with this arrow; returns how many there were. */
static int each(const char *arrow, void (*fn)(const char *json, bool in_sup))
{
    FILE *f = fopen("proto/PROTOCOL.md", "r");
    bool in_sup = false;
    char *line = NULL;
    size_t cap = 0;
    int n = 0;

    assert_non_null(f);
    while (getline(&line, &cap, f) > 0) {
        in_sup |= strncmp(line, "## sup.sock", 11) == 0;
        if (strncmp(line, arrow, strlen(arrow)) != 0 || line[strlen(arrow)] != ' ')
            continue;
        line[strcspn(line, "\n")] = '\0';
        fn(line + strlen(arrow) + 1, in_sup);
        n++;
    }
    free(line);
    fclose(f);
    return n;
}

static void is_request(const char *text, bool in_sup)
{
    struct rpc_request req;
    struct err err = { 0 };
    int code;

    (void)in_sup;
    if (rpc_request_parse(text, strlen(text), &req, &code, &err) < 0)
        fail_msg("%s: %s", text, err.msg);
    rpc_request_clear(&req);
}

static void is_reply(const char *text, bool in_sup)
{
    json_t *result = NULL;
    struct err err = { 0 };
    long id;

    (void)in_sup;
    if (rpc_reply_parse(text, strlen(text), &id, &result, &err) == ERR_PROTO)
        fail_msg("%s: %s", text, err.msg);
    assert_true(id > 0);
    json_decref(result);
}

static void is_record(const char *text)
{
    enum record_type type;
    struct err err = { 0 };
    json_t *msg = NULL;

    if (record_parse(text, strlen(text), &type, &msg, &err) < 0)
        fail_msg("%s: %s", text, err.msg);
    json_decref(msg);
}

static void is_report(const char *text, bool in_sup)
{
    json_t *msg = json_loads(text, JSON_REJECT_DUPLICATES, NULL), *rec;

    assert_non_null(msg);
    assert_true(json_is_string(json_object_get(msg, "type")));
    rec = json_object_get(msg, "rec");
    if (!in_sup) {
        is_record(text);
    } else if (rec) {
        char *inner = json_dumps(rec, JSON_COMPACT);

        is_record(inner);
        free(inner);
    }
    json_decref(msg);
}

static void is_order(const char *text, bool in_sup)
{
    json_t *msg = json_loads(text, JSON_REJECT_DUPLICATES, NULL);

    (void)in_sup;
    assert_non_null(msg);
    assert_true(json_is_string(json_object_get(msg, "type")) || json_is_string(json_object_get(msg, "method")));
    json_decref(msg);
}

static void lines_are_what_they_say(void **state)
{
    (void)state;
    assert_true(each("→", is_request) > 20);
    assert_int_equal(each("→", is_request), each("←", is_reply));
    assert_true(each("⇒", is_report) > 15);
    assert_true(each("⇐", is_order) > 5);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_what_they_say),
        cmocka_unit_test(every_method_has_an_example),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

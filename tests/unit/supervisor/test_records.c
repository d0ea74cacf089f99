/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/supervisor/test_records.c - records of supervisors, job views,
 * settings, facts about the node. uses: proto daemon */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>
#include <cmocka.h>

#include "daemon/base/config.h"
#include "daemon/base/node.h"
#include "daemon/job/report.h"
#include "daemon/job/view.h"
#include "proto/err.h"
#include "proto/identity.h"

static int parse(const char *text, struct report **ret, struct err *err)
{
    json_t *rec = json_loads(text, 0, NULL);
    int rc;

    assert_non_null(rec);
    rc = report_parse(rec, 3, 9, 100.5, ret, err);
    json_decref(rec);
    return rc;
}

static void a_loss(void **state)
{
    struct report *r;

    (void)state;
    assert_int_equal(
        parse("{\"type\":\"loss\",\"split\":\"val\",\"step\":40,\"epoch\":1.5,\"tier\":\"world\",\"time\":7,\"images_per_s\":3,"
              "\"terms\":{\"total\":[10,4],\"box\":[null,1]},\"nonfinite\":[\"box\"]}",
              &r, NULL),
        0);
    assert_int_equal(r->type, REPORT_LOSS);
    assert_true(r->val && r->step == 40 && r->epoch == 1.5 && r->tier == 2 && r->time == 7 && r->job == 3 && r->seq == 9);
    assert_int_equal(r->count, 2);
    assert_string_equal(r->values[0].name, "total");
    assert_true(r->values[0].num == 10 && r->values[0].den == 4);
    assert_true(isnan(r->values[1].num) && r->values[1].den == 1);
    free(r);
}

static void what_is_wrong_is_named(void **state)
{
    static const struct {
        const char *text, *field;
    } cases[] = {
        { "{}", "type" },
        { "{\"type\":\"loss\",\"split\":\"train\",\"step\":-1,\"tier\":\"off\"}", "step" },
        { "{\"type\":\"loss\",\"split\":\"train\",\"step\":4611686018427387904,\"tier\":\"off\"}", "step" },
        { "{\"type\":\"loss\",\"split\":\"train\",\"step\":1.5,\"tier\":\"off\"}", "step" },
        { "{\"type\":\"loss\",\"split\":\"test\",\"step\":1,\"tier\":\"off\"}", "split" },
        { "{\"type\":\"loss\",\"split\":\"train\",\"step\":1,\"tier\":\"on\"}", "tier" },
        { "{\"type\":\"loss\",\"split\":\"train\",\"step\":1,\"tier\":\"off\",\"terms\":{\"a\":[1]}}", "terms" },
        { "{\"type\":\"loss\",\"split\":\"train\",\"step\":1,\"tier\":\"off\",\"terms\":{\"\":[1,2]}}", "terms" },
        { "{\"type\":\"attempt\",\"attempt\":0,\"resume_step\":0}", "attempt" },
        { "{\"type\":\"attempt\",\"attempt\":1}", "resume_step" },
        { "{\"type\":\"identity\",\"attempt\":1}", "identity" },
        { "{\"type\":\"identity\",\"identity\":{}}", "attempt" },
        { "{\"type\":\"end\",\"outcome\":\"exploded\"}", "outcome" },
        { "{\"type\":\"end\"}", "outcome" },
        { "{\"type\":\"ended\",\"outcome\":\"failed\"}", "attempt" },
        { "{\"type\":\"checkpoint\",\"step\":\"ten\"}", "step" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct report *r = NULL;
        struct err err;

        assert_int_equal(parse(cases[i].text, &r, &err), ERR_PROTO);
        assert_string_equal(err.field, cases[i].field);
        assert_null(r);
    }
}

static void sizes_are_bounded(void **state)
{
    json_t *terms = json_object(), *rec;
    struct report *r = NULL;
    struct err err;
    char name[16], *text;

    (void)state;
    for (int i = 0; i <= REPORT_MAX_TERMS; i++) {
        snprintf(name, sizeof name, "t%d", i);
        json_object_set_new(terms, name, json_pack("[i,i]", 1, 1));
    }
    rec = json_pack("{s:s, s:s, s:i, s:s, s:o}", "type", "loss", "split", "train", "step", 1, "tier", "off", "terms", terms);
    assert_int_equal(report_parse(rec, 1, 1, 0, &r, &err), ERR_PROTO);
    json_decref(rec);
    text = malloc(5001);
    memset(text, 'x', 5000);
    strcpy(text + REPORT_TEXT_MAX - 1, "\xc3\xa9 and more"); /* a character across the limit is dropped whole */
    rec = json_pack("{s:s, s:s, s:s, s:s}", "type", "event", "level", "shout", "kind", "k", "text", text);
    assert_int_equal(report_parse(rec, 1, 1, 0, &r, NULL), 0);
    assert_int_equal(strlen(r->text), REPORT_TEXT_MAX - 1);
    assert_string_equal(r->kind, "info");
    free(r);
    free(text);
    json_decref(rec);
}

static void an_identity(void **state)
{
    char large[IDENTITY_MAX_BYTES + 1], *text;
    struct report *r;

    (void)state;
    assert_int_equal(parse("{\"type\":\"identity\",\"attempt\":2,\"identity\":{ \"hash\": \"00\" }}", &r, NULL), 0);
    assert_true(r->type == REPORT_IDENTITY && r->attempt == 2);
    assert_string_equal(r->json, "{\"hash\":\"00\"}");
    free(r);
    for (int over = 0; over < 2; over++) { /* {"a":""} is eight bytes more */
        memset(large, 'x', sizeof large);
        large[IDENTITY_MAX_BYTES - 8 + over] = '\0';
        assert_true(asprintf(&text, "{\"type\":\"identity\",\"attempt\":2,\"identity\":{\"a\":\"%s\"}}", large) > 0);
        assert_int_equal(parse(text, &r, NULL), 0);
        assert_int_equal(strlen(r->json), over ? 0 : IDENTITY_MAX_BYTES);
        free(text);
        free(r);
    }
}

static void only_detd_tells_who_has_asked(void **state)
{
    struct report *r;

    (void)state;
    assert_int_equal(parse("{\"type\":\"event\",\"level\":\"info\",\"kind\":\"audit\",\"text\":\"cancel by ann\"}", &r, NULL), 0);
    assert_string_equal(r->label, "event");
    free(r);
}

static void a_newer_supervisor_loses_nothing(void **state)
{
    struct report *r;

    (void)state;
    assert_int_equal(parse("{\"type\":\"weather\",\"sky\":\"blue\"}", &r, NULL), 0);
    assert_int_equal(r->type, REPORT_EVENT);
    assert_non_null(strstr(r->text, "weather"));
    free(r);
}

static void the_view_is_json(void **state)
{
    struct job_row row = { .id = 12, .state = JOB_RUNNING, .want_tier = -1, .tier = 1, .ranks = 2, .submitted = 5.25, .steps = 10 };
    struct text t = { 0 };
    json_t *root;

    (void)state;
    strcpy(row.name, "a \"quoted\" na\xffme\n");
    strcpy(row.user, "ann");
    view_job(&t, &row, "/var/lib/detd/jobs", NULL, "{\"train\":{},\"val\":{}}");
    text_add(&t, "}");
    root = json_loads(t.p, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    assert_string_equal(json_string_value(json_object_get(root, "name")), "a \"quoted\" na?me\n");
    assert_string_equal(json_string_value(json_object_get(root, "dir")), "/var/lib/detd/jobs/12");
    assert_string_equal(json_string_value(json_object_get(root, "state")), "running");
    assert_true(json_is_null(json_object_get(root, "ended")));
    assert_true(json_real_value(json_object_get(root, "submitted")) == 5.25);
    json_decref(root);
    text_free(&t);
}

static void numbers_come_back(void **state)
{
    static const double values[] = { 0.1, -1e-300, 3, 1e22, 123456789.0, 5e-324, 1.7976931348623157e308 };

    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        struct text t = { 0 };
        json_t *v;

        text_real(&t, values[i]);
        v = json_loads(t.p, JSON_DECODE_ANY, NULL);
        assert_true(json_is_real(v));
        assert_true(json_real_value(v) == values[i]);
        json_decref(v);
        text_free(&t);
    }
}

static int settings(const char *text, struct config *cfg, struct err *err)
{
    memset(cfg, 0, sizeof *cfg);
    return config_parse(text, "detd.conf", cfg, err);
}

static char *whole_file(const char *path)
{
    char *text = calloc(1, 1 << 16);
    FILE *f = fopen(path, "r");

    assert_non_null(f);
    assert_true(fread(text, 1, (1 << 16) - 1, f) > 0);
    fclose(f);
    return text;
}

/* Every key of the program stands in the manual and in the sample, and no other key does. The sample's lines must be
 * valid without their comment mark. */
static void settings_are_documented(void **state)
{
    char *sample = whole_file("systemd/detd.conf"), *manual = whole_file("docs/man/detd.conf.5"), *help = NULL, *rest, *line;
    struct config cfg;
    struct err err;
    int keys = 0, lines = 0;
    size_t len;
    FILE *out = open_memstream(&help, &len);

    (void)state;
    config_help(out);
    fclose(out);
    line = strstr(help, "The settings file");
    assert_non_null(line);
    for (line = strtok_r(line, "\n", &rest); (line = strtok_r(NULL, "\n", &rest)) && strncmp(line, "  ", 2) == 0; keys++) {
        char name[40], wanted[60];

        assert_int_equal(sscanf(line, " %30s", name), 1);
        snprintf(wanted, sizeof wanted, "\n.B %s\n", name);
        if (!strstr(manual, wanted))
            fail_msg("docs/man/detd.conf.5 lacks %s", name);
        snprintf(wanted, sizeof wanted, "\n#%s = ", name);
        if (!strstr(sample, wanted))
            fail_msg("systemd/detd.conf lacks %s", name);
    }
    for (line = strtok_r(sample, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        if (line[0] == '#' && line[1] != ' ') {
            lines++;
            if (settings(line + 1, &cfg, &err) != 0)
                fail_msg("systemd/detd.conf, '%s': %s", line, err.msg);
        }
    assert_int_equal(lines, keys);
    assert_true(keys > 10);
    free(sample);
    free(manual);
    free(help);
}

static void settings_file(void **state)
{
    struct config cfg;
    struct err err;
    char text[300];

    (void)state;
    assert_int_equal(settings("# nothing\n\n slots = 12 # why\ntier=world\r\nread = admins\nstate = /a/b\nsocket=/a/s", &cfg, &err), 0);
    assert_true(cfg.slots == 12 && cfg.tier == 2 && !cfg.everyone_reads);
    assert_string_equal(cfg.state, "/a/b");
    assert_string_equal(cfg.socket, "/a/s");
    assert_int_equal(settings("slots = 1\nslotz = 2\n", &cfg, &err), ERR_INPUT);
    assert_string_equal(err.msg, "detd.conf:2: unknown key 'slotz'");
    assert_int_equal(settings("slots = 0", &cfg, &err), ERR_INPUT);
    assert_string_equal(err.field, "slots");
    assert_int_equal(settings("tier = on", &cfg, &err), ERR_INPUT);
    assert_int_equal(settings("read = nobody", &cfg, &err), ERR_INPUT);
    assert_int_equal(settings("state =", &cfg, &err), ERR_INPUT);
    assert_int_equal(settings("go", &cfg, &err), ERR_INPUT);
    memset(text, 'x', sizeof text);
    memcpy(text, "socket = /", 10);
    text[10 + CONFIG_SOCKET_MAX - 1] = '\0';
    assert_int_equal(settings(text, &cfg, &err), 0);
    text[10 + CONFIG_SOCKET_MAX - 1] = 'x';
    text[10 + CONFIG_SOCKET_MAX] = '\0';
    assert_int_equal(settings(text, &cfg, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "108 bytes"));
}

static void options(void **state)
{
    char *good[] = { "detd", "--state", "/s", "--socket=/s/x", NULL }, *odd[] = { "detd", "--loud", NULL }, *word[] = { "detd", "x", NULL },
         *cut[] = { "detd", "--socket=/s/x", "--state", NULL }, *value[] = { "detd", "--system=1", NULL },
         *letter[] = { "detd", "-hx", NULL }, *shorter[] = { "detd", "-c", "/etc/detd.conf", NULL },
         *empty[] = { "detd", "--config=", NULL };
    enum config_action action;
    struct config cfg;
    struct err err;

    (void)state;
    assert_int_equal(config_read(4, good, &cfg, &action, &err), 0);
    assert_true(cfg.private && action == CONFIG_RUN);
    assert_string_equal(cfg.state, "/s");
    assert_string_equal(cfg.socket, "/s/x");
    assert_int_equal(config_read(2, odd, &cfg, &action, &err), ERR_INPUT);
    assert_string_equal(err.msg, "unknown option '--loud'; see detd --help");
    assert_int_equal(config_read(2, word, &cfg, &action, &err), ERR_INPUT);
    assert_string_equal(err.msg, "unexpected argument 'x'; see detd --help");
    assert_int_equal(config_read(3, cut, &cfg, &action, &err), ERR_INPUT);
    assert_string_equal(err.msg, "--state needs a value");
    assert_int_equal(config_read(2, value, &cfg, &action, &err), ERR_INPUT);
    assert_string_equal(err.msg, "--system takes no value; see detd --help");
    assert_int_equal(config_read(2, letter, &cfg, &action, &err), ERR_INPUT);
    assert_string_equal(err.msg, "unknown option '-x'; see detd --help");
    assert_int_equal(config_read(3, shorter, &cfg, &action, &err), ERR_INPUT);
    assert_string_equal(err.msg, "unknown option '-c'; see detd --help");
    assert_int_equal(config_read(2, empty, &cfg, &action, &err), ERR_INPUT);
    assert_string_equal(err.msg, "config: must not be empty");
}

static void node_facts(void **state)
{
    struct err err;

    (void)state;
    assert_int_equal(node_parse_quota("max 100000\n"), 0);
    assert_int_equal(node_parse_quota("150000 100000\n"), 2);
    assert_int_equal(node_parse_quota("100000 100000"), 1);
    assert_int_equal(node_parse_quota("5 0"), 0);
    assert_int_equal(node_parse_quota(""), 0);
    assert_true(node_cpu_slots() >= 1);
    assert_int_equal(node_check_filesystem("/tmp", &err), 0);
    assert_true(node_check_filesystem("/no/such/folder", &err) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loss),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(sizes_are_bounded),
        cmocka_unit_test(an_identity),
        cmocka_unit_test(only_detd_tells_who_has_asked),
        cmocka_unit_test(a_newer_supervisor_loses_nothing),
        cmocka_unit_test(the_view_is_json),
        cmocka_unit_test(numbers_come_back),
        cmocka_unit_test(settings_file),
        cmocka_unit_test(settings_are_documented),
        cmocka_unit_test(options),
        cmocka_unit_test(node_facts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

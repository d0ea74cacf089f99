/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/supervisor/spool/test_outcome.c - uses: proto supervisor
 * How an attempt ended, and which reports ranks may send. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "proto/line.h"
#include "proto/record.h"
#include "supervisor/spool/outcome.h"

#define SAID(what, cls, why, at)                                                               \
    {                                                                                          \
        .ended = true, .outcome = what, .class = cls, .reason = why, .order = at, .left = true \
    }
#define LEFT(how, at)                            \
    {                                            \
        .left = true, .status = how, .order = at \
    }
#define KILLED(at)                                                   \
    {                                                                \
        .left = true, .killed = true, .status = SIGKILL, .order = at \
    }

static const struct {
    struct outcome_rank rank[3];
    const char *cause, *outcome, *class, *reason;
    bool retry;
} table[] = {
    { { SAID("completed", "", "", 0), SAID("completed", "", "", 1), SAID("completed", "", "", 2) }, "", "completed", "", "", false },
    { { SAID("completed", "", "", 0), LEFT(SIGSEGV, 1), KILLED(2) }, "", "completed", "", "", false },
    { { SAID("paused", "", "", 2), SAID("paused", "", "", 0), SAID("paused", "", "", 1) }, "", "paused", "", "", false },
    { { SAID("failed", "fault", "another rank left", 1), LEFT(SIGSEGV, 0), KILLED(2) },
      "",
      "failed",
      "fault",
      "rank 1 was killed by signal 11 (Segmentation fault)",
      true },
    { { LEFT(SIGABRT, 2), LEFT(SIGKILL, 1), LEFT(137 << 8, 3) }, "", "failed", "fault", "rank 1 was killed by SIGKILL", true },
    { { KILLED(2), KILLED(1), LEFT(137 << 8, 3) }, "", "failed", "fault", "rank 2 was killed by SIGKILL", true },
    { { KILLED(2), LEFT(3 << 8, 1), KILLED(3) }, "", "failed", "fault", "rank 1 left with status 3", true },
    { { LEFT(SIGABRT, 0), SAID("failed", "nonfinite", "step 9: box", 1), KILLED(2) }, "", "failed", "nonfinite", "step 9: box", false },
    { { SAID("failed", "fault", "open 'a': No such file", 0), LEFT(1 << 8, 1), KILLED(2) },
      "",
      "failed",
      "fault",
      "rank 0: open 'a'",
      true },
    { { LEFT(1 << 8, 0), SAID("failed", "missing", "stat 'a': No such file", 1), LEFT(SIGSEGV, 2) },
      "",
      "failed",
      "missing",
      "stat 'a': No such file",
      true },
    { { SAID("failed", "missing", "stat 'a'", 0), SAID("failed", "data", "b: damaged", 1), KILLED(2) },
      "",
      "failed",
      "data",
      "b: damaged",
      false },
    { { LEFT(1 << 8, 0), SAID("failed", "fault", "read 'a'", 1), LEFT(139 << 8, 2) },
      "",
      "failed",
      "fault",
      "rank 2 left with status 139",
      true },
    { { LEFT(1 << 8, 0), SAID("failed", "fault", "read 'a'", 1), KILLED(2) }, "", "failed", "fault", "rank 1: read 'a'", true },
    { { LEFT(1 << 8, 0), SAID("failed", "data", "no box", 1), LEFT(SIGSEGV, 2) }, "", "failed", "data", "no box", false },
    { { SAID("failed", "data", "a", 2), SAID("failed", "data", "b", 1), KILLED(3) }, "", "failed", "data", "b", false },
    { { SAID("failed", "fault", "x", 2), SAID("failed", "", "y", 1), KILLED(3) }, "", "failed", "fault", "rank 1: y", true },
    { { KILLED(1), KILLED(2), KILLED(3) }, "rank 2 hangs in phase data", "failed", "fault", "rank 2 hangs in phase data", true },
    { { KILLED(1), KILLED(2), KILLED(3) }, "", "failed", "fault", "the ranks left", true },
};

static void outcomes(void **state)
{
    struct outcome o = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        outcome_decide(table[i].rank, 3, table[i].cause, &o);
        if (strcmp(o.outcome, table[i].outcome) != 0 || strcmp(o.class, table[i].class) != 0 ||
            strncmp(o.reason, table[i].reason, strlen(table[i].reason)) != 0 || o.retry != table[i].retry)
            fail_msg("row %zu: %s, %s, '%s', retry %d", i, o.outcome, o.class, o.reason, o.retry);
    }
}

#define EXIT(code, at) LEFT((code) << 8, at)

/* Of programs. */
static const struct {
    struct outcome_rank rank[3];
    struct outcome_program p;
    const char *outcome, *class, *reason;
    bool retry;
} programs[] = {
    { { EXIT(0, 0), EXIT(0, 1), EXIT(0, 2) }, { .cause = "", .error_rank = -1 }, "completed", "", "", false },
    { { EXIT(0, 0), EXIT(3, 1), KILLED(2) },
      { .cause = "", .error_rank = -1 },
      "failed",
      "user",
      "rank 1 exited with status 3; see its log",
      false },
    { { EXIT(1, 2), EXIT(3, 1), KILLED(3) },
      { .cause = "", .saved = true, .error_rank = 0, .error = "ValueError: x" },
      "failed",
      "user",
      "rank 0: ValueError: x",
      true },
    { { EXIT(0, 0), LEFT(SIGSEGV, 1), KILLED(2) },
      { .cause = "", .error_rank = -1 },
      "failed",
      "fault",
      "rank 1 was killed by signal 11",
      true },
    { { KILLED(0), KILLED(1), KILLED(2) }, { .cause = "rank 0 hangs", .error_rank = -1 }, "failed", "fault", "rank 0 hangs", true },
    { { KILLED(0), KILLED(1), KILLED(2) }, { .cause = "", .error_rank = -1 }, "failed", "fault", "the ranks were killed", true },
    { { LEFT(SIGTERM, 0), EXIT(1, 1), EXIT(0, 2) }, { .cause = "", .stopped = true, .error_rank = -1 }, "paused", "", "", false },
};

static void outcomes_of_programs(void **state)
{
    struct outcome o = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        outcome_of_program(programs[i].rank, 3, &programs[i].p, &o);
        if (strcmp(o.outcome, programs[i].outcome) != 0 || strcmp(o.class, programs[i].class) != 0 ||
            strncmp(o.reason, programs[i].reason, strlen(programs[i].reason)) != 0 || o.retry != programs[i].retry)
            fail_msg("row %zu: %s, %s, '%s', retry %d", i, o.outcome, o.class, o.reason, o.retry);
    }
}

static const struct {
    const char *line, *error; /* NULL: taken */
} lines[] = {
    { "{\"type\":\"hello\",\"rank\":0,\"local_rank\":0,\"nranks\":2,\"device\":\"cpu\",\"later\":1}", NULL },
    { "{\"type\":\"hello\",\"rank\":-1,\"local_rank\":0,\"nranks\":2,\"device\":\"cpu\"}", "hello: rank: must be an integer, 0 or more" },
    { "{\"type\":\"loss\",\"split\":\"train\",\"step\":1,\"tier\":\"off\",\"time\":1,\"terms\":{\"total\":[1,null]}}", NULL },
    { "{\"type\":\"loss\",\"split\":\"test\",\"step\":1,\"tier\":\"off\",\"time\":1,\"terms\":{}}",
      "loss: split: must be one of train|val" },
    { "{\"type\":\"loss\",\"split\":\"val\",\"step\":1,\"tier\":\"of\",\"time\":1,\"terms\":{}}",
      "loss: tier: must be one of off|rerun|world" },
    { "{\"type\":\"loss\",\"split\":\"val\",\"step\":1,\"tier\":\"off\",\"time\":1,\"terms\":{\"a\":[1]}}",
      "loss: terms: the value of 'a' must be" },
    { "{\"type\":\"loss\",\"split\":\"val\",\"step\":1,\"tier\":\"off\",\"time\":1,\"terms\":{\"\":[1,2]}}", "loss: terms: must be" },
    { "{\"type\":\"loss\",\"split\":\"val\",\"step\":1.5,\"tier\":\"off\",\"time\":1,\"terms\":{}}", "loss: step: must be" },
    { "{\"type\":\"loss\",\"split\":\"val\",\"step\":1,\"tier\":\"off\",\"time\":1,\"terms\":{\"a\":[1,2,3]}}",
      "loss: terms: the value of 'a' must be" },
    { "{\"type\":\"loss\",\"split\":\"val\",\"step\":1,\"tier\":\"off\",\"time\":1,\"terms\":{\"a\":[1,\"2\"]}}",
      "loss: terms: the value of 'a' must be" },
    { "{\"type\":\"tier\",\"step\":1,\"tier\":\"world\"}", NULL },
    { "{\"type\":\"tier\",\"step\":1}", "tier: tier: must be" },
    { "{\"type\":\"tier\",\"step\":1,\"tier\":\"worlds\"}", "tier: tier: must be" },
    { "{\"type\":\"start\",\"resume_step\":1}", "start: checkpoint: must be" },
    { "{\"type\":\"event\",\"level\":\"info\",\"kind\":\"k\"}", "event: text: must be" },
    { "{\"type\":\"loss\"}", "loss: split: must be" },
    { "{\"type\":\"eval\",\"step\":1,\"time\":1,\"metrics\":{\"a\":null,\"b\":0.5}}", NULL },
    { "{\"type\":\"eval\",\"step\":1,\"time\":1,\"metrics\":[]}", "eval: metrics: must be" },
    { "{\"type\":\"checkpoint\",\"step\":1,\"phase\":\"done\",\"path\":\"p\"}", "checkpoint: phase: must be one of ready|published" },
    { "{\"type\":\"data\",\"split\":\"train\",\"images\":1,\"boxes\":1,\"skipped\":0,\"bad\":[1]}",
      "data: bad: must be an array of strings" },
    { "{\"type\":\"end\",\"outcome\":\"failed\",\"reason\":null,\"class\":\"\"}", NULL },
    { "{\"type\":\"end\",\"outcome\":\"failed\",\"class\":\"bad\"}", "end: class: must be" },
    { "{\"type\":\"end\",\"outcome\":\"\"}", "end: outcome: must be" },
    { "{\"type\":\"of a later version\",\"x\":1}", NULL },
    { "{\"type\":1}", "type: must be a string" },
    { "[1]", "type: must be a string" },
    { "{\"type\":\"end\",\"type\":\"end\"}", "not JSON: duplicate" },
    { "{", "not JSON" },
};

static void what_ranks_may_say(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct err err = { 0 };
        enum record_type type;
        json_t *msg = NULL;
        int rc = record_parse(lines[i].line, strlen(lines[i].line), &type, &msg, &err);

        if (lines[i].error ? rc != ERR_PROTO || strncmp(err.msg, lines[i].error, strlen(lines[i].error)) != 0 : rc != 0)
            fail_msg("%s: %d %s", lines[i].line, rc, err.msg);
        json_decref(msg);
    }
}

/* n metrics with names of so many letters */
static int eval_of(int n, int letters)
{
    char *text = malloc((size_t)n * (size_t)(letters + 8) + 128);
    size_t len = (size_t)sprintf(text, "{\"type\":\"eval\",\"step\":1,\"time\":1,\"metrics\":{");
    struct err err = { 0 };
    enum record_type type;
    json_t *msg = NULL;
    int rc;

    for (int i = 0; i < n; i++)
        len += (size_t)sprintf(text + len, "%s\"%0*d\":1", i ? "," : "", letters, i);
    len += (size_t)sprintf(text + len, "}}");
    rc = record_parse(text, len, &type, &msg, &err);
    json_decref(msg);
    free(text);
    return rc;
}

static void values_and_their_names_are_bounded(void **state)
{
    (void)state;
    assert_int_equal(eval_of(RECORD_MAX_VALUES, 3), 0);
    assert_int_equal(eval_of(RECORD_MAX_VALUES + 1, 3), ERR_PROTO);
    assert_int_equal(eval_of(1, RECORD_MAX_NAME), 0);
    assert_int_equal(eval_of(1, RECORD_MAX_NAME + 1), ERR_PROTO);
}

static void lines_never_pass_their_buffer(void **state)
{
    static const char text[] = "{\"type\":\"t\",\"s\":\"a\\u0001\\\"\xc3\xa9?\",\"r\":[0.5,null,3.0],\"b\":true,\"cut\":\"\xc3\xa9\"}\n";
    char buf[128];

    (void)state;
    for (size_t size = 1; size <= sizeof buf; size++) {
        struct err err;
        struct line l;

        memset(buf, '~', sizeof buf);
        line_begin(&l, buf, size, "t");
        line_str(&l, "s", "a\x01\"\xc3\xa9\xff");
        line_open(&l, "r", '[');
        line_real(&l, NULL, 0.5);
        line_real(&l, NULL, INFINITY);
        line_real(&l, NULL, 3);
        line_close(&l, ']');
        line_bool(&l, "b", true);
        line_text(&l, "cut", "\xc3\xa9\xc3\xa9", 3);
        assert_int_equal(line_done(&l, &err), size >= sizeof text ? 0 : ERR_INPUT);
        for (size_t i = size; i < sizeof buf; i++)
            assert_int_equal(buf[i], '~');
        if (size >= sizeof text)
            assert_string_equal(buf, text);
    }
}

static void what_programs_may_say(void **state)
{
    static const struct {
        const char *line;
        enum record_type type;
        const char *error; /* NULL: taken */
    } said[] = {
        { "{\"type\":\"hello\"}", RECORD_HELLO, NULL },
        { "{\"type\":\"hello\",\"words\":[\"pause\",\"checkpoint\"],\"stacks\":12,\"pid\":7}", RECORD_HELLO, NULL },
        { "{\"type\":\"hello\",\"words\":[\"fly\"]}", 0, "hello: words: must be an array of checkpoint|validate|pause|cancel" },
        { "{\"type\":\"hello\",\"words\":\"pause\"}", 0, "hello: words: must be an array of" },
        { "{\"type\":\"share\",\"split\":\"val\",\"step\":1,\"terms\":{}}", RECORD_SHARE, NULL },
        { "{\"type\":\"share\",\"split\":\"val\",\"step\":1,\"terms\":{\"a\":[null,1]},\"images\":null}", RECORD_SHARE, NULL },
        { "{\"type\":\"share\",\"split\":\"test\",\"step\":1,\"terms\":{}}", 0, "share: split: must be one of train|val" },
        { "{\"type\":\"share\",\"split\":\"val\",\"step\":-1,\"terms\":{}}", 0, "share: step: must be an integer" },
        { "{\"type\":\"eval\",\"step\":1,\"metrics\":{\"AP\":1}}", RECORD_EVAL, NULL },
        { "{\"type\":\"checkpoint\",\"step\":1,\"phase\":\"ready\"}", RECORD_CHECKPOINT, NULL },
        { "{\"type\":\"checkpoint\",\"step\":1,\"phase\":\"published\"}", 0, "checkpoint: phase: must be one of ready" },
        { "{\"type\":\"finish\"}", RECORD_FINISH, NULL },
        { "{\"type\":\"end\",\"outcome\":\"completed\"}", RECORD_UNKNOWN, NULL }, /* exit codes say it */
        { "{\"type\":\"loss\"}", RECORD_UNKNOWN, NULL },
    };

    (void)state;
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        enum record_type type = RECORD_UNKNOWN;
        struct err err = { 0 };
        json_t *msg = NULL;
        int rc = record_parse_program(said[i].line, strlen(said[i].line), &type, &msg, &err);

        if ((rc == 0) != !said[i].error || (rc == 0 && type != said[i].type) || (rc < 0 && !strstr(err.msg, said[i].error)))
            fail_msg("%s: %d, %s", said[i].line, (int)type, err.msg);
        json_decref(msg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outcomes),
        cmocka_unit_test(outcomes_of_programs),
        cmocka_unit_test(what_ranks_may_say),
        cmocka_unit_test(what_programs_may_say),
        cmocka_unit_test(values_and_their_names_are_bounded),
        cmocka_unit_test(lines_never_pass_their_buffer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/proto/job/test_jobspec_program.c - job files of programs.
 * uses: proto */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/proto/job/job_file.h"

#define PROGRAM "{\"program\":{\"command\":[\"python3\",\"train.py\",\"\"],\"directory\":\"/w\"}}"

static json_t *with(const char *set)
{
    json_t *root = json_loads(PROGRAM, 0, NULL);
    char copy[512], *save = NULL;
    struct err err = { 0 };

    snprintf(copy, sizeof copy, "%s", set);
    for (char *one = strtok_r(copy, ";", &save); one; one = strtok_r(NULL, ";", &save))
        if (jobspec_override(root, one, &err) < 0)
            fail_msg("override %s: %s", one, err.msg);
    return root;
}

static void defaults(void **state)
{
    json_t *root = with("program.steps=100"), *whole;
    struct jobspec *s = NULL, *again = NULL;
    struct jobspec_idle idle[JOB_MAX_IDLE];
    struct err err = { 0 };

    (void)state;
    assert_int_equal(jobspec_parse(root, &s, &err), 0);
    assert_true(jobspec_is_program(s));
    assert_int_equal(json_array_size(s->program_command), 3);
    assert_int_equal(s->train_steps, 100);
    assert_int_equal(s->run_ranks, 1);
    assert_int_equal(s->program_gpus, -1);
    assert_int_equal(s->checkpoint_every, 0);
    assert_string_equal(s->run_deterministic, "off");
    assert_true(isnan(s->program_silent_after) && s->program_stop_grace == 60);
    assert_int_equal(jobspec_idle(s, idle), 0);
    assert_null(jobspec_doubt(s));
    whole = jobspec_json(s);
    assert_null(json_object_get(whole, "model"));
    assert_null(json_object_get(whole, "train"));
    assert_null(at(whole, "run.precision"));
    assert_non_null(at(whole, "checkpoint.keep"));
    assert_int_equal(jobspec_parse_stored(whole, &again, &err), 0);
    assert_true(jobspec_is_program(again));
    json_decref(jobspec_hide_code(whole));
    assert_true(json_is_null(at(whole, "program.command")));
    jobspec_free(s);
    jobspec_free(again);
    json_decref(whole);
    json_decref(root);
}

static void faults(void **state)
{
    static const struct {
        const char *set, *msg;
    } cases[] = {
        { "model.preset=yolov3", "model.preset: not a key of a program (program.command): detd knows neither its model nor its data" },
        { "model.preset=x", "model.preset: not a key of a program (program.command): detd knows neither its model nor its data" },
        { "data.train.annotations=/a", "data.train.annotations: not a key of a program" },
        { "train.lr=1", "train.lr: not a key of a program" },
        { "val.batch=1", "val.batch: not a key of a program" },
        { "run.precision=bf16", "run.precision: not a key of a program (program.command)" },
        { "run.device=cpu", "run.device: not a key of a program (program.command)" },
        { "run.ranks_per_gpu=2", "run.ranks_per_gpu: not a key of a program: each rank sees all GPUs of the job (program.gpus)" },
        { "run.ranks=3;program.gpus=4", "program.gpus: must be a multiple of run.ranks (3), is 4" },
        { "program.terminal=true;run.ranks=2", "program.terminal: needs run.ranks=1" },
        { "program.umask=9", "program.umask: must be octal digits" },
        { "program.umask=1777", "program.umask: must be octal digits" },
        { "program.limits={\"nofiles\":1}", "program.limits: 'nofiles' is no resource limit" },
        { "program.limits={\"nofile\":-2}", "program.limits: of 'nofile' must not be so small" },
        { "program.directory=null", "program.directory: is required" },
        { "program.command=[\"\"]", "program.command: the name of the program is empty" },
        { "program.command=[]", "program.command: must be a list of a program and its arguments, is an empty list" },
        { "program.command=ls", "program.command: must be a list of a program and its arguments, is \"ls\"" },
        { "program.command=[1]", "program.command: argument 0 must be a string, is 1" },
        { "program.on_pause=maybe", "program.on_pause: must be refuse, signal or words" },
        { "program.stop_signal=SIGKILL", "program.stop_signal: must be SIGTERM" },
        { "checkpoint.every=2 epochs", "checkpoint.every: only detctl submit" },
        { "program.command=null", "data.train.annotations: is required" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *root = with(cases[i].set);
        struct jobspec *s = NULL;
        struct err err = { 0 };

        assert_int_equal(jobspec_parse(root, &s, &err), ERR_INPUT);
        if (strncmp(err.msg, cases[i].msg, strlen(cases[i].msg)) != 0)
            fail_msg("%s: %s", cases[i].set, err.msg);
        json_decref(root);
    }
}

static void models_have_no_such_keys(void **state)
{
    json_t *root = job("program.steps=5");
    struct jobspec *s = NULL;
    struct err err = { 0 };

    (void)state;
    assert_int_equal(jobspec_parse(root, &s, &err), ERR_INPUT);
    assert_string_equal(err.msg, "program.steps: needs program.command");
    json_decref(root);
}

/* 4,096 arguments and 1,024 variables, 128 KiB each. */
static void limits(void **state)
{
    json_t *root = with(""), *command = json_array(), *env = json_object();
    struct jobspec *s = NULL;
    struct err err = { 0 };
    char name[16], text[129];

    (void)state;
    memset(text, 'x', 128);
    text[128] = '\0';
    for (int i = 0; i < 4096; i++)
        json_array_append_new(command, json_string("a\n"));
    for (int i = 0; i < 900; i++) {
        snprintf(name, sizeof name, "V%d", i);
        json_object_set_new(env, name, json_string(text));
    }
    json_object_set_new(json_object_get(root, "program"), "command", command);
    json_object_set_new(root, "run", json_pack("{s:o}", "env", env));
    assert_int_equal(jobspec_parse(root, &s, &err), 0);
    jobspec_free(s);
    json_array_append_new(command, json_string(""));
    assert_int_equal(jobspec_parse(root, &s, &err), ERR_INPUT);
    assert_string_equal(err.msg, "program.command: must have at most 4096 arguments, has 4097");
    json_array_clear(command);
    for (int i = 0; i < 1100; i++)
        json_array_append_new(command, json_string(text));
    assert_int_equal(jobspec_parse(root, &s, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "program.command: must have at most 131072 bytes in all"));
    json_array_clear(command);
    json_array_append_new(command, json_string("true"));
    for (int i = 900; i < 1024; i++) {
        snprintf(name, sizeof name, "V%d", i);
        json_object_set_new(env, name, json_string(text));
    }
    assert_int_equal(jobspec_parse(root, &s, &err), ERR_INPUT);
    assert_string_equal(err.msg, "run.env: must have at most 131072 bytes in all");
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(defaults), cmocka_unit_test(faults), cmocka_unit_test(models_have_no_such_keys),
                                        cmocka_unit_test(limits) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

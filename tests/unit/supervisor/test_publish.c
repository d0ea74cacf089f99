/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/supervisor/test_publish.c - which checkpoints of a program are
 * complete, what is recorded of them, and which one a start goes on from. uses: proto supervisor */
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>
#include <cmocka.h>

#include "proto/err.h"
#include "proto/host/wipe.h"
#include "proto/job/jobspec.h"
#include "supervisor/attempt.h"
#include "supervisor/going.h"
#include "supervisor/needs.h"
#include "supervisor/publish.h"
#include "supervisor/ranks/program.h"
#include "supervisor/records.h"
#include "tests/stand/harness.h"

enum { RANKS = 2, SEGMENT = 1 << 20 };

static char folder[TEMP_MAX];
static uv_loop_t loop;
static struct jobspec spec;
static struct program program;
static struct needs needs;
static struct going going;
static struct attempt attempt;
static struct records records;
static struct publish p;

static void fatal(void *arg, const struct err *err)
{
    (void)arg;
    fail_msg("%s", err->msg);
}

static void start(void)
{
    struct err err = { 0 };

    if (publish_begin(&p, &err) < 0)
        fail_msg("%s", err.msg);
}

static int begin(void **state)
{
    struct err err;

    (void)state;
    unlink("published");
    unlink("spool.0");
    unlink("spool.1");
    uv_loop_init(&loop);
    spec.checkpoint_keep = 3;
    spec.program_directory = folder;
    needs = (struct needs){ .spec = &spec, .program = &program };
    going = (struct going){ .attempt = 1 };
    attempt = (struct attempt){ .nranks = RANKS };
    records.going = &going;
    records.fatal = fatal;
    p = (struct publish){ .loop = &loop, .job_dir = folder, .going = &going, .attempt = &attempt, .needs = &needs, .records = &records };
    return spool_open(folder, SEGMENT, 0, &records.spool, &err);
}

static int end(void **state)
{
    (void)state;
    publish_close(&p);
    spool_close(records.spool);
    return uv_loop_close(&loop);
}

static void settle(void)
{
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(p.waiting, 0);
}

static void write_file(const char *name)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(fd >= 0 && write(fd, name, strlen(name)) > 0);
    close(fd);
}

/* All ranks say `ready`. */
static void save(int64_t step, const char *name)
{
    write_file(name);
    publish_take(&p, 1, step, "");
    publish_take(&p, 0, step, name);
    settle();
}

/* The newest record of that type; NULL: none. The caller frees it. *ret_count: how many there are. */
static json_t *newest(const char *type, int *ret_count)
{
    struct spool_cursor c;
    struct err err;
    const char *text;
    json_t *ret = NULL;
    uint64_t seq;
    size_t len;

    *ret_count = 0;
    assert_int_equal(spool_seek(records.spool, 0, &c, &err), 0);
    while (spool_next(records.spool, &c, &text, &len, &seq, &err) > 0) {
        json_t *one = json_loadb(text, len, 0, NULL);

        assert_non_null(one);
        if (strcmp(json_string_value(json_object_get(one, "type")), type) != 0) {
            json_decref(one);
            continue;
        }
        json_decref(ret);
        ret = one;
        ++*ret_count;
    }
    return ret;
}

static void check_step(int64_t step, int count)
{
    int n;
    json_t *record = newest("checkpoint", &n);

    assert_int_equal(n, count);
    if (record)
        assert_int_equal(json_integer_value(json_object_get(record, "step")), step);
    json_decref(record);
}

/* So many events, and the newest has these words. */
static void check_event(int count, const char *words)
{
    int n;
    json_t *record = newest("event", &n);
    const char *text = json_string_value(json_object_get(record, "text"));

    assert_int_equal(n, count);
    if (count > 0 && !strstr(text, words))
        fail_msg("%s", text);
    json_decref(record);
}

static void all_ranks_have_to_write_it(void **state)
{
    char path[2 * TEMP_MAX];
    json_t *record;
    int n;

    (void)state;
    start();
    write_file("a");
    publish_take(&p, 0, 10, "a");
    settle();
    check_step(0, 0);
    publish_take(&p, 1, 10, "");
    settle();
    record = newest("checkpoint", &n);
    snprintf(path, sizeof path, "%s/a", folder); /* a relative path lies below program.directory */
    assert_string_equal(json_string_value(json_object_get(record, "path")), path);
    assert_int_equal(json_integer_value(json_object_get(record, "bytes")), 1);
    json_decref(record);
    assert_true(going.saved == 10 && attempt.saved && saved_newest() == 10);
    publish_take(&p, 0, 10, "a"); /* once more */
    publish_take(&p, 1, 10, "");
    settle();
    check_step(10, 1);
    check_event(0, "");
}

static void one_that_a_rank_has_passed_is_given_up(void **state)
{
    (void)state;
    start();
    publish_take(&p, 0, 10, "a");
    save(20, "b");
    check_step(20, 1);
    check_event(1, "step 10 is not recorded: rank 1 reports a later step and lacks this one");
    publish_take(&p, 1, 30, "");
    save(40, "c");
    check_step(40, 2);
    check_event(1, ""); /* further ones are not told */
}

/* Only rank 0 calls run.checkpoint(). */
static void one_that_a_rank_never_reports_is_told_at_the_end(void **state)
{
    (void)state;
    start();
    publish_take(&p, 0, 10, "a");
    publish_take(&p, 0, 20, "a");
    check_event(0, "");
    publish_attempt_over(&p);
    check_event(1, "step 10 is not recorded: rank 1 has not called run.checkpoint() for it");
    start();
    save(20, "b");
    publish_attempt_over(&p);
    check_event(1, "");
}

static void a_path_that_is_missing_is_told(void **state)
{
    (void)state;
    start();
    publish_take(&p, 0, 10, "");
    publish_take(&p, 1, 10, "");
    settle();
    check_event(1, "rank 0 gave no path");
    publish_take(&p, 1, 20, "nobody asks rank 1");
    publish_take(&p, 0, 20, "nothing-here");
    settle();
    check_event(2, "nothing-here': No such file or directory");
    check_step(0, 0);
    assert_true(going.saved == 0 && !attempt.saved);
}

static void those_that_the_disk_cannot_follow_are_left_out(void **state)
{
    (void)state;
    start();
    write_file("same");
    for (int64_t step = 1; step <= PUBLISH_WAITING + 1; step++) {
        publish_take(&p, 0, step, "same");
        publish_take(&p, 1, step, "");
    }
    check_event(1, "step 9 is not recorded: others before it wait for the disk");
    settle();
    check_step(PUBLISH_WAITING, PUBLISH_WAITING);
}

/* The validation since the checkpoint before makes it the best one, or not. */
static void the_best_follows_from_the_validation(void **state)
{
    static const struct {
        int64_t val_step;
        double loss;
        bool best;
    } cases[] = { { 10, 5, true }, { 20, 6, false }, { 20, 1, false }, { 40, 4, true } }; /* the third is older than step 20's */
    json_t *record, *loss;
    int n;

    (void)state;
    start();
    for (int i = 0; i < 4; i++) {
        int64_t step = 10 * (i + 1);

        p.val_step = cases[i].val_step;
        p.val_loss = cases[i].loss;
        p.score = (struct publish_score){ cases[i].val_step, cases[i].loss, true };
        save(step, "same");
        record = newest("checkpoint", &n);
        loss = json_object_get(record, "val_loss");
        assert_int_equal(json_is_true(json_object_get(record, "best")), cases[i].best);
        assert_true(i == 2 ? json_is_null(loss) : json_number_value(loss) == cases[i].loss);
        json_decref(record);
    }
}

static void a_start_goes_on_from_the_newest_that_is_there(void **state)
{
    (void)state;
    start();
    assert_true(program.resume_step == 0 && program.resume[0] == '\0');
    save(10, "a");
    save(20, "b");
    start();
    assert_int_equal(program.resume_step, 20);
    unlink("b");
    start();
    assert_int_equal(program.resume_step, 10);
    assert_int_equal(strcmp(strrchr(program.resume, '/'), "/a"), 0);
    assert_int_equal(saved_newest(), 10);
    save(20, "b"); /* a rewind: the same step counts again */
    check_step(20, 3);
    check_event(0, "");
    unlink("a");
    unlink("b");
    start();
    assert_int_equal(program.resume_step, 0);
    check_event(1, "/b', is gone");
    save(30, "same");
    write_file("same"); /* as a program does that overwrites one file */
    start();
    assert_int_equal(program.resume_step, 0);
    check_event(2, "begins from the start: that of step 30, '");
    check_event(2, "/same', was changed after it was recorded");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test_setup_teardown(all_ranks_have_to_write_it, begin, end),
                                        cmocka_unit_test_setup_teardown(one_that_a_rank_has_passed_is_given_up, begin, end),
                                        cmocka_unit_test_setup_teardown(one_that_a_rank_never_reports_is_told_at_the_end, begin, end),
                                        cmocka_unit_test_setup_teardown(a_path_that_is_missing_is_told, begin, end),
                                        cmocka_unit_test_setup_teardown(those_that_the_disk_cannot_follow_are_left_out, begin, end),
                                        cmocka_unit_test_setup_teardown(the_best_follows_from_the_validation, begin, end),
                                        cmocka_unit_test_setup_teardown(a_start_goes_on_from_the_newest_that_is_there, begin, end) };
    struct err err;
    int rc;

    if (!mkdtemp(temp_path(folder, sizeof folder, "detd-publish-XXXXXX")) || chdir(folder) < 0)
        return 1;
    rc = cmocka_run_group_tests(tests, NULL, NULL);
    while (wipe_folder(folder, 1000, &err) > 0)
        continue;
    return rc;
}

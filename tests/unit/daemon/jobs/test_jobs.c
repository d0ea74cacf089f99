/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/daemon/jobs/test_jobs.c - uses: proto daemon
 * Jobs in memory and in the store: a change that a full disk refuses is taken back in both. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/launch/block.h"
#include "daemon/jobs/after.h"
#include "daemon/jobs/event.h"
#include "daemon/jobs/jobs.h"
#include "daemon/launch/launch.h"
#include "daemon/job/report.h"
#include "daemon/run/slots.h"
#include "daemon/store/store.h"
#include "proto/err.h"
#include "tests/unit/daemon/database.h"
#include "tests/unit/daemon/no_memory.h"

struct fixture {
    char folder[TEMP_MAX];
    uv_loop_t loop;
    uv_timer_t awake; /* the store alone keeps no loop alive */
    struct store *store;
    struct events events;
    struct jobs jobs;
    int64_t id;
    int waiting, refused, schedules, rc; /* rc: of the last answer */
};

static void any_word(void *arg, struct job *j, const char *word, const char *tier)
{
    (void)arg;
    (void)j;
    (void)word;
    (void)tier;
}

static void any_end(void *arg, const struct job *j)
{
    (void)arg;
    (void)j;
}

static void no_word(void *arg, struct job *j, const char *word, const char *tier)
{
    (void)arg;
    (void)j;
    (void)tier;
    fail_msg("word '%s' to a job without a supervisor", word);
}

static void wished(void *arg)
{
    struct fixture *f = arg;

    f->schedules++;
}

static void open_all(struct fixture *f)
{
    struct err err = { 0 };

    if (store_open(f->folder, &f->loop, &f->store, &err) < 0)
        fail_msg("%s", err.msg);
    f->events = (struct events){ .store = f->store, .wanted = nobody_listens };
    f->jobs = (struct jobs){ .store = f->store,
                             .events = &f->events,
                             .folder = f->folder,
                             .hooks = { .word = no_word, .wished = wished, .ended = any_end, .arg = f } };
    assert_int_equal(jobs_load(&f->jobs, &err), 0);
}

static void close_all(struct fixture *f)
{
    jobs_free(&f->jobs);
    store_close(f->store);
    uv_run(&f->loop, UV_RUN_NOWAIT);
}

static void done(void *arg, int rc, int64_t value, const struct err *err)
{
    struct fixture *f = arg;

    (void)err;
    f->waiting--;
    f->refused += rc < 0;
    f->rc = rc;
    if (rc == 0 && f->id == 0)
        f->id = value;
}

static void wait_all(struct fixture *f)
{
    while (f->waiting > 0 || store_backlog(f->store) > 0)
        uv_run(&f->loop, UV_RUN_ONCE);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct job_row row = {
        .state = JOB_QUEUED, .want_tier = -1, .tier = 1, .ranks = 1, .steps = 10, .submitted = 5, .name = "a", .user = "ann"
    };

    assert_non_null(mkdtemp(temp_path(f->folder, sizeof f->folder, "jobs-XXXXXX")));
    uv_loop_init(&f->loop);
    uv_timer_init(&f->loop, &f->awake);
    uv_timer_start(&f->awake, nothing, 5, 5);
    open_all(f);
    f->waiting = 1;
    jobs_submit(&f->jobs, &row, "token", "{}", "", done, f);
    wait_all(f);
    assert_int_equal(f->schedules, 1);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    static const char *const names[] = { "detd.db", "detd.db-wal", "detd.db-shm", "reserve", "1/store", "1/want" };
    struct fixture *f = *state;
    char path[TEMP_MAX + 16];

    disk_full = false;
    close_all(f);
    uv_close((uv_handle_t *)&f->awake, NULL);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    uv_loop_close(&f->loop);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", f->folder, names[i]);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/1", f->folder);
    rmdir(path);
    rmdir(f->folder);
    free(f);
    return 0;
}

static struct job *the_job(struct fixture *f)
{
    struct job *j = jobs_find(&f->jobs, f->id);

    assert_non_null(j);
    return j;
}

/* Checks the job in memory, and in the store as the next daemon reads it. */
static void assert_untouched(struct fixture *f)
{
    for (int i = 0; i < 2; i++) {
        const struct job *j = the_job(f);

        assert_string_equal(job_state_name(j->row.state), "queued");
        assert_int_equal(j->row.want, JOB_WANT_RUN);
        assert_false(j->row.want_checkpoint);
        assert_int_equal(j->row.priority, 0);
        assert_true(j->row.ended == 0);
        if (i == 0) {
            close_all(f);
            open_all(f);
        }
    }
}

static int events_of(const struct fixture *f, const char *text)
{
    char query[96];

    snprintf(query, sizeof query, "SELECT count(*) FROM events WHERE text='%s'", text);
    return atoi(sql_in(f->folder, query));
}

static void one_refused_wish_leaves_no_trace(void **state)
{
    struct fixture *f = *state;
    struct err err;

    fill_disk();
    f->waiting = 1;
    assert_int_equal(jobs_want_priority(&f->jobs, the_job(f), 3, done, f, &err), 0);
    while (f->waiting)
        uv_run(&f->loop, UV_RUN_ONCE);
    disk_full = false;
    wait_all(f);
    assert_int_equal(f->refused, 1);
    assert_untouched(f);
}

/* The answer of the first is given when the second's change is in memory; this change must not stay either. */
static void nor_do_two_at_once(void **state)
{
    struct fixture *f = *state;
    struct err err;

    fill_disk();
    f->waiting = 2;
    assert_int_equal(jobs_want_checkpoint(&f->jobs, the_job(f), false, done, f, &err), 0);
    assert_int_equal(jobs_want_priority(&f->jobs, the_job(f), 3, done, f, &err), 0);
    while (f->waiting)
        uv_run(&f->loop, UV_RUN_ONCE);
    disk_full = false;
    wait_all(f);
    assert_int_equal(f->refused, 2);
    assert_untouched(f);
}

/* A full disk refuses a cancel. Before that is reported, the disk has room and the same cancel is asked again and
 * stored. The job is cancelled and stays so. */
static void what_is_asked_again_is_granted(void **state)
{
    struct fixture *f = *state;
    struct err err;

    f->jobs.hooks.word = any_word;
    fill_disk();
    f->waiting = 2;
    assert_int_equal(jobs_command(&f->jobs, the_job(f), JOB_EV_CANCEL, done, f, &err), 0);
    while (store_backlog(f->store))
        sched_yield();
    disk_full = false;
    assert_int_equal(jobs_command(&f->jobs, the_job(f), JOB_EV_CANCEL, done, f, &err), 0);
    wait_all(f);
    assert_int_equal(f->refused, 0);
    assert_false(jobs_keeps(the_job(f)));
    for (int i = 0; i < 2; i++) {
        assert_string_equal(job_state_name(the_job(f)->row.state), "cancelled");
        assert_true(the_job(f)->row.ended > 0);
        close_all(f);
        open_all(f);
    }
}

/* The folder of a job that was started: it names its owner, and has the block for a note. */
static void begin_folder(struct fixture *f)
{
    char path[2 * TEMP_MAX];
    struct err err;
    FILE *file;

    snprintf(path, sizeof path, "%s/%lld", f->folder, (long long)f->id);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/%lld/want", f->folder, (long long)f->id);
    assert_int_equal(block_make(path, &err), 0);
    snprintf(path, sizeof path, "%s/%lld/store", f->folder, (long long)f->id);
    file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "%s\n%.17g\n", store_id(f->store), the_job(f)->row.submitted);
    fclose(file);
}

static enum job_want noted(struct fixture *f)
{
    return launch_noted_want(f->folder, &the_job(f)->row, store_id(f->store));
}

static int command(struct fixture *f, enum job_event event)
{
    struct err err;

    f->waiting = 1;
    assert_int_equal(jobs_command(&f->jobs, the_job(f), event, done, f, &err), 0);
    while (f->waiting)
        uv_run(&f->loop, UV_RUN_ONCE);
    return f->rc;
}

/* detd ends on the full disk. The next one knows the pause, stores it when there is room, and forgets the note, so that
 * a resume after that stays. */
static void a_pause_acts_on_a_full_disk(void **state)
{
    struct fixture *f = *state;

    f->jobs.hooks.word = any_word;
    begin_folder(f);
    fill_disk();
    for (int i = 0; i < 2; i++)
        assert_int_equal(command(f, JOB_EV_PAUSE), JOBS_NOTED);
    assert_int_equal(command(f, JOB_EV_RESUME), -ENOSPC);
    assert_string_equal(job_state_name(the_job(f)->row.state), "paused");
    assert_string_equal(sql_in(f->folder, "SELECT state FROM jobs"), "queued");
    close_all(f);
    disk_full = false; /* the tick stores it */
    open_all(f);
    f->jobs.hooks.word = any_word;
    assert_string_equal(job_state_name(the_job(f)->row.state), "paused");
    assert_string_equal(sql_in(f->folder, "SELECT state FROM jobs"), "queued");
    assert_int_equal(noted(f), JOB_WANT_PAUSE);
    jobs_save_again(&f->jobs, the_job(f));
    while (jobs_keeps(the_job(f)))
        uv_run(&f->loop, UV_RUN_ONCE);
    assert_string_equal(sql_in(f->folder, "SELECT state FROM jobs"), "paused");
    assert_int_equal(noted(f), JOB_WANT_RUN);
    fill_disk();
    assert_int_equal(command(f, JOB_EV_PAUSE), 0); /* it holds already */
    assert_int_equal(noted(f), JOB_WANT_RUN);
    disk_full = false;
    assert_int_equal(command(f, JOB_EV_RESUME), 0);
}

/* The newer wish holds, now and when the disk has room. */
static void a_cancel_replaces_the_note_of_a_pause(void **state)
{
    struct fixture *f = *state;

    f->jobs.hooks.word = any_word;
    begin_folder(f);
    fill_disk();
    assert_int_equal(command(f, JOB_EV_PAUSE), JOBS_NOTED);
    assert_int_equal(command(f, JOB_EV_CANCEL), JOBS_NOTED);
    assert_int_equal(noted(f), JOB_WANT_CANCEL);
    disk_full = false;
    while (jobs_keeps(the_job(f)))
        uv_run(&f->loop, UV_RUN_ONCE);
    assert_string_equal(sql_in(f->folder, "SELECT state FROM jobs"), "cancelled");
    assert_int_equal(noted(f), JOB_WANT_RUN);
}

/* Another job's folder, left by a database that gave the number before, is no place for a note. */
static void without_a_block_a_wish_is_only_remembered(void **state)
{
    struct fixture *f = *state;

    f->jobs.hooks.word = any_word;
    fill_disk();
    assert_int_equal(command(f, JOB_EV_PAUSE), JOBS_REMEMBERED);
    begin_folder(f);
    the_job(f)->row.submitted++;
    assert_int_equal(command(f, JOB_EV_CANCEL), JOBS_REMEMBERED);
    the_job(f)->row.submitted--;
    close_all(f);
    disk_full = false;
    open_all(f);
    assert_string_equal(job_state_name(the_job(f)->row.state), "queued");
}

/* An accepted job is also in memory, even when memory is scarce: otherwise no part of detd would start it. */
static void what_is_accepted_needs_no_memory(void **state)
{
    struct fixture *f = *state;
    enum { MORE = 70 }; /* than there were places */
    struct job_row row = the_job(f)->row;
    int64_t first = f->id;
    char token[16];

    NEEDS_ALLOCATOR();
    f->id = row.id = 0;
    f->waiting = MORE + 1;
    for (int i = 0; i < MORE; i++) {
        snprintf(token, sizeof token, "another %d", i);
        jobs_submit(&f->jobs, &row, token, "{}", "", done, f);
    }
    allocations_left = 0;
    jobs_submit(&f->jobs, &row, "refused", "{}", "", done, f);
    wait_all(f);
    allocations_left = -1;
    assert_int_equal(f->refused, 1);
    assert_int_equal(f->jobs.count, 1 + MORE);
    for (int i = 0; i <= MORE; i++)
        assert_non_null(jobs_find(&f->jobs, first + i));
    assert_int_equal(f->jobs.coming, 0);
}

static void a_row_without_memory_is_stored_later(void **state)
{
    struct fixture *f = *state;
    struct job *j = the_job(f);

    NEEDS_ALLOCATOR();
    job_apply(&j->row, JOB_EV_CANCEL, "", 5, NULL);
    allocations_left = 0;
    jobs_save(&f->jobs, j);
    jobs_save_again(&f->jobs, j);
    allocations_left = -1;
    assert_true(j->unsaved);
    jobs_save_again(&f->jobs, j);
    assert_false(j->unsaved);
    wait_all(f);
    close_all(f);
    open_all(f);
    assert_string_equal(job_state_name(the_job(f)->row.state), "cancelled");
}

static void is_told(struct fixture *f, const struct job *j, const char *words)
{
    json_t *all = jobs_wishes(&f->jobs, j);
    char *text = json_dumps(all, JSON_COMPACT);

    assert_string_equal(text, words);
    free(text);
    json_decref(all);
}

/* A supervisor that comes back, or that replaces a supervisor that died after its order. Only a user's own pause may
 * take any time. */
static void who_is_sent_away_has_a_deadline(void **state)
{
    struct fixture *f = *state;
    struct job *j = the_job(f);

    f->jobs.leave_s = 7;
    is_told(f, j, "[]");
    j->off_gpu = true;
    is_told(f, j, "[{\"word\":\"pause\",\"deadline\":7}]");
    j->off_gpu = false;
    j->yields_to = 9;
    is_told(f, j, "[{\"word\":\"pause\",\"deadline\":7}]");
    j->yields_to = 0;
    j->row.want = JOB_WANT_PAUSE;
    j->row.want_tier = 2;
    is_told(f, j, "[{\"word\":\"pause\"},{\"word\":\"tier\",\"tier\":\"world\"}]");
    j->row.want = JOB_WANT_CANCEL;
    j->row.want_tier = -1;
    j->yields_to = 9;
    is_told(f, j, "[{\"word\":\"cancel\"}]");
}

/* A cancel that a full disk refuses: no supervisor gets it, and the job keeps its slots. */
static void a_wish_counts_when_it_is_on_disk(void **state)
{
    struct fixture *f = *state;
    struct job *j = the_job(f);
    struct err err;

    f->jobs.hooks.word = any_word;
    j->row.state = JOB_RUNNING;
    j->life.phase = LIFE_WAITING;
    j->life.drains = 1;
    f->waiting = 2;
    assert_int_equal(jobs_want_checkpoint(&f->jobs, j, false, done, f, &err), 0);
    assert_int_equal(jobs_command(&f->jobs, j, JOB_EV_CANCEL, done, f, &err), 0);
    assert_int_equal(j->row.want, JOB_WANT_CANCEL);
    assert_int_equal(jobs_sure(j)->want, JOB_WANT_RUN);
    assert_true(slots_are_held(j));
    is_told(f, j, "[]");
    wait_all(f);
    assert_int_equal(jobs_sure(j)->want, JOB_WANT_CANCEL);
    assert_false(slots_are_held(j));
    is_told(f, j, "[{\"word\":\"cancel\"},{\"word\":\"checkpoint\"}]");
}

/* It is refused while an earlier wish is being written to disk. It removes neither that wish nor later ones from the
 * list. */
static void a_wish_without_memory_is_refused_alone(void **state)
{
    struct fixture *f = *state;
    struct job *j = the_job(f);
    struct err err;

    NEEDS_ALLOCATOR();
    f->jobs.hooks.word = any_word;
    f->waiting = 2;
    assert_int_equal(jobs_command(&f->jobs, j, JOB_EV_PAUSE, done, f, &err), 0);
    allocations_left = 1; /* of the wish itself */
    assert_int_equal(jobs_command(&f->jobs, j, JOB_EV_RESUME, done, f, &err), 0);
    allocations_left = -1;
    assert_int_equal(f->refused, 1);
    assert_string_equal(job_state_name(j->row.state), "paused");
    wait_all(f);
    assert_null(j->wishes);
    f->waiting = 1;
    assert_int_equal(jobs_want_tier(&f->jobs, j, 2, done, f, &err), 0);
    wait_all(f);
    assert_null(j->wishes);
    assert_int_equal(f->refused, 1);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(job_state_name(the_job(f)->row.state), "paused");
        assert_int_equal(the_job(f)->row.tier, 2);
        close_all(f);
        open_all(f);
    }
}

/* The answer to the last request is given while the store closes, and adds an event of its own. */
static void what_the_last_answers_add_is_written(void **state)
{
    struct job_row row = { .state = JOB_QUEUED, .want_tier = -1, .tier = 1, .ranks = 1, .steps = 10, .name = "b", .user = "ann" };
    struct fixture *f = *state;

    assert_int_equal(events_of(f, "queued"), 1);
    f->waiting = 1;
    jobs_submit(&f->jobs, &row, "other", "{}", "", done, f);
    store_close(f->store);
    jobs_free(&f->jobs);
    uv_run(&f->loop, UV_RUN_NOWAIT);
    assert_int_equal(f->waiting, 0);
    assert_int_equal(events_of(f, "queued"), 2);
    open_all(f);
}

/* The newest finished jobs stay, and so does a job that another job waits for. */
static void who_is_waited_for_is_not_forgotten(void **state)
{
    struct jobs jobs = { 0 };
    struct job_row row = { .state = JOB_COMPLETED };

    (void)state;
    for (row.id = 1; row.id <= JOBS_RECENT + 20; row.id++)
        assert_non_null(jobs_add(&jobs, &row));
    row.state = JOB_PAUSED;
    row.after = 3;
    assert_non_null(jobs_add(&jobs, &row));
    jobs_trim(&jobs);
    assert_non_null(jobs_find(&jobs, 3));
    assert_null(jobs_find(&jobs, 2));
    assert_null(jobs_find(&jobs, 4));
    jobs_find(&jobs, row.id)->row.state = JOB_CANCELLED;
    jobs_trim(&jobs);
    assert_null(jobs_find(&jobs, 3));
    jobs_free(&jobs);
}

/* An end that may still be taken back does not count. */
static void an_end_counts_when_it_is_on_disk(void **state)
{
    struct jobs jobs = { 0 };
    struct job_row row = { .id = 1, .state = JOB_RUNNING };
    struct job *first = jobs_add(&jobs, &row), *second;
    char wish[1]; /* is there */
    const struct job *other;

    (void)state;
    row = (struct job_row){ .id = 2, .state = JOB_QUEUED, .after = 1, .after_ok = true };
    second = jobs_add(&jobs, &row);
    assert_true(first && second);
    assert_int_equal(after_look(&jobs, second, &other), AFTER_WAITS);
    assert_ptr_equal(other, first);
    first->row.state = JOB_COMPLETED;
    first->hidden_until = 7;
    assert_int_equal(after_look(&jobs, second, &other), AFTER_WAITS);
    first->hidden_until = 0;
    assert_int_equal(after_look(&jobs, second, &other), AFTER_CLEAR);
    first->row.state = JOB_CANCELLED;
    first->wishes = (struct wish *)wish;
    assert_int_equal(after_look(&jobs, second, &other), AFTER_WAITS);
    first->wishes = NULL;
    first->unsaved = true;
    assert_int_equal(after_look(&jobs, second, &other), AFTER_WAITS);
    first->unsaved = false;
    assert_int_equal(after_look(&jobs, second, &other), AFTER_NEVER);
    second->row.after_ok = false;
    assert_int_equal(after_look(&jobs, second, &other), AFTER_CLEAR);
    jobs_free(&jobs);
}

/* Its processes leave between the reading of its row and the storing of it. */
static void what_was_read_before_is_not_put_back(void **state)
{
    struct fixture *f = *state;
    struct job *j = the_job(f);
    struct job_row read;

    j->row.state = JOB_COMPLETED;
    snprintf(j->row.nonce, sizeof j->row.nonce, "of those that ran it");
    jobs_save(&f->jobs, j);
    wait_all(f);
    read = j->row;
    j->life.refusals = j->life.unreachable = j->life.mute = 7; /* of starts before it ended */
    j->life.not_before = 1e300;
    snprintf(j->told, sizeof j->told, "why it could not start");
    snprintf(j->row.gpus, sizeof j->row.gpus, "GPU-held");
    read.state = JOB_QUEUED;
    read.steps = 20;
    f->waiting = 1;
    jobs_reopen(&f->jobs, &read, "{}", NULL, done, f);
    j->row.nonce[0] = '\0';
    snprintf(j->row.note, sizeof j->row.note, "new");
    wait_all(f);
    assert_int_equal(f->refused, 0);
    assert_true(the_job(f)->row.steps == 20);
    assert_string_equal(the_job(f)->row.nonce, "");
    assert_string_equal(the_job(f)->row.gpus, "GPU-held"); /* till they have left */
    assert_string_equal(the_job(f)->row.note, "new");
    assert_int_equal(the_job(f)->life.refusals + the_job(f)->life.unreachable + the_job(f)->life.mute,
                     0); /* it has all tries again, without a delay */
    assert_true(the_job(f)->life.not_before == 0 && !the_job(f)->told[0]);
}

static void say(struct fixture *f, struct job *j, const char *record)
{
    json_t *rec = json_loads(record, 0, NULL);
    struct report *rep;
    struct err err;

    assert_int_equal(report_parse(rec, j->row.id, (int64_t)j->row.last_seq + 1, 1, &rep, &err), 0);
    jobs_report(&f->jobs, j, rep);
    free(rep);
    json_decref(rec);
}

/* The refusal of the earlier wish may be on its way when the next wish comes. A refusal without a tier comes from an
 * older detd-job. */
static void a_refused_tier_takes_no_newer_wish_with_it(void **state)
{
    struct fixture *f = *state;
    struct job *j = the_job(f);

    j->row.state = JOB_RUNNING;
    j->row.want_tier = 2;
    say(f, j, "{\"type\":\"event\",\"level\":\"warning\",\"kind\":\"tier\",\"text\":\"no\",\"tier\":\"off\"}");
    assert_int_equal(j->row.want_tier, 2);
    say(f, j, "{\"type\":\"event\",\"level\":\"warning\",\"kind\":\"tier\",\"text\":\"no\",\"tier\":\"world\"}");
    assert_int_equal(j->row.want_tier, -1);
    j->row.want_tier = 2;
    say(f, j, "{\"type\":\"event\",\"level\":\"warning\",\"kind\":\"tier\",\"text\":\"no\"}");
    assert_int_equal(j->row.want_tier, -1);
}

static double best_of(const struct job *j, long long *ret_step)
{
    const json_t *best = json_object_get(j->losses, "best");

    *ret_step = json_integer_value(json_object_get(best, "step"));
    return json_number_value(json_object_get(best, "value"));
}

/* As store_losses() does for the same reports (test_store.c). */
static void the_first_of_the_best_validations_stays(void **state)
{
    struct fixture *f = *state;
    struct job *j = the_job(f);
    long long step;

    say(f, j, "{\"type\":\"eval\",\"step\":2,\"time\":1,\"metrics\":{\"abs_rel\":0.1,\"AP50\":0.9}}");
    say(f, j, "{\"type\":\"eval\",\"step\":4,\"time\":1,\"metrics\":{\"abs_rel\":0.05,\"AP\":null}}");
    assert_true(best_of(j, &step) == 0.05 && step == 4);
    say(f, j, "{\"type\":\"eval\",\"step\":6,\"time\":1,\"metrics\":{\"AP\":0.25,\"abs_rel\":0.01}}");
    say(f, j, "{\"type\":\"eval\",\"step\":8,\"time\":1,\"metrics\":{\"AP\":0.5}}");
    say(f, j, "{\"type\":\"eval\",\"step\":9,\"time\":1,\"metrics\":{\"AP\":0.5}}");
    assert_true(best_of(j, &step) == 0.5 && step == 8);
    assert_non_null(strstr(job_json(&f->jobs, j, NULL), "\"best\":{\"metric\":\"AP\",\"value\":0.5,\"step\":8}"));
    jobs_reload_losses(&f->jobs, j);
    assert_null(json_object_get(j->losses, "best"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_end_counts_when_it_is_on_disk),
        cmocka_unit_test(who_is_waited_for_is_not_forgotten),
        cmocka_unit_test_setup_teardown(what_was_read_before_is_not_put_back, setup, teardown),
        cmocka_unit_test_setup_teardown(one_refused_wish_leaves_no_trace, setup, teardown),
        cmocka_unit_test_setup_teardown(nor_do_two_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_asked_again_is_granted, setup, teardown),
        cmocka_unit_test_setup_teardown(a_pause_acts_on_a_full_disk, setup, teardown),
        cmocka_unit_test_setup_teardown(a_cancel_replaces_the_note_of_a_pause, setup, teardown),
        cmocka_unit_test_setup_teardown(without_a_block_a_wish_is_only_remembered, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_accepted_needs_no_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(a_row_without_memory_is_stored_later, setup, teardown),
        cmocka_unit_test_setup_teardown(who_is_sent_away_has_a_deadline, setup, teardown),
        cmocka_unit_test_setup_teardown(a_wish_counts_when_it_is_on_disk, setup, teardown),
        cmocka_unit_test_setup_teardown(a_wish_without_memory_is_refused_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(a_refused_tier_takes_no_newer_wish_with_it, setup, teardown),
        cmocka_unit_test_setup_teardown(the_first_of_the_best_validations_stays, setup, teardown),
        cmocka_unit_test_setup_teardown(what_the_last_answers_add_is_written, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

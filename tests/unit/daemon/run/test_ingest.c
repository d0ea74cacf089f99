/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/daemon/run/test_ingest.c - uses: proto daemon
 * Reports of supervisors are stored or not acked, when memory runs out and when the database is given up. Also: their
 * limits. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include <jansson.h>

#include "daemon/base/clock.h"
#include "daemon/jobs/event.h"
#include "daemon/run/ingest.h"
#include "daemon/jobs/jobs.h"
#include "daemon/store/store.h"
#include "daemon/socket/wire.h"
#include "proto/err.h"
#include "tests/unit/daemon/database.h"
#include "tests/unit/daemon/no_memory.h"

enum { PATIENCE_S = 60 };

struct fixture {
    char folder[TEMP_MAX], line[512];
    size_t len; /* bytes of the next line that the supervisor has received */
    int fd;     /* of the supervisor, -1: hung up on */
    uv_loop_t loop;
    uv_timer_t awake; /* the store alone keeps no loop alive */
    struct wires wires;
    struct store *store;
    struct events events;
    struct jobs jobs;
    struct ingest *ingest;
    int64_t id;
    int ended;
    bool submitted;
};

static void no_word(void *arg, struct job *j, const char *word, const char *tier)
{
    (void)arg;
    (void)j;
    (void)tier;
    fail_msg("word '%s' that nobody has given", word);
}

static void any_wish(void *arg)
{
    (void)arg;
}

static void ended(void *arg, const struct job *j)
{
    struct fixture *f = arg;

    (void)j;
    f->ended++;
}

static void any_connection(void *arg, struct job *j)
{
    (void)arg;
    (void)j;
}

static void submitted(void *arg, int rc, int64_t value, const struct err *err)
{
    struct fixture *f = arg;

    (void)err;
    assert_int_equal(rc, 0);
    f->id = value;
    f->submitted = true;
}

static struct job *the_job(struct fixture *f)
{
    struct job *j = jobs_find(&f->jobs, f->id);

    assert_non_null(j);
    return j;
}

static void open_store(struct fixture *f)
{
    struct err err = { 0 };

    assert_int_equal(store_open(f->folder, &f->loop, &f->store, &err), 0);
    f->events = (struct events){ .store = f->store, .wanted = nobody_listens };
    f->jobs = (struct jobs){ .store = f->store,
                             .events = &f->events,
                             .folder = f->folder,
                             .hooks = { .word = no_word, .wished = any_wish, .ended = ended, .arg = f } };
    assert_int_equal(jobs_load(&f->jobs, &err), 0);
}

static void open_socket(struct fixture *f)
{
    struct err err = { 0 };

    assert_int_equal(ingest_open(&(struct ingest_config){ .loop = &f->loop,
                                                          .wires = &f->wires,
                                                          .store = f->store,
                                                          .jobs = &f->jobs,
                                                          .events = &f->events,
                                                          .state = f->folder,
                                                          .connected = any_connection,
                                                          .gone = any_connection,
                                                          .arg = f },
                                 &f->ingest, &err),
                     0);
}

static int setup(void **state)
{
    struct job_row row = { .state = JOB_QUEUED, .want_tier = -1, .tier = 1, .ranks = 1, .steps = 1000, .name = "a", .user = "ann" };
    struct fixture *f = calloc(1, sizeof *f);
    struct err err = { 0 };
    struct job *j;

    assert_non_null(mkdtemp(temp_path(f->folder, sizeof f->folder, "ingest-XXXXXX")));
    assert_int_equal(chdir(f->folder), 0);
    f->fd = -1;
    uv_loop_init(&f->loop);
    uv_timer_init(&f->loop, &f->awake);
    uv_timer_start(&f->awake, nothing, 5, 5);
    assert_int_equal(wires_open(&f->wires, &f->loop, &err), 0);
    open_store(f);
    jobs_submit(&f->jobs, &row, "token", "{}", "", submitted, f);
    while (!f->submitted)
        uv_run(&f->loop, UV_RUN_ONCE);
    j = the_job(f);
    j->row.state = JOB_RUNNING;
    j->row.attempt = 1;
    strcpy(j->row.nonce, "n1");
    store_save(f->store, &j->row, NULL, NULL);
    open_socket(f);
    *state = f;
    return 0;
}

static void close_store(struct fixture *f)
{
    ingest_close(f->ingest);
    store_close(f->store);
    f->store = NULL;
    uv_run(&f->loop, UV_RUN_NOWAIT);
}

static int teardown(void **state)
{
    static const char *const names[] = { "detd.db", "detd.db-wal", "detd.db-shm", "reserve", "sup.sock" };
    struct fixture *f = *state;

    disk_full = false;
    if (f->fd >= 0)
        close(f->fd);
    close_store(f);
    uv_close((uv_handle_t *)&f->wires.prepare, NULL);
    uv_close((uv_handle_t *)&f->wires.idle, NULL);
    uv_close((uv_handle_t *)&f->awake, NULL);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    ingest_free(f->ingest);
    jobs_free(&f->jobs);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(names[i]);
    assert_int_equal(chdir("/"), 0);
    rmdir(f->folder);
    free(f);
    return 0;
}

/* ---- a supervisor ---- */

static void say(struct fixture *f, const char *line)
{
    assert_int_equal(send(f->fd, line, strlen(line), MSG_NOSIGNAL), strlen(line));
}

/* Turns the loop once. Returns the next line that the supervisor has received. Returns NULL if there is no line yet, or
 * if detd hung up. */
static const char *hear(struct fixture *f)
{
    uv_run(&f->loop, UV_RUN_ONCE);
    while (f->fd >= 0) {
        ssize_t n = recv(f->fd, f->line + f->len, 1, MSG_DONTWAIT);

        if (n < 0 && errno == EAGAIN)
            return NULL;
        if (n <= 0) {
            close(f->fd);
            f->fd = -1;
            return NULL;
        }
        f->len += (size_t)n;
        assert_true(f->len < sizeof f->line);
        if (f->line[f->len - 1] != '\n')
            continue;
        f->line[f->len] = '\0';
        f->len = 0;
        return f->line;
    }
    return NULL;
}

static void assert_patient(time_t began)
{
    if (time(NULL) - began > PATIENCE_S)
        fail_msg("detd does not get on");
}

/* Connects and says hello. */
static void come(struct fixture *f)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX, .sun_path = "sup.sock" };
    char hello[128];

    f->len = 0;
    f->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(f->fd, (struct sockaddr *)&addr, sizeof addr), 0);
    snprintf(hello, sizeof hello, "{\"type\":\"hello\",\"protocol\":1,\"job\":%lld,\"attempt\":1,\"nonce\":\"n1\",\"pid\":1}\n",
             (long long)f->id);
    say(f, hello);
}

/* The same. Returns the number of the last report that detd has. */
static int64_t greet(struct fixture *f)
{
    time_t began = time(NULL);
    const char *heard;
    json_t *welcome;
    int64_t last;

    come(f);
    while (!(heard = hear(f)))
        assert_patient(began);
    welcome = json_loads(heard, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(welcome, "type")), "welcome");
    last = json_integer_value(json_object_get(welcome, "last_seq"));
    json_decref(welcome);
    return last;
}

static void report(struct fixture *f, int64_t seq, const char *rec)
{
    char line[512];

    snprintf(line, sizeof line, "{\"type\":\"report\",\"seq\":%lld,\"rec\":{%s}}\n", (long long)seq, rec);
    say(f, line);
}

static void report_loss(struct fixture *f, int64_t seq)
{
    char rec[256];

    snprintf(rec, sizeof rec,
             "\"type\":\"loss\",\"split\":\"train\",\"step\":%lld,\"epoch\":1,\"tier\":\"rerun\",\"time\":5,\"images_per_s\":1,"
             "\"terms\":{\"total\":[%lld,1]}",
             (long long)seq, (long long)seq);
    report(f, seq, rec);
}

static void report_attempt(struct fixture *f, int64_t seq, int attempt, int64_t step)
{
    char rec[128];

    snprintf(rec, sizeof rec, "\"type\":\"attempt\",\"attempt\":%d,\"resume_step\":%lld,\"time\":5", attempt, (long long)step);
    report(f, seq, rec);
}

/* Sends reports until detd has stored all up to `last`, or has hung up. */
static void report_to(struct fixture *f, int64_t first, int64_t last)
{
    time_t began = time(NULL);

    for (int64_t seq = first; f->fd >= 0 && seq <= last; seq++)
        report_loss(f, seq);
    while (f->fd >= 0 && the_job(f)->row.last_seq < last) {
        hear(f);
        assert_patient(began);
    }
}

static int64_t stored(const struct fixture *f, const char *query)
{
    return atoll(sql_in(f->folder, query));
}

/* ---- tests ---- */

/* Any allocation on the way of a report may fail: then the report is stored, or detd hangs up and the supervisor sends
 * it again. No report is lost or stored twice. */
static void no_report_is_lost_without_memory(void **state)
{
    struct fixture *f = *state;
    int64_t seq = 0, last = greet(f);
    time_t began = time(NULL);
    int hung_up = 0, left = -1;

    NEEDS_ALLOCATOR();
    one_fails = true;
    for (int n = 0; left < 0; n++) {
        seq++;
        allocations_left = n;
        report_to(f, last + 1, seq);
        left = allocations_left;
        allocations_left = -1;
        hung_up += f->fd < 0;
        last = f->fd < 0 ? greet(f) : seq;
        report_to(f, last + 1, seq);
        last = seq;
    }
    assert_true(hung_up > 5);
    while (the_job(f)->committed < seq) {
        hear(f);
        assert_patient(began);
    }
    assert_int_equal(stored(f, "SELECT count(*) FROM loss"), seq);
    assert_int_equal(stored(f, "SELECT count(DISTINCT step) FROM loss WHERE step = value"), seq);
    assert_int_equal(stored(f, "SELECT last_seq FROM jobs"), seq);
}

/* detd stops while the disk is full: an end that could not be written is not reported, and its spool must stay. */
static void what_is_given_up_is_not_committed(void **state)
{
    static const char end[] =
        "{\"type\":\"report\",\"seq\":2,\"rec\":{\"type\":\"end\",\"attempt\":1,\"outcome\":\"completed\",\"reason\":\"\","
        "\"class\":\"\",\"time\":5,\"cpu_seconds\":1,\"max_rss\":1}}\n";
    struct fixture *f = *state;
    time_t began = time(NULL);
    const struct job *j = the_job(f);

    greet(f);
    report_to(f, 1, 1);
    while (j->committed < 1) {
        hear(f);
        assert_patient(began);
    }
    fill_disk();
    say(f, end);
    while (j->row.last_seq < 2) {
        hear(f);
        assert_patient(began);
    }
    close_store(f);
    assert_int_equal(j->committed, 1);
    assert_int_equal(f->ended, 0);
    disk_full = false;
    assert_int_equal(stored(f, "SELECT last_seq FROM jobs"), 1);
}

/* Waits until detd has stored all reports up to `last`. */
static void await_stored(struct fixture *f, int64_t last)
{
    time_t began = time(NULL);

    while (the_job(f)->committed < last) {
        hear(f);
        assert_patient(began);
    }
}

/* A job reports more than detd keeps of a job: the excess is dropped, and an event says so once. Its end is stored, and
 * a supervisor that asks anew receives how far detd is. */
static void what_a_job_reports_is_bounded(void **state)
{
    static const char event[] =
        "{\"type\":\"report\",\"seq\":1,\"rec\":{\"type\":\"event\",\"level\":\"info\",\"kind\":\"k\",\"text\":\"first\"}}\n";
    static const char late[] =
        "{\"type\":\"report\",\"seq\":31,\"rec\":{\"type\":\"event\",\"level\":\"error\",\"kind\":\"k\",\"text\":\"late\"}}\n";
    static const char end[] =
        "{\"type\":\"report\",\"seq\":32,\"rec\":{\"type\":\"end\",\"attempt\":1,\"outcome\":\"completed\",\"reason\":\"\","
        "\"class\":\"\",\"time\":5,\"cpu_seconds\":1,\"max_rss\":1}}\n";
    struct fixture *f = *state;

    f->jobs.report_max = 1000;
    greet(f);
    say(f, event);
    report_to(f, 2, 30);
    say(f, late);
    say(f, end);
    await_stored(f, 32);
    assert_int_equal(stored(f, "SELECT count(*) BETWEEN 8 AND 15 AND max(step) = count(*) + 1 FROM loss"), 1);
    assert_int_equal(stored(f, "SELECT count(*) FROM events WHERE kind = 'reports' AND level = 'warning'"), 1);
    assert_int_equal(stored(f, "SELECT count(*) FROM events WHERE text = 'first'"), 1);
    assert_int_equal(stored(f, "SELECT count(*) FROM events WHERE text = 'late'"), 0);
    assert_int_equal(stored(f, "SELECT count(*) FROM events WHERE kind = 'end'"), 1);
    assert_int_equal(stored(f, "SELECT state = 'completed' AND last_seq = 32 AND reported > 29 * 64 FROM jobs"), 1);
}

/* Each record has new names. The table in memory has room for the names of a single record. */
static void names_of_losses_are_bounded(void **state)
{
    struct fixture *f = *state;
    char text[16384];

    greet(f);
    for (int seq = 1; seq <= 3; seq++) {
        size_t n =
            (size_t)snprintf(text, sizeof text,
                             "{\"type\":\"report\",\"seq\":%d,\"rec\":{\"type\":\"loss\",\"split\":\"train\",\"step\":%d,\"epoch\":1,"
                             "\"tier\":\"rerun\",\"time\":5,\"images_per_s\":1,\"terms\":{\"total\":[%d,1]",
                             seq, seq, seq);

        for (int i = 1; i < 256; i++)
            n += (size_t)snprintf(text + n, sizeof text - n, ",\"%d-%d\":[1,1]", seq, i);
        snprintf(text + n, sizeof text - n, "}}}\n");
        say(f, text);
    }
    await_stored(f, 3);
    assert_int_equal(json_object_size(json_object_get(the_job(f)->losses, "train")), 256);
    assert_int_equal(json_real_value(json_object_get(json_object_get(the_job(f)->losses, "train"), "total")), 3);
}

/* Repeated hellos for unknown jobs are logged from time to time, even with another job number each time. */
static void strangers_are_told_of_now_and_then(void **state)
{
    struct fixture *f = *state;
    char hello[128];

    for (int i = 1; i <= 20; i++) {
        struct sockaddr_un addr = { .sun_family = AF_UNIX, .sun_path = "sup.sock" };
        time_t began = time(NULL);

        f->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(f->fd, (struct sockaddr *)&addr, sizeof addr), 0);
        snprintf(hello, sizeof hello, "{\"type\":\"hello\",\"protocol\":1,\"job\":%d,\"attempt\":1,\"nonce\":\"x\",\"pid\":1}\n", 1000 + i);
        say(f, hello);
        while (f->fd >= 0) {
            hear(f);
            assert_patient(began);
        }
    }
    greet(f);
    report_to(f, 1, 1);
    await_stored(f, 1);
    assert_in_range(stored(f, "SELECT count(*) FROM events WHERE kind = 'supervisor'"), 1, 19);
}

static void times_are_not_believed(void **state)
{
    struct fixture *f = *state;
    double now = (double)time(NULL);
    struct job *j = the_job(f);

    j->row.submitted = now - 100;
    greet(f);
    report(f, 1, "\"type\":\"event\",\"level\":\"info\",\"kind\":\"k\",\"text\":\"t\",\"time\":-7e9");
    report(f, 2, "\"type\":\"event\",\"level\":\"info\",\"kind\":\"k\",\"text\":\"t\",\"time\":1e12");
    report(f, 3, "\"type\":\"end\",\"attempt\":1,\"outcome\":\"completed\",\"reason\":\"\",\"class\":\"\",\"time\":1e12");
    await_stored(f, 3);
    assert_true(j->row.ended >= now && j->row.ended < now + PATIENCE_S);
    close_store(f);
    assert_int_equal(stored(f, "SELECT CAST(min(time) AS INTEGER) FROM events WHERE kind='k'"), (int64_t)now - 100);
    assert_true(stored(f, "SELECT CAST(max(time) AS INTEGER) FROM events WHERE kind='k'") < (int64_t)now + PATIENCE_S);
    assert_true(stored(f, "SELECT CAST(ended AS INTEGER) FROM jobs") < (int64_t)now + PATIENCE_S);
}

/* Numbers of attempts rise, and are at most a million; any other record of an attempt is left out. */
static void numbers_of_attempts_rise(void **state)
{
    static const struct {
        int attempt, is_now;
    } rows[] = { { 2, 2 }, { 2147483647, 2 }, { 1000001, 2 }, { 2, 2 }, { 1, 2 }, { 7, 7 }, { 6, 7 }, { 1000000, 1000000 } };
    struct fixture *f = *state;
    int64_t seq = 0;

    greet(f);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        report_attempt(f, ++seq, rows[i].attempt, 0);
        await_stored(f, seq);
        assert_int_equal(the_job(f)->row.attempt, rows[i].is_now);
    }
    report(f, ++seq, "\"type\":\"end\",\"attempt\":3,\"outcome\":\"paused\",\"reason\":\"\",\"class\":\"\",\"time\":5");
    await_stored(f, seq);
    assert_int_equal(the_job(f)->row.attempt, 1000000);
    close_store(f);
    assert_int_equal(stored(f, "SELECT count(*) * 10000000 + max(attempt) FROM attempts"), 31000000);
    assert_int_equal(stored(f, "SELECT count(*) FROM events WHERE text LIKE '%is left out: %attempt%'"), 5);
}

static void await_hang_up(struct fixture *f)
{
    time_t began = time(NULL);

    while (f->fd >= 0) {
        hear(f);
        assert_patient(began);
    }
}

/* A hello during a rewind is too early. The supervisor is there all the same, however long the rewind takes. A deadline
 * for other users stays. */
static void an_early_hello_is_in_time(void **state)
{
    struct fixture *f = *state;
    struct job *j = the_job(f);

    j->life = (struct life){ .phase = LIFE_STARTED, .deadline = 1 };
    j->rewinding = true;
    assert_int_equal(life_clock(&j->life, mono_s()), LIFE_FACT_OVERDUE);
    come(f);
    await_hang_up(f);
    assert_int_equal(life_clock(&j->life, mono_s()), LIFE_FACT_COUNT);
    j->life.obey_by = 1;
    assert_int_equal(life_clock(&j->life, mono_s()), LIFE_FACT_OVERDUE);
    j->rewinding = false;
    greet(f);
}

/* The row in memory is that of the earlier end: stored after the new one, it would end the job again. */
static void a_job_that_is_queued_again_takes_no_reports(void **state)
{
    struct fixture *f = *state;
    struct job *j = the_job(f);

    greet(f);
    j->reopening = true;
    report_loss(f, 1);
    await_hang_up(f);
    come(f);
    await_hang_up(f);
    assert_int_equal(j->row.last_seq, 0);
    j->reopening = false;
    assert_int_equal(greet(f), 0);
    report_to(f, 1, 1);
    await_stored(f, 1);
}

/* A row that the store refuses would never be stored again, and the job would never end. */
static void sums_of_cpu_time_are_finite(void **state)
{
    struct fixture *f = *state;
    char rec[256];

    greet(f);
    for (int i = 1; i <= 3; i++) {
        snprintf(rec, sizeof rec, "\"type\":\"ended\",\"attempt\":%d,\"outcome\":\"failed\",\"time\":5,\"cpu_seconds\":1e308", i);
        report(f, 2 * i - 1, rec);
        snprintf(rec, sizeof rec, "\"type\":\"attempt\",\"attempt\":%d,\"resume_step\":0,\"time\":5,\"first\":true", i + 1);
        report(f, 2 * i, rec);
    }
    await_stored(f, 6);
    assert_int_equal(stored(f, "SELECT cpu_before = 1e308 AND cpu_seconds = 1e308 AND attempt = 4 FROM jobs"), 1);
}

/* A supervisor repeats an old report 200,000 times and reads no ack. detd keeps one for it, and the last one is
 * true. */
static void a_supervisor_that_reads_nothing_has_one_ack(void **state)
{
    static const char old[] = "{\"type\":\"report\",\"seq\":0}\n";
    struct fixture *f = *state;
    char lines[200 * (sizeof old - 1)];
    time_t began = time(NULL);
    size_t most = 0;

    greet(f);
    for (int i = 0; i < 200; i++)
        memcpy(lines + (size_t)i * (sizeof old - 1), old, sizeof old - 1);
    for (size_t i = 0, sent = 0; i < 1000; i += sent == sizeof lines, sent %= sizeof lines) {
        ssize_t n = send(f->fd, lines + sent, sizeof lines - sent, MSG_NOSIGNAL | MSG_DONTWAIT);

        sent += n > 0 ? (size_t)n : 0;
        uv_run(&f->loop, UV_RUN_NOWAIT);
        most = f->wires.queued_bytes > most ? f->wires.queued_bytes : most;
        assert_patient(began);
    }
    assert_in_range(most, 1, 256);
    report_to(f, 1, 1);
    await_stored(f, 1);
    for (const char *line = ""; !line || !strstr(line, "\"seq\":1}");) {
        line = hear(f);
        assert_patient(began);
    }
}

/* Users wish for a job again and again, and its supervisor reads nothing: detd keeps some of the words for it, and then
 * hangs up. */
static void words_for_a_supervisor_that_reads_nothing_are_bounded(void **state)
{
    struct fixture *f = *state;
    struct job *j = the_job(f);
    time_t began = time(NULL);
    size_t most = 0;

    greet(f);
    for (int i = 0; i < 200000 && j->sup; i++) {
        ingest_send_word(j, "checkpoint", NULL);
        uv_run(&f->loop, UV_RUN_NOWAIT);
        most = f->wires.queued_bytes > most ? f->wires.queued_bytes : most;
        assert_patient(began);
    }
    assert_null(j->sup);
    assert_in_range(most, 1, (64 << 10) + 256);
    await_hang_up(f);
    assert_int_equal(greet(f), 0);
}

static int64_t rows_of_us(struct fixture *f)
{
    return user_shares_of(&f->jobs.shares, geteuid())->rows;
}

/* A supervisor sends attempts as fast as it can. The next one is read when the one before is on disk. While rows are
 * removed for it, its user has fewer rows left. */
static void attempts_come_one_at_a_time(void **state)
{
    enum { LOSSES = 20, ATTEMPTS = 40 };
    struct fixture *f = *state;
    time_t began = time(NULL);

    greet(f);
    report_to(f, 1, LOSSES);
    for (int i = 1; i <= ATTEMPTS; i++)
        report_attempt(f, LOSSES + i, 1 + i, LOSSES / 2);
    while (the_job(f)->committed < LOSSES + ATTEMPTS) {
        hear(f);
        if (the_job(f)->rewinding)
            assert_true(rows_of_us(f) >= STORE_PIECE_ROWS);
        if (the_job(f)->row.last_seq > LOSSES)
            assert_in_range(the_job(f)->row.last_seq - the_job(f)->committed, 0, 1 + LOSSES);
        if (the_job(f)->committed > LOSSES)
            assert_in_range(the_job(f)->row.last_seq - the_job(f)->committed, 0, 1);
        assert_patient(began);
    }
    assert_int_equal(rows_of_us(f), 0);
    assert_int_equal(stored(f, "SELECT count(*) FROM loss"), LOSSES / 2);
    assert_int_equal(stored(f, "SELECT count(*) FROM attempts"), ATTEMPTS);
}

/* detd is gone between two pieces of a rewind: the attempt is not stored, so it comes again, and all of the rewind with
 * it. */
static void a_rewind_begins_again(void **state)
{
    enum { LOSSES = 5000, LEFT = 100 };
    struct fixture *f = *state;
    time_t began = time(NULL);

    greet(f);
    for (int i = 0; i < LOSSES; i += 100) /* as many as the socket takes at once */
        report_to(f, i + 1, i + 100);
    await_stored(f, LOSSES);
    report_attempt(f, LOSSES + 1, 2, LEFT);
    while (stored(f, "SELECT count(*) FROM loss") == LOSSES) {
        uv_run(&f->loop, UV_RUN_ONCE);
        assert_patient(began);
    }
    close_store(f);
    assert_in_range(stored(f, "SELECT count(*) FROM loss"), LEFT + 1, LOSSES - 1);
    assert_int_equal(stored(f, "SELECT last_seq FROM jobs"), LOSSES);
    assert_int_equal(stored(f, "SELECT attempt FROM jobs"), 1);
    uv_run(&f->loop, UV_RUN_NOWAIT);
    ingest_free(f->ingest);
    jobs_free(&f->jobs);
    close(f->fd);
    open_store(f);
    open_socket(f);
    assert_int_equal(greet(f), LOSSES);
    report_attempt(f, LOSSES + 1, 2, LEFT);
    await_stored(f, LOSSES + 1);
    assert_int_equal(stored(f, "SELECT count(*) FROM loss"), LEFT);
    assert_int_equal(stored(f, "SELECT count(*) FROM attempts WHERE attempt = 2 AND resume_step = 100"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_report_is_lost_without_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(what_a_job_reports_is_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(times_are_not_believed, setup, teardown),
        cmocka_unit_test_setup_teardown(numbers_of_attempts_rise, setup, teardown),
        cmocka_unit_test_setup_teardown(an_early_hello_is_in_time, setup, teardown),
        cmocka_unit_test_setup_teardown(a_job_that_is_queued_again_takes_no_reports, setup, teardown),
        cmocka_unit_test_setup_teardown(sums_of_cpu_time_are_finite, setup, teardown),
        cmocka_unit_test_setup_teardown(names_of_losses_are_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(strangers_are_told_of_now_and_then, setup, teardown),
        cmocka_unit_test_setup_teardown(a_supervisor_that_reads_nothing_has_one_ack, setup, teardown),
        cmocka_unit_test_setup_teardown(words_for_a_supervisor_that_reads_nothing_are_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(attempts_come_one_at_a_time, setup, teardown),
        cmocka_unit_test_setup_teardown(a_rewind_begins_again, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_given_up_is_not_committed, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

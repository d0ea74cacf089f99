/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/report/test_report.c - uses: proto trainer cpu
 * A rank's side of fd 3 and of the progress page, read as detd-job reads it. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/err.h"
#include "proto/frame.h"
#include "proto/record.h"
#include "proto/report.h"
#include "worker/report/progress.h"
#include "worker/report/report.h"

struct both { /* the two ends */
    int fds[2];
    struct report *r;
    struct frame *in;
};

static int open_both(void **state)
{
    struct both *b = calloc(1, sizeof *b);
    struct err err;

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, b->fds) < 0 || report_open(b->fds[1], 1, 1, 2, &b->r, &err) < 0)
        return -1;
    b->in = frame_new(REPORT_MAX_LINE);
    *state = b;
    return 0;
}

static int close_both(void **state)
{
    struct both *b = *state;

    report_close(b->r);
    frame_free(b->in);
    close(b->fds[0]);
    close(b->fds[1]);
    free(b);
    return 0;
}

static void say(struct both *b, const char *line)
{
    assert_true(write(b->fds[0], line, strlen(line)) == (ssize_t)strlen(line));
}

/* The next line, parsed as by detd-job; the caller drops it. */
static json_t *hear(struct both *b, enum record_type want)
{
    char bytes[4096];
    struct err err = { 0 };
    enum record_type type;
    const char *text;
    json_t *msg;
    size_t len;

    while (!(text = frame_next(b->in, &len))) {
        ssize_t n = recv(b->fds[0], bytes, sizeof bytes, 0);

        assert_true(n > 0);
        assert_int_equal(frame_push(b->in, bytes, (size_t)n, &err), 0);
    }
    if (record_parse(text, len, &type, &msg, &err) < 0)
        fail_msg("%s: %s", err.msg, text);
    assert_int_equal(type, want);
    return msg;
}

static const char *string_of(const json_t *msg, const char *key)
{
    return json_string_value(json_object_get(msg, key));
}

static void every_report_is_what_detd_job_takes(void **state)
{
    static const char *const versions[] = { "detd", "0.1", NULL }, *const bad[] = { "a \"quoted\"\nname", "x" };
    struct report_term terms[] = { { "total", 3.25, 4 }, { "box", NAN, 1 } };
    struct report_loss loss = { "val", 7, 0.5, "rerun", 12.5, 2, terms };
    struct report_metric metrics[] = { { "ap50", 0.1 }, { "nothing", NAN } };
    const struct report_device device = { "GPU", "GPU-1", 2, 1LL << 40, versions }, cpu = { "cpu", NULL, 1, 7, NULL };
    struct both *b = *state;
    struct err err;
    json_t *msg;

    assert_int_equal(report_hello(b->r, &cpu, NULL, &err), 0);
    msg = hear(b, RECORD_HELLO);
    assert_true(!json_object_get(msg, "uuid") && !json_object_get(msg, "devices") && !json_object_get(msg, "nccl_id"));
    json_decref(msg);
    assert_int_equal(report_hello(b->r, &device, "id", &err), 0);
    msg = hear(b, RECORD_HELLO);
    assert_int_equal(json_integer_value(json_object_get(msg, "memory_bytes")), 1LL << 40);
    assert_string_equal(string_of(msg, "uuid"), "GPU-1");
    assert_int_equal(json_integer_value(json_object_get(msg, "devices")), 2);
    json_decref(msg);
    assert_int_equal(report_start(b->r, 0, NULL, &err), 0);
    msg = hear(b, RECORD_START);
    assert_true(json_is_null(json_object_get(msg, "checkpoint")));
    json_decref(msg);
    assert_int_equal(report_loss(b->r, &loss, &err), 0);
    msg = hear(b, RECORD_LOSS);
    assert_true(json_real_value(json_array_get(json_object_get(json_object_get(msg, "terms"), "total"), 0)) == 3.25);
    assert_true(json_is_null(json_array_get(json_object_get(json_object_get(msg, "terms"), "box"), 0)));
    assert_string_equal(json_string_value(json_array_get(json_object_get(msg, "nonfinite"), 0)), "box");
    json_decref(msg);
    assert_int_equal(report_eval(b->r, 7, 0, metrics, &err), 0); /* sends nothing: the next message holds the two metrics */
    assert_int_equal(report_eval(b->r, 7, 2, metrics, &err), 0);
    json_decref(hear(b, RECORD_EVAL));
    assert_int_equal(report_ckpt_published(b->r, 7, "checkpoints/step-7", 99, NAN, true, &err), 0);
    msg = hear(b, RECORD_CHECKPOINT);
    assert_true(json_is_null(json_object_get(msg, "val_loss")) && json_is_true(json_object_get(msg, "best")));
    json_decref(msg);
    assert_int_equal(report_data(b->r, "train", 3, 4, 1, 2, bad, &err), 0);
    msg = hear(b, RECORD_DATA);
    assert_string_equal(json_string_value(json_array_get(json_object_get(msg, "bad"), 0)), bad[0]);
    json_decref(msg);
    assert_int_equal(report_data(b->r, "train", 3, -1, 0, 0, NULL, &err), 0);
    msg = hear(b, RECORD_DATA);
    assert_null(json_object_get(msg, "boxes"));
    json_decref(msg);
    assert_int_equal(report_event(b->r, &err, "warning", "note", "\xff broken utf-8 %d\x01", 5), 0);
    msg = hear(b, RECORD_EVENT);
    assert_string_equal(string_of(msg, "text"), "? broken utf-8 5\x01");
    json_decref(msg);
    assert_int_equal(report_end(b->r, "failed", "why", "data", &err), 0);
    json_decref(hear(b, RECORD_END));
}

/* Every double comes back as the same bits. */
static void numbers_keep_their_bits(void **state)
{
    static const double values[] = {
        0.1, 1e300, -1e-300, 5e-324, 1.0, 1e15, 9.9e16, 1e17, 123456789012345.0, 1e22, -0.0, 3.0000000000000004
    };
    struct both *b = *state;
    struct err err;

    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        struct report_metric m = { "v", values[i] };
        double back;
        json_t *msg;

        assert_int_equal(report_eval(b->r, 1, 1, &m, &err), 0);
        msg = hear(b, RECORD_EVAL);
        back = json_real_value(json_object_get(json_object_get(msg, "metrics"), "v"));
        assert_memory_equal(&back, &values[i], sizeof back);
        json_decref(msg);
    }
}

enum { METRICS = 1000 };

struct metrics {
    struct both *b;
    bool seen[METRICS];
    int records;
};

static void *hear_metrics(void *arg)
{
    struct metrics *m = arg;

    for (int left = METRICS; left > 0; m->records++) {
        json_t *msg = hear(m->b, RECORD_EVAL), *value;
        const char *name;

        assert_int_equal(json_integer_value(json_object_get(msg, "step")), 7);
        json_object_foreach (json_object_get(msg, "metrics"), name, value) {
            int i = (int)json_number_value(value);

            assert_int_equal(strtol(name, NULL, 10), i);
            assert_false(m->seen[i]);
            m->seen[i] = true;
            left--;
        }
        json_decref(msg);
    }
    return NULL;
}

/* Fills names up to `length` with a character. Returns the number of records sent. Each must be valid for detd-job. */
static int send_metrics(struct both *b, int length, char what)
{
    struct metrics m = { .b = b };
    struct report_metric metrics[METRICS];
    char(*names)[RECORD_MAX_NAME + 1] = calloc(METRICS, sizeof *names);
    struct err err;
    pthread_t reader;

    for (int i = 0; i < METRICS; i++) {
        memset(names[i], what, (size_t)length);
        names[i][snprintf(names[i], sizeof *names, "%03d", i)] = what;
        metrics[i] = (struct report_metric){ names[i], i };
    }
    assert_int_equal(pthread_create(&reader, NULL, hear_metrics, &m), 0);
    assert_int_equal(report_eval(b->r, 7, METRICS, metrics, &err), 0);
    assert_int_equal(pthread_join(reader, NULL), 0);
    free(names);
    return m.records;
}

/* A record has at most 256 metrics, and fewer where their names fill the line. */
static void many_metrics_come_in_several_records(void **state)
{
    assert_int_equal(send_metrics(*state, 10, 'x'), 4);
    assert_in_range(send_metrics(*state, RECORD_MAX_NAME, '\x01'), 5, 8);
}

static void answers_and_commands(void **state)
{
    struct report_go *go = calloc(1, sizeof *go);
    struct both *b = *state;
    struct report_control c;
    struct err err;
    bool ok;

    say(b, "{\"type\":\"control\",\"word\":\"eval\"}\n{\"type\":\"of a later version\"}\n"
           "{\"type\":\"go\",\"attempt\":3,\"nccl_id\":null,\"store_id\":\"d41d8\",\"tiers\":[{\"step\":9,\"tier\":\"world\"}]}\n");
    assert_int_equal(report_wait_go(b->r, go, &err), 0);
    assert_int_equal(go->attempt, 3);
    assert_string_equal(go->store_id, "d41d8");
    assert_int_equal(go->ntiers, 1);
    assert_int_equal(go->tiers[0].step, 9);
    assert_string_equal(go->tiers[0].tier, "world");
    assert_string_equal(go->nccl_id, "");
    say(b, "{\"type\":\"control\",\"word\":\"tier\",\"tier\":\"off\"}\n{\"type\":\"control\",\"wo");
    assert_int_equal(report_control(b->r, &c, &err), 0);
    assert_int_equal(c.word, WORD_EVAL);
    assert_int_equal(report_control(b->r, &c, &err), 0);
    assert_int_equal(c.word, WORD_TIER);
    assert_string_equal(c.tier, "off");
    assert_int_equal(report_control(b->r, &c, &err), 0);
    assert_int_equal(c.word, WORD_NONE);
    say(b, "rd\":\"pause\"}\n");
    assert_int_equal(report_control(b->r, &c, &err), 0);
    assert_int_equal(c.word, WORD_PAUSE);

    say(b, "{\"type\":\"publish\",\"step\":20}\n");
    assert_int_equal(report_ckpt_wait_publish(b->r, 20, "p", &err), 0);
    assert_int_equal(report_tier_propose(b->r, 30, "off", &err), 0);
    assert_int_equal(report_tier_ok(b->r, 30, "off", &ok, &err), 0);
    assert_false(ok);
    say(b, "{\"type\":\"tier_ok\",\"step\":30,\"tier\":\"off\"}\n");
    assert_int_equal(report_wait_tier(b->r, 30, "off", &err), 0);
    assert_int_equal(report_tier_ok(b->r, 30, "off", &ok, &err), 0);
    assert_true(ok);
    free(go);
}

/* The permission to publish another step does not count: the wait continues, here until detd-job is gone. */
static void leave_for_another_step(void **state)
{
    static const int64_t others[] = { 19, 21 };
    struct report_control c;
    struct err err;

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char line[64];
        struct both *b;

        open_both((void **)&b);
        snprintf(line, sizeof line, "{\"type\":\"publish\",\"step\":%lld}\n", (long long)others[i]);
        say(b, line);
        assert_int_equal(report_control(b->r, &c, &err), 0); /* has read it */
        shutdown(b->fds[0], SHUT_WR);
        assert_int_equal(report_ckpt_wait_publish(b->r, 20, "p", &err), ERR_ABORTED);
        close_both((void **)&b);
    }
    (void)state;
}

static void what_is_not_a_message(void **state)
{
    static const char *const lines[] = { "nonsense\n", "{}\n", "{\"type\":\"control\"}\n", "{\"type\":\"go\",\"attempt\":1}\n" };
    struct report_control c;
    struct err err;

    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct both *b;

        open_both((void **)&b);
        say(b, lines[i]);
        assert_int_equal(report_control(b->r, &c, &err), ERR_PROTO);
        assert_non_null(strstr(err.msg, "message from detd-job: "));
        close_both((void **)&b);
    }
    (void)state;
}

static void detd_job_is_gone(void **state)
{
    struct report_go *go = calloc(1, sizeof *go);
    struct both *b = *state;
    struct report_control c;
    struct err err;

    shutdown(b->fds[0], SHUT_RDWR);
    assert_int_equal(report_control(b->r, &c, &err), ERR_ABORTED);
    assert_int_equal(report_wait_go(b->r, go, &err), ERR_ABORTED);
    assert_int_equal(report_ckpt_wait_publish(b->r, 1, "p", &err), ERR_ABORTED);
    assert_string_equal(err.msg, "detd-job is gone");
    free(go);
}

static void too_long(void **state)
{
    struct report_term terms[64];
    struct report_loss loss = { "train", 1, 0, "off", 0, 64, terms };
    char *name = malloc(2001);
    struct both *b = *state;
    struct err err;

    memset(name, 'n', 2000);
    name[2000] = '\0';
    for (int i = 0; i < loss.nterms; i++)
        terms[i] = (struct report_term){ name, 1, 1 };
    assert_int_equal(report_loss(b->r, &loss, &err), ERR_INPUT);
    free(name);
}

struct waits {
    struct both *both;
    _Atomic int began, ended;
};

static void count_wait(void *arg, bool waiting)
{
    struct waits *w = arg;

    *(waiting ? &w->began : &w->ended) += 1;
}

static void *read_late(void *arg)
{
    struct waits *w = arg;
    struct both *b = w->both;

    while (w->began == 0)
        usleep(1000);
    for (int i = 0; i < 5000; i++) {
        json_t *msg = hear(b, RECORD_LOSS);

        assert_int_equal(json_integer_value(json_object_get(msg, "step")), i);
        json_decref(msg);
    }
    return NULL;
}

/* detd-job does not read for a while: no report is lost or reordered, and the wait is reported. */
static void a_full_spool_makes_the_rank_wait(void **state)
{
    struct report_term total = { "total", 1, 1 };
    struct both *b = *state;
    struct waits w = { .both = b };
    struct err err;
    pthread_t t;

    report_on_wait(b->r, count_wait, &w);
    assert_int_equal(pthread_create(&t, NULL, read_late, &w), 0);
    for (int i = 0; i < 5000; i++) {
        struct report_loss loss = { "train", i, 0, "off", 0, 1, &total };

        assert_int_equal(report_loss(b->r, &loss, &err), 0);
    }
    pthread_join(t, NULL);
    assert_true(w.began > 0);
    assert_int_equal(w.began, w.ended);
}

static void alone_answers_itself(void **state)
{
    int out = dup(1), null = memfd_create("out", 0);
    struct report_go *go = calloc(1, sizeof *go);
    struct report_control c = { .word = WORD_EVAL };
    struct report *r;
    struct err err;
    char text[4096];
    ssize_t n;

    (void)state;
    fflush(stdout);
    dup2(null, 1);
    assert_int_equal(report_open(-1, 0, 0, 1, &r, &err), 0);
    assert_int_equal(report_wait_go(r, go, &err), 0);
    assert_int_equal(report_ckpt_wait_publish(r, 5, "p", &err), 0);
    assert_int_equal(report_tier_propose(r, 5, "off", &err), 0);
    assert_int_equal(report_wait_tier(r, 5, "off", &err), 0);
    assert_int_equal(report_control(r, &c, &err), 0);
    assert_int_equal(c.word, WORD_NONE);
    report_close(r);
    dup2(out, 1);
    n = pread(null, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    assert_non_null(strstr(text, "{\"type\":\"checkpoint\",\"step\":5,\"phase\":\"ready\",\"path\":\"p\"}\n"));
    close(out);
    close(null);
    free(go);
}

static void the_page_beats(void **state)
{
    int fd = memfd_create("page", 0);
    struct progress *seen, *p;
    uint64_t beats, changes;
    struct err err;

    (void)state;
    assert_int_equal(ftruncate(fd, PROGRESS_BYTES), 0);
    seen = mmap(NULL, PROGRESS_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    assert_int_equal(progress_open(fd, &p, &err), 0);
    assert_int_equal(seen->magic, PROGRESS_MAGIC);
    assert_int_equal(progress_open(fd, &p, &err), ERR_STATE);
    beats = atomic_load(&seen->heartbeat);
    changes = atomic_load(&seen->changes);
    progress_step(p, 12);
    progress_phase(p, PHASE_VALIDATE);
    progress_done(p, 3, 8);
    progress_collective(p, CHANNEL_GRAD, 0x1122334455667788);
    progress_collective(p, CHANNEL_SYNC, 0xabc);
    progress_collective(p, CHANNEL_SYNC, 0xdef);
    progress_images(p, 5, 10);
    assert_int_equal(atomic_load(&seen->changes), changes + 5);
    assert_int_equal(atomic_load(&seen->step), 12);
    assert_int_equal(atomic_load(&seen->phase), PHASE_VALIDATE);
    assert_int_equal(atomic_load(&seen->done_in_phase), 3);
    assert_int_equal(atomic_load(&seen->todo_in_phase), 8);
    assert_int_equal(atomic_load(&seen->collective[CHANNEL_GRAD]), 0x155667788);
    assert_int_equal(atomic_load(&seen->collective[CHANNEL_SYNC]), 0x200000def);
    assert_int_equal(atomic_load(&seen->images_total), 10);
    for (int i = 0; i < 6000 && atomic_load(&seen->heartbeat) < beats + 2; i++)
        usleep(10000);
    assert_true(atomic_load(&seen->heartbeat) >= beats + 1);
    progress_close(p);
    munmap(seen, PROGRESS_BYTES);
    close(fd);
    assert_int_equal(progress_open(-1, &p, &err), 0);
    progress_close(p);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, open_both, close_both)
    const struct CMUnitTest tests[] = {
        TEST(every_report_is_what_detd_job_takes),
        TEST(numbers_keep_their_bits),
        TEST(many_metrics_come_in_several_records),
        TEST(answers_and_commands),
        cmocka_unit_test(leave_for_another_step),
        cmocka_unit_test(what_is_not_a_message),
        TEST(detd_job_is_gone),
        TEST(too_long),
        TEST(a_full_spool_makes_the_rank_wait),
        cmocka_unit_test(alone_answers_itself),
        cmocka_unit_test(the_page_beats),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

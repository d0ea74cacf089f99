/* SPDX-License-Identifier: Apache-2.0 */ /* tests/golden/test_phases.c - uses: proto worker/backend trainer cpu
 * The messages of a rank to detd-job about itself while it trains: the lines in their order. At each line the rank
 * waits, with the line's phase and step on its page. */
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#include "proto/frame.h"
#include "proto/progress.h"
#include "proto/report.h"
#include "tests/golden/job.h"

enum { STEPS = 2, BATCH = 8, PATIENCE_MS = 60000 }; /* the patience is for a rank that is stuck */

/* detd-job's side of one rank. */
struct rank {
    pid_t pid;
    int fd;
    struct progress *page;
    struct frame *in;
};

static void start(struct rank *r)
{
    static const char *const assignments[] = { "train.steps=2", "train.burn_in=1", "train.lr_steps=[]", "checkpoint.every=1", NULL };
    int page = memfd_create("test-page", 0), pair[2];
    struct jobspec *spec = read_job("shard", assignments);
    char dir[128];

    job_folder("phases", dir);
    assert_int_equal(ftruncate(page, PROGRESS_BYTES), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    r->page = mmap(NULL, PROGRESS_BYTES, PROT_READ, MAP_SHARED, page, 0);
    assert_true(r->page != MAP_FAILED);
    r->in = frame_new(REPORT_MAX_LINE);
    fflush(stdout);
    r->pid = fork();
    if (r->pid == 0) {
        struct trainer_options opt = {
            .job_dir = dir, .nranks = 1, .attempt = 1, .control_fd = pair[1], .comm_fd = -1, .progress_fd = page
        };

        close(pair[0]);
        be_rank(spec, &opt);
    }
    jobspec_free(spec);
    close(pair[1]);
    close(page);
    r->fd = pair[0];
}

static void end(struct rank *r)
{
    int status;

    assert_int_equal(waitpid(r->pid, &status, 0), r->pid);
    assert_int_equal(status, 0);
    munmap(r->page, PROGRESS_BYTES);
    frame_free(r->in);
    close(r->fd);
}

static void say(struct rank *r, const char *line)
{
    assert_true(write(r->fd, line, strlen(line)) == (ssize_t)strlen(line));
}

/* The next line; the caller drops it. */
static json_t *hear(struct rank *r)
{
    struct pollfd p = { r->fd, POLLIN, 0 };
    char bytes[4096];
    const char *text;
    struct err err;
    json_t *msg;
    size_t len;

    while (!(text = frame_next(r->in, &len))) {
        ssize_t n;

        assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
        n = read(r->fd, bytes, sizeof bytes);
        assert_true(n > 0);
        assert_int_equal(frame_push(r->in, bytes, (size_t)n, &err), 0);
    }
    msg = json_loadb(text, len, 0, NULL);
    assert_non_null(msg);
    return msg;
}

/* The next line is of this type; those of `over` may come before. */
static json_t *expect(struct rank *r, const char *type, const char *over)
{
    for (;;) {
        json_t *msg = hear(r);

        if (strcmp(text_of(msg, "type"), type) == 0)
            return msg;
        if (!strstr(over, text_of(msg, "type")))
            fail_msg("'%s' where '%s' was expected", text_of(msg, "type"), type);
        json_decref(msg);
    }
}

/* The rank comes to wait in this phase, after this step. */
static void reaches(const struct rank *r, enum progress_phase phase, uint64_t step)
{
    const struct timespec moment = { 0, 1000000 };

    for (int ms = 0; atomic_load(&r->page->phase) != (uint32_t)phase; ms++) {
        if (ms == PATIENCE_MS)
            fail_msg("phase %u instead of %u", atomic_load(&r->page->phase), (unsigned)phase);
        nanosleep(&moment, NULL);
    }
    assert_int_equal(atomic_load(&r->page->step), step);
}

enum { MOVES = 120 }; /* of a step, at least: a watch for hanging ranks sees each layer, forward and back */

static void from_hello_to_the_end(void **state)
{
    struct rank r;
    uint64_t moves = 0;

    (void)state;
    start(&r);
    json_decref(expect(&r, "hello", ""));
    reaches(&r, PHASE_WAIT_GO, 0);
    say(&r, "{\"type\":\"go\",\"attempt\":1,\"nccl_id\":\"\",\"store_id\":\"\",\"tiers\":[]}\n");
    json_decref(expect(&r, "start", "data event"));
    for (int step = 1; step <= STEPS; step++) {
        const uint64_t before = moves;
        char publish[64];
        json_t *msg = expect(&r, "checkpoint", "identity loss event");

        assert_string_equal(text_of(msg, "phase"), "ready");
        assert_int_equal(int_of(msg, "step"), step);
        json_decref(msg);
        reaches(&r, PHASE_CHECKPOINT, (uint64_t)step);
        moves = atomic_load(&r.page->changes);
        assert_true(moves - before >= MOVES);
        assert_int_equal(atomic_load(&r.page->images), step * BATCH);
        assert_int_equal(atomic_load(&r.page->images_total), step * BATCH);
        snprintf(publish, sizeof publish, "{\"type\":\"publish\",\"step\":%d}\n", step);
        say(&r, publish);
        msg = expect(&r, "checkpoint", "event");
        assert_string_equal(text_of(msg, "phase"), "published");
        json_decref(msg);
    }
    json_decref(expect(&r, "end", "event"));
    reaches(&r, PHASE_ENDING, STEPS);
    end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(from_hello_to_the_end) };

    return cmocka_run_group_tests(tests, make_root, remove_root);
}

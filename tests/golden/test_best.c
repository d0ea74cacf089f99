/* SPDX-License-Identifier: Apache-2.0 */ /* tests/golden/test_best.c - uses: proto worker/backend trainer cpu
 * The best checkpoint stays and is reported as the best, for a kill at any moment: a training that is at its best in
 * the middle, with checkpoint.keep = 1, under a detd-job played by the test. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/golden/job.h"
#include "worker/checkpoint/ckpt.h"
#include "worker/checkpoint/state.h"

enum { STEPS = 4, BEST = 2 };

/* The rate grows over the burn-in: the second step is a good one, the third goes too far, the fourth comes back
 * halfway. */
static const char *const up_and_down[] = { "model.init=init.safetensors",
                                           "model.freeze_bn=false",
                                           "model.bn_momentum=0.5",
                                           "train.steps=4",
                                           "train.lr=0.12",
                                           "train.momentum=0",
                                           "train.burn_in=3",
                                           "train.burn_in_power=3.5",
                                           "train.lr_steps=[]",
                                           "checkpoint.every=1",
                                           "checkpoint.keep=1",
                                           NULL };
/* Weights that never move. */
static const char *const level[] = { "train.steps=4", "train.lr_steps=[]", "checkpoint.every=1", "checkpoint.keep=1", NULL };

/* The checkpoint of that step finds no room; 0: each does. */
static int64_t no_room;

int rename(const char *from, const char *to)
{
    char end[32];
    size_t n = (size_t)snprintf(end, sizeof end, "/step-%lld", (long long)no_room), len = strlen(to);

    if (no_room > 0 && len > n && strcmp(to + len - n, end) == 0) {
        errno = ENOSPC;
        return -1;
    }
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

/* A line to the rank before its first step. */
static const char *order = "";

/* detd-job's side: permits every publication until step kill_at is ready (0: never), then kills the rank. Returns the
 * rank's messages; the caller drops them. */
static json_t *supervise(int fd, pid_t pid, int64_t kill_at)
{
    json_t *told = json_array(), *msg;
    char *line = NULL;
    size_t room = 0;
    FILE *in = fdopen(fd, "re");

    assert_non_null(in);
    while (getline(&line, &room, in) > 0) {
        msg = json_loads(line, 0, NULL);
        assert_non_null(msg);
        if (strcmp(text_of(msg, "type"), "hello") == 0)
            dprintf(fd, "{\"type\":\"go\",\"nccl_id\":null,\"attempt\":1,\"tiers\":[]}\n%s", order);
        if (strcmp(text_of(msg, "phase"), "ready") == 0 && int_of(msg, "step") == kill_at)
            kill(pid, SIGKILL);
        else if (strcmp(text_of(msg, "phase"), "ready") == 0)
            dprintf(fd, "{\"type\":\"publish\",\"step\":%lld}\n", (long long)int_of(msg, "step"));
        json_array_append_new(told, msg);
    }
    free(line);
    fclose(in);
    return told;
}

/* Trains, or continues, in root/<job>; kill_at as above. */
static json_t *attempt(const char *job, const char *const *assignments, int64_t kill_at)
{
    struct jobspec *spec = read_job("validate", assignments);
    char dir[128];
    struct trainer_options opt = { .job_dir = dir, .nranks = 1, .attempt = 1, .comm_fd = -1, .progress_fd = -1 };
    int fds[2], status;
    json_t *told;
    pid_t pid;

    job_folder(job, dir);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    opt.control_fd = fds[1];
    fflush(stdout);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(fds[0]);
        be_rank(spec, &opt);
    }
    close(fds[1]);
    told = supervise(fds[0], pid, kill_at);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (kill_at > 0)
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    else
        assert_int_equal(status, 0);
    jobspec_free(spec);
    return told;
}

static double val_loss(const json_t *told, int64_t step)
{
    const json_t *total = json_object_get(loss_of(told, "val", step), "total");

    return json_number_value(json_array_get(total, 0)) / json_number_value(json_array_get(total, 1));
}

/* Checks the reports of checkpoints from a step on: each once, in order, a letter a step: b is reported as the best so
 * far, - is not. */
static void check_told(const json_t *told, int64_t from, const char *steps)
{
    char letters[16] = "";
    json_t *msg;
    size_t i;

    json_array_foreach (told, i, msg) {
        size_t n = strlen(letters);

        if (strcmp(text_of(msg, "phase"), "published") != 0)
            continue;
        assert_int_equal(int_of(msg, "step"), from + (int64_t)n);
        assert_true(json_is_boolean(json_object_get(msg, "best")) && n + 1 < sizeof letters);
        letters[n] = json_is_true(json_object_get(msg, "best")) ? 'b' : '-';
    }
    assert_string_equal(letters, steps);
}

/* Checks the report of a checkpoint that another attempt wrote: it holds the loss reported by that attempt. */
static void check_told_again(const json_t *told, const json_t *before, int64_t step)
{
    json_t *msg;
    size_t i;
    int n = 0;

    json_array_foreach (told, i, msg) {
        if (strcmp(text_of(msg, "phase"), "published") != 0 || int_of(msg, "step") != step)
            continue;
        assert_true(json_number_value(json_object_get(msg, "val_loss")) == val_loss(before, step));
        n++;
    }
    assert_int_equal(n, 1);
}

/* The checkpoints on disk must be those of these one or two steps. */
static void check_kept(const char *job, int64_t best, int64_t newest)
{
    char dir[160], name[32];
    struct dirent *e;
    int steps = 0;
    DIR *d;

    snprintf(dir, sizeof dir, "%s/%s/checkpoints", root, job);
    d = opendir(dir);
    assert_non_null(d);
    while ((e = readdir(d))) {
        int64_t step = strncmp(e->d_name, "step-", 5) == 0 ? atoll(e->d_name + 5) : -1;

        if (step < 0)
            continue;
        snprintf(name, sizeof name, "step-%lld", (long long)step);
        assert_string_equal(e->d_name, name);
        if (step != best && step != newest)
            fail_msg("%s/%s is still there", dir, name);
        steps++;
    }
    closedir(d);
    assert_int_equal(steps, best == newest ? 1 : 2);
}

static void resumed_from(const json_t *told, int64_t step)
{
    const json_t *found = NULL, *msg;
    size_t i;

    json_array_foreach (told, i, msg)
        found = strcmp(text_of(msg, "type"), "start") == 0 ? msg : found;
    assert_non_null(found);
    assert_int_equal(int_of(found, "resume_step"), step);
}

static void best_in_the_middle(void **state)
{
    json_t *told = attempt("calm", up_and_down, 0);

    (void)state;
    assert_true(val_loss(told, BEST) < val_loss(told, 1));
    assert_true(val_loss(told, BEST) < val_loss(told, STEPS));
    assert_true(val_loss(told, STEPS) < val_loss(told, BEST + 1)); /* better than the one before it is not enough */
    assert_true(val_loss(told, BEST + 1) < val_loss(told, 1));
    check_told(told, 1, "bb--");
    check_kept("calm", BEST, STEPS);
    json_decref(told);
}

/* The best validation has no checkpoint, because there was no room: the best is then the best of those with a
 * checkpoint, in the marks, the link and the state alike. */
static void no_room_for_the_best(void **state)
{
    struct state_best best = { 0 };
    char dir[160], link[200], target[64] = "";
    struct ckpt *c;
    struct err err;
    json_t *told, *msg;
    bool marked = false;
    size_t i;

    (void)state;
    no_room = BEST;
    told = attempt("full", up_and_down, 0);
    no_room = 0;
    assert_true(val_loss(told, BEST) < val_loss(told, STEPS) && val_loss(told, STEPS) < val_loss(told, BEST + 1));
    json_array_foreach (told, i, msg) {
        if (strcmp(text_of(msg, "phase"), "published") == 0)
            marked = json_is_true(json_object_get(msg, "best")) && int_of(msg, "step") == STEPS;
    }
    assert_true(marked);
    snprintf(dir, sizeof dir, "%s/full/checkpoints", root);
    if (ckpt_open(dir, STEPS, NULL, &c, &err) < 0)
        fail_msg("%s", err.msg);
    assert_true(state_best(c->state, &best) && best.step == STEPS && best.value == val_loss(told, STEPS));
    ckpt_close(c);
    snprintf(link, sizeof link, "%s/full/best", root);
    assert_true(readlink(link, target, sizeof target - 1) > 0);
    assert_string_equal(target, "checkpoints/step-4");
    json_decref(told);
}

/* A validated step at which no checkpoint is due. */
static void best_between_two(void **state)
{
    const char *assignments[sizeof up_and_down / sizeof *up_and_down + 1];
    size_t n = sizeof up_and_down / sizeof *up_and_down - 1;
    json_t *told;

    (void)state;
    memcpy(assignments, up_and_down, sizeof up_and_down);
    assignments[n] = "checkpoint.every=3";
    assignments[n + 1] = NULL;
    told = attempt("between", assignments, 0);
    check_told(told, 1, "bb--");
    check_kept("between", BEST, STEPS);
    json_decref(told);
}

static void check_killed(const char *job, int64_t kill_at, const char *steps)
{
    json_t *before = attempt(job, up_and_down, kill_at), *after;

    check_kept(job, BEST, kill_at - 1);
    after = attempt(job, up_and_down, 0);
    resumed_from(after, kill_at - 1);
    check_told_again(after, before, kill_at - 1);
    check_told(after, kill_at - 1, steps);
    check_kept(job, BEST, STEPS);
    json_decref(before);
    json_decref(after);
}

/* A validation on request at the best step is better than those by val.every. The first of these is their best. It must
 * not count as if they got worse. */
static void who_asks_does_not_end_it(void **state)
{
    const char *assignments[sizeof up_and_down / sizeof *up_and_down + 2];
    struct state_best best = { 0 };
    struct ckpt *c;
    struct err err;
    size_t n = sizeof up_and_down / sizeof *up_and_down - 1;
    char dir[160];
    json_t *told;

    (void)state;
    memcpy(assignments, up_and_down, sizeof up_and_down);
    assignments[n] = "val.every=3";
    assignments[n + 1] = "train.stop_after=1";
    assignments[n + 2] = NULL;
    order = "{\"type\":\"control\",\"word\":\"eval\"}\n"; /* acts after the second step */
    json_decref(attempt("asked", assignments, STEPS));
    order = "";
    told = attempt("asked", assignments, 0);
    resumed_from(told, STEPS - 1);
    json_decref(told);
    snprintf(dir, sizeof dir, "%s/asked/checkpoints", root);
    if (ckpt_open(dir, STEPS, NULL, &c, &err) < 0)
        fail_msg("%s", err.msg);
    assert_true(state_best(c->state, &best) && best.step == BEST);
    assert_int_equal(*(const int64_t *)safetensors_find(c->state, "due_best_step")->data, STEPS);
    assert_int_equal(*(const int64_t *)safetensors_find(c->state, "stale")->data, 0);
    ckpt_close(c);
}

/* The newest checkpoint is the best: the next one, which is worse, must not take its place. */
static void killed_after_the_best(void **state)
{
    (void)state;
    check_killed("after", BEST + 1, "b--");
}

/* The newest checkpoint is a worse one, and knows of the best. */
static void killed_later(void **state)
{
    (void)state;
    check_killed("later", STEPS, "--");
}

/* If losses are equal, the first is the best, over a resume too. */
static void equals(void **state)
{
    json_t *told = attempt("level", level, STEPS), *rest = attempt("level", level, 0);

    (void)state;
    for (int64_t step = 2; step < STEPS; step++)
        assert_true(val_loss(told, step) == val_loss(told, 1));
    assert_true(val_loss(rest, STEPS) == val_loss(told, 1));
    check_told(told, 1, "b--");
    check_told(rest, STEPS - 1, "--");
    check_kept("level", 1, STEPS);
    json_decref(told);
    json_decref(rest);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(who_asks_does_not_end_it),
                                        cmocka_unit_test(best_in_the_middle),
                                        cmocka_unit_test(no_room_for_the_best),
                                        cmocka_unit_test(best_between_two),
                                        cmocka_unit_test(killed_after_the_best),
                                        cmocka_unit_test(killed_later),
                                        cmocka_unit_test(equals) };

    return cmocka_run_group_tests(tests, make_root, remove_root);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/checkpoint/test_ckpt.c - uses: proto trainer cpu
 * Checkpoint folders: a published checkpoint is found again, a damaged one never is, for a kill at any moment. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "proto/err.h"
#include "tests/stand/harness.h"
#include "proto/hash/hash.h"
#include "worker/checkpoint/ckpt.h"

static const struct ckpt_identity ours = { "store-a", "spec-1" };

static char dir[256]; /* checkpoints folder of the running test */

static int fresh(void **state)
{
    (void)state;
    temp_path(dir, sizeof(dir), "test_ckpt.XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    strcat(dir, "/checkpoints");
    return 0;
}

static int clean(void **state)
{
    char cmd[320];

    (void)state;
    *strrchr(dir, '/') = '\0';
    snprintf(cmd, sizeof(cmd), "rm -rf '%s'", dir);
    return system(cmd);
}

static int write_step(int64_t step, int64_t *ret_bytes, struct err *err)
{
    float weights[6];
    double sums[] = { (double)step, 0.5 };
    struct st_array model = { "conv.weight", ST_F32, 2, { 2, 3 }, weights }, state = { "window", ST_F64, 1, { 2 }, sums };
    struct st_meta meta = { "classes", "a,b" };
    struct ckpt_part m = { &model, 1, &meta, 1 }, s = { &state, 1, NULL, 0 };

    for (int i = 0; i < 6; i++)
        weights[i] = (float)(step * 10 + i);
    return ckpt_write(dir, step, &ours, &m, &s, ret_bytes, err);
}

static void publish_step(int64_t step)
{
    int64_t bytes = 0;
    struct err err;

    assert_int_equal(write_step(step, &bytes, &err), 0);
    assert_true(bytes > 100);
    assert_int_equal(ckpt_publish(dir, step, &err), 0);
}

static int told;

static void tell(void *arg, const char *text)
{
    (void)arg;
    assert_non_null(strstr(text, "damaged"));
    told++;
}

static int64_t pick(void)
{
    int64_t step = -1;
    struct err err;

    assert_int_equal(ckpt_pick(dir, &ours, tell, NULL, &step, &err), 0);
    return step;
}

static char *in_dir(const char *name)
{
    static char path[512];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

static bool there(const char *name)
{
    return access(in_dir(name), F_OK) == 0;
}

static void test_round_trip(void **state)
{
    struct ckpt *c = NULL;
    const struct st_array *a;
    float weight;
    double sum;
    struct err err;

    (void)state;
    assert_int_equal(pick(), 0);
    publish_step(7);
    publish_step(12);
    assert_int_equal(pick(), 12);
    assert_int_equal(ckpt_open(dir, 12, &ours, &c, &err), 0);
    assert_int_equal(c->step, 12);
    assert_string_equal(c->id.store_id, "store-a");
    a = safetensors_find(c->model, "conv.weight");
    assert_non_null(a);
    memcpy(&weight, (const char *)a->data + 5 * sizeof(float), sizeof(weight));
    assert_true(weight == 125.0f);
    a = safetensors_find(c->state, "window");
    assert_non_null(a);
    memcpy(&sum, a->data, sizeof(sum));
    assert_true(sum == 12.0);
    ckpt_close(c);
    assert_int_equal(ckpt_open(dir, 8, &ours, &c, &err), ERR_CORRUPT);
}

/* A good checkpoint is never rewritten: its files stay the same. */
static void test_never_rewritten(void **state)
{
    struct stat before, after;
    int64_t bytes = 0;
    struct err err;

    (void)state;
    publish_step(5);
    assert_int_equal(stat(in_dir("step-5/model.safetensors"), &before), 0);
    assert_int_equal(write_step(5, &bytes, &err), 1);
    assert_true(bytes > 100);
    assert_int_equal(stat(in_dir("step-5/model.safetensors"), &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_false(there(".tmp-step-5"));
}

static void test_unpublished(void **state)
{
    int64_t bytes;
    struct err err;

    (void)state;
    publish_step(3);
    assert_int_equal(write_step(4, &bytes, &err), 0);
    assert_true(there(".tmp-step-4/manifest.json"));
    assert_int_equal(pick(), 3);
    assert_false(there(".tmp-step-4"));
    assert_true(ckpt_publish(dir, 4, &err) < 0);
}

static void damage(const char *name, long at, unsigned flip)
{
    int fd = open(in_dir(name), O_RDWR);
    unsigned char byte;

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= (unsigned char)flip;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static long size_of(const char *name)
{
    struct stat st;

    assert_int_equal(stat(in_dir(name), &st), 0);
    return (long)st.st_size;
}

/* Flips one bit of any byte of any file, cuts files and removes them. */
static void test_damage(void **state)
{
    static const char *const files[] = { "step-9/model.safetensors", "step-9/state.safetensors", "step-9/manifest.json" };
    struct ckpt *c = NULL;
    struct err err;

    (void)state;
    publish_step(9);
    for (size_t f = 0; f < 3; f++) {
        for (long at = 0; at < size_of(files[f]); at++) {
            damage(files[f], at, 1u << (at % 7));
            if (ckpt_open(dir, 9, &ours, &c, &err) == 0) { /* only white space of the manifest has changed */
                assert_int_equal(f, 2);
                ckpt_close(c);
            } else {
                assert_int_equal(err.code, ERR_CORRUPT);
            }
            damage(files[f], at, 1u << (at % 7));
        }
        assert_int_equal(ckpt_open(dir, 9, &ours, &c, &err), 0);
        ckpt_close(c);
    }
    for (size_t f = 0; f < 3; f++) {
        assert_int_equal(truncate(in_dir(files[f]), size_of(files[f]) - 1), 0);
        if (f == 2) /* the last byte of the manifest is its newline */
            assert_int_equal(truncate(in_dir(files[f]), size_of(files[f]) / 2), 0);
        assert_int_equal(ckpt_open(dir, 9, &ours, &c, &err), ERR_CORRUPT);
        assert_int_equal(unlink(in_dir(files[f])), 0);
        assert_int_equal(ckpt_open(dir, 9, &ours, &c, &err), ERR_CORRUPT);
    }
}

static void test_falls_back(void **state)
{
    int64_t bytes;
    struct err err;

    (void)state;
    for (int64_t step = 1; step <= 4; step++)
        publish_step(step);
    damage("step-4/model.safetensors", size_of("step-4/model.safetensors") - 1, 1);
    assert_int_equal(unlink(in_dir("step-3/manifest.json")), 0);
    told = 0;
    assert_int_equal(pick(), 2);
    assert_int_equal(told, 2);
    assert_true(there("step-4.bad") && there("step-3.bad") && !there("step-4") && !there("step-3"));
    publish_step(4);
    damage("step-4/state.safetensors", 20, 4);
    assert_int_equal(write_step(4, &bytes, &err), 0); /* a damaged checkpoint is replaced */
    assert_int_equal(ckpt_publish(dir, 4, &err), 0);
    assert_int_equal(pick(), 4);
    assert_int_equal(told, 2);
}

static void test_identity(void **state)
{
    static const struct ckpt_identity other_store = { "store-b", "spec-1" }, other_spec = { "store-a", "spec-2" }, unknown = { "", "" };
    struct ckpt *c = NULL;
    int64_t step = -1;
    struct err err;

    (void)state;
    publish_step(6);
    assert_int_equal(ckpt_pick(dir, &other_store, tell, NULL, &step, &err), ERR_STATE);
    assert_non_null(strstr(err.msg, "store-b"));
    assert_int_equal(ckpt_pick(dir, &other_spec, tell, NULL, &step, &err), ERR_STATE);
    assert_true(there("step-6"));
    assert_int_equal(ckpt_pick(dir, &unknown, tell, NULL, &step, &err), 0);
    assert_int_equal(step, 6);
    assert_int_equal(ckpt_open(dir, 6, NULL, &c, &err), 0);
    ckpt_close(c);
}

static void put_file(const char *name, const char *text)
{
    FILE *f = fopen(in_dir(name), "w");

    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

/* A newer program's checkpoint is not damaged: it is left alone, and training must not start over beside it. */
static void test_newer_format(void **state)
{
    static const char said[] = "{\"format\":2,\"new\":true}";
    char hash[33], text[128];
    int64_t step = -1;
    struct err err;

    (void)state;
    publish_step(6);
    publish_step(8);
    hash_hex(hash_bytes(said, strlen(said), hash_name("manifest.json")), hash);
    snprintf(text, sizeof(text), "{\"format\": 2, \"new\": true, \"hash\": \"%s\"}", hash);
    put_file("step-8/manifest.json", text);
    assert_int_equal(ckpt_pick(dir, &ours, tell, NULL, &step, &err), ERR_UNSUPPORTED);
    assert_true(there("step-8"));
}

static void test_bad_manifests(void **state)
{
    static const char *const bad[] = { "",   "[]",           "[1]",   "{",
                                       "{}", "{\"hash\":7}", "\"x\"", "{\"hash\":\"00000000000000000000000000000000\"}" };
    struct ckpt *c = NULL;
    struct err err;

    (void)state;
    publish_step(6);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        put_file("step-6/manifest.json", bad[i]);
        assert_int_equal(ckpt_open(dir, 6, &ours, &c, &err), ERR_CORRUPT);
    }
    assert_int_equal(truncate(in_dir("step-6/manifest.json"), 100 << 20), 0);
    assert_int_equal(ckpt_open(dir, 6, &ours, &c, &err), ERR_CORRUPT);
}

/* A whole checkpoint under the name of another step, earlier or later, does not count as that step's. */
static void test_renamed(void **state)
{
    static const int64_t names[] = { 7, 11 };
    struct ckpt *c = NULL;
    struct err err;

    (void)state;
    publish_step(3);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char from[512], to[32];

        publish_step(9);
        snprintf(to, sizeof(to), "step-%lld", (long long)names[i]);
        snprintf(from, sizeof(from), "%s", in_dir("step-9"));
        assert_int_equal(rename(from, in_dir(to)), 0);
        assert_int_equal(ckpt_open(dir, names[i], &ours, &c, &err), ERR_CORRUPT);
        assert_non_null(strstr(err.msg, "its manifest is of step 9"));
        told = 0;
        assert_int_equal(pick(), 3);
        assert_int_equal(told, 1);
        assert_false(there(to));
    }
}

static void test_prune(void **state)
{
    struct err err;

    (void)state;
    for (int64_t step = 10; step <= 60; step += 10)
        publish_step(step);
    assert_int_equal(ckpt_prune(dir, 2, 20, (struct ckpt_due){ 10, 65, NULL, NULL }, &err), 0);
    assert_true(there("step-60") && there("step-50") && there("step-20"));
    assert_false(there("step-40") || there("step-30") || there("step-10"));
    assert_int_equal(ckpt_prune(dir, 1, -1, (struct ckpt_due){ 0, 0, NULL, NULL }, &err), 0);
    assert_true(there("step-60"));
    assert_false(there("step-50") || there("step-20"));
}

static bool is_before_35(const void *arg, int64_t step)
{
    (void)arg;
    return step < 35;
}

/* The newest checkpoint that a longer job shares with this job must stay: the longer job would continue from it. */
static void test_prune_keeps_the_way(void **state)
{
    struct err err;

    (void)state;
    for (int64_t step = 10; step <= 60; step += 10)
        publish_step(step);
    assert_int_equal(ckpt_prune(dir, 1, -1, (struct ckpt_due){ 10, 60, is_before_35, NULL }, &err), 0);
    assert_true(there("step-60") && there("step-30"));
    assert_false(there("step-50") || there("step-40") || there("step-20") || there("step-10"));
}

/* Checkpoints on request, as by a pause, take no place of the due ones, which are validated. */
static void test_prune_by_turns(void **state)
{
    static const int64_t steps[] = { 10, 20, 21, 22, 23, 30, 31, 35 };
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        publish_step(steps[i]);
    assert_int_equal(ckpt_prune(dir, 2, -1, (struct ckpt_due){ 10, 35, NULL, NULL }, &err), 0);
    assert_true(there("step-35") && there("step-30")); /* the last one is due, too */
    assert_true(there("step-31") && there("step-23"));
    assert_false(there("step-20") || there("step-10") || there("step-22") || there("step-21"));
    publish_step(36);
    publish_step(37);
    assert_int_equal(ckpt_prune(dir, 2, -1, (struct ckpt_due){ 10, 35, NULL, NULL }, &err), 0);
    assert_true(there("step-35") && there("step-30") && there("step-37") && there("step-36"));
    assert_false(there("step-31") || there("step-23"));
}

static void test_other_names(void **state)
{
    static const char *const names[] = { "step-", "step-01", "step-5x", "step-99999999999999999999", "step--3", "Step-4", "step-0" };
    struct err err;

    (void)state;
    publish_step(2);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_int_equal(mkdir(in_dir(names[i]), 0777), 0);
    assert_int_equal(pick(), 2);
    assert_int_equal(ckpt_prune(dir, 1, -1, (struct ckpt_due){ 0, 0, NULL, NULL }, &err), 0);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_true(there(names[i]));
    put_file("step-77", "a file where a folder should be");
    assert_int_equal(pick(), 2);
    assert_true(there("step-77.bad"));
}

static void test_errors(void **state)
{
    char path[8], long_dir[5000];
    int64_t bytes, step;
    struct err err;

    (void)state;
    assert_int_equal(write_step(0, &bytes, &err), ERR_INPUT);
    memset(long_dir, 'x', sizeof(long_dir) - 1);
    long_dir[sizeof(long_dir) - 1] = '\0';
    assert_int_equal(ckpt_publish(long_dir, 1, &err), -ENAMETOOLONG);
    assert_int_equal(ckpt_path("checkpoints", 1, path, sizeof(path), &err), -ENAMETOOLONG);
    assert_int_equal(mkdir(dir, 0777), 0);
    put_file("file", "");
    assert_int_equal(ckpt_pick(in_dir("file"), &ours, NULL, NULL, &step, &err), -ENOTDIR);
}

/* A failed write leaves no part of itself, and the checkpoint before it stays unchanged. */
static void test_disk_full(void **state)
{
    struct rlimit old, small;
    int64_t bytes;
    int rc = 0;
    struct err err;

    (void)state;
    publish_step(1);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_IGN);
    for (rlim_t limit = 0; limit < 1000 && rc <= 0; limit += 60) {
        small = (struct rlimit){ limit, old.rlim_max };
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        rc = write_step(2, &bytes, &err);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        if (rc == 0)
            break;
        assert_int_equal(rc, -EFBIG);
        assert_false(there(".tmp-step-2"));
    }
    assert_int_equal(rc, 0);
    assert_int_equal(pick(), 1);
}

/* Killed at any moment of writing, publishing and pruning: the picked checkpoint is whole, and only whole folders are
 * called step-<n>. */
static void write_forever(int64_t from)
{
    struct err err;
    int64_t bytes;

    for (int64_t step = from;; step++)
        if (write_step(step, &bytes, &err) < 0 || ckpt_publish(dir, step, &err) < 0 ||
            ckpt_prune(dir, 2, -1, (struct ckpt_due){ 1, 0, NULL, NULL }, &err) < 0)
            _exit(1);
}

/* Lets the child, which has stopped itself, run through that number of beginnings and ends of system calls. Kills it
 * there: before a call is carried out, or after. */
static void kill_at_call(pid_t pid, int stops)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    for (int i = 0; i < stops; i++) {
        assert_true(WIFSTOPPED(status));
        assert_int_equal(ptrace(PTRACE_SYSCALL, pid, NULL, NULL), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
    }
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

static void test_killed(void **state)
{
    int64_t last = 0;

    (void)state;
    told = 0;
    for (int stops = 1; stops < 300; stops += 7) {
        pid_t pid = fork();
        int64_t step;

        if (pid == 0) {
            if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0 || raise(SIGSTOP) != 0)
                _exit(2);
            write_forever(last + 1);
        }
        kill_at_call(pid, stops);
        step = pick();
        assert_true(step >= last);
        last = step;
    }
    assert_int_equal(told, 0);
    assert_true(last > 2); /* each was killed in another moment of writing, publishing or pruning */
}

static void test_best_link_and_later_steps(void **state)
{
    char target[64] = "";
    struct err err;

    (void)state;
    for (int64_t step = 4; step <= 12; step += 4)
        publish_step(step);
    assert_false(ckpt_has_best(dir));
    assert_int_equal(ckpt_link_best(dir, 4, &err), 0);
    assert_int_equal(ckpt_link_best(dir, 8, &err), 0);
    assert_int_equal(ckpt_link_best(dir, 8, &err), 0);
    assert_int_equal(readlink(in_dir("../best"), target, sizeof target - 1), strlen("checkpoints/step-8"));
    assert_string_equal(target, "checkpoints/step-8");
    assert_true(there("../best/model.safetensors"));
    assert_int_equal(ckpt_drop_after(dir, 8, &err), 0);
    assert_true(ckpt_has_best(dir) && there("step-4") && !there("step-12"));
    assert_int_equal(ckpt_drop_after(dir, 0, &err), 0);
    assert_false(ckpt_has_best(dir)); /* it leads nowhere */
    assert_int_equal(pick(), 0);
    assert_int_equal(ckpt_drop_after(in_dir("none"), 0, &err), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, fresh, clean),
        cmocka_unit_test_setup_teardown(test_never_rewritten, fresh, clean),
        cmocka_unit_test_setup_teardown(test_unpublished, fresh, clean),
        cmocka_unit_test_setup_teardown(test_damage, fresh, clean),
        cmocka_unit_test_setup_teardown(test_falls_back, fresh, clean),
        cmocka_unit_test_setup_teardown(test_identity, fresh, clean),
        cmocka_unit_test_setup_teardown(test_newer_format, fresh, clean),
        cmocka_unit_test_setup_teardown(test_bad_manifests, fresh, clean),
        cmocka_unit_test_setup_teardown(test_renamed, fresh, clean),
        cmocka_unit_test_setup_teardown(test_prune, fresh, clean),
        cmocka_unit_test_setup_teardown(test_prune_keeps_the_way, fresh, clean),
        cmocka_unit_test_setup_teardown(test_prune_by_turns, fresh, clean),
        cmocka_unit_test_setup_teardown(test_other_names, fresh, clean),
        cmocka_unit_test_setup_teardown(test_errors, fresh, clean),
        cmocka_unit_test_setup_teardown(test_best_link_and_later_steps, fresh, clean),
        cmocka_unit_test_setup_teardown(test_disk_full, fresh, clean),
        cmocka_unit_test_setup_teardown(test_killed, fresh, clean),
    };

    return cmocka_run_group_tests_name("ckpt", tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/daemon/launch/test_full_disk.c - uses: proto daemon
 * What detd writes about a job with a ticket on a disk that is full to the last byte: a file system of its own. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/launch/block.h"
#include "daemon/launch/launch.h"
#include "proto/err.h"
#include "proto/host/gpulock.h"
#include "tests/stand/harness.h"

static char root[TEMP_MAX], jobs[TEMP_MAX + 8];

static const char *at(const char *name)
{
    static char path[2 * TEMP_MAX];

    snprintf(path, sizeof path, "%s/%s", root, name);
    return path;
}

static void put(const char *name, const char *text)
{
    int fd = open(at(name), O_WRONLY | O_CREAT | O_APPEND, 0600);

    assert_true(fd >= 0);
    if (text[0])
        assert_true(write(fd, text, strlen(text)) > 0);
    close(fd);
}

static void fill(void)
{
    static char page[4096] = "x";
    int fd = open(at("filler"), O_WRONLY | O_CREAT | O_APPEND, 0600);

    assert_true(fd >= 0);
    while (write(fd, page, sizeof page) > 0)
        ;
    assert_int_equal(errno, ENOSPC);
    close(fd);
}

/* Root of a user namespace may mount, but needs its number to own files. */
static bool is_private(void)
{
    char map[64];
    uid_t uid = geteuid();
    int fd;

    if (uid == 0)
        return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
        return false;
    fd = open("/proc/self/uid_map", O_WRONLY);
    snprintf(map, sizeof map, "0 %u 1", uid);
    if (fd < 0 || write(fd, map, strlen(map)) < 0)
        return false;
    close(fd);
    return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

static int setup(void **state)
{
    struct err err;

    (void)state;
    assert_non_null(mkdtemp(temp_path(root, sizeof root, "full-XXXXXX")));
    if (mount("full", root, "tmpfs", 0, "size=256k,mode=700") < 0)
        fail_msg("mount a small disk: %s", strerror(errno));
    snprintf(jobs, sizeof jobs, "%s/jobs", root);
    assert_int_equal(mkdir(at("jobs"), 0700) | mkdir(at("held"), 0700) | mkdir(at("held/1"), 0700), 0);
    put("held/1/lock", "");
    assert_int_equal(block_make(at("held/1/want"), &err), 0);
    fill();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    umount(root);
    rmdir(root);
    return 0;
}

static void a_note_is_written_and_cleared(void **state)
{
    char note[BLOCK_NOTE_MAX + 1], longest[BLOCK_NOTE_MAX + 1] = "";

    (void)state;
    memset(longest, 'a', BLOCK_NOTE_MAX);
    assert_true(block_write(at("held/1/want"), longest));
    block_read(at("held/1/want"), note);
    assert_string_equal(note, longest);
    assert_true(block_write(at("held/1/want"), "pause"));
    block_read(at("held/1/want"), note);
    assert_string_equal(note, "pause");
    assert_true(block_write(at("held/1/want"), ""));
    block_read(at("held/1/want"), note);
    assert_string_equal(note, "");
}

static void a_block_is_made_in_time_or_not_at_all(void **state)
{
    char note[BLOCK_NOTE_MAX + 1];
    struct err err;

    (void)state;
    assert_int_equal(block_make(at("late"), &err), -ENOSPC);
    assert_int_equal(access(at("late"), F_OK), -1);
    put("empty", "");
    assert_false(block_write(at("empty"), "pause"));
    assert_false(block_write(at("absent"), "pause"));
    block_read(at("absent"), note);
    assert_string_equal(note, "");
    assert_int_equal(mkfifo(at("fifo"), 0600), 0);
    assert_false(block_write(at("fifo"), "pause"));
    block_read(at("fifo"), note);
    assert_string_equal(note, "");
}

static ino_t lock_number(void)
{
    struct stat st;

    assert_int_equal(stat(at("held/1/lock"), &st), 0);
    return st.st_ino;
}

/* A process that keeps the old lock holds up nothing. The job counts as started before and after the renewal. */
static void a_lock_is_renewed(void **state)
{
    static const struct gpulocks none;

    (void)state;
    assert_false(launch_has_spool(jobs, 1));
    launch_note_session(jobs, 1, 4321);
    assert_true(launch_has_spool(jobs, 1));
    for (int i = 0; i < 2; i++) {
        ino_t before = lock_number();

        launch_renew_locks(jobs, 1, &none, "");
        assert_true(lock_number() != before);
        assert_true(launch_has_spool(jobs, 1));
        assert_int_equal(launch_session(jobs, 1), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_note_is_written_and_cleared, setup, teardown),
        cmocka_unit_test_setup_teardown(a_block_is_made_in_time_or_not_at_all, setup, teardown),
        cmocka_unit_test_setup_teardown(a_lock_is_renewed, setup, teardown),
    };

    if (!is_private()) {
        printf("skip: no file system can be mounted here\n");
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

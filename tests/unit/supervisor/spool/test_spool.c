/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/supervisor/spool/test_spool.c - uses: proto supervisor */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/err.h"
#include "supervisor/spool/spool.h"
#include "tests/stand/harness.h"

enum { SMALL = 4096 };
static char dir[TEMP_MAX];

static bool no_room; /* on the disk, as on file systems where overwriting needs room */

ssize_t pwrite(int fd, const void *bytes, size_t len, off_t at)
{
    if (!no_room)
        return syscall(SYS_pwrite64, fd, bytes, len, at);
    errno = ENOSPC;
    return -1;
}

static struct spool *open_spool(size_t bytes, uint64_t last)
{
    struct spool *s = NULL;
    struct err err = { 0 };

    if (spool_open(dir, bytes, last, &s, &err) < 0)
        fail_msg("%s", err.msg);
    return s;
}

static int clean(void **state)
{
    char path[TEMP_MAX + 16];

    (void)state;
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/spool.%d", dir, i);
        unlink(path);
    }
    return 0;
}

/* "record N" and N % 50 dots, so that lengths differ. */
static int text_of(uint64_t n, char *text)
{
    return sprintf(text, "record %llu%.*s", (unsigned long long)n, (int)(n % 50), "..................................................");
}

static int append(struct spool *s)
{
    char text[128];
    uint64_t seq = 0;
    int rc = spool_append(s, text, (size_t)text_of(spool_last(s) + 1, text), &seq, NULL);

    if (rc == 0)
        assert_int_equal(seq, spool_last(s));
    return rc;
}

/* Reads everything behind `after` and compares; returns the last number. */
static uint64_t check(struct spool *s, uint64_t after)
{
    struct spool_cursor c;
    const char *payload;
    char text[128];
    uint64_t seq, last = after;
    size_t len;
    int rc;

    assert_int_equal(spool_seek(s, after, &c, NULL), 0);
    while ((rc = spool_next(s, &c, &payload, &len, &seq, NULL)) == 1) {
        assert_int_equal(seq, last + 1);
        assert_int_equal(len, text_of(seq, text));
        assert_string_equal(payload, text);
        last = seq;
    }
    assert_int_equal(rc, 0);
    return last;
}

static void keeps_records_over_a_reopen(void **state)
{
    struct spool *s = open_spool(SMALL, 0);

    (void)state;
    for (int i = 0; i < 20; i++)
        assert_int_equal(append(s), 0);
    assert_int_equal(spool_sync(s, NULL), 0);
    assert_int_equal(spool_set_store_id(s, "abc", NULL), 0);
    spool_close(s);
    s = open_spool(SMALL, 7);
    assert_int_equal(spool_last(s), 20);
    assert_int_equal(spool_acked(s), 7);
    assert_string_equal(spool_store_id(s), "abc");
    assert_int_equal(check(s, 7), 20);
    assert_int_equal(check(s, 20), 20);
    assert_int_equal(append(s), 0);
    assert_int_equal(check(s, 0), 21);
    spool_close(s);
}

/* Room may be missing anywhere, also at the change of segments: the record is not there, and the next try gives it the
 * same number. */
static void room_that_is_missing_for_a_while(void **state)
{
    struct spool *s = open_spool(SMALL, 0);

    (void)state;
    for (uint64_t i = 1; i <= 160; i++) {
        uint64_t acked = i > 30 ? i - 30 : 0;

        no_room = true;
        assert_int_equal(append(s), -ENOSPC);
        assert_int_equal(spool_last(s), i - 1);
        if (i % 10 == 0) { /* a crash here leaves whole records */
            no_room = false;
            spool_close(s);
            s = open_spool(SMALL, acked);
            assert_int_equal(check(s, acked), i - 1);
        }
        no_room = true;
        assert_int_equal(append(s), -ENOSPC);
        no_room = false;
        assert_int_equal(append(s), 0);
        spool_ack(s, acked);
    }
    spool_close(s);
}

static void a_cursor_sees_later_records(void **state)
{
    struct spool *s = open_spool(SMALL, 0);
    struct spool_cursor c;
    const char *payload;
    uint64_t seq;
    size_t len;

    (void)state;
    assert_int_equal(spool_seek(s, 0, &c, NULL), 0);
    for (uint64_t i = 1; i <= 300; i++) { /* around the two segments several times */
        assert_int_equal(spool_next(s, &c, &payload, &len, &seq, NULL), 0);
        assert_int_equal(append(s), 0);
        assert_int_equal(spool_next(s, &c, &payload, &len, &seq, NULL), 1);
        assert_int_equal(seq, i);
        spool_ack(s, seq);
    }
    spool_close(s);
}

static void full_refuses_and_acks_make_room(void **state)
{
    struct spool *s = open_spool(SMALL, 0);
    struct err err;
    uint64_t last;

    (void)state;
    assert_true(spool_has_room(s, 100));
    while (append(s) == 0)
        continue;
    last = spool_last(s);
    assert_false(spool_has_room(s, 100));
    assert_int_equal(spool_append(s, "x", 1, NULL, &err), -ENOSPC);
    assert_int_equal(check(s, 0), last);
    spool_ack(s, last / 4); /* a part of the older segment is still in use */
    assert_false(spool_has_room(s, 100));
    spool_ack(s, last - 1);
    assert_true(spool_has_room(s, 100));
    assert_int_equal(append(s), 0);
    assert_int_equal(check(s, last - 1), last + 1);
    spool_close(s);
    s = open_spool(SMALL, last - 1);
    assert_int_equal(check(s, last - 1), last + 1);
    spool_close(s);
}

/* A reader that acked says that it has less again: the records still in the spool are kept for it, and the first of
 * them is known. */
static void an_ack_that_is_taken_back(void **state)
{
    struct spool *s = open_spool(SMALL, 0);
    uint64_t last, first;

    (void)state;
    assert_int_equal(spool_first(s), 1);
    while (append(s) == 0)
        continue;
    last = spool_last(s);
    assert_int_equal(spool_first(s), 1);
    spool_ack(s, last);
    assert_int_equal(append(s), 0); /* into the oldest segment */
    first = spool_first(s);
    assert_true(first > 2 && first < last);
    spool_unack(s, last + 5);
    assert_int_equal(spool_acked(s), last);
    spool_unack(s, first - 1);
    assert_int_equal(spool_acked(s), first - 1);
    while (append(s) == 0)
        continue;
    assert_int_equal(spool_first(s), first);
    assert_true(check(s, first - 1) > last + 1);
    spool_close(s);
    s = open_spool(SMALL, 3);
    assert_int_equal(spool_first(s), first);
    spool_close(s);
}

/* Only a single process may open a spool: a second would write records that the first has written already. */
static void is_one_processes(void **state)
{
    struct spool *s = open_spool(SMALL, 0), *other = NULL;
    struct err err;

    (void)state;
    assert_int_equal(append(s), 0);
    assert_int_equal(spool_open(dir, SMALL, 0, &other, &err), -EAGAIN);
    assert_int_equal(check(s, 0), 1);
    spool_close(s);
    s = open_spool(SMALL, 0);
    assert_int_equal(check(s, 0), 1);
    spool_close(s);
}

/* Around and around: old records lie behind every new record in the segments, and a reopen never reads them. */
static void recycled_segments(void **state)
{
    struct spool *s = open_spool(SMALL, 0);

    (void)state;
    for (uint64_t i = 1; i <= 2000; i++) {
        assert_int_equal(append(s), 0);
        if (i > 30)
            spool_ack(s, i - 30);
        if (i % 7 == 0) {
            uint64_t acked = spool_acked(s);

            spool_close(s);
            s = open_spool(SMALL, acked);
            assert_int_equal(spool_last(s), i);
            assert_int_equal(spool_lost(s), 0);
            assert_int_equal(check(s, acked), i);
        }
    }
    spool_close(s);
}

static void copy_file(const char *from, const char *to, off_t cut_at)
{
    char bytes[SMALL];
    int in = open(from, O_RDONLY), out = open(to, O_RDWR | O_CREAT | O_TRUNC, 0600);
    ssize_t n = read(in, bytes, sizeof bytes);

    assert_true(n == SMALL);
    if (cut_at >= 0) /* a torn write leaves the earlier bytes behind it, here 0xff */
        memset(bytes + cut_at, 0xff, (size_t)(SMALL - cut_at));
    assert_true(write(out, bytes, (size_t)n) == n);
    close(in);
    close(out);
}

static off_t end_of_used(const char *path)
{
    char bytes[SMALL];
    int fd = open(path, O_RDONLY);
    off_t end = read(fd, bytes, sizeof bytes);

    close(fd);
    while (end > 0 && bytes[end - 1] == 0)
        end--;
    return end;
}

static void torn_at_every_byte(void **state)
{
    char path[TEMP_MAX + 16], copy[TEMP_MAX + 16];
    struct spool *s = open_spool(SMALL, 0);
    off_t before, after;

    (void)state;
    snprintf(path, sizeof path, "%s/spool.0", dir);
    snprintf(copy, sizeof copy, "%s/copy", dir);
    for (int i = 0; i < 9; i++)
        assert_int_equal(append(s), 0);
    before = end_of_used(path);
    assert_int_equal(append(s), 0);
    after = end_of_used(path);
    spool_close(s);
    copy_file(path, copy, -1);
    for (off_t at = (before + 7) & ~7L; at < after; at++) {
        copy_file(copy, path, at);
        s = open_spool(SMALL, 3);
        assert_int_equal(spool_last(s), 9);
        assert_int_equal(check(s, 3), 9);
        assert_int_equal(append(s), 0); /* the same number again, whole */
        spool_close(s);
        s = open_spool(SMALL, 3);
        assert_int_equal(check(s, 0), 10);
        spool_close(s);
    }
    unlink(copy);
}

/* A cut record is written again with another text. The whole record behind the old text must not follow the new
 * record. */
static void an_old_tail_does_not_follow_a_new_record(void **state)
{
    char path[TEMP_MAX + 16], byte = '!';
    struct spool *s = open_spool(SMALL, 0);
    int fd;

    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(spool_append(s, "aaaaaaaa", 8, NULL, NULL), 0);
    spool_close(s);
    snprintf(path, sizeof path, "%s/spool.0", dir);
    fd = open(path, O_RDWR);
    assert_true(pwrite(fd, &byte, 1, 512 + 24 + 20) == 1); /* inside the second record of 24 bytes */
    close(fd);
    s = open_spool(SMALL, 0);
    assert_int_equal(spool_last(s), 1);
    assert_int_equal(spool_append(s, "bbbbbbbb", 8, NULL, NULL), 0);
    spool_close(s);
    s = open_spool(SMALL, 0);
    assert_int_equal(spool_last(s), 2);
    spool_close(s);
}

static void numbering_goes_on_after_the_larger(void **state)
{
    struct spool *s = open_spool(SMALL, 41);

    (void)state;
    assert_int_equal(spool_last(s), 41);
    assert_int_equal(append(s), 0);
    assert_int_equal(spool_last(s), 42);
    spool_close(s);
    s = open_spool(SMALL, 100); /* the store is ahead: an old copy of the folder */
    assert_int_equal(append(s), 0);
    assert_int_equal(spool_last(s), 101);
    assert_int_equal(check(s, 100), 101);
    spool_close(s);
}

static void damage_between_segments_is_told(void **state)
{
    char path[TEMP_MAX + 16], byte = '!';
    struct spool *s = open_spool(SMALL, 0);
    uint64_t last;
    int fd;

    (void)state;
    while (append(s) == 0)
        continue;
    last = spool_last(s);
    spool_close(s);
    snprintf(path, sizeof path, "%s/spool.0", dir);
    fd = open(path, O_RDWR);
    assert_true(pwrite(fd, &byte, 1, 2000) == 1);
    close(fd);
    s = open_spool(SMALL, last); /* all of it is committed: nothing is lost */
    assert_int_equal(spool_lost(s), 0);
    assert_int_equal(spool_last(s), last);
    spool_close(s);
    clean(NULL);
    s = open_spool(SMALL, 0);
    while (append(s) == 0)
        continue;
    spool_close(s);
    fd = open(path, O_RDWR);
    assert_true(pwrite(fd, &byte, 1, 2000) == 1);
    close(fd);
    s = open_spool(SMALL, 0);
    assert_true(spool_last(s) > 0 && spool_last(s) < last);
    assert_int_equal(spool_lost(s), last - spool_last(s));
    assert_int_equal(append(s), 0);
    assert_int_equal(check(s, 0), spool_last(s));
    spool_close(s);
}

/* An existing spool stays: it may hold records. */
static void what_cannot_be_made_leaves_no_files(void **state)
{
    char path[2][TEMP_MAX + 16];
    struct spool *s = NULL;
    struct err err;

    (void)state;
    for (int i = 0; i < 2; i++)
        snprintf(path[i], sizeof path[i], "%s/spool.%d", dir, i);
    assert_int_equal(symlink("nowhere", path[1]), 0); /* which is never followed */
    assert_true(spool_open(dir, SMALL, 0, &s, &err) < 0);
    assert_int_equal(access(path[0], F_OK), -1);
    unlink(path[1]);
    s = open_spool(SMALL, 0);
    assert_int_equal(append(s), 0);
    spool_close(s);
    unlink(path[1]);
    assert_int_equal(symlink("nowhere", path[1]), 0);
    assert_true(spool_open(dir, SMALL, 0, &s, &err) < 0);
    unlink(path[1]);
    s = open_spool(SMALL, 0);
    assert_int_equal(check(s, 0), 1);
    spool_close(s);
}

static void limits(void **state)
{
    static char big[SPOOL_MAX_RECORD + 1];
    struct spool *s = open_spool(SPOOL_SEGMENT_BYTES, 0);
    struct err err;
    struct stat st;
    char path[TEMP_MAX + 16];

    (void)state;
    assert_int_equal(spool_append(s, big, sizeof big, NULL, &err), ERR_INPUT);
    assert_int_equal(spool_append(s, big, 0, NULL, &err), ERR_INPUT);
    assert_int_equal(spool_append(s, big, SPOOL_MAX_RECORD, NULL, &err), 0);
    assert_int_equal(spool_set_store_id(s, "0123456789012345678901234567890123456789012345678901234567890123", &err), ERR_INPUT);
    spool_close(s);
    snprintf(path, sizeof path, "%s/spool.1", dir);
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_blocks * 512LL >= SPOOL_SEGMENT_BYTES); /* room is there before it is needed */
    assert_int_equal(spool_open("/nonexistent", SMALL, 0, &s, &err), -ENOENT);
    assert_non_null(strstr(err.msg, "/nonexistent/spool.0"));
}

/* kill -9 while another process appends: every record that it reported through a pipe as appended must be there. */
static void killed_while_it_writes(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        uint64_t told = 0, n;
        struct spool *s;
        int fds[2];
        pid_t pid;

        clean(NULL);
        assert_int_equal(pipe(fds), 0);
        pid = fork();
        if (pid == 0) {
            s = open_spool(SPOOL_SEGMENT_BYTES, 0);
            for (;;) {
                append(s);
                n = spool_last(s);
                if (write(fds[1], &n, sizeof n) < 0)
                    _exit(1);
            }
        }
        close(fds[1]);
        while (told < 50 + 97 * (uint64_t)round)
            assert_true(read(fds[0], &told, sizeof told) == sizeof told);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        while (read(fds[0], &n, sizeof n) == sizeof n)
            told = n;
        close(fds[0]);
        s = open_spool(SPOOL_SEGMENT_BYTES, 0);
        assert_true(spool_last(s) >= told && spool_last(s) <= told + 1);
        assert_int_equal(check(s, 0), spool_last(s));
        spool_close(s);
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup(f, clean)
    const struct CMUnitTest tests[] = {
        TEST(keeps_records_over_a_reopen),
        TEST(room_that_is_missing_for_a_while),
        TEST(a_cursor_sees_later_records),
        TEST(full_refuses_and_acks_make_room),
        TEST(an_ack_that_is_taken_back),
        TEST(is_one_processes),
        TEST(recycled_segments),
        TEST(torn_at_every_byte),
        TEST(an_old_tail_does_not_follow_a_new_record),
        TEST(numbering_goes_on_after_the_larger),
        TEST(damage_between_segments_is_told),
        TEST(what_cannot_be_made_leaves_no_files),
        TEST(limits),
        TEST(killed_while_it_writes),
    };
    int rc;

    if (!mkdtemp(temp_path(dir, sizeof dir, "detd-spool-XXXXXX")))
        return 1;
    rc = cmocka_run_group_tests(tests, NULL, NULL);
    clean(NULL);
    rmdir(dir);
    return rc;
}

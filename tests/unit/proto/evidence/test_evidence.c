/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/proto/evidence/test_evidence.c - uses: proto
 * Evidence as it is written and read: records and details come back. Torn data, and data of another step or run, counts
 * as missing. A new run leaves no data of the old run. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/err.h"
#include "proto/evidence/evidence.h"
#include "proto/evidence/evidence_form.h"
#include "proto/tier.h"
#include "tests/stand/harness.h"

enum { SHARDS = 4, TENSORS = 3, DETAIL_BYTES = 8 + 16 * (2 * SHARDS + 3 + 2 * TENSORS) + 8 };

static struct evidence_tensor tensors[] = { { "conv.weight", 432, true }, { "bn.running_mean", 16, false }, { "conv.bias", 16, true } };
static struct evidence_head head = {
    .tensors = true, .spec = { { 1, 2 } }, .data = { { 3, 4 } }, .shards = SHARDS, .ntensors = TENSORS, .tensor = tensors
};
static char dir[TEMP_MAX], path[TEMP_MAX + 32];

static const char *in_dir(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static bool differ(struct hash128 a, struct hash128 b)
{
    return memcmp(&a, &b, sizeof a) != 0;
}

static int make_dir(void **state)
{
    (void)state;
    temp_path(dir, sizeof dir, "evidence.XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    static const char *const names[] = { EVIDENCE_HEAD_FILE, EVIDENCE_LOG_FILE, EVIDENCE_RING_FILE, EVIDENCE_TENSORS_FILE, "other" };

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(in_dir(names[i]));
    return rmdir(dir); /* fails if another file was left */
}

static struct hash128 some(int64_t step, uint64_t what)
{
    return hash_fold_u64(hash_fold_u64((struct hash128){ { 7, 8 } }, (uint64_t)step), what);
}

static struct evidence_record record_of(int64_t step)
{
    struct evidence_record r = { .step = step,
                                 .attempt = 3,
                                 .ranks = 0x102,
                                 .tier = TIER_WORLD,
                                 .skipped = step % 7 == 0,
                                 .validated = step % 5 == 0,
                                 .lr = 0.5f,
                                 .loss = -0.0f };

    for (int i = 0; i < EVIDENCE_PARTS; i++)
        r.part[i] = some(step, (uint64_t)i);
    r.chain = some(step, 99);
    return r;
}

static void fill_detail(int64_t step, struct evidence_detail *d)
{
    d->step = step;
    for (int i = 0; i < SHARDS; i++) {
        d->data[i] = some(step, 100 + (uint64_t)i);
        d->loss[i] = some(step, 200 + (uint64_t)i);
    }
    for (int i = 0; i < TENSORS; i++) {
        d->gradient[i] = some(step, 300 + (uint64_t)i);
        d->weight[i] = some(step, 400 + (uint64_t)i);
    }
    for (int i = 0; i < EVIDENCE_STATES; i++)
        d->state[i] = some(step, 500 + (uint64_t)i);
}

static void patch(const char *name, int64_t at, const void *bytes, size_t n)
{
    int fd = open(in_dir(name), O_WRONLY);

    assert_true(fd >= 0 && pwrite(fd, bytes, n, at) == (ssize_t)n);
    close(fd);
}

static struct evidence_log *open_log(const struct evidence_head *h, bool want_anew)
{
    struct evidence_log *l = NULL;
    struct err err = { 0 };
    bool anew = !want_anew;

    assert_int_equal(evidence_log_open(dir, h, &l, &anew, &err), 0);
    assert_int_equal(anew, want_anew);
    return l;
}

static struct evidence *open_evidence(void)
{
    struct evidence *e = NULL;
    struct err err = { 0 };
    int rc = evidence_open(dir, &e, &err);

    if (rc < 0)
        fail_msg("%s", err.msg);
    return e;
}

/* Returns the step of the record that stood there. */
static int64_t write_record(struct evidence_log *l, const struct evidence_record *r)
{
    struct evidence_record before;
    struct evidence_detail d;
    struct err err = { 0 };

    assert_int_equal(evidence_detail_new(&head, &d, &err), 0);
    fill_detail(r->step, &d);
    assert_int_equal(evidence_log_write(l, r, &d, &before, &err), 0);
    evidence_detail_free(&d);
    return before.step;
}

static int64_t write_step(struct evidence_log *l, int64_t step)
{
    struct evidence_record r = record_of(step);

    return write_record(l, &r);
}

static void check_record(const struct evidence_record *got, int64_t step)
{
    struct evidence_record want = record_of(step);

    assert_true(got->step == step && got->attempt == 3 && got->ranks == 0x102 && got->tier == TIER_WORLD && got->skipped == want.skipped &&
                got->validated == want.validated);
    assert_memory_equal(&got->lr, &want.lr, sizeof want.lr);
    assert_memory_equal(&got->loss, &want.loss, sizeof want.loss);
    assert_memory_equal(got->part, want.part, sizeof want.part);
    assert_memory_equal(&got->chain, &want.chain, sizeof want.chain);
}

static bool detail_is_there(const struct evidence *e, int64_t step)
{
    struct evidence_detail got, want;
    struct err err = { 0 };
    bool there;

    assert_int_equal(evidence_detail_new(&head, &got, &err), 0);
    assert_int_equal(evidence_detail_new(&head, &want, &err), 0);
    fill_detail(step, &want);
    there = evidence_read_detail(e, step, &got);
    if (there) {
        assert_true(got.step == step);
        assert_memory_equal(got.data, want.data, (2 * SHARDS + 2 * TENSORS) * sizeof *got.data); /* one array */
        assert_memory_equal(got.state, want.state, sizeof want.state);
    }
    evidence_detail_free(&got);
    evidence_detail_free(&want);
    return there;
}

static void comes_back(void **state)
{
    struct evidence_log *l = open_log(&head, true);
    struct evidence_record r;
    struct evidence *e = open_evidence(); /* while it is written */
    struct err err = { 0 };

    (void)state;
    assert_true(evidence_steps(e) == 0 && !evidence_read(e, 1, &r));
    for (int64_t s = 1; s <= 420; s++)
        assert_true(write_step(l, s) == 0);
    assert_int_equal(evidence_log_sync(l, &err), 0);
    assert_true(evidence_steps(e) == 420);
    assert_true(evidence_head_equal(evidence_head(e), &head));
    for (int64_t s = 1; s <= 420; s++) {
        assert_true(evidence_read(e, s, &r));
        check_record(&r, s);
        assert_int_equal(detail_is_there(e, s),
                         s > 420 - EVIDENCE_RING || s % EVIDENCE_EVERY == 0); /* the ring no longer has the details of step 100 */
    }
    assert_false(evidence_read(e, 0, &r) || evidence_read(e, -1, &r) || evidence_read(e, 421, &r) || evidence_read(e, INT64_MAX, &r));
    assert_false(detail_is_there(e, 0) || detail_is_there(e, -256) || detail_is_there(e, 421) || detail_is_there(e, INT64_MAX));
    evidence_close(e);
    evidence_log_close(l);
}

/* Sizes and places are part of the format: another program reads them too. */
static void has_its_form(void **state)
{
    struct evidence_log *l = open_log(&head, true);
    struct stat st;
    unsigned char bytes[EVIDENCE_RECORD_BYTES];
    int64_t step;

    (void)state;
    write_step(l, 100);
    evidence_log_close(l);
    assert_true(stat(in_dir(EVIDENCE_LOG_FILE), &st) == 0 && st.st_size == 100 * EVIDENCE_RECORD_BYTES);
    assert_true(stat(in_dir(EVIDENCE_RING_FILE), &st) == 0 && st.st_size == 101 * DETAIL_BYTES);
    assert_true(stat(in_dir(EVIDENCE_TENSORS_FILE), &st) == 0 && st.st_size == DETAIL_BYTES);
    int fd = open(in_dir(EVIDENCE_LOG_FILE), O_RDONLY);
    assert_true(pread(fd, bytes, sizeof bytes, 99 * EVIDENCE_RECORD_BYTES) == sizeof bytes);
    close(fd);
    memcpy(&step, bytes, 8);
    assert_true(step == 100 && bytes[8] == 3 && bytes[12] == 2 && bytes[13] == 1 && bytes[14] == TIER_WORLD && bytes[15] == 2);
}

static void range(void **state)
{
    enum { N = 1500 };
    static struct evidence_record r[N];
    struct evidence_log *l = open_log(&head, true);
    struct evidence *e = open_evidence();

    (void)state;
    for (int64_t s = 1000; s <= 1700; s++)
        write_step(l, s);
    evidence_read_range(e, 400, N, r);
    for (int i = 0; i < N; i++)
        assert_true(r[i].step == (400 + i >= 1000 && 400 + i <= 1700 ? 400 + i : 0));
    check_record(&r[700], 1100);
    assert_true(evidence_next(e, 1) > 900 && evidence_next(e, 1) <= 1000); /* the hole ends at a page of the file */
    assert_true(evidence_next(e, 1300) == 1300 && evidence_next(e, 1701) > 1701);
    evidence_close(e);
    evidence_log_close(l);
}

/* The log reports its earlier records, and continues with the same head. */
static void goes_on(void **state)
{
    struct evidence_log *l = open_log(&head, true);
    struct evidence *e;

    (void)state;
    assert_true(write_step(l, 1) == 0 && write_step(l, 2) == 0);
    evidence_log_close(l);
    l = open_log(&head, false);
    assert_true(write_step(l, 2) == 2 && write_step(l, 3) == 0);
    evidence_log_close(l);
    e = open_evidence();
    assert_true(evidence_steps(e) == 3 && detail_is_there(e, 1));
    evidence_close(e);
}

/* A record with another chain replaces one: the later records and details belong to a discarded run, so they are
 * dropped. With the same chain they stay. */
static void drops_what_followed(void **state)
{
    struct evidence_log *l = open_log(&head, true);
    struct evidence *e = open_evidence();
    struct evidence_record r;

    (void)state;
    for (int64_t s = 1; s <= 301; s++)
        write_step(l, s);
    assert_true(write_step(l, 298) == 298 && evidence_steps(e) == 301 && detail_is_there(e, 301));
    r = record_of(299);
    r.chain.lane[1]++;
    assert_true(write_record(l, &r) == 299 && evidence_steps(e) == 299);
    assert_true(evidence_read(e, 299, &r) && !evidence_read(e, 300, &r) && !evidence_read(e, 301, &r));
    assert_true(detail_is_there(e, 299) && !detail_is_there(e, 300) && !detail_is_there(e, 301)); /* of the ring, and of the kept ones */
    assert_true(write_step(l, 300) == 0 && detail_is_there(e, 300) && !detail_is_there(e, 301));
    evidence_close(e);
    evidence_log_close(l);
}

/* A damaged record has no chain: the records after it may belong to any run. */
static void drops_what_follows_damage(void **state)
{
    struct evidence_log *l = open_log(&head, true);
    struct evidence *e = open_evidence();
    struct evidence_record r;

    (void)state;
    for (int64_t s = 1; s <= 20; s++)
        write_step(l, s);
    patch(EVIDENCE_LOG_FILE, 10 * EVIDENCE_RECORD_BYTES + 50, "x", 1);
    assert_true(write_step(l, 11) == 0 && evidence_steps(e) == 11 && evidence_read(e, 11, &r));
    evidence_close(e);
    evidence_log_close(l);
}

/* Any member of the head makes a new run. */
static void begins_anew(void **state)
{
    struct evidence_tensor others[TENSORS];
    struct evidence_head other[8];
    struct evidence_record r;

    (void)state;
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        other[i] = head;
    other[0].tensors = false;
    other[1].spec.lane[1]++;
    other[2].data.lane[0]++;
    other[3].shards = 2;
    other[4].ntensors = 2;
    for (int i = 5; i < 8; i++)
        other[i].tensor = others;
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        memcpy(others, tensors, sizeof others);
        if (i == 5)
            others[1].name[0] = 'B';
        else if (i == 6)
            others[1].count++;
        else
            others[1].gradient = true;
        assert_true(differ(evidence_start(&other[i]), evidence_start(&head)));
        evidence_log_close(open_log(&head, true));
        struct evidence_log *l = open_log(&head, false);
        write_step(l, 100);
        evidence_log_close(l);
        evidence_log_close(open_log(&other[i], true));
        struct evidence *e = open_evidence();
        assert_true(evidence_head_equal(evidence_head(e), &other[i]) && evidence_steps(e) == 0 && !evidence_read(e, 100, &r));
        evidence_close(e);
    }
}

/* An unreadable head counts as another run's head. */
static void damaged_head(void **state)
{
    struct evidence *e = NULL;
    struct err err = { 0 };

    (void)state;
    evidence_log_close(open_log(&head, true));
    assert_int_equal(truncate(in_dir(EVIDENCE_HEAD_FILE), 20), 0);
    assert_int_equal(evidence_open(dir, &e, &err), ERR_INPUT);
    assert_true(strstr(err.msg, "/evidence.json': not JSON: line 1") != NULL);
    evidence_log_close(open_log(&head, true));
    evidence_close(open_evidence());
}

/* A head of a newer version counts as another run for the writer. The reader gets an error. */
static void newer_head(void **state)
{
    static const char newer[] = "{\"format\":2}";
    struct evidence *e = NULL;
    struct err err = { 0 };

    (void)state;
    evidence_log_close(open_log(&head, true));
    assert_int_equal(truncate(in_dir(EVIDENCE_HEAD_FILE), 0), 0);
    patch(EVIDENCE_HEAD_FILE, 0, newer, sizeof newer - 1);
    assert_int_equal(evidence_open(dir, &e, &err), ERR_UNSUPPORTED);
    evidence_log_close(open_log(&head, true));
}

/* The checksum covers every bit of a record and of a detail. */
static void torn(void **state)
{
    struct evidence_log *l = open_log(&head, true);
    unsigned char good[DETAIL_BYTES], byte;
    struct evidence_record r;
    int fd;

    (void)state;
    for (int64_t s = 1; s <= 3; s++)
        write_step(l, s);
    struct evidence *e = open_evidence();
    fd = open(in_dir(EVIDENCE_LOG_FILE), O_RDONLY);
    assert_true(pread(fd, good, EVIDENCE_RECORD_BYTES, EVIDENCE_RECORD_BYTES) == EVIDENCE_RECORD_BYTES);
    close(fd);
    for (int i = 0; i < EVIDENCE_RECORD_BYTES; i++) {
        byte = good[i] ^ (unsigned char)(1 << i % 8);
        patch(EVIDENCE_LOG_FILE, EVIDENCE_RECORD_BYTES + i, &byte, 1);
        assert_true(!evidence_read(e, 2, &r) && evidence_read(e, 1, &r) && evidence_read(e, 3, &r));
        patch(EVIDENCE_LOG_FILE, EVIDENCE_RECORD_BYTES + i, &good[i], 1);
    }
    patch(EVIDENCE_LOG_FILE, 0, good, EVIDENCE_RECORD_BYTES); /* a good record in the place of another */
    assert_true(!evidence_read(e, 1, &r) && evidence_read(e, 2, &r));
    fd = open(in_dir(EVIDENCE_RING_FILE), O_RDONLY);
    assert_true(pread(fd, good, DETAIL_BYTES, 2 * DETAIL_BYTES) == DETAIL_BYTES);
    close(fd);
    for (int i = 0; i < DETAIL_BYTES; i++) {
        byte = good[i] ^ (unsigned char)(1 << i % 8);
        patch(EVIDENCE_RING_FILE, 2 * DETAIL_BYTES + i, &byte, 1);
        assert_true(!detail_is_there(e, 2) && detail_is_there(e, 3));
        patch(EVIDENCE_RING_FILE, 2 * DETAIL_BYTES + i, &good[i], 1);
    }
    assert_true(detail_is_there(e, 2) && evidence_read(e, 3, &r)); /* the record that was read last does not count as lost */
    assert_int_equal(truncate(in_dir(EVIDENCE_LOG_FILE), 3 * EVIDENCE_RECORD_BYTES - 1), 0);
    assert_true(!evidence_read(e, 3, &r) && evidence_read(e, 2, &r) && evidence_steps(e) == 2);
    assert_true(write_step(l, 3) == 0 && evidence_read(e, 3, &r)); /* and is written as if never there */
    evidence_close(e);
    evidence_log_close(l);
}

/* The files of another run beside this run's head. */
static void of_another_run(void **state)
{
    struct evidence_head other = head;
    struct evidence_record r;

    (void)state;
    other.spec.lane[0]++;
    struct evidence_log *l = open_log(&other, true);
    write_step(l, 1);
    evidence_log_close(l);
    assert_int_equal(rename(in_dir(EVIDENCE_LOG_FILE), strcat(strcpy((char[TEMP_MAX + 32]){ 0 }, dir), "/other")), 0);
    evidence_log_close(open_log(&head, true));
    char from[TEMP_MAX + 32];
    strcpy(from, in_dir("other"));
    assert_int_equal(rename(from, in_dir(EVIDENCE_LOG_FILE)), 0);
    struct evidence *e = open_evidence();
    assert_true(evidence_steps(e) == 1 && !evidence_read(e, 1, &r));
    evidence_close(e);
}

/* Level losses: records alone. */
static void without_details(void **state)
{
    struct evidence_head h = { .shards = 1 };
    struct evidence_record r = record_of(100), before;
    struct evidence_detail d;
    struct evidence_log *l = open_log(&h, true);
    struct evidence *e = open_evidence();
    struct err err = { 0 };

    (void)state;
    assert_int_equal(evidence_detail_new(&h, &d, &err), 0);
    assert_int_equal(evidence_log_write(l, &r, NULL, &before, &err), 0);
    assert_true(evidence_read(e, 100, &r) && !evidence_read_detail(e, 100, &d));
    check_record(&r, 100);
    evidence_detail_free(&d);
    evidence_close(e);
    evidence_log_close(l);
}

static void says_why_not(void **state)
{
    struct evidence_record r = record_of(0), before;
    struct evidence *e = NULL;
    struct evidence_log *l = NULL;
    struct err err = { 0 };
    bool anew;

    (void)state;
    assert_int_equal(evidence_open(dir, &e, &err), -ENOENT);
    assert_true(strncmp(err.msg, "no evidence in '", 16) == 0);
    l = open_log(&head, true);
    assert_int_equal(evidence_log_write(l, &r, NULL, &before, &err), ERR_INPUT);
    r.step = (int64_t)EVIDENCE_MAX_STEPS + 1;
    assert_int_equal(evidence_log_write(l, &r, NULL, &before, &err), ERR_INPUT);
    evidence_log_close(l);
    unlink(in_dir(EVIDENCE_LOG_FILE));
    assert_int_equal(evidence_open(dir, &e, &err), -ENOENT);
    assert_true(strstr(err.msg, "/evidence.log': No such file") != NULL);
    assert_int_equal(mkfifo(in_dir(EVIDENCE_LOG_FILE), 0600), 0);
    assert_int_equal(evidence_open(dir, &e, &err), ERR_INPUT);
    assert_true(strstr(err.msg, "/evidence.log' is not a regular file") != NULL);
    unlink(in_dir(EVIDENCE_LOG_FILE));
    assert_int_equal(symlink("/dev/null", in_dir(EVIDENCE_LOG_FILE)), 0);
    assert_int_equal(evidence_open(dir, &e, &err), ERR_INPUT);
    assert_true(evidence_log_open(dir, &head, &l, &anew, &err) == -ELOOP && strstr(err.msg, "/evidence.log'"));
    unlink(in_dir(EVIDENCE_LOG_FILE));
    assert_int_equal(evidence_log_open("/proc/nothing", &head, &l, &anew, &err), -ENOENT);
    assert_true(strstr(err.msg, "'/proc/nothing'") != NULL);
}

/* A write fails as on a full disk. The error names the file, and the earlier contents stay. */
static void no_room(void **state)
{
    struct evidence_log *l = open_log(&head, true);
    struct evidence_record r = record_of(200), before;
    struct rlimit old, small = { 150 * EVIDENCE_RECORD_BYTES, RLIM_INFINITY };
    struct err err = { 0 };

    (void)state;
    write_step(l, 100);
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    int rc = evidence_log_write(l, &r, NULL, &before, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(rc, -EFBIG);
    assert_true(strncmp(err.msg, "write '", 7) == 0 && strstr(err.msg, "/evidence.log': File too large"));
    struct evidence *e = open_evidence();
    assert_true(evidence_read(e, 100, &r));
    evidence_close(e);
    evidence_log_close(l);
}

/* Its checksum is right, its contents are impossible. */
static void impossible_record(void **state)
{
    struct hash128 start = { { 1, 2 } };
    unsigned char bytes[EVIDENCE_RECORD_BYTES];
    struct evidence_record r = record_of(4), got;

    (void)state;
    evidence_put_record(start, &r, bytes);
    assert_true(evidence_get_record(start, bytes, 4, &got));
    r.tier = TIERS;
    evidence_put_record(start, &r, bytes);
    assert_false(evidence_get_record(start, bytes, 4, &got));
    r.tier = 0;
    r.attempt = -1;
    evidence_put_record(start, &r, bytes);
    assert_false(evidence_get_record(start, bytes, 4, &got));
}

/* Everything but attempt, ranks and tier. */
static void chain(void **state)
{
    struct evidence_record r = record_of(5), other;
    struct hash128 before = { { 1, 2 } }, c = evidence_chain(before, &r), d;

    (void)state;
    other = r;
    other.attempt = 9;
    other.ranks = 1;
    other.tier = TIER_OFF;
    other.chain = before;
    d = evidence_chain(before, &other);
    assert_memory_equal(&c, &d, sizeof c);
    for (int i = 0; i < EVIDENCE_PARTS + 5; i++) {
        struct hash128 from = before;

        other = r;
        if (i < EVIDENCE_PARTS)
            other.part[i].lane[i % 2] ^= 1u << i;
        else if (i == EVIDENCE_PARTS)
            other.step++;
        else if (i == EVIDENCE_PARTS + 1)
            other.lr = 0.25f;
        else if (i == EVIDENCE_PARTS + 2)
            other.loss = 0.0f;
        else if (i == EVIDENCE_PARTS + 3)
            other.skipped = !other.skipped;
        else
            from.lane[0]++;
        d = evidence_chain(from, &other);
        assert_true(differ(c, d));
    }
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, make_dir, remove_dir)
    const struct CMUnitTest tests[] = {
        TEST(comes_back),
        TEST(has_its_form),
        TEST(range),
        TEST(goes_on),
        TEST(drops_what_followed),
        TEST(drops_what_follows_damage),
        TEST(begins_anew),
        TEST(damaged_head),
        TEST(newer_head),
        TEST(torn),
        TEST(of_another_run),
        TEST(without_details),
        TEST(says_why_not),
        TEST(no_room),

        cmocka_unit_test(impossible_record),
        cmocka_unit_test(chain),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/launch/test_ask.c - uses: proto launch
 * Messages that detd-launch refuses before it acts on them: every number out of range, every text without an end or
 * with a harmful character. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "launch/ask.h"
#include "proto/err.h"

static const struct launch_ask sound = { .version = LAUNCH_VERSION,
                                         .kind = LAUNCH_START,
                                         .ticket = { .job = 1, .store = "s", .user = "ann" },
                                         .attempt = 1,
                                         .nonce = "n",
                                         .reason = "a b, c" };

static bool starts(const struct launch_ask *a)
{
    struct err err = { 0 };
    int rc = ask_check_start(a, &err);

    assert_true(rc == 0 || (rc == ERR_PROTO && err.msg[0]));
    return rc == 0;
}

static void numbers_have_ranges(void **state)
{
    static const struct {
        size_t offset;
        int32_t least, most;
    } rows[] = {
        { offsetof(struct launch_ask, attempt), 1, INT32_MAX }, { offsetof(struct launch_ask, threads), 0, 1 << 16 },
        { offsetof(struct launch_ask, slots), 0, INT32_MAX },   { offsetof(struct launch_ask, tier), 0, 2 },
        { offsetof(struct launch_ask, drain), 0, 3 },
    };
    static const size_t wide[] = { offsetof(struct launch_ask, last_seq), offsetof(struct launch_ask, saved),
                                   offsetof(struct launch_ask, log_max), offsetof(struct launch_ask, ran_s) };

    (void)state;
    assert_true(starts(&sound));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int32_t values[] = { rows[i].least, rows[i].most, rows[i].least - 1, INT32_MIN,
                                   rows[i].most < INT32_MAX ? rows[i].most + 1 : -1 };

        for (int k = 0; k < 5; k++) {
            struct launch_ask a = sound;

            memcpy((char *)&a + rows[i].offset, &values[k], sizeof values[k]);
            if (starts(&a) != (k < 2))
                fail_msg("number %zu as %d", i, values[k]);
        }
    }
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        for (int64_t v = -1; v <= 1; v++) {
            struct launch_ask a = sound;

            memcpy((char *)&a + wide[i], &v, sizeof v);
            assert_int_equal(starts(&a), v >= 0);
        }
}

static void texts_end_and_are_harmless(void **state)
{
    static const struct {
        size_t offset, size;
    } rows[] = {
        { offsetof(struct launch_ask, ticket.store), LAUNCH_NAME },
        { offsetof(struct launch_ask, nonce), LAUNCH_NAME },
        { offsetof(struct launch_ask, gpus), LAUNCH_GPUS },
        { offsetof(struct launch_ask, reason), LAUNCH_REASON },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct launch_ask a = sound;
        char *text = (char *)&a + rows[i].offset;

        memset(text, 'a', rows[i].size);
        assert_false(starts(&a));
        text[rows[i].size - 1] = '\0';
        assert_true(starts(&a));
        text[0] = '$';
        assert_false(starts(&a));
        text[0] = '\n';
        assert_false(starts(&a));
    }
}

static void what_is_sealed_is_a_job_of_a_store(void **state)
{
    struct launch_ask a = sound;
    struct err err;

    (void)state;
    assert_int_equal(ask_check_seal(&a, &err), 0);
    a.ticket.job = 0;
    assert_int_equal(ask_check_seal(&a, &err), ERR_PROTO);
    a = sound;
    memset(a.ticket.store, 'a', sizeof a.ticket.store);
    assert_int_equal(ask_check_seal(&a, &err), ERR_PROTO);
    a = sound;
    memset(a.ticket.user, 'a', sizeof a.ticket.user);
    assert_int_equal(ask_check_seal(&a, &err), ERR_PROTO);
}

/* A message must carry as many descriptors as its kind needs. A START may also carry the locks of its GPUs, at most one
 * for each. */
static void descriptors_are_counted(void **state)
{
    static const struct {
        uint32_t kind;
        int least;
    } rows[] = { { LAUNCH_SEAL, 1 }, { LAUNCH_START, 2 }, { LAUNCH_KILL, 0 }, { LAUNCH_CLEAR, 1 } };
    struct launch_ask a = sound;
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        a.kind = rows[i].kind;
        for (int n = 0; n <= 4; n++)
            assert_int_equal(ask_check(&a, n, &err), n == rows[i].least ? 0 : ERR_PROTO);
    }
    a.kind = LAUNCH_START;
    snprintf(a.gpus, sizeof a.gpus, "GPU-1,GPU-2");
    for (int n = 0; n <= 6; n++)
        assert_int_equal(ask_check(&a, n, &err), n >= 2 && n <= 4 ? 0 : ERR_PROTO);
    for (uint32_t kind = 0; kind <= LAUNCH_CLEAR + 1; kind++) {
        a.kind = kind;
        if (kind != LAUNCH_SEAL && kind != LAUNCH_START && kind != LAUNCH_KILL && kind != LAUNCH_CLEAR)
            assert_int_equal(ask_check(&a, 2, &err), ERR_PROTO);
    }
    a.kind = LAUNCH_START;
    a.version++;
    assert_int_equal(ask_check(&a, 2, &err), ERR_PROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_have_ranges),
        cmocka_unit_test(texts_end_and_are_harmless),
        cmocka_unit_test(what_is_sealed_is_a_job_of_a_store),
        cmocka_unit_test(descriptors_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/fuzz/test_launch.c - uses: proto launch
 * The requests of detd to root, and the arguments that follow from them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <cmocka.h>

#include "launch/args.h"
#include "launch/ask.h"
#include "proto/err.h"
#include "tests/fuzz/fuzz.h"

const char fuzz_name[] = "launch";
const int fuzz_places = 400;

static const char harmless[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ -_.,;:'()/";

/* Options must be ours and in their places; text from detd must stand behind an option and be harmless. */
static void look_at_arguments(const struct launch_ask *a, int ngpu_locks)
{
    static const char *const options[] = { "--job-dir", "--job",      "--lock-fd", "--trouble-fd", "--attempt",      "--last-seq",
                                           "--nonce",   "--store-id", "--spec-fd", "--threads",    "--tier",         "--log-max",
                                           "--gpus",    "--drain",    "--reason",  "--saved",      "--gpu-lock-fds", "--ran" };
    char *argv[ARGS_MAX];
    int n = 1;

    assert_int_equal(args_fill(argv, "/detd-job", a, ngpu_locks), 0);
    assert_string_equal(argv[0], "/detd-job");
    for (; argv[n] && strcmp(argv[n], "--clear") != 0; n += 2) {
        bool known = false;

        if (strcmp(argv[n], "--anew") == 0) { /* which has no value */
            n--;
            continue;
        }

        for (size_t i = 0; i < sizeof options / sizeof *options; i++)
            known = known || strcmp(argv[n], options[i]) == 0;
        assert_true(known);
        assert_non_null(argv[n + 1]);
        assert_int_equal(strspn(argv[n + 1], harmless), strlen(argv[n + 1]));
    }
    assert_true(!argv[n] || (a->kind == LAUNCH_CLEAR && !argv[n + 1]));
    for (n = 0; argv[n]; n++)
        free(argv[n]);
    assert_true(n < ARGS_MAX);
}

static void look_at(const struct launch_ask *a)
{
    struct err err = { 0 };

    for (int nfds = 0; nfds <= ASK_FDS; nfds++) {
        err = (struct err){ 0 };
        if (ask_check(a, nfds, &err) < 0) {
            assert_true(err.code == ERR_PROTO && err.msg[0]);
            continue;
        }
        assert_true(a->version == LAUNCH_VERSION &&
                    (a->kind == LAUNCH_START ? nfds >= 2 && (nfds == 2 || a->gpus[0]) : nfds == (a->kind == LAUNCH_KILL ? 0 : 1)));
        if ((a->kind == LAUNCH_START || a->kind == LAUNCH_CLEAR) && ask_check_start(a, &err) == 0)
            look_at_arguments(a, nfds > 2 ? nfds - 2 : 0);
        if (a->kind == LAUNCH_SEAL && ask_check_seal(a, &err) == 0)
            assert_true(a->ticket.job > 0 && strnlen(a->ticket.store, sizeof a->ticket.store) < sizeof a->ticket.store);
    }
}

/* Receives a packet of any size, as from detd. */
void fuzz_one(const uint8_t *bytes, size_t size)
{
    struct launch_ask a = { 0 };
    struct err err = { 0 };
    int ends[2], fds[ASK_FDS], n;

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    n = size > 0 && size <= 8 * sizeof a && send(ends[0], bytes, size, MSG_DONTWAIT) == (ssize_t)size ? ask_read(ends[1], &a, fds, &err)
                                                                                                      : -1;
    assert_true(n <= 0 && (n == 0) == (size == sizeof a));
    if (n == 0) {
        assert_memory_equal(&a, bytes, sizeof a);
        look_at(&a);
    }
    close(ends[0]);
    close(ends[1]);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/train/test_control.c - uses: proto trainer cpu
 * Commands on their way through the steps: the step at which an order acts, and the steps at which a change of tier is
 * proposed and begins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/err.h"
#include "proto/tier.h"
#include "worker/train/control.h"

/* Rank 0 and detd-job's end of its socket. */
struct both {
    int fds[2];
    struct report *report;
    struct control control;
    int64_t step; /* completed */
};

static int open_both(void **state)
{
    struct both *b = calloc(1, sizeof *b);
    struct err err;

    if (!b || socketpair(AF_UNIX, SOCK_STREAM, 0, b->fds) < 0 || report_open(b->fds[1], 0, 0, 2, &b->report, &err) < 0)
        return -1;
    control_init(&b->control, b->report, 10, 1000000, TIER_RERUN);
    *state = b;
    return 0;
}

static int close_both(void **state)
{
    struct both *b = *state;

    report_close(b->report);
    close(b->fds[0]);
    close(b->fds[1]);
    free(b);
    return 0;
}

static void say(struct both *b, const char *line)
{
    assert_true(write(b->fds[0], line, strlen(line)) == (ssize_t)strlen(line));
}

/* The step of the proposal that detd-job has received; -1: no proposal has come. */
static long long proposed(struct both *b, const char *tier)
{
    char text[1000], want[32];
    ssize_t n = recv(b->fds[0], text, sizeof text - 1, MSG_DONTWAIT);
    long long step;

    if (n < 0)
        return -1;
    text[n] = '\0';
    snprintf(want, sizeof want, "\"tier\":\"%s\"", tier);
    assert_non_null(strstr(text, want));
    assert_non_null(strstr(text, "\"step\":"));
    step = atoll(strstr(text, "\"step\":") + 7);
    return step;
}

/* A step in the trainer's order: it notes the words carried by its losses, then it is complete. */
static struct control_word step(struct both *b)
{
    struct control_word word;
    uint64_t packed[CONTROL_WORDS];
    struct err err;

    if (control_poll(&b->control, b->step + 1, &word, &err) < 0)
        fail_msg("%s", err.msg);
    control_pack(&word, packed);
    word = control_unpack(packed);
    control_take(&b->control, b->step + 1, &word);
    b->step++;
    return word;
}

static void an_order_acts_after_the_following_step(void **state)
{
    struct both *b = *state;

    b->step = 7;
    assert_int_equal(step(b).word, WORD_NONE);
    say(b, "{\"type\":\"control\",\"word\":\"checkpoint\"}\n{\"type\":\"control\",\"word\":\"pause\"}\n");
    assert_int_equal(step(b).word, WORD_CHECKPOINT); /* with the losses of step 9 */
    assert_int_equal(control_due(&b->control, b->step), WORD_NONE);
    assert_int_equal(step(b).word, WORD_NONE); /* one at a time */
    assert_int_equal(b->step, 10);
    assert_int_equal(control_due(&b->control, b->step), WORD_CHECKPOINT);
    assert_int_equal(control_due(&b->control, b->step), WORD_NONE);
    assert_int_equal(step(b).word, WORD_PAUSE);
    assert_int_equal(step(b).word, WORD_NONE);
    assert_int_equal(control_due(&b->control, b->step), WORD_PAUSE);
}

/* The tier could begin only at a step that never comes: no proposal is sent, and an event says why. With one step more
 * it is proposed. */
static void a_tier_that_comes_too_late(void **state)
{
    struct both *b = *state;
    char text[1000];
    ssize_t n;

    b->step = 15;
    b->control.last = 20;
    say(b, "{\"type\":\"control\",\"word\":\"tier\",\"tier\":\"world\"}\n");
    assert_int_equal(step(b).word, WORD_NONE);
    n = recv(b->fds[0], text, sizeof text - 1, MSG_DONTWAIT);
    assert_true(n > 0);
    text[n] = '\0';
    assert_non_null(strstr(text, "\"type\":\"event\""));
    assert_non_null(strstr(text, "tier world is not applied: it could begin with step 21 at the earliest, and the job ends with step 20"));
    assert_non_null(strstr(text, "\"tier\":\"world\"}"));
    assert_int_equal(b->control.proposal.from, 0);
    b->control.last = 21;
    say(b, "{\"type\":\"control\",\"word\":\"tier\",\"tier\":\"world\"}\n");
    assert_int_equal(step(b).word, WORD_NONE);
    assert_int_equal(proposed(b, "world"), 21);
}

/* Proposed in the step after `at`, and answered as late as possible. */
static void change_of_tier(struct both *b, int every, int at)
{
    long long from, end;
    char text[100];

    b->control.log_every = every;
    b->step = at;
    say(b, "{\"type\":\"control\",\"word\":\"tier\",\"tier\":\"world\"}\n");
    assert_int_equal(step(b).word, WORD_NONE);
    from = proposed(b, "world");
    end = from - 1;
    assert_true(end % every == 0 && end >= at + 1 + 2 && end - every < at + 1 + 2);
    while (b->step + 1 < end) {
        assert_int_equal(step(b).word, WORD_NONE);
        assert_int_equal(proposed(b, "world"), -1);
    }
    snprintf(text, sizeof text, "{\"type\":\"tier_ok\",\"step\":%lld,\"tier\":\"world\"}\n", from);
    say(b, text);
    assert_int_equal(step(b).word, WORD_TIER); /* the last losses that can carry it */
    assert_int_equal(b->step, end);
    assert_int_equal(control_tier_at(&b->control, end), TIER_RERUN);
    assert_int_equal(control_tier_at(&b->control, from), TIER_WORLD);
    assert_int_equal(control_due(&b->control, b->step), WORD_NONE);
}

/* A tier begins behind the end of a log window. It is the first such end that lies at least two steps behind the step
 * that received the order. */
static void a_tier_begins_where_a_window_does(void **state)
{
    (void)state;
    for (int every = 1; every <= 10; every += 3)
        for (int at = 0; at < 2 * every; at++) {
            void *b;

            assert_int_equal(open_both(&b), 0);
            change_of_tier(b, every, at);
            close_both(&b);
        }
}

/* A tier begins as soon as detd-job agrees; an order for another tier waits until then. */
static void an_answer_is_taken_when_it_comes(void **state)
{
    struct both *b = *state;
    struct control_word word;

    b->step = 100;
    say(b, "{\"type\":\"control\",\"word\":\"tier\",\"tier\":\"off\"}\n{\"type\":\"control\",\"word\":\"eval\"}\n");
    assert_int_equal(step(b).word, WORD_NONE);
    assert_int_equal(proposed(b, "off"), 111);
    assert_int_equal(step(b).word, WORD_NONE);
    say(b, "{\"type\":\"tier_ok\",\"step\":111,\"tier\":\"world\"}\n"); /* an answer to a proposal that was not made */
    assert_int_equal(step(b).word, WORD_NONE);
    say(b, "{\"type\":\"tier_ok\",\"step\":111,\"tier\":\"off\"}\n");
    word = step(b);
    assert_true(word.word == WORD_TIER && word.tier == TIER_OFF && word.step == 111);
    assert_int_equal(step(b).word, WORD_EVAL);
    assert_int_equal(control_tier_at(&b->control, 110), TIER_RERUN);
    assert_int_equal(control_tier_at(&b->control, 111), TIER_OFF);
}

static void tiers_have_names(void **state)
{
    (void)state;
    for (int i = TIER_OFF; i <= TIER_WORLD; i++)
        assert_int_equal(tier_of(tier_name((enum tier)i)), i);
    assert_int_equal(tier_of("rerun"), TIER_RERUN);
    assert_int_equal(tier_of("sometimes"), TIER_OFF);
    assert_int_equal(tier_of(NULL), TIER_OFF);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_order_acts_after_the_following_step, open_both, close_both),
        cmocka_unit_test_setup_teardown(a_tier_that_comes_too_late, open_both, close_both),
        cmocka_unit_test_setup_teardown(a_tier_begins_where_a_window_does, open_both, close_both),
        cmocka_unit_test_setup_teardown(an_answer_is_taken_when_it_comes, open_both, close_both),
        cmocka_unit_test(tiers_have_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

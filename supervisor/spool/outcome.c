#include "supervisor/spool/outcome.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

/* A shell in between reports a signal as 128 + its number. A rank with an error leaves with 1, and says why unless it
 * only lost another. */
enum { EXIT_ERROR = 1, EXIT_SIGKILL = 128 + SIGKILL };

void outcome_describe(int status, char *text, int size)
{
    static const char out_of_memory[] = "was killed by SIGKILL: out of memory, or by hand";

    if ((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) || (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SIGKILL))
        snprintf(text, (size_t)size, "%s", out_of_memory);
    else if (WIFSIGNALED(status))
        snprintf(text, (size_t)size, "was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(text, (size_t)size, "left with status %d and did not say why; see its log", WEXITSTATUS(status));
}

static void set(struct outcome *o, const char *outcome, const char *class, const char *reason)
{
    snprintf(o->outcome, sizeof o->outcome, "%s", outcome);
    snprintf(o->class, sizeof o->class, "%s", class);
    snprintf(o->reason, sizeof o->reason, "%s", reason);
    o->elsewhere = false;
    o->missing = strcmp(outcome, "failed") == 0 && strcmp(class, "missing") == 0;
    o->retry = o->missing || (strcmp(outcome, "failed") == 0 && (!class[0] || strcmp(class, "fault") == 0));
}

static bool is_missing(const struct outcome_rank *r)
{
    return r->ended && strcmp(r->outcome, "failed") == 0 && strcmp(r->class, "missing") == 0;
}

static bool is_fault(const struct outcome_rank *r)
{
    return !r->class[0] || strcmp(r->class, "fault") == 0 || is_missing(r);
}

static bool is_final(const struct outcome_rank *r)
{
    return r->ended && strcmp(r->outcome, "failed") == 0 && !is_fault(r);
}

static bool is_silent(const struct outcome_rank *r)
{
    return !r->ended && r->left && !r->killed;
}

static bool is_crash(const struct outcome_rank *r)
{
    return is_silent(r) && !(WIFEXITED(r->status) && WEXITSTATUS(r->status) == EXIT_ERROR);
}

static bool is_failure(const struct outcome_rank *r)
{
    return r->ended && strcmp(r->outcome, "failed") == 0;
}

static int first(const struct outcome_rank *ranks, int n, bool (*is)(const struct outcome_rank *r))
{
    int found = -1;

    for (int i = 0; i < n; i++)
        if (is(&ranks[i]) && (found < 0 || ranks[i].order < ranks[found].order))
            found = i;
    return found;
}

static void set_failure(struct outcome *ret, const struct outcome_rank *r, int rank)
{
    char text[OUTCOME_TEXT];

    snprintf(text, sizeof text, "rank %d: %.*s", rank, OUTCOME_TEXT - 20, r->reason[0] ? r->reason : "failed without a reason");
    set(ret, "failed", r->class[0] ? r->class : "fault", is_fault(r) ? text : r->reason);
}

static void set_crash(struct outcome *ret, const struct outcome_rank *r, int rank)
{
    char how[100], text[OUTCOME_TEXT];

    outcome_describe(r->status, how, sizeof how);
    snprintf(text, sizeof text, "rank %d %s", rank, how);
    set(ret, "failed", "fault", text);
}

void outcome_decide(const struct outcome_rank *ranks, int nranks, const char *cause, struct outcome *ret)
{
    int i;

    if (ranks[0].ended && strcmp(ranks[0].outcome, "failed") != 0) {
        set(ret, ranks[0].outcome, "", ranks[0].reason);
    } else if (cause[0]) {
        set(ret, "failed", "fault", cause);
    } else if ((i = first(ranks, nranks, is_final)) >= 0) {
        set_failure(ret, &ranks[i], i);
    } else if ((i = first(ranks, nranks, is_missing)) >= 0) {
        set(ret, "failed", "missing", ranks[i].reason);
    } else if ((i = first(ranks, nranks, is_crash)) >= 0) {
        set_crash(ret, &ranks[i], i);
    } else if ((i = first(ranks, nranks, is_failure)) >= 0) {
        set_failure(ret, &ranks[i], i);
    } else if ((i = first(ranks, nranks, is_silent)) >= 0) {
        set_crash(ret, &ranks[i], i);
    } else {
        set(ret, "failed", "fault", "the ranks left and did not say how it ended");
    }
}

static bool is_failed_program(const struct outcome_rank *r)
{
    return r->left && !r->killed && r->status != 0;
}

int outcome_first_failed(const struct outcome_rank *ranks, int nranks)
{
    return first(ranks, nranks, is_failed_program);
}

static void set_program_failure(struct outcome *ret, const struct outcome_rank *r, int rank, const struct outcome_program *p)
{
    bool signalled = WIFSIGNALED(r->status);
    char how[100], text[OUTCOME_TEXT];

    if (signalled)
        outcome_describe(r->status, how, sizeof how);
    else
        snprintf(how, sizeof how, "exited with status %d", WEXITSTATUS(r->status));
    if (p->error_rank >= 0)
        snprintf(text, sizeof text, "rank %d: %.*s", p->error_rank, OUTCOME_TEXT - 20, p->error);
    else
        snprintf(text, sizeof text, "rank %d %s%s", rank, how, signalled ? "" : "; see its log");
    set(ret, "failed", signalled ? "fault" : "user", text);
    ret->retry = signalled || p->saved;
}

void outcome_of_program(const struct outcome_rank *ranks, int nranks, const struct outcome_program *p, struct outcome *ret)
{
    int i = outcome_first_failed(ranks, nranks), killed = 0;

    while (killed < nranks && !ranks[killed].killed)
        killed++;
    if (p->stopped)
        set(ret, "paused", "", "");
    else if (p->cause[0])
        set(ret, "failed", "fault", p->cause);
    else if (i >= 0)
        set_program_failure(ret, &ranks[i], i, p);
    else if (killed < nranks)
        set(ret, "failed", "fault", "the ranks were killed");
    else
        set(ret, "completed", "", "");
}

#include "supervisor/attempt.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "proto/err.h"
#include "supervisor/ranks/errorfile.h"
#include "supervisor/ranks/left.h"
#include "supervisor/ranks/program.h"
#include "supervisor/ranks/ranks.h"
#include "supervisor/ranks/watch.h"

int attempt_start(struct attempt *a, const struct ranks_config *config, struct err *err)
{
    int rc;

    *a = (struct attempt){ .nranks = a->nranks,
                           .number = config->attempt,
                           .program = config->program,
                           .watch = watch_new(a->nranks),
                           .began_ms = uv_now(config->loop) };
    rc = a->watch ? ranks_start(config, &a->ranks, err) : err_set(err, -ENOMEM, "out of memory");
    if (rc < 0)
        attempt_close(a);
    return rc;
}

void attempt_close(struct attempt *a)
{
    struct ranks *ranks = a->ranks;

    a->ranks = NULL; /* a callback that comes while they are freed finds none */
    ranks_free(ranks);
    watch_free(a->watch);
    a->watch = NULL;
}

void attempt_kill(struct attempt *a)
{
    for (int i = 0; i < a->nranks; i++) {
        struct attempt_rank *r = &a->rank[i];

        if (r->gone || ranks_pid(a->ranks, i) == 0)
            continue;
        r->out.killed = true;
        if (r->closed && a->order == 0 && !a->cause[0] && !a->program)
            snprintf(a->cause, sizeof a->cause, "rank %d closed its descriptor 3 and went on without it", i);
    }
    ranks_kill(a->ranks, SIGKILL);
}

/* A process in uninterruptible sleep, as of a disk that does not answer, dies when that ends. Nothing goes on
 * before. */
int attempt_stuck(const struct attempt *a, char *text, size_t size)
{
    int stays = -1, others = 0;
    char who[128];

    for (int i = 0; i < a->nranks; i++) {
        bool lives = ranks_pid(a->ranks, i) != 0; /* one that is dead may have to be heard to its end */

        others += lives && stays >= 0;
        if (lives && stays < 0)
            stays = i;
    }
    if (stays < 0)
        return -1;
    left_name(ranks_pid(a->ranks, stays), who, sizeof who);
    snprintf(text, size, "rank %d was killed and does not end: %s", stays, who);
    if (others > 0)
        snprintf(text + strlen(text), size - strlen(text), "; %d others of the job likewise", others);
    return stays;
}

int attempt_unheard(struct attempt *a, int seconds)
{
    int rank = 0;

    while (a->rank[rank].hello)
        rank++;
    snprintf(a->cause, sizeof a->cause, "rank %d hangs in phase starting: no hello within %d s", rank, seconds);
    return rank;
}

void attempt_gone(struct attempt *a, int rank, int status)
{
    struct attempt_rank *r = &a->rank[rank];

    r->gone = r->out.left = true;
    r->out.status = status;
    if (!r->out.ended)
        r->out.order = a->order++;
}

bool attempt_all_gone(const struct attempt *a)
{
    for (int i = 0; i < a->nranks; i++)
        if (!a->rank[i].gone)
            return false;
    return true;
}

bool attempt_look(struct attempt *a, double now_s, bool busy, struct watch_verdict *ret)
{
    struct watch_page pages[JOB_MAX_RANKS];

    if (!a->ranks)
        return false;
    for (int i = 0; i < a->nranks; i++) {
        watch_read(ranks_page(a->ranks, i), &pages[i]);
        pages[i].gone = a->rank[i].gone || a->rank[i].out.ended || ranks_pid(a->ranks, i) == 0;
        pages[i].held = ranks_is_held(a->ranks, i) || (i == 0 && busy);
    }
    watch_look(a->watch, pages, now_s, ret);
    return ret->rank >= 0;
}

void attempt_tell_idle(struct attempt *a, char *ret, size_t size)
{
    enum { LOOKS = 10 };

    ret[0] = '\0';
    for (int i = 0; a->ranks && i < a->nranks; i++) {
        pid_t pid = ranks_pid(a->ranks, i);
        char who[128];

        left_name(pid, who, sizeof who);
        a->idle[i] = pid && (strstr(who, "state T)") || strstr(who, "state D)")) ? a->idle[i] + 1 : 0;
        if (a->idle[i] >= LOOKS && !ret[0])
            snprintf(ret, size, "rank %d does not run: %s", i, who);
    }
}

static void outcome_of(const struct attempt *a, struct outcome_rank *ranks, struct outcome *ret)
{
    char error[OUTCOME_TEXT];
    struct outcome_program p = { .cause = a->cause, .stopped = a->stopped, .saved = a->saved, .error = error };

    if (a->program->spec->program_terminal && WIFEXITED(ranks[0].status))
        ranks[0].status = 0; /* a shell leaves with the status of its last command */
    p.error_rank = errorfile_read(a->number, a->nranks, outcome_first_failed(ranks, a->nranks), error, sizeof error);
    outcome_of_program(ranks, a->nranks, &p, ret);
}

void attempt_outcome(const struct attempt *a, struct outcome *ret)
{
    struct outcome_rank ranks[JOB_MAX_RANKS] = { 0 };

    for (int i = 0; i < a->nranks; i++)
        ranks[i] = a->rank[i].out;
    if (a->program)
        outcome_of(a, ranks, ret);
    else
        outcome_decide(ranks, a->nranks, a->cause, ret);
}

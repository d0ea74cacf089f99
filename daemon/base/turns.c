#include "daemon/base/turns.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdlib.h>

struct turn {
    uv_work_t req;
    struct turn *next;
    struct turns *turns;
    struct turns_party *party;
    void (*work)(void *arg);
    void (*after)(void *arg);
    void *arg;
};

void turns_init(struct turns *t, uv_loop_t *loop)
{
    *t = (struct turns){ .loop = loop };
}

static void line_up(struct turns *t, struct turns_party *p)
{
    if (p->running || p->waiting || !p->first)
        return;
    p->waiting = true;
    p->next = NULL;
    if (t->last)
        t->last->next = p;
    else
        t->first = p;
    t->last = p;
}

static int user_runs(const struct turns *t, uid_t uid)
{
    int n = 0;

    for (int i = 0; i < t->running; i++)
        n += t->uids[i] == uid;
    return n;
}

/* Takes the first party that may go out of the line; NULL: no party may go. */
static struct turns_party *take_next(struct turns *t)
{
    struct turns_party *before = NULL, *p = t->first;

    while (p && (user_runs(t, p->uid) >= TURNS_USER || (p->may && !p->may(p)))) {
        before = p;
        p = p->next;
    }
    if (!p)
        return NULL;
    if (before)
        before->next = p->next;
    else
        t->first = p->next;
    if (t->last == p)
        t->last = before;
    p->waiting = false;
    return p;
}

static void run(uv_work_t *req)
{
    struct turn *turn = req->data;

    turn->work(turn->arg);
}

static void forget_uid(struct turns *t, uid_t uid)
{
    int i = 0;

    while (t->uids[i] != uid)
        i++;
    t->uids[i] = t->uids[--t->running];
}

/* The party may be gone after its last piece. */
static void ran(uv_work_t *req, int status)
{
    struct turn *turn = req->data;
    struct turns *t = turn->turns;

    (void)status;
    forget_uid(t, turn->party->uid);
    turn->party->running = false;
    line_up(t, turn->party);
    turns_go(t);
    turn->after(turn->arg);
    free(turn);
}

void turns_go(struct turns *t)
{
    struct turns_party *p;

    while (t->running < TURNS_MAX && (p = take_next(t))) {
        struct turn *turn = p->first;

        p->first = turn->next;
        p->running = true;
        t->uids[t->running++] = p->uid;
        uv_queue_work(t->loop, &turn->req, run, ran); /* fails only without a callback */
    }
}

int turns_add(struct turns *t, struct turns_party *p, void (*work)(void *arg), void (*after)(void *arg), void *arg)
{
    struct turn *turn = malloc(sizeof *turn);

    if (!turn)
        return -ENOMEM;
    *turn = (struct turn){ .turns = t, .party = p, .work = work, .after = after, .arg = arg };
    turn->req.data = turn;
    if (p->first)
        p->last->next = turn;
    else
        p->first = turn;
    p->last = turn;
    line_up(t, p);
    turns_go(t);
    return 0;
}

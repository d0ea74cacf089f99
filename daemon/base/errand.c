#include "daemon/base/errand.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/host/tasks.h"

struct errand {
    struct errand *next;
    void (*work)(void *arg);
    void (*after)(void *arg);
    void *arg;
};

struct line {
    struct errand *first, *last;
};

struct errands {
    uv_async_t async;
    pthread_t thread;
    pthread_mutex_t lock; /* guards todo, done, stopping */
    pthread_cond_t wake;
    struct line todo, done;
    bool stopping;
    int open; /* errands whose after() has not run; the loop's alone */
};

static void push(struct line *line, struct errand *it)
{
    it->next = NULL;
    if (line->last)
        line->last->next = it;
    else
        line->first = it;
    line->last = it;
}

static struct errand *pop(struct line *line)
{
    struct errand *it = line->first;

    if (it)
        line->first = it->next;
    if (!line->first)
        line->last = NULL;
    return it;
}

static void *thread_main(void *arg)
{
    struct errands *e = arg;
    struct errand *it;

    pthread_mutex_lock(&e->lock);
    for (;;) {
        while (!(it = pop(&e->todo)) && !e->stopping)
            pthread_cond_wait(&e->wake, &e->lock);
        if (!it)
            break;
        pthread_mutex_unlock(&e->lock);
        it->work(it->arg);
        pthread_mutex_lock(&e->lock);
        push(&e->done, it);
        uv_async_send(&e->async);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

static void give_back(struct errands *e)
{
    struct line done;
    struct errand *it;

    pthread_mutex_lock(&e->lock);
    done = e->done;
    e->done = (struct line){ 0 };
    pthread_mutex_unlock(&e->lock);
    while ((it = pop(&done))) {
        if (--e->open == 0)
            uv_unref((uv_handle_t *)&e->async);
        it->after(it->arg);
        free(it);
    }
}

static void on_async(uv_async_t *async)
{
    give_back(async->data);
}

int errands_open(uv_loop_t *loop, struct errands **ret, struct err *err)
{
    struct errands *e = calloc(1, sizeof *e);
    int rc;

    if (!e)
        return err_set(err, -ENOMEM, "out of memory");
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->wake, NULL);
    rc = uv_async_init(loop, &e->async, on_async);
    if (rc < 0) {
        free(e);
        return err_set(err, rc, "a thread of its own: %s", uv_strerror(rc));
    }
    e->async.data = e;
    uv_unref((uv_handle_t *)&e->async);
    rc = -pthread_create(&e->thread, NULL, thread_main, e);
    if (rc < 0) {
        uv_close((uv_handle_t *)&e->async, NULL);
        uv_run(loop, UV_RUN_NOWAIT);
        free(e);
        return err_set(err, rc, "start a thread: %s", thread_lacks(-rc));
    }
    *ret = e;
    return 0;
}

int errands_add(struct errands *e, void (*work)(void *arg), void (*after)(void *arg), void *arg)
{
    struct errand *it = e ? malloc(sizeof *it) : NULL;

    if (!it)
        return e ? -ENOMEM : -ECANCELED;
    *it = (struct errand){ .work = work, .after = after, .arg = arg };
    if (e->open++ == 0)
        uv_ref((uv_handle_t *)&e->async);
    pthread_mutex_lock(&e->lock);
    push(&e->todo, it);
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
    return 0;
}

static void free_after_close(uv_handle_t *handle)
{
    free(handle->data);
}

void errands_close(struct errands *e)
{
    if (!e)
        return;
    pthread_mutex_lock(&e->lock);
    e->stopping = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
    give_back(e);
    uv_close((uv_handle_t *)&e->async, free_after_close);
}

/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/mock/pool.c - preloaded into detd, it holds the threads of
 * libuv's pool: while the folder $FAULTS has a file "pool", work given to them waits. Built by the test that needs it;
 * nothing else is linked with it. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <uv.h>

struct held {
    struct held *next;
    uv_work_t *req;
    uv_work_cb work;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct held *all;

static uv_work_cb take(const uv_work_t *req)
{
    struct held **at = &all, *h;
    uv_work_cb work;

    pthread_mutex_lock(&lock);
    while ((*at)->req != req)
        at = &(*at)->next;
    h = *at;
    *at = h->next;
    pthread_mutex_unlock(&lock);
    work = h->work;
    free(h);
    return work;
}

static void wait_and_work(uv_work_t *req)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/pool", getenv("FAULTS"));
    while (access(path, F_OK) == 0)
        usleep(5000);
    take(req)(req);
}

int uv_queue_work(uv_loop_t *loop, uv_work_t *req, uv_work_cb work, uv_after_work_cb after)
{
    int (*real)(uv_loop_t *, uv_work_t *, uv_work_cb, uv_after_work_cb) =
        (int (*)(uv_loop_t *, uv_work_t *, uv_work_cb, uv_after_work_cb))dlsym(RTLD_NEXT, "uv_queue_work");
    struct held *h = malloc(sizeof *h);

    *h = (struct held){ .req = req, .work = work };
    pthread_mutex_lock(&lock);
    h->next = all;
    all = h;
    pthread_mutex_unlock(&lock);
    return real(loop, req, wait_and_work, after);
}

#include "daemon/base/pool.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdlib.h>

#include "proto/err.h"
#include "proto/host/tasks.h"

enum { THREADS = 4, THREADS_MAX = 1024 }; /* numbers from libuv's docs on UV_THREADPOOL_SIZE */

static int pool_size(void)
{
    const char *text = getenv("UV_THREADPOOL_SIZE");
    int n = text ? atoi(text) : THREADS;

    return n < 1 ? 1 : n > THREADS_MAX ? THREADS_MAX : n;
}

static void wait_for_all(void *arg)
{
    uv_sem_wait(arg);
}

/* Runs as many threads at once as the pool will have. Their memory stays for the threads of the pool. */
static int try_threads(int n)
{
    static uv_thread_t threads[THREADS_MAX];
    uv_sem_t end;
    int rc = uv_sem_init(&end, 0), started = 0;

    if (rc < 0)
        return rc;
    while (rc == 0 && started < n && (rc = uv_thread_create(&threads[started], wait_for_all, &end)) == 0)
        started++;
    for (int i = 0; i < started; i++)
        uv_sem_post(&end);
    for (int i = 0; i < started; i++)
        uv_thread_join(&threads[i]);
    uv_sem_destroy(&end);
    return rc;
}

static void nothing(uv_work_t *work)
{
    (void)work;
}

static void done(uv_work_t *work, int status)
{
    (void)work;
    (void)status;
}

int pool_start(uv_loop_t *loop, struct err *err)
{
    static uv_work_t first;
    int rc = try_threads(pool_size());

    if (rc == 0)
        rc = uv_queue_work(loop, &first, nothing, done);
    return rc < 0 ? err_set(err, rc, "start the %d threads that read the store: %s", pool_size(), thread_lacks(-rc)) : 0;
}

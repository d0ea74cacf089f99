#include "supervisor/ranks/ranks.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/frame.h"
#include "proto/job/jobspec.h"
#include "proto/line.h"
#include "proto/progress.h"
#include "proto/report.h"
#include "supervisor/ranks/program.h"
#include "supervisor/ranks/log.h"
#include "supervisor/ranks/spawn.h"

/* What may wait for a rank that does not read; it is told a few short lines a minute. */
enum { MAX_QUEUE = 256 << 10, READ_BYTES = REPORT_MAX_LINE };
/* Read of a rank that has ended: more than a socket holds, whatever its children go on to write. */
enum { LAST_GULPS = 64 };

struct rank {
    struct ranks *all;
    int index, fd, status;
    pid_t pid;
    bool exited, eof, closed, held, broken, told; /* held: lines wait until ready() */
    bool skips;                                   /* up to the next newline: a program's line was too long */
    bool polling;
    uv_poll_t poll;
    struct frame *in;
    char *out; /* not written yet */
    size_t out_len;
    struct progress *page;
    double cpu_seconds;
    long long max_rss;
};

struct ranks {
    struct ranks_config config;
    int comm_fd, open_handles;
    double orphans_cpu; /* seconds, of processes that ranks started and left to this one */
    struct rank rank[];
};

static void read_rank(struct rank *r);

/* ---- the socket of a rank ---- */

static void on_poll(uv_poll_t *poll, int status, int events);

static void set_poll(struct rank *r)
{
    int events = (r->held || r->eof || r->broken ? 0 : UV_READABLE) | (r->out_len > 0 ? UV_WRITABLE : 0);

    if (r->exited || !r->polling)
        events = 0;
    if (!r->polling)
        return;
    if (events)
        uv_poll_start(&r->poll, events, on_poll);
    else
        uv_poll_stop(&r->poll);
}

static void flush(struct rank *r)
{
    while (r->out_len > 0) {
        ssize_t n = send(r->fd, r->out, r->out_len, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            r->out_len = 0; /* its end will say why */
        if (n <= 0)
            break;
        r->out_len -= (size_t)n;
        memmove(r->out, r->out + n, r->out_len);
    }
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct rank *r = poll->data;

    if (status == 0 && events & UV_WRITABLE)
        flush(r);
    if (status < 0 || events & UV_READABLE)
        read_rank(r);
    set_poll(r);
}

/* Leaves out the end of a line that was too long. Returns how many of the bytes belong to it. */
static size_t skip(struct rank *r, const char *bytes, size_t len)
{
    const char *newline = r->skips ? memchr(bytes, '\n', len) : NULL;

    if (!r->skips)
        return 0;
    r->skips = !newline;
    return newline ? (size_t)(newline - bytes) + 1 : len;
}

/* A program that writes garbage must not wait for a reader: what follows the line is read. */
static void give_up_on(struct rank *r, const char *why)
{
    r->broken = !r->all->config.program;
    if (!r->broken) {
        frame_free(r->in);
        r->in = frame_new(REPORT_MAX_LINE);
        r->broken = !r->in;
    }
    r->all->config.broken(r->all->config.arg, r->index, why);
}

/* Gives whole lines while they are wanted. False: some are left. */
static bool give_lines(struct rank *r)
{
    const struct ranks_config *c = &r->all->config;
    const char *text;
    size_t len;

    for (;;) {
        if (!c->ready(c->arg)) {
            r->held = true;
            return false;
        }
        text = r->in ? frame_next(r->in, &len) : NULL;
        if (!text)
            return true;
        c->line(c->arg, r->index, text, len);
    }
}

/* One gulp. 1: more may come now, 0: nothing more for now, or never. */
static int read_gulp(struct rank *r)
{
    static char bytes[READ_BYTES]; /* one loop, one thread */
    struct err err;
    size_t skipped;
    ssize_t n = recv(r->fd, bytes, sizeof bytes, MSG_DONTWAIT);

    if (n < 0 && errno == EINTR)
        return 1;
    if (n < 0 && errno == EAGAIN)
        return 0;
    if (n <= 0) { /* an error on a socketpair is the other end's death as well */
        r->eof = true;
        return 0;
    }
    skipped = skip(r, bytes, (size_t)n);
    if (frame_push(r->in, bytes + skipped, (size_t)n - skipped, &err) < 0) {
        if (give_lines(r))
            give_up_on(r, err.msg);
        r->skips = true; /* the line that is too long began in an earlier gulp, since a gulp is no longer than a line */
        skipped += skip(r, bytes + skipped, (size_t)n - skipped);
        return r->broken || !r->in || frame_push(r->in, bytes + skipped, (size_t)n - skipped, &err) < 0 ? !r->broken : 1;
    }
    return 1;
}

static void tell_gone(struct rank *r)
{
    if (r->told)
        return;
    r->told = true;
    r->all->config.gone(r->all->config.arg, r->index, r->status);
}

/* A live rank gets one gulp a turn, so that its flood does not keep the others waiting; a dead one is read to the
 * end. */
static void read_rank(struct rank *r)
{
    int more = 1, gulps = 0;

    do {
        if (!give_lines(r))
            return;
        more = r->eof || r->broken ? 0 : read_gulp(r);
    } while (more && r->exited && ++gulps < LAST_GULPS);
    if (!give_lines(r))
        return;
    if (r->exited)
        tell_gone(r);
    else if (r->eof && !r->closed) {
        r->closed = true;
        r->all->config.closed(r->all->config.arg, r->index);
    }
}

void ranks_resume(struct ranks *r)
{
    for (int i = 0; i < r->config.nranks; i++) {
        if (!r->rank[i].held)
            continue;
        r->rank[i].held = false;
        read_rank(&r->rank[i]);
        set_poll(&r->rank[i]);
    }
}

bool ranks_is_held(const struct ranks *all, int rank)
{
    return all->rank[rank].held;
}

static int queue(struct ranks *all, int rank, const char *line, size_t len, struct err *err)
{
    struct rank *r = &all->rank[rank];
    char *out;

    if (r->exited)
        return 0;
    if (r->out_len + len > MAX_QUEUE)
        return err_set(err, -ENOBUFS, "rank %d does not read its messages", rank);
    out = realloc(r->out, r->out_len + len);
    if (!out)
        return err_set(err, -ENOMEM, "out of memory");
    memcpy(out + r->out_len, line, len);
    r->out = out;
    r->out_len += len;
    flush(r);
    set_poll(r);
    return 0;
}

void ranks_say(struct ranks *all, int rank, struct line *l)
{
    struct err err = { 0 };

    if (line_done(l, &err) < 0 || queue(all, rank, l->buf, l->len, &err) < 0)
        job_log("message to rank %d: %s", rank, err.msg);
}

/* ---- starting ---- */

static int make_page(struct rank *r, int *ret_fd, struct err *err)
{
    int fd = memfd_create("detd-progress", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return err_sys(err, "make a progress page");
    *ret_fd = fd;
    /* sealed: a rank that cut its page short would kill its reader */
    if (ftruncate(fd, PROGRESS_BYTES) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return err_sys(err, "make a progress page");
    r->page = mmap(NULL, PROGRESS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (r->page == MAP_FAILED) {
        r->page = NULL;
        return err_sys(err, "map a progress page");
    }
    return 0;
}

static const char *gpu_of(const struct ranks_config *c, int rank)
{
    int n = 0;

    while (c->gpus && c->gpus[n])
        n++;
    return n > 0 ? c->gpus[(long)rank * n / c->nranks] : NULL;
}

static ino_t inode(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

/* A granted GPU wins over what run.env says. */
static int start_worker(const struct ranks *all, struct rank *r, struct spawn *s, struct err *err)
{
    const char *uuid = gpu_of(&all->config, r->index);
    const json_t *given = all->config.run_env;
    json_t *variables = given ? json_copy((json_t *)given) : json_object();
    char **env = NULL;
    int rc = variables ? 0 : -1;

    if (rc == 0 && uuid)
        rc = json_object_set_new(variables, "CUDA_VISIBLE_DEVICES", json_string(uuid));
    if (rc == 0 && s->fds[SPAWN_FDS - 1] >= 0)
        rc = json_object_set_new(variables, WORKER_ENV_PLUGIN, json_sprintf("%d", WORKER_FD_PLUGIN));
    rc = rc == 0 ? spawn_env(variables, false, &env, err) : err_set(err, -ENOMEM, "out of memory");
    s->env = env;
    if (rc == 0)
        rc = spawn_rank(s, &r->pid, err);
    spawn_free_env(env);
    json_decref(variables);
    return rc;
}

static int start_program(const struct ranks *all, struct rank *r, struct spawn *s, struct err *err)
{
    const struct ranks_config *c = &all->config;
    const struct program *p = c->program;
    struct program_rank mine = { r->index, c->attempt, c->job_dir, inode(s->fds[0]), inode(s->fds[2]), c->gpus };
    char **env;
    int rc = program_env(p, &mine, &env, err);

    if (rc < 0)
        return rc;
    s->path = p->path;
    s->exec_fd = -1;
    s->program = p;
    s->env = env;
    s->tty = c->tty;
    s->fds[PROGRAM_FD_PAGE - WORKER_FD_CONTROL] = s->fds[2];
    s->fds[2] = s->fds[4] = -1;
    rc = spawn_rank(s, &r->pid, err);
    spawn_free_env(env);
    return rc == -ENOENT || rc == -EACCES || rc == -ENOEXEC ? program_explain(p, -rc, err) : rc;
}

static int start_rank(struct ranks *all, struct rank *r, struct err *err)
{
    const struct ranks_config *c = &all->config;
    int pair[2] = { -1, -1 }, page_fd = -1, log_fd = -1, rc;
    struct spawn s;

    rc = make_page(r, &page_fd, err);
    if (rc == 0)
        rc = spawn_open_log(r->index, c->nranks, c->attempt, &log_fd, err);
    if (rc == 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        rc = err_sys(err, "make the socket of rank %d", r->index);
    if (rc < 0)
        goto out;
    s = (struct spawn){ .path = c->worker_path,
                        .exec_fd = c->worker_fd,
                        .job_dir = c->job_dir,
                        .rank = r->index,
                        .nranks = c->nranks,
                        .attempt = c->attempt,
                        .log_fd = log_fd,
                        .fds = { pair[1], all->comm_fd, page_fd, c->lock_fd, c->plugin_fd } };
    rc = c->program ? start_program(all, r, &s, err) : start_worker(all, r, &s, err);
    if (rc < 0)
        goto out;
    r->exited = false;
    r->fd = pair[0];
    pair[0] = -1;
    rc = uv_poll_init(c->loop, &r->poll, r->fd);
    if (rc < 0) {
        err_set(err, rc, "watch the socket of rank %d: %s", r->index, uv_strerror(rc));
        goto out;
    }
    r->poll.data = r;
    r->polling = true;
    all->open_handles++;
    set_poll(r);
out:
    for (int i = 0; i < 2; i++)
        if (pair[i] >= 0)
            close(pair[i]);
    if (page_fd >= 0)
        close(page_fd);
    if (log_fd >= 0)
        close(log_fd);
    return rc;
}

int ranks_start(const struct ranks_config *config, struct ranks **ret, struct err *err)
{
    int rc = 0, comm_fd = memfd_create("detd-comm", MFD_CLOEXEC);
    struct ranks *all;

    if (comm_fd < 0)
        return err_sys(err, "make the shared memory of the ranks");
    all = calloc(1, sizeof *all + (size_t)config->nranks * sizeof *all->rank);
    if (!all) {
        close(comm_fd);
        return err_set(err, -ENOMEM, "out of memory");
    }
    all->config = *config;
    all->comm_fd = comm_fd;
    for (int i = 0; i < config->nranks; i++)
        all->rank[i] = (struct rank){ .all = all, .index = i, .fd = -1, .exited = true, .told = true };
    for (int i = 0; rc == 0 && i < config->nranks; i++) {
        struct rank *r = &all->rank[i];

        r->in = frame_new(REPORT_MAX_LINE);
        rc = r->in ? start_rank(all, r, err) : err_set(err, -ENOMEM, "out of memory");
    }
    for (int i = 0; rc == 0 && i < config->nranks; i++)
        all->rank[i].told = false;
    if (rc < 0) {
        ranks_kill(all, SIGKILL);
        for (int i = 0; i < config->nranks; i++)
            if (!all->rank[i].exited)
                waitpid(all->rank[i].pid, NULL, 0);
        ranks_free(all);
        return rc;
    }
    *ret = all;
    return 0;
}

static void free_memory(struct ranks *all)
{
    for (int i = 0; i < all->config.nranks; i++) {
        frame_free(all->rank[i].in);
        free(all->rank[i].out);
        if (all->rank[i].page)
            munmap(all->rank[i].page, PROGRESS_BYTES);
        if (all->rank[i].fd >= 0)
            close(all->rank[i].fd);
    }
    close(all->comm_fd);
    free(all);
}

static void on_closed(uv_handle_t *handle)
{
    struct rank *r = handle->data;

    if (--r->all->open_handles == 0)
        free_memory(r->all);
}

void ranks_free(struct ranks *all)
{
    if (!all)
        return;
    if (all->open_handles == 0) {
        free_memory(all);
        return;
    }
    for (int i = 0; i < all->config.nranks; i++)
        if (all->rank[i].polling) {
            all->rank[i].polling = false;
            uv_close((uv_handle_t *)&all->rank[i].poll, on_closed);
        }
}

/* ---- ending ---- */

void ranks_kill(struct ranks *all, int signal)
{
    for (int i = 0; i < all->config.nranks; i++)
        if (!all->rank[i].exited)
            kill(all->rank[i].pid, signal); /* not reaped yet, so the number is still its own */
}

static double cpu_of(const struct rusage *u)
{
    return (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) + 1e-6 * (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec);
}

static void rank_exited(struct rank *r, int status, const struct rusage *u)
{
    r->exited = true;
    r->status = status;
    r->cpu_seconds = cpu_of(u);
    r->max_rss = (long long)u->ru_maxrss << 10;
    set_poll(r);
    if (!r->held)
        read_rank(r);
}

static bool is_rank(const struct ranks *all, pid_t pid)
{
    for (int i = 0; i < all->config.nranks; i++)
        if (!all->rank[i].exited && all->rank[i].pid == pid)
            return true;
    return false;
}

/* Of what ranks started and nobody waits for. One that is a rank has died a moment ago, and another signal tells of
 * it. */
static void reap_orphans(struct ranks *all)
{
    siginfo_t dead = { 0 };
    struct rusage u;

    while (waitid(P_ALL, 0, &dead, WEXITED | WNOHANG | WNOWAIT) == 0 && dead.si_pid != 0 && !is_rank(all, dead.si_pid)) {
        if (wait4(dead.si_pid, NULL, WNOHANG, &u) == dead.si_pid)
            all->orphans_cpu += cpu_of(&u);
        dead.si_pid = 0;
    }
}

/* Ranks in their order: the first that is told of is the one that is blamed. */
void ranks_reap(struct ranks *all)
{
    for (int i = 0; i < all->config.nranks; i++) {
        struct rank *r = &all->rank[i];
        struct rusage u;
        int status;

        if (!r->exited && wait4(r->pid, &status, WNOHANG, &u) == r->pid)
            rank_exited(r, status, &u);
    }
    reap_orphans(all);
}

pid_t ranks_pid(const struct ranks *all, int rank)
{
    return all->rank[rank].exited ? 0 : all->rank[rank].pid;
}

const char *ranks_gpu(const struct ranks *all, int rank)
{
    return gpu_of(&all->config, rank);
}

struct progress *ranks_page(struct ranks *all, int rank)
{
    return all->rank[rank].page;
}

/* ---- what they use ---- */

static void read_proc(pid_t pid, double *ret_cpu, long long *ret_max_rss, long long *ret_rss)
{
    char path[64], text[4096], *p;
    unsigned long utime = 0, stime = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    f = fopen(path, "re");
    if (f && fgets(text, sizeof text, f) && (p = strrchr(text, ')'))) /* the name may hold anything but ends there */
        if (sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &utime, &stime) == 2)
            *ret_cpu = (double)(utime + stime) / (double)sysconf(_SC_CLK_TCK);
    if (f)
        fclose(f);
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    f = fopen(path, "re");
    while (f && fgets(text, sizeof text, f))
        if (sscanf(text, "VmHWM: %lld", ret_max_rss) == 1)
            *ret_max_rss <<= 10;
        else if (sscanf(text, "VmRSS: %lld", ret_rss) == 1)
            *ret_rss <<= 10;
    if (f)
        fclose(f);
}

void ranks_usage(const struct ranks *all, struct ranks_usage *ret)
{
    *ret = (struct ranks_usage){ .cpu_seconds = all->orphans_cpu };
    for (int i = 0; i < all->config.nranks; i++) {
        const struct rank *r = &all->rank[i];
        double cpu = r->cpu_seconds;
        long long max_rss = r->max_rss, rss = 0;

        if (!r->exited)
            read_proc(r->pid, &cpu, &max_rss, &rss);
        ret->cpu_seconds += cpu;
        ret->max_rss = max_rss > ret->max_rss ? max_rss : ret->max_rss;
        ret->rss += rss;
    }
}

/* SPDX-License-Identifier: Apache-2.0 */ /* detd as its clients and supervisors see it: start, memory, requests a
 * second, latency, report ingest. A private detd in a folder of its own; this program plays the supervisor. uses: proto
 * Usage: bench_daemon [records=60000] [requests=60000] [idle_s=8, before memory at rest is read]
 * Records: rest (memory), ingest, list (requests in flight), latency (one client), rest again, start. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench.h"

enum { IN_FLIGHT = 64, LATENCY_REQUESTS = 5000, TERMS = 8 };

static char root[80], build[PATH_MAX];
static int records, requests, idle_s;
static pid_t daemon_pid;

static double now_ms(void)
{
    return 1e3 * bench_now();
}

/* Ends the supervisor that holds the job's lock, and removes the folder. */
static void clean_up(void)
{
    char command[512];

    snprintf(command, sizeof command,
             "for p in /proc/[0-9]*; do [ \"$(readlink $p/fd/3)\" = '%s/state/jobs/1/lock' ] && kill ${p#/proc/}; done; rm -rf '%s'", root,
             root);
    if (system(command) < 0)
        perror("bench_daemon: clean up");
}

static void fail(const char *what)
{
    fprintf(stderr, "bench_daemon: %s: %s\n", what, strerror(errno));
    if (daemon_pid)
        kill(daemon_pid, SIGKILL);
    if (root[0])
        clean_up();
    exit(1);
}

static int dial(const char *name)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(addr.sun_path, sizeof addr.sun_path, "%s/%s", root, name);
    if (connect(fd, (struct sockaddr *)&addr, sizeof addr) == 0)
        return fd;
    close(fd);
    return -1;
}

static void send_all(int fd, const char *text, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, text, len);

        if (n <= 0)
            fail("write");
        text += n;
        len -= (size_t)n;
    }
}

struct reader {
    int fd;
    size_t len;
    char buf[1 << 16];
};

/* The next line; the buffer must be large enough for one. */
static char *read_line(struct reader *r, char *line, size_t size)
{
    char *end;

    while (!(end = memchr(r->buf, '\n', r->len))) {
        ssize_t n = read(r->fd, r->buf + r->len, sizeof r->buf - r->len);

        if (n <= 0)
            fail("the daemon closed the connection");
        r->len += (size_t)n;
    }
    *end = '\0';
    snprintf(line, size, "%s", r->buf);
    r->len -= (size_t)(end + 1 - r->buf);
    memmove(r->buf, end + 1, r->len);
    return line;
}

static void ask(struct reader *r, const char *request, char *reply, size_t size)
{
    send_all(r->fd, request, strlen(request));
    read_line(r, reply, size);
}

/* A number out of a flat reply. */
static double member(const char *reply, const char *name)
{
    char key[64];
    const char *at;

    snprintf(key, sizeof key, "\"%s\":", name);
    at = strstr(reply, key);
    return at ? strtod(at + strlen(key), NULL) : -1;
}

static int start_daemon(struct reader *r, char *reply, size_t size, double *ret_ms)
{
    char program[PATH_MAX], state[128], sock[128];
    double began = now_ms();
    int fd;

    snprintf(program, sizeof program, "%s/bin/detd", root);
    snprintf(state, sizeof state, "%s/state", root);
    snprintf(sock, sizeof sock, "%s/sock", root);
    daemon_pid = fork();
    if (daemon_pid == 0) {
        execl(program, "detd", "--state", state, "--socket", sock, (char *)NULL);
        _exit(127);
    }
    while ((fd = dial("sock")) < 0) {
        if (waitpid(daemon_pid, NULL, WNOHANG) == daemon_pid)
            fail("detd did not start");
        usleep(500);
    }
    r->fd = fd;
    r->len = 0;
    ask(r, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"daemon.info\"}\n", reply, size);
    *ret_ms = now_ms() - began;
    return fd;
}

static const char info[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"daemon.info\",\"params\":{}}\n";
static const char list[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"job.list\",\"params\":{\"limit\":1}}\n";

static void bench_list(struct reader *r)
{
    static char batch[IN_FLIGHT * sizeof list], in[1 << 16];
    double began, seconds;
    long sent = 0, got = 0;

    for (int i = 0; i < IN_FLIGHT; i++)
        memcpy(batch + (size_t)i * (sizeof list - 1), list, sizeof list - 1);
    began = now_ms();
    while (got < requests) {
        long room = IN_FLIGHT - (sent - got), left = requests - sent;
        ssize_t n;

        if (left > 0 && room > 0) {
            long now = room < left ? room : left;

            send_all(r->fd, batch, (size_t)now * (sizeof list - 1));
            sent += now;
        }
        n = read(r->fd, in, sizeof in);
        if (n <= 0)
            fail("read");
        for (ssize_t i = 0; i < n; i++)
            got += in[i] == '\n';
    }
    seconds = (now_ms() - began) / 1e3;
    printf("list in_flight=%d requests_per_s=%.0f\n", IN_FLIGHT, requests / seconds);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void bench_latency(struct reader *r)
{
    static double ms[LATENCY_REQUESTS];
    static char reply[1 << 16];
    int n = requests < LATENCY_REQUESTS ? requests : LATENCY_REQUESTS;

    for (int i = 0; i < n; i++) {
        double began = now_ms();

        ask(r, list, reply, sizeof reply);
        ms[i] = now_ms() - began;
    }
    qsort(ms, (size_t)n, sizeof *ms, by_value);
    printf("latency median_ms=%.4f p99_ms=%.4f\n", ms[n / 2], ms[n * 99 / 100]);
}

/* The nonce under which the daemon expects the supervisor of job 1. */
static void read_nonce(char *nonce, size_t size)
{
    char path[128];
    sqlite3 *db;
    sqlite3_stmt *st;

    snprintf(path, sizeof path, "%s/state/detd.db", root);
    nonce[0] = '\0';
    for (int i = 0; i < 6000 && strlen(nonce) < 32; i++) {
        usleep(10000);
        if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK &&
            sqlite3_prepare_v2(db, "SELECT nonce FROM jobs WHERE id=1", -1, &st, NULL) == SQLITE_OK) {
            if (sqlite3_step(st) == SQLITE_ROW)
                snprintf(nonce, size, "%s", (const char *)sqlite3_column_text(st, 0));
            sqlite3_finalize(st);
        }
        sqlite3_close(db);
    }
    if (strlen(nonce) < 32)
        fail("job 1 was not started");
}

static size_t record(char *to, size_t size, long seq)
{
    size_t n = (size_t)snprintf(
        to, size,
        "{\"type\":\"report\",\"seq\":%ld,\"rec\":{\"type\":\"loss\",\"split\":\"train\",\"step\":%ld,\"epoch\":%.3f,\"tier\":"
        "\"rerun\",\"time\":1760000000.5,\"images_per_s\":61.5,\"terms\":{",
        seq, seq, (double)seq / 100);

    for (int t = 0; t < TERMS; t++)
        n += (size_t)snprintf(to + n, size - n, "%s\"term%d\":[%.17g,160]", t ? "," : "", t, 8312.517 / (double)(seq + t));
    return n + (size_t)snprintf(to + n, size - n, "}}}\n");
}

static long newest_ack(const char *text, size_t len)
{
    long seq = 0;

    for (size_t i = 0; i + 12 < len; i++)
        if (memcmp(text + i, "\"ack\",\"seq\":", 12) == 0)
            seq = strtol(text + i + 12, NULL, 10);
    return seq;
}

static void bench_ingest(struct reader *r)
{
    static char in[1 << 16], out[1 << 16], reply[1 << 16];
    char nonce[64], hello[256];
    long seq = 0, acked = 0;
    size_t queued = 0, from = 0;
    double began, seconds;
    int fd;

    ask(r,
        "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"job.submit\",\"params\":{\"token\":\"b\",\"spec\":{\"model\":{\"preset\":\"yolov3_"
        "tiny\"},\"data\":{\"train\":"
        "{\"annotations\":\"/a\",\"images\":\"/b\"}},\"train\":{\"steps\":1000000,\"batch\":8}}}}\n",
        reply, sizeof reply);
    read_nonce(nonce, sizeof nonce);
    fd = dial("state/sup.sock");
    if (fd < 0)
        fail("sup.sock");
    snprintf(hello, sizeof hello, "{\"type\":\"hello\",\"protocol\":1,\"job\":1,\"attempt\":1,\"nonce\":\"%s\",\"pid\":1}\n", nonce);
    send_all(fd, hello, strlen(hello));
    fcntl(fd, F_SETFL, O_NONBLOCK);
    ask(r, info, reply, sizeof reply); /* the longest turn counts from here */
    began = now_ms();
    while (acked < records) {
        struct pollfd p = { fd, POLLIN, 0 };
        ssize_t n;

        if (from == queued && seq < records) {
            for (queued = from = 0; queued + 1024 < sizeof out && seq < records;)
                queued += record(out + queued, sizeof out - queued, ++seq);
        }
        if (from < queued)
            p.events |= POLLOUT;
        if (poll(&p, 1, 60000) <= 0)
            fail("no ack");
        if ((p.revents & POLLOUT) && (n = write(fd, out + from, queued - from)) > 0)
            from += (size_t)n;
        if ((p.revents & POLLIN) && (n = read(fd, in, sizeof in)) > 0) {
            long newest = newest_ack(in, (size_t)n);

            acked = newest > acked ? newest : acked;
        } else if (p.revents & (POLLHUP | POLLERR)) {
            fail("the daemon hung up");
        }
    }
    seconds = (now_ms() - began) / 1e3;
    ask(r, info, reply, sizeof reply);
    printf("ingest rows=%d rows_per_s=%.0f loop_max_ms=%.2f loop_cpu_max_ms=%.2f\n", records * TERMS, records * TERMS / seconds,
           member(reply, "loop_max_ms"), member(reply, "loop_cpu_max_ms"));
    close(fd);
}

/* A supervisor that holds the lock and does nothing: this program speaks for it. */
static void make_folder(void)
{
    char path[PATH_MAX + 64], command[2 * PATH_MAX];
    FILE *f;

    snprintf(root, sizeof root, "%s/detd-bench-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(root)) {
        root[0] = '\0';
        fail("temporary folder");
    }
    snprintf(command, sizeof command, "mkdir '%s/bin' && cp '%s/detd' '%s/bin'", root, build, root);
    if (system(command) != 0)
        fail("copy detd");
    snprintf(path, sizeof path, "%s/bin/detd-job", root);
    f = fopen(path, "w");
    if (!f)
        fail(path);
    fputs("#!/bin/sh\nexec sleep 100\n", f);
    fclose(f);
    chmod(path, 0755);
}

/* Memory after a while without requests. */
static void bench_rest(struct reader *r, const char *after)
{
    static char reply[1 << 16];

    sleep((unsigned)idle_s);
    ask(r, info, reply, sizeof reply);
    printf("rest after=%s rss_mb=%.2f\n", after, member(reply, "rss_bytes") / 1e6);
}

int main(int argc, char **argv)
{
    static struct reader r;
    static char reply[1 << 16];
    double ms, again;

    if (!realpath(getenv("DETD_BUILD") ? getenv("DETD_BUILD") : "build", build))
        fail("build folder");
    records = bench_count(argc, argv, "records", 60000);
    requests = bench_count(argc, argv, "requests", 60000);
    idle_s = (int)bench_number(argc, argv, "idle_s", 8);
    make_folder();
    start_daemon(&r, reply, sizeof reply, &ms);
    bench_rest(&r, "start");
    bench_ingest(&r);
    bench_list(&r);
    bench_latency(&r);
    bench_rest(&r, "load");
    close(r.fd);
    kill(daemon_pid, SIGKILL);
    waitpid(daemon_pid, NULL, 0);
    start_daemon(&r, reply, sizeof reply, &again);
    printf("start empty_ms=%.2f after_kill_ms=%.2f rows=%d\n", ms, again, records * TERMS);
    kill(daemon_pid, SIGKILL);
    waitpid(daemon_pid, NULL, 0);
    clean_up();
    return 0;
}

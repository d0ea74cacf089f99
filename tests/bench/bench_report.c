/* SPDX-License-Identifier: Apache-2.0 */ /* tests/bench/bench_report.c - uses: proto trainer cpu
 * The cost of a loss report inside a step: wall clock in the calling thread, while another thread reads.
 * Usage: bench_report [reports=20000] */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/err.h"
#include "tests/bench/bench.h"
#include "worker/report/report.h"

static void *drain(void *arg)
{
    char bytes[65536];

    while (read(*(int *)arg, bytes, sizeof bytes) > 0)
        continue;
    return NULL;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    static const char *const names[] = { "total", "box", "obj", "noobj", "cls" };
    int reports = bench_count(argc, argv, "reports", 20000);
    double *us = calloc((size_t)reports, sizeof *us);
    struct report_term terms[5];
    struct report_control c;
    struct report *r;
    struct err err;
    int fds[2];
    pthread_t t;

    if (!us || socketpair(AF_UNIX, SOCK_STREAM, 0, fds) < 0 || report_open(fds[1], 0, 0, 1, &r, &err) < 0 ||
        pthread_create(&t, NULL, drain, &fds[0]) != 0)
        return 1;
    for (int i = 0; i < reports; i++) {
        struct report_loss loss = { "train", i, i / 7.0, "rerun", 31.4159, 5, terms };
        double began;

        for (int k = 0; k < 5; k++)
            terms[k] = (struct report_term){ names[k], 1.0 / (i + k + 3.1), k == 4 ? 17 : 8 };
        usleep(50); /* a step lies between two reports, in which the reader falls asleep */
        began = bench_now();
        if (report_loss(r, &loss, &err) < 0 || report_control(r, &c, &err) < 0)
            return 1;
        us[i] = 1e6 * (bench_now() - began);
    }
    qsort(us, (size_t)reports, sizeof *us, compare);
    printf("report median_us=%.2f p99_us=%.2f\n", us[reports / 2], us[reports * 99 / 100]);
    free(us);
    shutdown(fds[1], SHUT_RDWR);
    pthread_join(t, NULL);
    report_close(r);
    return 0;
}

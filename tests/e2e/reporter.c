/* SPDX-License-Identifier: Apache-2.0 */ /* tests/e2e/reporter.c - a training program in C that reports with
 * detd_report.h: programs.py compiles and runs it. usage: reporter STEPS FOLDER */
#include "proto/detd_report.h"

#include <fcntl.h>
#include <locale.h>

static void save(struct detd *d, long long step, const char *folder, int rank)
{
    char path[4096];
    int fd;

    snprintf(path, sizeof path, "%s/step-%lld", folder, step);
    fd = rank == 0 ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644) : -1;
    if (fd >= 0 && (fsync(fd) < 0 || close(fd) < 0))
        exit(1);
    detd_checkpoint(d, step, rank == 0 ? path : NULL);
}

int main(int argc, char **argv)
{
    int rank = atoi(getenv("RANK") ? getenv("RANK") : "0");
    long long steps = argc > 1 ? atoll(argv[1]) : 1;
    static struct detd d;

    if (getenv("LC_ALL") && !setlocale(LC_ALL, "")) /* the decimal point may be a comma there */
        return 1;
    detd_init(&d, DETD_WORD(DETD_CHECKPOINT) | DETD_WORD(DETD_PAUSE));
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("goes on after %lld, %s\n", d.step, d.resume ? d.resume : "new");
    for (long long step = d.step + 1; step <= steps; step++) {
        struct detd_term terms[] = { { "total", 0.5 * (double)step, 1 + rank }, { "bad", step == 2 ? NAN : 1, 1 } };

        detd_share(&d, "train", step, 2, terms);
        if (detd_wants(&d, step, DETD_CHECKPOINT))
            save(&d, step, argc > 2 ? argv[2] : ".", rank);
        if (detd_wants(&d, step, DETD_PAUSE)) {
            save(&d, step, argc > 2 ? argv[2] : ".", rank);
            break;
        }
        poll(NULL, 0, 1);
    }
    detd_metric(&d, steps, "AP", 0.25);
    detd_finish(&d);
    return 0;
}

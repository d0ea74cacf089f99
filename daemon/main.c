/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/main.c - detd: options, then the daemon. */
#include <malloc.h>
#include <stdio.h>
#include <sys/stat.h>

#include "daemon/base/config.h"
#include "daemon/daemon.h"
#include "daemon/gpu/gpu_probe.h"
#include "daemon/base/log.h"
#include "proto/err.h"
#include "proto/host/output.h"
#include "proto/host/start.h"
#include "proto/version.h"

enum { EXIT_REFUSED = 1, EXIT_USAGE = 2 };

static int end_output(void)
{
    return output_end(stdout, "detd") < 0 ? EXIT_REFUSED : 0;
}

int main(int argc, char **argv)
{
    enum config_action action;
    struct config cfg;
    struct err err = { 0 };

    start_service();
    if (config_read(argc, argv, &cfg, &action, &err) < 0) {
        fprintf(stderr, "detd: %s\n", err.msg);
        return EXIT_USAGE;
    }
    switch (action) {
    case CONFIG_HELP:
        config_help(stdout);
        return end_output();
    case CONFIG_VERSION:
        printf("detd %s (protocol %d)\n", DETD_VERSION, DETD_PROTOCOL);
        return end_output();
    case CONFIG_PROBE:
        return gpu_probe_main() != 0 || end_output() != 0;
    case CONFIG_WATCH:
        return gpu_watch_main();
    case CONFIG_RUN:
        break;
    }
    umask(077);              /* the database holds code of users, which admins may not see */
    mallopt(M_ARENA_MAX, 2); /* an arena per thread would keep the most memory that each thread ever needed */
    if (daemon_run(&cfg, &err) < 0) {
        log_line("error", "%s", err.msg);
        return EXIT_REFUSED;
    }
    return 0;
}

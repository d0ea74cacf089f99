/* SPDX-License-Identifier: Apache-2.0 */ /* launch/serve.h - carries out detd's requests until a signal ends it. */
#pragma once
#include <sys/types.h>

struct serve_config {
    const char *state;   /* detd's folder */
    const char *program; /* detd-job */
    uid_t user;          /* the user that may ask, besides root */
};

/* server: listens; signals: a signalfd, SIGCHLD among them. Jobs run on when it returns. */
void serve(int server, int signals, const struct serve_config *config);

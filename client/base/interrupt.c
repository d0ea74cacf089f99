#include "client/base/interrupt.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stddef.h>
#include <time.h>

volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
    (void)sig;
    interrupted = 1;
}

void catch_interrupt(void)
{
    struct sigaction action = { .sa_handler = on_interrupt }; /* no SA_RESTART: blocking calls return */

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

void sleep_ms(int ms)
{
    struct timespec t = { ms / 1000, (ms % 1000) * 1000000L };

    if (!interrupted)
        nanosleep(&t, NULL);
}

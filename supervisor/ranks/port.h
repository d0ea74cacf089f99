/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/ranks/port.h - a TCP port of this node for the ranks of a
 * program (MASTER_PORT), below the ports that the kernel gives away. A lock file per port, for all daemons and users of
 * the node, keeps two jobs from taking the same one. Anybody can hold such a lock, so it is a hint: after three locked
 * ports that can be bound, the next one is taken in spite of its lock. */
#pragma once
#include <stdbool.h>

struct err;

struct port {
    int number; /* 0: none */
    int lock_fd;
};

/* Takes a port that could be bound a moment ago. `salt` spreads the jobs over the range. Released by port_drop(). */
int port_take(unsigned salt, struct port *ret, struct err *err);
/* Whether a program could listen on the port now. */
bool port_is_free(int number);
void port_drop(struct port *p);

/* SPDX-License-Identifier: Apache-2.0 */ /* launch/ticket.h - the key, and the tickets sealed with it. */
#pragma once
#include "proto/launch.h"

struct err;

/* Reads the key, or makes a new one. Its file is accessible only to root. */
int ticket_open_key(const char *path, struct err *err);
/* For a child, which must not have it. */
void ticket_forget_key(void);
void ticket_seal(struct launch_ticket *t);
/* ERR_DENIED: this key has not sealed the ticket. */
int ticket_check(const struct launch_ticket *t, struct err *err);
/* Identifies the user that connected by this descriptor: fills uid and gid, or ERR_DENIED. */
int ticket_identify(int fd, struct launch_ticket *t, struct err *err);

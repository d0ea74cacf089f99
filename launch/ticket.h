/* SPDX-License-Identifier: Apache-2.0 */ /* launch/ticket.h - the key, and what is sealed with it. */
#pragma once
#include "proto/launch.h"

struct err;

/* Reads the key, or makes a new one. Its file is root's alone. */
int ticket_open_key(const char *path, struct err *err);
/* For a child, which needs it no more. */
void ticket_forget_key(void);
void ticket_seal(struct launch_ticket *t);
/* ERR_DENIED for one that this key has not sealed. */
int ticket_check(const struct launch_ticket *t, struct err *err);
/* Who has connected by this descriptor: fills uid and gid, or ERR_DENIED. */
int ticket_identify(int fd, struct launch_ticket *t, struct err *err);

/* SPDX-License-Identifier: Apache-2.0 */ /* launch/ask.h - what detd asks, as far as it can be checked without asking anybody else. */
#pragma once
#include <stddef.h>

#include "proto/launch.h"

struct err;

enum { ASK_FDS = 2 + LAUNCH_GPU_LOCKS };

/* One message of the socket, and its descriptors, which the caller closes: their number; ERR_PROTO for what is none, -EAGAIN for nothing, -EPIPE for the end. */
int ask_read(int socket, struct launch_ask *ret, int ret_fds[ASK_FDS], struct err *err);
/* Version, kind, and as many descriptors as that needs. */
int ask_check(const struct launch_ask *a, int nfds, struct err *err);
/* Of a SEAL: what is to be sealed. */
int ask_check_seal(const struct launch_ask *a, struct err *err);
/* Of a START or CLEAR: numbers that may be, texts of harmless characters that end. */
int ask_check_start(const struct launch_ask *a, struct err *err);
/* Its bytes can change no more, and are those of the ticket. */
int ask_check_spec(int fd, const struct launch_ticket *t, struct err *err);

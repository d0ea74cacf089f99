/* SPDX-License-Identifier: Apache-2.0 */ /* launch/ask.h - checks of detd's requests, as far as they need no other
 * source. */
#pragma once
#include <stddef.h>

#include "proto/launch.h"

struct err;

enum { ASK_FDS = 2 + LAUNCH_GPU_LOCKS };

/* Reads one message of the socket with its descriptors, which the caller closes. Returns their number; ERR_PROTO for a
 * malformed message, -EAGAIN for no message, -EPIPE for the end. */
int ask_read(int socket, struct launch_ask *ret, int ret_fds[ASK_FDS], struct err *err);
/* Checks version, kind, and the number of descriptors for that kind. */
int ask_check(const struct launch_ask *a, int nfds, struct err *err);
/* Checks the values to be sealed in a SEAL. */
int ask_check_seal(const struct launch_ask *a, struct err *err);
/* Checks a START or CLEAR: numbers in range, terminated texts of harmless characters. */
int ask_check_start(const struct launch_ask *a, struct err *err);
/* Checks that the file's bytes cannot change any more, and that their hash is that of the ticket. */
int ask_check_spec(int fd, const struct launch_ticket *t, struct err *err);

/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/socket/gate.h - the control socket's file, and who comes in by it. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

struct err;

enum { GATE_SPARE_FILES = 16 }; /* descriptors that clients leave to jobs, supervisors and the database */

/* Borrowed. */
struct gate {
    const char *path;
    bool private; /* serves its own user and nobody else */
    bool everyone_reads;
    gid_t admin_gid; /* -1: there is no such group */
};

/* Who is at the other end, as the kernel says. */
struct caller {
    uid_t uid;
    bool admin;
};

/* Binds at the path: 0600; 0666 where everyone reads, 0660 and the admins' group on a system daemon that answers them alone. A socket that somebody serves
 * is refused, a stale one replaced. *ret_bound: the file is ours to remove, also after an error. */
int gate_bind(const struct gate *g, uv_pipe_t *server, bool *ret_bound, struct err *err);
/* Who has connected by this descriptor. ERR_DENIED for whom the daemon does not serve. */
int gate_identify(const struct gate *g, int fd, struct caller *ret, struct err *err);
/* ERR_STATE where a connection by this descriptor, the lowest that was free, would leave fewer than GATE_SPARE_FILES. */
int gate_spare_files(int fd, struct err *err);

/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/socket/gate.h - the control socket's file, and the identity of its
 * clients. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

struct err;

enum { GATE_SPARE_FILES = 16 }; /* descriptors reserved for jobs, supervisors and the database */

/* Borrowed. */
struct gate {
    const char *path;
    bool private; /* serves only its own user */
    bool everyone_reads;
    gid_t admin_gid; /* -1: the group does not exist */
};

/* The user at the other end, from the kernel. */
struct caller {
    uid_t uid;
    bool admin;
};

/* Binds at the path, with mode 0600; 0666 if everyone may read; 0660 and the admins' group on a system daemon for
 * admins only. Returns its descriptor, or an error. Refuses a socket that another process serves, and replaces a stale
 * one. *ret_bound: the caller must remove the file, also after an error. */
int gate_bind(const struct gate *g, bool *ret_bound, struct err *err);
/* Identifies the user of a connection. ERR_DENIED: the daemon does not serve that user. */
int gate_identify(const struct gate *g, int fd, struct caller *ret, struct err *err);
/* ERR_STATE if a connection with this descriptor, the lowest free one, would leave fewer than GATE_SPARE_FILES. */
int gate_spare_files(int fd, struct err *err);

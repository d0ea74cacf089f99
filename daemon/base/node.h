/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/base/node.h - facts about this machine: CPU slots, file systems. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct err;

/* CPUs this process may use: the smaller of its affinity and the quotas of its cgroup and all above, rounded up, at
 * least 1. */
int node_cpu_slots(void);
/* Parses a cpu.max of cgroup v2 ("150000 100000", "max 100000") as whole CPUs, rounded up; 0: no limit. */
int node_parse_quota(const char *text);
/* Memory of this process; 0: unknown. */
int64_t node_resident_bytes(void);
/* Whether another file system than that of the folder above is mounted there. False: also if there is no such
 * folder. */
bool node_is_mount(const char *path);
/* ERR_UNSUPPORTED if `path` is on a network file system: locks and SQLite's WAL do not work there. */
int node_check_filesystem(const char *path, struct err *err);

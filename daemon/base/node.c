#include "daemon/base/node.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "proto/err.h"

int node_parse_quota(const char *text)
{
    char *end;
    long quota = strtol(text, &end, 10), period = strtol(end, NULL, 10);

    if (quota <= 0 || period <= 0)
        return 0;
    return (int)((quota + period - 1) / period);
}

static int affinity(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof set, &set) < 0 ? 1 : CPU_COUNT(&set);
}

static int smaller_quota(const char *folder, int slots)
{
    char path[4096 + 64], text[64];
    FILE *f;
    int quota;

    snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", folder);
    f = fopen(path, "re");
    if (!f)
        return slots;
    quota = fgets(text, sizeof text, f) ? node_parse_quota(text) : 0;
    fclose(f);
    return quota > 0 && quota < slots ? quota : slots;
}

int node_cpu_slots(void)
{
    char line[4096] = "", *folder;
    FILE *f = fopen("/proc/self/cgroup", "re");
    int slots = affinity();

    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "0::", 3) == 0) /* the unified hierarchy (cgroup version 2) */
            break;
    if (f)
        fclose(f);
    line[strcspn(line, "\n")] = '\0';
    folder = strncmp(line, "0::", 3) == 0 ? line + 3 : line + strlen(line);
    /* The limit of any cgroup above holds as well. */
    for (;;) {
        char *slash;

        slots = smaller_quota(strcmp(folder, "/") == 0 ? "" : folder, slots);
        slash = strrchr(folder, '/');
        if (!slash)
            break;
        *slash = '\0';
    }
    return slots < 1 ? 1 : slots;
}

int64_t node_resident_bytes(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");

    if (f && fscanf(f, "%*d %ld", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

int node_check_filesystem(const char *path, struct err *err)
{
    static const struct {
        unsigned long magic;
        const char *name;
    } refused[] = { { NFS_SUPER_MAGIC, "NFS" }, { SMB_SUPER_MAGIC, "SMB" },   { 0xff534d42, "CIFS" },  { 0xfe534d42, "SMB2" },
                    { AFS_SUPER_MAGIC, "AFS" }, { CODA_SUPER_MAGIC, "Coda" }, { 0x00c36400, "Ceph" },  { 0x01021997, "9P" },
                    { 0x0bd00bd0, "Lustre" },   { 0x47504653, "GPFS" },       { 0x19830326, "BeeGFS" } };
    struct statfs fs;

    if (statfs(path, &fs) < 0)
        return err_sys(err, "look at '%s'", path);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if ((unsigned long)fs.f_type == refused[i].magic)
            return err_field(err, ERR_UNSUPPORTED, "state",
                             "'%s' lies on a network file system (%s), where locks do not hold: choose a local folder", path,
                             refused[i].name);
    return 0;
}

bool node_is_mount(const char *path)
{
    struct statx it, above;
    char parent[4096 + 64];

    snprintf(parent, sizeof parent, "%s/..", path);
    if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &it) < 0 || statx(AT_FDCWD, parent, 0, STATX_TYPE, &above) < 0)
        return false;
    return (it.stx_attributes & STATX_ATTR_MOUNT_ROOT) || it.stx_dev_major != above.stx_dev_major ||
           it.stx_dev_minor != above.stx_dev_minor;
}

#include "supervisor/given.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/host/folder.h"
#include "proto/launch.h"
#include "proto/host/wipe.h"

static int read_all(int fd, char **ret, size_t *ret_len, struct err *err)
{
    struct stat st;
    char *text;
    size_t n = 0;
    ssize_t got = 1;

    if (fstat(fd, &st) < 0 || st.st_size < 1 || st.st_size > LAUNCH_SPEC_MAX)
        return err_set(err, ERR_INPUT, "--spec-fd: no file with a spec");
    text = malloc((size_t)st.st_size);
    if (!text)
        return err_set(err, -ENOMEM, "out of memory");
    while (n < (size_t)st.st_size && (got = pread(fd, text + n, (size_t)st.st_size - n, (off_t)n)) > 0)
        n += (size_t)got;
    if (got <= 0) {
        int rc = err_sys(err, "read the spec");

        free(text);
        return rc;
    }
    *ret = text;
    *ret_len = n;
    return 0;
}

/* The same text that detd writes where the folder is its own. */
static int fill_in(const char *text, size_t len, int threads, const char *tier, char **ret, struct err *err)
{
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL), *run = json_object_get(root, "run");
    int rc = 0;

    if (!json_is_object(run) || (threads > 0 && json_object_set_new(run, "threads", json_integer(threads)) < 0) ||
        (tier && json_object_set_new(run, "deterministic", json_string(tier)) < 0))
        rc = err_set(err, ERR_INPUT, "--spec-fd: no spec of a job");
    *ret = rc == 0 ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    return rc == 0 && !*ret ? err_set(err, -ENOMEM, "out of memory") : rc;
}

static int publish(const char *text, struct err *err)
{
    int fd = open("spec.json.new", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600), rc = 0;
    size_t len = strlen(text), done = 0;

    if (fd < 0)
        return err_sys(err, "create 'spec.json.new'");
    while (rc == 0 && done < len) {
        ssize_t n = write(fd, text + done, len - done);

        if (n < 0)
            rc = err_sys(err, "write 'spec.json.new'");
        else
            done += (size_t)n;
    }
    if (rc == 0 && (fsync(fd) < 0 || rename("spec.json.new", "spec.json") < 0))
        rc = err_sys(err, "publish 'spec.json'");
    close(fd);
    return rc == 0 ? folder_sync(".", err) : rc;
}

int given_take(int fd, int threads, const char *tier, uint64_t last_seq, struct err *err)
{
    char *text = NULL, *spec = NULL;
    size_t len = 0;
    int rc;

    if (last_seq > 0 && access("spool.0", F_OK) != 0 && access("spool.1", F_OK) != 0)
        return err_set(err, -ENODATA, "the spool is missing, and detd has reports up to %llu", (unsigned long long)last_seq);
    rc = read_all(fd, &text, &len, err);
    if (rc == 0)
        rc = fill_in(text, len, threads, tier, &spec, err);
    if (rc == 0)
        rc = publish(spec, err);
    free(text);
    free(spec);
    return rc;
}

int given_clear(struct err *err)
{
    const struct dirent *entry;
    DIR *dir = opendir(".");
    int rc = dir ? 0 : err_sys(err, "open the folder");

    while (rc == 0 && (entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        while ((rc = wipe_folder(entry->d_name, INT_MAX, err)) > 0)
            ;
    }
    if (dir)
        closedir(dir);
    return rc;
}

void given_drop_spool(void)
{
    unlink("spool.0");
    unlink("spool.1");
}

/* SPDX-License-Identifier: Apache-2.0 */ /* client/proof/evidence.c - evidence export: a job's evidence, for
 * comparisons, as a folder that can be taken elsewhere. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/base/command.h"
#include "client/base/run.h"
#include "proto/err.h"
#include "proto/job/jobspec.h"

enum { BLOCK = 64 << 10 };
#define SPEC "spec.json"

static const struct {
    const char *name;
    bool needed; /* false: not there at every level of evidence */
} files[] = { { "evidence.json", true },
              { "evidence.log", true },
              { "evidence.tensors", false },
              { "evidence.ring", false },
              { "identity.json", false } };
enum { FILES = sizeof files / sizeof *files };

static bool all_zero(const char *bytes, size_t n)
{
    return bytes[0] == '\0' && memcmp(bytes, bytes + 1, n - 1) == 0;
}

static int write_all(int fd, const char *bytes, size_t n, const char *path, struct err *err)
{
    while (n > 0) {
        ssize_t put = write(fd, bytes, n);

        if (put < 0 && errno != EINTR)
            return err_sys(err, "write '%s'", path);
        bytes += put > 0 ? put : 0;
        n -= put > 0 ? (size_t)put : 0;
    }
    return 0;
}

/* Holes stay holes: a record of a late step may be the first of its file. */
static int copy_bytes(int from, int to, const char *from_path, const char *to_path, struct err *err)
{
    static char bytes[BLOCK];
    off_t size = 0;
    ssize_t n;
    int rc = 0;

    while (rc == 0 && !interrupted && (n = read(from, bytes, sizeof bytes)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, "read '%s'", from_path);
        size += n;
        if (all_zero(bytes, (size_t)n))
            rc = lseek(to, n, SEEK_CUR) < 0 ? err_sys(err, "write '%s'", to_path) : 0;
        else
            rc = write_all(to, bytes, (size_t)n, to_path, err);
    }
    if (interrupted)
        return err_set(err, -EINTR, "interrupted");
    return rc == 0 && ftruncate(to, size) < 0 ? err_sys(err, "write '%s'", to_path) : rc;
}

static int copy_file(const char *from_dir, const char *to_dir, int i, struct err *err)
{
    char from[PATH_MAX + 32], to[PATH_MAX + 32];
    int rc = 0, in, out = -1;
    struct stat st;

    snprintf(from, sizeof from, "%s/%s", from_dir, files[i].name);
    snprintf(to, sizeof to, "%s/%s", to_dir, files[i].name);
    in = open(from, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW); /* the folder may be another user's, and the caller may be root */
    if (in < 0)
        return errno == ENOENT && !files[i].needed ? 0 : err_sys(err, "open '%s'", from);
    if (fstat(in, &st) < 0 || !S_ISREG(st.st_mode))
        rc = err_set(err, ERR_INPUT, "'%s' is not a file", from);
    else if ((out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) < 0)
        rc = err_sys(err, "create '%s'", to);
    else
        rc = copy_bytes(in, out, from, to, err);
    close(in);
    if (out >= 0 && close(out) < 0 && rc == 0)
        rc = err_sys(err, "write '%s'", to);
    return rc;
}

/* Writes the spec without secrets: values of run.env may be passwords, and run.on_end tells where messages go. */
static int write_spec(const char *from_dir, const char *to_dir, struct err *err)
{
    char from[PATH_MAX + 32], to[PATH_MAX + 32];
    FILE *in;
    json_t *spec;
    json_error_t why;
    int rc = 0, fd;

    snprintf(from, sizeof from, "%s/" SPEC, from_dir);
    snprintf(to, sizeof to, "%s/" SPEC, to_dir);
    in = open_plain(from);
    if (!in)
        return err_sys(err, "open '%s'", from);
    spec = json_loadf(in, JSON_REJECT_DUPLICATES, &why);
    fclose(in);
    if (!spec)
        return err_set(err, ERR_INPUT, "%s:%d: %s", from, why.line, why.text);
    run_hide_code(spec);
    fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 || json_dumpfd(spec, fd, JSON_COMPACT) < 0)
        rc = err_sys(err, "write '%s'", to);
    if (fd >= 0 && close(fd) < 0 && rc == 0)
        rc = err_sys(err, "write '%s'", to);
    json_decref(spec);
    return rc;
}

static void remove_folder(const char *dir)
{
    char path[PATH_MAX + 32];

    for (int i = 0; i < FILES; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[i].name);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/" SPEC, dir);
    unlink(path);
    rmdir(dir);
}

/* Makes the folder beside its place, and moves it there when it is whole. The place may hold an empty folder, and
 * nothing else. */
static int export(const char *from, const char *to, struct err *err)
{
    char dir[PATH_MAX];
    size_t len = strlen(to);
    mode_t mask = umask(0);
    int rc = 0;

    umask(mask);
    while (len > 1 && to[len - 1] == '/')
        len--;
    if (snprintf(dir, sizeof dir, "%.*s.XXXXXX", (int)len, to) >= (int)sizeof dir)
        return err_set(err, ERR_INPUT, "'%.60s...' is too long for a folder", to);
    if (!mkdtemp(dir))
        return err_sys(err, "create folder '%s'", dir);
    rc = write_spec(from, dir, err);
    for (int i = 0; i < FILES && rc == 0; i++)
        rc = copy_file(from, dir, i, err);
    if (rc == 0 && chmod(dir, 0777 & ~mask) < 0)
        rc = err_sys(err, "folder '%s'", dir);
    if (rc == 0 && rename(dir, to) < 0)
        rc = errno == ENOTEMPTY || errno == EEXIST ? err_set(err, ERR_INPUT, "'%s' is there already and not empty", to)
                                                   : err_sys(err, "create folder '%s'", to);
    if (rc < 0)
        remove_folder(dir);
    return rc;
}

int command_evidence(struct context *ctx, int argc, char **argv)
{
    static const struct option options[] = { { 0 } };
    struct err err = { 0 };
    int64_t id = 0;
    struct run r;
    int rc;

    if (next_option(argc, argv, "", options) != -1)
        return CODE_USAGE;
    if (argc - optind != 3 || strcmp(argv[optind], "export") != 0)
        return misuse(ctx, "the only form is: detctl evidence export ID FOLDER");
    if (refuse_name(ctx, argv[optind + 2], "evidence is exported as the job left it"))
        return CODE_USAGE;
    if ((rc = take_id(ctx, argv[optind + 1], &id)) || (rc = run_take(ctx, argv[optind + 1], &r)))
        return rc;
    catch_interrupt();
    rc = export(r.dir, argv[optind + 2], &err) < 0 ? complain(&err) : CODE_DONE;
    run_free(&r);
    return rc;
}

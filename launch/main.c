/* SPDX-License-Identifier: Apache-2.0 */ /* launch/main.c - detd-launch: starts a node's jobs as their submitters, and
 * kills them. proto/launch.h lists the requests and the claims that it trusts. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <libgen.h>
#include <limits.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "launch/place.h"
#include "launch/scope.h"
#include "launch/serve.h"
#include "launch/ticket.h"
#include "proto/err.h"
#include "proto/launch.h"
#include "proto/host/output.h"
#include "proto/host/start.h"
#include "proto/version.h"

enum { SYSTEMD_FD = 3, BACKLOG = 8 };

static const char usage[] = "detd-launch [--socket PATH] [--state DIR] [--user USER] [--key FILE] [--tasks N] [--memory BYTES]\n"
                            "Starts the jobs of a node's detd as their submitters. Runs as root; systemd starts it when detd first asks.\n"
                            "  --socket PATH   socket for detd's requests (" LAUNCH_SOCKET "); its folder must belong to root\n"
                            "  --state DIR     detd's state folder (/var/lib/detd); its parent folder must belong to root\n"
                            "  --user USER     user that may send requests besides root: detd's own user (detd)\n"
                            "  --key FILE      key that seals tickets; it is made if it is missing (/var/lib/detd-launch/key)\n"
                            "  --tasks N       maximum number of processes and threads of a job\n"
                            "  --memory BYTES  maximum memory of a job, or a percentage of the node's memory, such as 90%\n"
                            "  --version, --help\n";

static struct {
    const char *socket, *user, *key, *state;
    struct scope_limits limits;
} options = { .socket = LAUNCH_SOCKET, .user = "detd", .key = "/var/lib/detd-launch/key", .state = "/var/lib/detd" };

/* ---- options ---- */

static int set_number(const char *name, const char *text, long long *ret, struct err *err)
{
    char *end;

    errno = 0;
    *ret = strtoll(text, &end, 10);
    return errno || *end || end == text || *ret < 1 ? err_set(err, ERR_INPUT, "--%s: must be a number from 1, is '%s'", name, text) : 0;
}

/* A number of bytes, or a percentage of the node's memory: so one setting of an administrator fits nodes of any
 * size. */
static int set_memory(const char *text, long long *ret, struct err *err)
{
    char *end;
    long long percent = strtoll(text, &end, 10);

    if (end == text || strcmp(end, "%") != 0)
        return set_number("memory", text, ret, err);
    if (percent < 1 || percent > 100)
        return err_set(err, ERR_INPUT, "--memory: must be 1%% to 100%%, is '%s'", text);
    *ret = (long long)sysconf(_SC_PHYS_PAGES) / 100 * percent * sysconf(_SC_PAGESIZE);
    return 0;
}

static int read_options(int argc, char **argv, struct err *err)
{
    static const struct option names[] = { { "socket", 1, 0, 's' },  { "state", 1, 0, 'S' }, { "user", 1, 0, 'u' },
                                           { "key", 1, 0, 'k' },     { "tasks", 1, 0, 't' }, { "memory", 1, 0, 'm' },
                                           { "version", 0, 0, 'V' }, { "help", 0, 0, 'h' },  { 0 } };
    int c, rc = 0;

    while (rc == 0 && (c = getopt_long(argc, argv, "", names, NULL)) != -1)
        switch (c) {
        case 's':
            options.socket = optarg;
            break;
        case 'S':
            options.state = optarg;
            break;
        case 'u':
            options.user = optarg;
            break;
        case 'k':
            options.key = optarg;
            break;
        case 't':
            rc = set_number("tasks", optarg, &options.limits.tasks, err);
            break;
        case 'm':
            rc = set_memory(optarg, &options.limits.memory, err);
            break;
        case 'V':
            printf("detd-launch %s\n", DETD_VERSION);
            exit(output_end(stdout, "detd-launch") < 0);
        case 'h':
            fputs(usage, stdout);
            exit(output_end(stdout, "detd-launch") < 0);
        default:
            rc = err_set(err, ERR_INPUT, "see detd-launch --help");
        }
    return rc == 0 && optind < argc ? err_set(err, ERR_INPUT, "unexpected argument '%s'", argv[optind]) : rc;
}

/* ---- the socket ---- */

static int own_socket(uid_t user, struct err *err)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    mode_t mask = umask(0177);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), rc = 0;

    if (strlen(options.socket) >= sizeof addr.sun_path)
        rc = err_set(err, ERR_INPUT, "--socket: '%s' is too long", options.socket);
    else
        memcpy(addr.sun_path, options.socket, strlen(options.socket) + 1);
    if (rc == 0 && unlink(options.socket) < 0 && errno != ENOENT)
        rc = err_sys(err, "replace '%s'", options.socket);
    if (rc == 0 && (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof addr) < 0 || lchown(options.socket, user, (gid_t)-1) < 0 ||
                    listen(fd, BACKLOG) < 0))
        rc = err_sys(err, "listen at '%s'", options.socket);
    umask(mask);
    return rc < 0 ? rc : fd;
}

static int open_socket(uid_t user, struct err *err)
{
    const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");

    if (!pid || !fds || atol(pid) != getpid() || strcmp(fds, "1") != 0)
        return own_socket(user, err);
    fcntl(SYSTEMD_FD, F_SETFD, FD_CLOEXEC);
    fcntl(SYSTEMD_FD, F_SETFL, O_NONBLOCK);
    return SYSTEMD_FD;
}

/* ---- beginning ---- */

static int find_user(uid_t *ret, struct err *err)
{
    const struct passwd *user = getpwnam(options.user);

    if (!user)
        return err_set(err, ERR_INPUT, "--user: there is no user '%s'", options.user);
    *ret = user->pw_uid;
    return 0;
}

static int hear_signals(struct err *err)
{
    sigset_t set;
    int fd;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd < 0 ? err_sys(err, "signals") : fd;
}

/* Everything after the options. Returns only if it cannot begin, or after a signal to stop. */
static int run(struct err *err)
{
    char program[PATH_MAX + 16];
    struct serve_config config = { .state = options.state, .program = program };
    int signals, server, rc;

    umask(077);
    if (geteuid() != 0)
        return err_set(err, ERR_DENIED, "only root can start jobs as their submitters");
    rc = find_user(&config.user, err);
    if (rc == 0)
        rc = place_beside("detd-job", program, sizeof program, err);
    if (rc == 0)
        rc = place_program(program, err);
    if (rc >= 0)
        rc = close(rc);
    if (rc == 0)
        rc = ticket_open_key(options.key, err);
    if (rc < 0)
        return rc;
    signals = hear_signals(err);
    if (signals < 0)
        return signals;
    scope_open(&options.limits, dirname(strdupa(options.key)));
    server = open_socket(config.user, err);
    if (server < 0)
        return server;
    serve(server, signals, &config);
    return 0;
}

int main(int argc, char **argv)
{
    struct err err = { 0 };

    start_service();
    if (read_options(argc, argv, &err) < 0) {
        fprintf(stderr, "detd-launch: %s\n", err.msg);
        return 2;
    }
    if (run(&err) < 0) {
        fprintf(stderr, "<3>detd-launch: %s\n", err.msg);
        return 1;
    }
    return 0;
}

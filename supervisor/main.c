/* SPDX-License-Identifier: Apache-2.0 */ /* detd-job: supervises one running job. Options and the lock; everything else
 * is job.h. It logs to stderr, which detd makes a file. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/host/output.h"
#include "proto/report.h"
#include "proto/host/start.h"
#include "supervisor/given.h"
#include "supervisor/job.h"
#include "supervisor/ranks/left.h"

enum { MAX_GPUS = 1024, ABOVE_LOW_FDS = 10 };

static const char usage[] =
    "detd-job --job-dir DIR --job ID [--attempt N] [--last-seq N] [--nonce TEXT] [--store-id ID]\n"
    "         [--lock-fd FD] [--trouble-fd FD] [--socket PATH] [--worker PATH] [--gpus UUID,UUID,...] [--gpu-locks DIR] [--system] "
    "[--drain OUTCOME [--reason TEXT] "
    "[--saved STEP]] [--log-max BYTES] [--ran SECONDS]\n"
    "Runs the job in DIR/spec.json: starts its ranks, keeps their reports in DIR/spool.*, watches and restarts them.\n"
    "detd starts it; it goes on while detd is away.\n"
    "  --attempt N    number of the first attempt (1)\n"
    "  --last-seq N   last report that detd has (0)\n"
    "  --nonce TEXT   proves to detd that it started this process\n"
    "  --store-id ID  of the database that numbered the job; reports and checkpoints of another one are refused\n"
    "  --lock-fd FD   descriptor of DIR/lock, already locked; otherwise DIR/lock is opened and locked\n"
    "  --trouble-fd FD  a file for the reason where it cannot begin\n"
    "  --socket PATH  where detd listens (../../sup.sock, seen from DIR)\n"
    "  --worker PATH  the trainer; any program that speaks the lines of proto/report.h on descriptor 3 (detd-worker beside detd-job)\n"
    "  --gpus LIST    UUIDs of the granted GPUs, dealt out to the ranks in order ($DETD_GPUS)\n"
    "  --gpu-locks DIR  where a system's daemon keeps its locks of GPUs (" GPULOCK_SYSTEM ")\n"
    "  --system       it is a job of that daemon: locks are there\n"
    "  --drain OUTCOME  cancelled or failed: starts nothing; gives detd what the spool still holds, then ends the job so\n"
    "  --reason TEXT  of that end; without --drain, why locks of GPUs are missing in --gpu-lock-fds\n"
    "  --saved STEP   newest checkpoint that detd has (0)\n"
    "  --ran SECONDS  that the job ran before; they count against run.time_limit (0)\n"
    "  --log-max BYTES  of a log that grows to more the older half is dropped (0: never)\n"
    "A job that runs as its submitter, whose folder detd cannot write into (detd-launch starts it):\n"
    "  --spec-fd FD   a file with the job's spec, of which DIR/spec.json is made; detd-job removes the spool itself when its end is "
    "stored\n"
    "  --threads N    of a rank, in place of the spec's\n"
    "  --tier TIER    likewise: off, rerun, world\n"
    "  --gpu-lock-fds FD,FD,...  locks of the GPUs, in their order, taken by detd; where there are fewer the next GPU is busy\n"
    "  --anew         it had ended, and goes on: there need be no spool for what --last-seq counts\n"
    "  --clear        only removes what is in the folder of a job that was removed\n";

struct options {
    struct job_options job;
    char *gpus[MAX_GPUS + 1];
    int gpu_lock_fds[MAX_GPUS];
    char worker[PATH_MAX], job_dir[PATH_MAX];
    int trouble_fd, spec_fd, threads;
    const char *tier;
    bool clear, anew;
    bool unopened; /* it failed at its spool */
    bool recorded; /* its spool has reports */
};

static int parse_number(const char *name, const char *text, long long min, long long max, long long *ret, struct err *err)
{
    char *rest;

    errno = 0;
    *ret = strtoll(text, &rest, 10);
    if (errno || rest == text || *rest || *ret < min || *ret > max)
        return err_field(err, ERR_INPUT, name, "--%s: must be a number from %lld to %lld, is '%s'", name, min, max, text);
    return 0;
}

static int parse_gpus(struct options *o, char *list, struct err *err)
{
    int n = 0;

    for (char *at, *uuid = strtok_r(list, ",", &at); uuid; uuid = strtok_r(NULL, ",", &at)) {
        if (n == MAX_GPUS)
            return err_set(err, ERR_INPUT, "--gpus: more than %d", MAX_GPUS);
        o->gpus[n++] = uuid;
    }
    o->job.gpus = n > 0 ? o->gpus : NULL;
    return 0;
}

static int parse_gpu_locks(struct options *o, char *list, struct err *err)
{
    long long fd = 0;
    int n = 0, rc = 0;

    for (char *at, *text = strtok_r(list, ",", &at); text && rc == 0; text = strtok_r(NULL, ",", &at)) {
        if (n == MAX_GPUS)
            return err_set(err, ERR_INPUT, "--gpu-lock-fds: more than %d", MAX_GPUS);
        rc = parse_number("gpu-lock-fds", text, 3, INT_MAX, &fd, err);
        o->gpu_lock_fds[n++] = (int)fd;
    }
    o->job.gpu_lock_fds = o->gpu_lock_fds;
    o->job.ngpu_lock_fds = n;
    o->job.gpu_locks.own = true; /* no other daemon hands them on */
    return rc;
}

static int beside_me(const char *name, char *path, size_t size, struct err *err)
{
    char me[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", me, sizeof me - 1);

    if (n < 0)
        return err_sys(err, "read /proc/self/exe");
    me[n] = '\0';
    if (snprintf(path, size, "%s/%s", dirname(me), name) >= (int)size)
        return err_set(err, -ENAMETOOLONG, "path of %s too long", name);
    return 0;
}

/* ---- options ---- */

enum kind { FLAG, TEXT, INT, LONG, PATH, GPUS, GPU_LOCKS, OUTCOME };

#define AT(member) offsetof(struct options, member)
static const struct setting {
    const char *name;
    enum kind kind;
    size_t at;             /* in struct options */
    long long least, most; /* of numbers */
} settings[] = {
    { "job-dir", PATH, AT(job_dir), 0, 0 },
    { "job", LONG, AT(job.job), 1, LLONG_MAX },
    { "attempt", INT, AT(job.attempt), 1, INT_MAX - 1 },
    { "last-seq", LONG, AT(job.last_seq), 0, LLONG_MAX - 1 },
    { "nonce", TEXT, AT(job.nonce), 0, 0 },
    { "store-id", TEXT, AT(job.store_id), 0, 0 },
    { "lock-fd", INT, AT(job.lock_fd), 3, INT_MAX },
    { "trouble-fd", INT, AT(trouble_fd), 3, INT_MAX },
    { "socket", TEXT, AT(job.socket), 0, 0 },
    { "worker", PATH, AT(worker), 0, 0 },
    { "gpus", GPUS, 0, 0, 0 },
    { "gpu-locks", TEXT, AT(job.gpu_locks.system), 0, 0 },
    { "gpu-lock-fds", GPU_LOCKS, 0, 0, 0 },
    { "system", FLAG, AT(job.gpu_locks.own), 0, 0 },
    { "drain", OUTCOME, AT(job.drain), 0, 0 },
    { "reason", TEXT, AT(job.reason), 0, 0 },
    { "saved", LONG, AT(job.saved), 0, LLONG_MAX - 1 },
    { "ran", LONG, AT(job.ran_s), 0, LLONG_MAX / 2 },
    { "log-max", LONG, AT(job.log_max), 0, LLONG_MAX },
    { "spec-fd", INT, AT(spec_fd), 3, INT_MAX },
    { "threads", INT, AT(threads), 0, INT_MAX },
    { "tier", TEXT, AT(tier), 0, 0 },
    { "clear", FLAG, AT(clear), 0, 0 },
    { "anew", FLAG, AT(anew), 0, 0 },
};
#undef AT

enum { SETTINGS = sizeof settings / sizeof *settings, FIRST = 256 /* no letter */ };

static int take_option(struct options *o, const struct setting *s, char *value, struct err *err)
{
    void *to = (char *)o + s->at;
    long long n = 0;
    int rc;

    switch (s->kind) {
    case FLAG:
        *(bool *)to = true;
        return 0;
    case OUTCOME:
        if (strcmp(value, "cancelled") != 0 && strcmp(value, "failed") != 0)
            return err_field(err, ERR_INPUT, s->name, "--drain: must be cancelled or failed, is '%s'", value);
        /* fall through */
    case TEXT:
        *(const char **)to = value;
        return 0;
    case PATH:
        return realpath(value, to) ? 0 : err_sys(err, "--%s '%s'", s->name, value);
    case GPUS:
        return parse_gpus(o, value, err);
    case GPU_LOCKS:
        return parse_gpu_locks(o, value, err);
    default:
        rc = parse_number(s->name, value, s->least, s->most, &n, err);
        if (s->kind == INT)
            *(int *)to = (int)n;
        else
            *(int64_t *)to = n;
        return rc;
    }
}

static int parse_options(int argc, char **argv, struct options *o, struct err *err)
{
    struct option names[SETTINGS + 2] = { { "help", 0, 0, 'h' } };
    int c, rc = 0;

    o->trouble_fd = o->spec_fd = -1;
    o->job = (struct job_options){
        .attempt = 1, .nonce = "", .reason = "", .socket = "../../sup.sock", .lock_fd = -1, .gpu_locks = { .system = GPULOCK_SYSTEM }
    };
    for (int i = 0; i < SETTINGS; i++)
        names[i + 1] = (struct option){ settings[i].name, settings[i].kind != FLAG, 0, FIRST + i };
    while (rc == 0 && (c = getopt_long(argc, argv, "", names, NULL)) != -1) {
        if (c == 'h') {
            fputs(usage, stdout);
            exit(output_end(stdout, "detd-job") < 0);
        }
        rc = c < FIRST ? err_set(err, ERR_INPUT, "see detd-job --help") : take_option(o, &settings[c - FIRST], optarg, err);
    }
    o->job.own_folder = o->clear || o->spec_fd >= 0;
    if (rc == 0 && optind < argc)
        rc = err_set(err, ERR_INPUT, "unexpected argument '%s'", argv[optind]);
    if (rc == 0 && (!o->job_dir[0] || o->job.job == 0))
        rc = err_set(err, ERR_INPUT, "--job-dir and --job are needed; see detd-job --help");
    if (rc == 0 && !o->worker[0])
        rc = beside_me("detd-worker", o->worker, sizeof o->worker, err);
    o->job.job_dir = o->job_dir;
    o->job.worker = o->worker;
    if (rc == 0 && !o->job.gpus && getenv("DETD_GPUS"))
        rc = parse_gpus(o, getenv("DETD_GPUS"), err);
    return rc;
}

/* Holds the job's lock as long as a process of the job lives, and says in it which session that is. */
static int take_lock(struct job_options *o, struct err *err)
{
    char text[32];
    int fd = o->lock_fd, n;

    if (fd < 0)
        fd = open("lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_sys(err, "open 'lock'");
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) /* an inherited lock is held by the same open file, so this succeeds */
        return errno == EWOULDBLOCK ? err_set(err, ERR_STATE, "job %lld is supervised by another process", (long long)o->job)
                                    : err_sys(err, "lock the job");
    n = snprintf(text, sizeof text, "%d\n", (int)getsid(0));
    if (!o->own_folder && (pwrite(fd, text, (size_t)n, 0) != n || ftruncate(fd, n) < 0)) /* else detd does, who cannot rely on us */
        return err_sys(err, "write the session into the lock");
    o->lock_fd = fcntl(fd, F_DUPFD_CLOEXEC, ABOVE_LOW_FDS);
    if (o->lock_fd < 0)
        return err_sys(err, "keep the lock");
    close(fd);
    return 0;
}

static int run(struct options *o, struct err *err)
{
    uv_loop_t *loop = uv_default_loop();
    struct job *job = NULL;
    int rc = o->spec_fd < 0 ? 0 : given_take(o->spec_fd, o->threads, o->tier, o->anew ? 0 : o->job.last_seq, err);

    if (rc == 0)
        rc = job_open(loop, &o->job, &job, err);

    if (rc < 0) {
        o->unopened = true;
        return rc;
    }
    uv_run(loop, UV_RUN_DEFAULT);
    o->recorded = job_has_recorded(job);
    rc = job_close(job, err);
    uv_loop_close(loop);
    return rc;
}

/* detd reads the reason from a file that needs no room on any disk. */
static int tell_trouble(const struct options *o, const struct err *err)
{
    fprintf(stderr, "detd-job: %s\n", err->msg);
    if (o->trouble_fd >= 0 && pwrite(o->trouble_fd, err->msg, strlen(err->msg), 0) < 0)
        perror("detd-job: tell detd");
    if (err_is_shortage(err) || (err->code == -EIO && !o->recorded))
        return SUP_EXIT_REFUSED;
    if (o->unopened)
        return SUP_EXIT_UNREADABLE;
    return err->code == ERR_INPUT ? 2 : 1;
}

int main(int argc, char **argv)
{
    static struct options options;
    struct err err = { 0 };
    int rc;

    start_service();
    job_hold_signals();
    signal(SIGHUP, SIG_IGN); /* of a terminal, when it is started by hand: SIGTERM is the word to stop */
    prctl(PR_SET_NAME, "detd-job");
    left_adopt();
    rc = parse_options(argc, argv, &options, &err);
    if (rc == 0 && chdir(options.job_dir) < 0)
        rc = err_sys(&err, "enter '%s'", options.job_dir);
    if (rc == 0)
        rc = take_lock(&options.job, &err);
    if (rc == 0)
        rc = options.clear ? given_clear(&err) : run(&options, &err);
    if (rc == 0)
        return 0;
    return tell_trouble(&options, &err);
}

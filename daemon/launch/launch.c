#include "daemon/launch/launch.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/launch/block.h"
#include "daemon/launch/launch_impl.h"
#include "daemon/launch/lock_holder.h"
#include "daemon/store/store.h"
#include "daemon/base/text.h"
#include "proto/err.h"
#include "proto/host/folder.h"
#include "proto/host/gpulock.h"
#include "proto/host/lock.h"
#include "proto/host/tasks.h"
#include "proto/tier.h"

enum { PATH_ROOM = LAUNCH_PATH_ROOM, LOCK_FD = 3, TROUBLE_FD = 4, MAX_ARGS = 40, TROUBLE_MAX = 255, END_ROOM = 8 * JOB_REASON_MAX };

/* ---- ends that outlive the spool ---- */

/* Writes how the job ended. If a copy of the database was put back, another job may get the same number: the time of
 * submission tells them apart. `seq` is the report that held the end; reports after it exist if the job was queued
 * again. again: it was. */
static int write_end(const char *jobs_dir, const struct job_row *row, bool again, struct err *err)
{
    char path[PATH_ROOM];
    struct text t = { 0 };
    int rc;

    text_add(&t, "{\"submitted\":");
    text_real(&t, row->submitted);
    text_addf(&t, ",\"seq\":%lld,\"again\":%s,\"state\":\"%s\",\"reason\":", (long long)row->last_seq, again ? "true" : "false",
              job_state_name(row->state));
    text_json(&t, row->reason);
    text_add(&t, "}\n");
    launch_own_path(path, jobs_dir, row->id, "end");
    rc = t.failed ? err_set(err, -ENOMEM, "out of memory") : launch_write_durably(path, t.p, err);
    text_free(&t);
    return rc;
}

/* The recorded end of a job. Without a record state is 0 and seq is -1. */
struct end {
    struct launch_end is;
    int64_t seq;
    bool again; /* the job was queued again afterwards */
};

static void read_end(const char *jobs_dir, int64_t job, double when, struct end *ret)
{
    char path[PATH_ROOM], text[END_ROOM];
    const char *state = NULL, *reason = NULL;
    json_int_t seq = -1;
    json_t *end = NULL;
    double submitted;
    int again = 0;
    FILE *f;

    *ret = (struct end){ .seq = -1 };
    launch_own_path(path, jobs_dir, job, "end");
    f = launch_read_plain(path);
    if (f) {
        end = json_loadb(text, fread(text, 1, sizeof text, f), 0, NULL);
        fclose(f);
    }
    if (json_unpack(end, "{s:F, s:I, s:b, s:s, s:s}", "submitted", &submitted, "seq", &seq, "again", &again, "state", &state, "reason",
                    &reason) == 0 &&
        submitted == when && job_state_parse(state) >= 0 && job_is_done((enum job_state)job_state_parse(state))) {
        ret->is.state = (enum job_state)job_state_parse(state);
        ret->seq = seq;
        ret->again = again;
        snprintf(ret->is.reason, sizeof ret->is.reason, "%s", reason);
    }
    json_decref(end);
}

int launch_note_again(const char *jobs_dir, const struct job_row *row, struct err *err)
{
    struct err why;
    struct end end;

    read_end(jobs_dir, row->id, row->submitted, &end);
    if (end.seq == row->last_seq && end.again)
        return 0;
    if (write_end(jobs_dir, row, true, &why) == 0)
        return 0;
    return err_set(err, -EIO, "job %lld is not queued again, and nothing was changed: its file 'end' cannot be written: %s",
                   (long long)row->id, why.msg);
}

/* Sets rq->end if the job's folder says that the job has ended and the database does not know that. Sets rq->anew if
 * the database knew the end and queued the job again: its spool was removed after that end. */
static void look_at_end(struct launch_request *rq)
{
    struct end end;

    read_end(rq->jobs_dir, rq->job, rq->submitted, &end);
    rq->anew = end.again && end.seq == rq->last_seq;
    if (end.is.state && !rq->anew && end.seq >= rq->last_seq)
        rq->end = end.is;
}

/* A job must not begin anew if its spool is gone though the database holds reports of it, or if it has ended. */
static int look_at_spool(struct launch_request *rq, struct err *err)
{
    if (launch_has_spool(rq->jobs_dir, rq->job))
        return 0;
    look_at_end(rq);
    return (rq->last_seq > 0 && !rq->anew) || rq->end.state
               ? err_set(err, -ENODATA, "the spool of job %lld, in '%s', is missing", (long long)rq->job, rq->jobs_dir)
               : 0;
}

/* ---- preparing ---- */

/* The stored spec with values that were decided since: threads of a rank, tier. */
static int spec_text(struct store *s, const struct launch_request *rq, char **ret, struct err *err)
{
    char *stored = NULL;
    json_t *root, *run;
    int rc = store_get_spec(s, rq->job, &stored, err);

    if (rc < 0)
        return rc;
    root = json_loads(stored, 0, NULL);
    free(stored);
    run = json_object_get(root, "run");
    if (json_object_set_new(run, "threads", json_integer(rq->threads)) < 0 ||
        json_object_set_new(run, "deterministic", json_string(tier_name(rq->tier))) < 0)
        rc = err_set(err, ERR_CORRUPT, "job %lld: its stored spec cannot be read", (long long)rq->job);
    *ret = rc == 0 ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    return rc == 0 && !*ret ? err_set(err, -ENOMEM, "out of memory") : rc;
}

static int open_lock(const char *path, int how, struct err *err)
{
    int fd = launch_open_plain(path, how | O_CREAT | O_NOFOLLOW);

    if (fd < 0)
        return err_sys(err, "open '%s'", path);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        int rc = err_sys(err, "lock '%s'", path);

        close(fd);
        return rc;
    }
    return fd;
}

/* Makes the block of launch_note_want() beside the lock, which is taken; returns the lock. */
static int with_block(const struct launch_request *rq, int lock_fd, struct err *err)
{
    char path[PATH_ROOM];
    int rc;

    if (lock_fd < 0)
        return lock_fd;
    launch_own_path(path, rq->jobs_dir, rq->job, "want");
    rc = block_make(path, err);
    if (rc == 0)
        return lock_fd;
    close(lock_fd);
    return rc;
}

static int lock_folder(const struct launch_request *rq, struct err *err)
{
    char path[PATH_ROOM];
    int rc;

    launch_job_path(path, rq->jobs_dir, rq->job, "");
    rc = folder_make(path, 0700, err);
    if (rc < 0)
        return rc;
    launch_own_path(path, rq->jobs_dir, rq->job, "lock");
    return with_block(rq, open_lock(path, O_RDWR, err), err);
}

static int take_folder(struct launch_request *rq, struct err *err)
{
    char path[PATH_ROOM];
    int fd = lock_folder(rq, err), rc = 0;
    struct launch_owner owner;

    if (fd < 0)
        return fd;
    rc = launch_read_owner(rq->jobs_dir, rq->job, &owner, err);
    if (rc < 0) {
        close(fd);
        return rc;
    }
    if (launch_is_of_another(rq, &owner)) {
        rc = launch_move_aside(rq, &owner, err);
        close(fd);
        fd = rc < 0 ? rc : lock_folder(rq, err);
        owner.submitted = 0;
    }
    if (fd < 0)
        return fd;
    if (owner.submitted == 0)
        rc = launch_write_owner(rq, err);
    launch_job_path(path, rq->jobs_dir, rq->job, "log");
    if (rc == 0)
        rc = folder_make(path, 0700, err);
    if (rc < 0)
        close(fd);
    return rc < 0 ? rc : fd;
}

/* ---- preparing a job with a ticket: its own folder is not looked into ---- */

static int lock_held(const struct launch_request *rq, struct err *err)
{
    char path[PATH_ROOM];
    int rc;

    snprintf(path, sizeof path, "%s/../held", rq->jobs_dir);
    rc = folder_make(path, 0700, err);
    launch_held_path(path, rq->jobs_dir, rq->job, "");
    if (rc == 0)
        rc = folder_make(path, 0700, err);
    launch_held_path(path, rq->jobs_dir, rq->job, "lock");
    rc = rc < 0 ? rc : with_block(rq, open_lock(path, O_RDONLY, err), err); /* the job must not write to it */
    if (rc >= 0)
        launch_make_spare_lock(rq->jobs_dir, rq->job);
    return rc;
}

/* True if the file holds exactly this text. A job that is given more steps gets another ticket. */
static bool file_says(const char *path, const char *text)
{
    char there[LAUNCH_TICKET_HEX + 2] = "";
    FILE *f = fopen(path, "re");

    if (!f)
        return false;
    there[fread(there, 1, sizeof there - 1, f)] = '\0';
    fclose(f);
    return strcmp(there, text) == 0;
}

static int take_held(struct launch_request *rq, struct err *err)
{
    struct launch_owner owner = { .store_id = "old" };
    char path[PATH_ROOM];
    bool is_new, foreign;
    int fd, rc = 0;

    launch_job_path(path, rq->jobs_dir, rq->job, "");
    is_new = !launch_is_held(rq->jobs_dir, rq->job);
    fd = lock_held(rq, err);
    if (fd < 0)
        return fd;
    if (!is_new)
        rc = launch_read_owner(rq->jobs_dir, rq->job, &owner, err);
    if (rc < 0) {
        close(fd);
        return rc;
    }
    foreign = is_new ? launch_is_there(path, NULL) : launch_is_of_another(rq, &owner);
    if (foreign) {
        rc = launch_move_aside(rq, &owner, err);
        close(fd);
        fd = rc < 0 ? rc : lock_held(rq, err);
        owner.submitted = 0;
    }
    if (fd < 0)
        return fd;
    if (owner.submitted == 0)
        rc = launch_write_owner(rq, err);
    launch_held_path(path, rq->jobs_dir, rq->job, "ticket"); /* for the removal of the job, when its row is gone */
    if (rc == 0 && !file_says(path, rq->ticket))
        rc = launch_write_durably(path, rq->ticket, err);
    if (rc < 0)
        close(fd);
    return rc < 0 ? rc : fd;
}

/* The spec byte for byte as it was submitted: its hash is in the ticket. */
static int spec_file(struct store *s, const struct launch_request *rq, struct err *err)
{
    char *text = NULL;
    int fd = -1, rc = store_get_spec(s, rq->job, &text, err);

    if (rc == 0)
        fd = memfd_create("detd-spec", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (rc == 0 && (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) ||
                    fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0))
        rc = err_sys(err, "a file of memory for the spec of job %lld", (long long)rq->job);
    if (rc < 0 && fd >= 0)
        close(fd);
    free(text);
    return rc < 0 ? rc : fd;
}

/* Notes which lock files these are: a lock of another daemon must not be renewed when the job has left. */
static int note_gpus(const struct launch_request *rq, struct err *err)
{
    char path[PATH_ROOM];
    struct text t = { 0 };
    struct stat st;
    int rc;

    for (int i = 0; i < rq->ngpu_fds; i++)
        text_addf(&t, "%llu\n", fstat(rq->gpu_fds[i], &st) == 0 ? (unsigned long long)st.st_ino : 0);
    text_add(&t, "\n");
    launch_held_path(path, rq->jobs_dir, rq->job, "gpus");
    rc = t.failed ? err_set(err, -ENOMEM, "out of memory") : launch_write_durably(path, t.p, err);
    text_free(&t);
    return rc;
}

/* detd takes the locks, since the job's user may not open them. If another daemon has one, detd-job gives the job back,
 * as it does when it takes the locks itself. */
static int lock_gpus(struct launch_request *rq, struct err *err)
{
    char list[sizeof rq->gpus], *at;
    int rc = 0;

    memcpy(list, rq->gpus, sizeof list);
    for (char *uuid = strtok_r(list, ",", &at); uuid && rc == 0; uuid = strtok_r(NULL, ",", &at)) {
        if (rq->ngpu_fds == JOB_GPUS_MAX)
            return err_set(err, ERR_CORRUPT, "job %lld has more than %d GPUs", (long long)rq->job, JOB_GPUS_MAX);
        rc = gpulock_take(rq->gpu_locks, uuid, &rq->gpu_fds[rq->ngpu_fds], err);
        rq->ngpu_fds += rc == 0;
    }
    if (rc != -EWOULDBLOCK)
        return rc;
    snprintf(rq->busy, sizeof rq->busy, "%.255s", err->msg);
    return 0;
}

void launch_drop(const struct launch_request *rq)
{
    if (rq->lock_fd >= 0)
        close(rq->lock_fd);
    if (rq->spec_fd >= 0)
        close(rq->spec_fd);
    for (int i = 0; i < rq->ngpu_fds; i++)
        close(rq->gpu_fds[i]);
}

static int prepare_held(struct store *s, struct launch_request *rq, struct err *err)
{
    int rc = rq->lock_fd = take_held(rq, err);

    if (rc < 0)
        return rc;
    rc = 0;
    look_at_end(rq);
    if (rq->end.state)
        rc = err_set(err, -ENODATA, "job %lld has ended, as held/%lld says", (long long)rq->job, (long long)rq->job);
    if (rc == 0)
        rc = rq->spec_fd = spec_file(s, rq, err);
    if (rc >= 0)
        rc = lock_gpus(rq, err);
    if (rc >= 0 && rq->gpus[0])
        rc = note_gpus(rq, err);
    if (rc < 0)
        launch_drop(rq);
    return rc;
}

/* The lock comes first: the folder of a job whose processes live is not touched. */
static int prepare(struct store *s, struct launch_request *rq, struct err *err)
{
    char path[PATH_ROOM], *text = NULL;
    int rc, fd;

    fd = take_folder(rq, err);
    if (fd < 0)
        return fd;
    rc = look_at_spool(rq, err);
    if (rc == 0)
        rc = spec_text(s, rq, &text, err);
    launch_job_path(path, rq->jobs_dir, rq->job, "spec.json");
    if (rc == 0)
        rc = launch_write_durably(path, text, err);
    free(text);
    if (rc < 0)
        close(fd);
    return rc < 0 ? rc : fd;
}

/* ---- starting ---- */

struct launched {
    uv_poll_t poll; /* polls pid_fd, which is readable when the process has left */
    pid_t pid;
    int pid_fd, trouble_fd; /* trouble_fd: a file in memory with the reason why it could not begin */
    int64_t job;
    launch_exit *on_exit;
    void *arg;
};

static void free_launched(struct launched *c)
{
    if (c->pid_fd >= 0)
        close(c->pid_fd);
    if (c->trouble_fd >= 0)
        close(c->trouble_fd);
    free(c);
}

int launch_program_dir(char *ret, size_t size, struct err *err)
{
    ssize_t n = readlink("/proc/self/exe", ret, size - 1);

    if (n < 0)
        return err_sys(err, "read /proc/self/exe");
    ret[n] = '\0';
    *strrchr(ret, '/') = '\0';
    return 0;
}

struct environment {
    char text[16][1024];
    char *vars[17];
    int count;
};

static void env_add(struct environment *e, const char *name, const char *value)
{
    if (!value || snprintf(e->text[e->count], sizeof e->text[0], "%s=%s", name, value) >= (int)sizeof e->text[0])
        return;
    e->vars[e->count] = e->text[e->count];
    e->vars[++e->count] = NULL;
}

/* A job gets only these variables of the environment in which detd was started: the user's home, name, language and
 * time zone, the folder for temporary files, the places of CUDA and Python environments, and options of sanitizers. */
static void env_fill(struct environment *e)
{
    static const char *const kept[] = { "HOME",         "USER",           "LOGNAME",       "TMPDIR",      "LANG",
                                        "TZ",           "DETD_CUDA_PATH", "CUDA_HOME",     "CUDA_PATH",   "VIRTUAL_ENV",
                                        "CONDA_PREFIX", "ASAN_OPTIONS",   "UBSAN_OPTIONS", "TSAN_OPTIONS" };

    memset(e, 0, sizeof *e);
    env_add(e, "PATH", "/usr/local/bin:/usr/bin:/bin");
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        env_add(e, kept[i], getenv(kept[i]));
}

/* Moves the descriptor to a number above those that the child gets. */
static int lift(int *fd)
{
    int above = *fd < 0 || *fd > TROUBLE_FD ? *fd : fcntl(*fd, F_DUPFD_CLOEXEC, TROUBLE_FD + 1);

    if (above != *fd)
        close(*fd);
    *fd = above;
    return above < 0 ? -errno : 0;
}

/* Executes the program in a session of its own, without this program's other descriptors and with default signals.
 * Returns when the program is executed. */
static int execute(struct launched *c, const char *folder, char *const args[], char *const env[], int lock_fd, int log_fd)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t all, none;
    int rc;

    sigfillset(&all);
    sigemptyset(&none);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attr);
    rc = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDWR, 0);
    rc = rc ? rc : posix_spawn_file_actions_adddup2(&files, log_fd, STDOUT_FILENO);
    rc = rc ? rc : posix_spawn_file_actions_adddup2(&files, log_fd, STDERR_FILENO);
    rc = rc ? rc : posix_spawn_file_actions_adddup2(&files, lock_fd, LOCK_FD);
    rc = rc ? rc : posix_spawn_file_actions_adddup2(&files, c->trouble_fd, TROUBLE_FD);
    rc = rc ? rc : posix_spawn_file_actions_addchdir_np(&files, folder);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    rc = rc ? rc : posix_spawn(&c->pid, args[0], &files, &attr, args, env);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    return -rc;
}

static size_t add_locks(char **args, size_t n, const struct gpulocks *locks)
{
    if (!locks)
        return n;
    args[n++] = "--gpu-locks";
    args[n++] = (char *)locks->system;
    if (locks->own)
        args[n++] = "--system";
    return n;
}

static int spawn(struct launched *c, const struct launch_request *rq, int lock_fd, int log_fd, struct err *err)
{
    char bin[PATH_ROOM], program[PATH_ROOM + 16], folder[PATH_ROOM], number[8][24];
    struct environment env;
    int rc = launch_program_dir(bin, sizeof bin, err);

    if (rc < 0)
        return rc;
    snprintf(program, sizeof program, "%s/detd-job", bin);
    launch_job_path(folder, rq->jobs_dir, rq->job, "");
    snprintf(number[0], sizeof number[0], "%lld", (long long)rq->job);
    snprintf(number[1], sizeof number[1], "%d", rq->attempt);
    snprintf(number[2], sizeof number[2], "%d", LOCK_FD);
    snprintf(number[3], sizeof number[3], "%lld", (long long)rq->last_seq);
    snprintf(number[4], sizeof number[4], "%d", TROUBLE_FD);
    snprintf(number[5], sizeof number[5], "%lld", (long long)rq->saved);
    snprintf(number[6], sizeof number[6], "%lld", (long long)rq->log_max);
    snprintf(number[7], sizeof number[7], "%lld", (long long)rq->ran_s);
    char *args[MAX_ARGS] = { program,     "--job-dir", folder,       "--job",   number[0], "--attempt",      number[1],
                             "--lock-fd", number[2],   "--last-seq", number[3], "--nonce", (char *)rq->nonce };
    size_t n = 13;

    args[n++] = "--trouble-fd";
    args[n++] = number[4];
    args[n++] = "--log-max";
    args[n++] = number[6];
    args[n++] = "--ran";
    args[n++] = number[7];
    args[n++] = "--store-id";
    args[n++] = (char *)rq->store_id;
    if (rq->gpus[0]) {
        args[n++] = "--gpus";
        args[n++] = (char *)rq->gpus;
        n = add_locks(args, n, rq->gpu_locks);
    }
    if (rq->drain) {
        args[n++] = "--drain";
        args[n++] = (char *)job_state_name(rq->drain);
        args[n++] = "--reason";
        args[n++] = (char *)rq->reason;
        args[n++] = "--saved";
        args[n++] = number[5];
    }
    env_fill(&env);
    rc = execute(c, folder, args, env.vars, lock_fd, log_fd);
    /* EAGAIN, a limit of processes, is the number of EWOULDBLOCK, which means that the job's lock is held. */
    return rc < 0 ? err_set(err, rc == -EAGAIN ? -EBUSY : rc, "start '%s': %s", program, process_lacks(-rc)) : 0;
}

static int open_log(const struct launch_request *rq, struct err *err)
{
    char path[PATH_ROOM];
    int fd;

    launch_job_path(path, rq->jobs_dir, rq->job, "log/supervisor.log");
    fd = launch_open_plain(path, O_WRONLY | O_CREAT | O_APPEND);
    return fd < 0 ? err_sys(err, "create '%s'", path) : fd;
}

/* True if a file or folder of the job was replaced, removed or closed to us; false if the system lacks something. */
static bool is_made_unusable(int rc)
{
    static const int codes[] = { EACCES, EPERM, ENOTDIR, EISDIR, EEXIST, ELOOP, ENAMETOOLONG, ENOTEMPTY, EINVAL, ENXIO };

    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (rc == -codes[i])
            return true;
    return rc == ERR_CORRUPT;
}

static int start(struct launch_request *rq, int *lock_fd, struct launched **ret, struct err *err)
{
    struct launched *c = calloc(1, sizeof *c);
    int log_fd = open_log(rq, err), rc = log_fd < 0 ? log_fd : 0;

    rq->unusable = is_made_unusable(rc);
    if (!c)
        rc = err_set(err, -ENOMEM, "out of memory");
    else
        *c = (struct launched){ .job = rq->job, .pid_fd = -1, .trouble_fd = memfd_create("detd-trouble", MFD_CLOEXEC) };
    if (rc == 0 && (c->trouble_fd < 0 || lift(lock_fd) < 0 || lift(&log_fd) < 0 || lift(&c->trouble_fd) < 0))
        rc = err_sys(err, "start the supervisor of job %lld", (long long)rq->job);
    if (rc == 0)
        rc = spawn(c, rq, *lock_fd, log_fd, err);
    if (rc == 0) {
        c->pid_fd = pidfd_open(c->pid, 0); /* only we wait for the child, so the number is still its own */
        *ret = c;
    } else if (c) {
        free_launched(c);
    }
    if (log_fd >= 0)
        close(log_fd);
    return rc;
}

/* The session in the lock file is that of the previous supervisor, which may be dead. */
static int name_holder(const struct launch_request *rq, int rc, struct err *err)
{
    char path[PATH_ROOM], who[128];

    if (rc != -EWOULDBLOCK)
        return rc;
    launch_own_path(path, rq->jobs_dir, rq->job, "lock");
    if (lock_holder(path, who, sizeof who))
        return err_set(err, rc, "%s holds the lock of its folder, jobs/%lld", who, (long long)rq->job);
    return err_set(err, rc, "the lock of its folder, jobs/%lld, is held by an unknown process", (long long)rq->job);
}

int launch_start(struct store *s, struct launch_request *rq, const atomic_bool *stop, struct launched **ret, struct err *err)
{
    int lock_fd, rc;

    rq->lock_fd = rq->spec_fd = -1;
    rq->ngpu_fds = 0;
    *ret = NULL;
    if (rq->ticket[0]) /* started by launcher.h, on the loop */
        return name_holder(rq, prepare_held(s, rq, err), err);
    lock_fd = prepare(s, rq, err);
    rq->unusable = lock_fd < 0 && is_made_unusable(lock_fd);
    if (lock_fd < 0)
        return name_holder(rq, lock_fd, err);
    rc = *stop ? 0 : start(rq, &lock_fd, ret, err);
    if (lock_fd >= 0)
        close(lock_fd);
    return rc;
}

/* ---- watching ---- */

static void poll_closed(uv_handle_t *handle)
{
    free_launched(handle->data);
}

static void on_left(uv_poll_t *poll, int status, int events)
{
    struct launched *c = poll->data;
    char why[TROUBLE_MAX + 1];
    int left = 0;
    ssize_t n;

    (void)status;
    (void)events;
    if (waitpid(c->pid, &left, WNOHANG) == 0)
        return;
    n = pread(c->trouble_fd, why, TROUBLE_MAX, 0);
    why[n > 0 ? n : 0] = '\0';
    uv_close((uv_handle_t *)poll, poll_closed);
    c->on_exit(c->arg, c->job, WIFSIGNALED(left) ? 128 + WTERMSIG(left) : WEXITSTATUS(left), why);
}

int launch_watch(uv_loop_t *loop, struct launched *c, launch_exit *on_exit, void *arg)
{
    int rc = c->pid_fd < 0 ? -EMFILE : uv_poll_init(loop, &c->poll, c->pid_fd);

    if (rc < 0) {
        free_launched(c);
        return rc;
    }
    c->poll.data = c;
    c->on_exit = on_exit;
    c->arg = arg;
    uv_unref((uv_handle_t *)&c->poll); /* a running job does not keep a stopping daemon alive */
    rc = uv_poll_start(&c->poll, UV_READABLE, on_left);
    if (rc < 0)
        uv_close((uv_handle_t *)&c->poll, poll_closed);
    return rc;
}

void launch_forget(uv_poll_t *poll)
{
    uv_close((uv_handle_t *)poll, poll_closed);
}

/* ---- spools of jobs ---- */

static void unlink_spool(const char *jobs_dir, int64_t job)
{
    char path[PATH_ROOM];

    for (int i = 0; i < 2; i++) {
        launch_job_path(path, jobs_dir, job, i == 0 ? "spool.0" : "spool.1");
        unlink(path);
    }
}

void launch_drop_spool(const char *jobs_dir, const struct job_row *row, const char *store_id)
{
    char path[PATH_ROOM];
    struct launch_owner owner;
    struct err err;
    struct end end;
    bool again;
    int fd, free;

    read_end(jobs_dir, row->id, row->submitted, &end);
    again = end.again && end.seq == row->last_seq; /* it is queued again, and that is on its way to the disk */
    launch_held_path(path, jobs_dir, row->id, "end");
    if (access(path, F_OK) == 0 && (end.seq < 0 || end.seq == row->last_seq)) /* its supervisor removes the spool */
        return;
    launch_own_path(path, jobs_dir, row->id, "lock");
    free = lock_try(path, &fd);
    if (launch_read_owner(jobs_dir, row->id, &owner, &err) == 0 && fd >= 0 && free == 1 &&
        launch_owner_is(&owner, store_id, row->submitted)) {
        bool written = write_end(jobs_dir, row, again, &err) == 0;

        if (!launch_is_users(jobs_dir, row->id))
            unlink_spool(jobs_dir, row->id);
        if (!written) /* the disk was full, and has room now */
            write_end(jobs_dir, row, again, &err);
    }
    if (fd >= 0)
        close(fd);
}

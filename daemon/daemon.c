#include "daemon/daemon.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/socket/conn.h"
#include "daemon/base/errand.h"
#include "daemon/run/drain.h"
#include "daemon/run/gpu_node.h"
#include "daemon/run/ingest.h"
#include "daemon/launch/launch.h"
#include "daemon/launch/launcher.h"
#include "daemon/base/log.h"
#include "daemon/methods/methods.h"
#include "daemon/base/node.h"
#include "daemon/base/notify.h"
#include "daemon/base/pool.h"
#include "daemon/run/spent.h"
#include "daemon/store/store.h"
#include "daemon/jobs/usage.h"
#include "proto/err.h"
#include "proto/host/folder.h"
#include "proto/report.h"
#include "proto/rpc.h"
#include "proto/tier.h"
#include "proto/version.h"

enum { TICK_MS = 1000, IDLE_TICKS = 5, STOP_MS = 2000, LOCK_TRIES = 1000, LOCK_PAUSE_US = 10000 };

/* ---- messages between the parts ---- */

static bool wanted(void *arg, unsigned topic)
{
    struct daemon *d = arg;

    return conns_wanted(d->conns, topic);
}

static void tell(void *arg, unsigned topic, int64_t job, const char *json)
{
    struct daemon *d = arg;

    conns_notify(d->conns, topic, job, json);
}

static bool may_log(void *arg, int64_t job, int64_t uid)
{
    struct daemon *d = arg;
    const struct job *j = jobs_find(&d->jobs, job);
    uid_t of = uid >= 0 ? (uid_t)uid : j ? j->row.uid : 0;
    struct user_share *share = of == 0 || of == geteuid() ? NULL : user_shares_of(&d->jobs.shares, of);

    if (share && !user_share_take(share, BOUND_JOURNAL, mono_s())) {
        share->unsaid++;
        return false;
    }
    if (share && share->unsaid)
        log_line("warning", "%ld lines about jobs of user %u were left out here; `detctl events` has them", share->unsaid, of);
    if (share)
        share->unsaid = 0;
    return true;
}

static void send_word(void *arg, struct job *j, const char *word, const char *tier)
{
    (void)arg;
    ingest_send_word(j, word, tier);
}

static void look_who_runs(void *arg)
{
    struct daemon *d = arg;

    run_schedule(&d->runner);
}

static void drop_spool(void *arg, const struct job *j)
{
    struct daemon *d = arg;

    if (!d->stopping)
        spent_job(&d->jobs, j);
}

static void take_slots(void *arg)
{
    struct daemon *d = arg;

    run_take_slots(&d->runner);
}

static void connected(void *arg, struct job *j)
{
    struct daemon *d = arg;

    run_connected(&d->runner, j);
}

static void gone(void *arg, struct job *j)
{
    struct daemon *d = arg;

    run_disconnected(&d->runner, j);
}

static void tie(struct daemon *d)
{
    d->events = (struct events){ .wanted = wanted, .tell = tell, .may_log = may_log, .arg = d };
    turns_init(&d->turns, d->loop);
    d->jobs = (struct jobs){ .turns = &d->turns,
                             .own = { .uid = (uid_t)-1 },
                             .events = &d->events,
                             .folder = d->jobs_dir,
                             .leave_s = d->cfg.leave_deadline_s,
                             .stored_max = (int64_t)d->cfg.user_stored_mib << 20,
                             .report_max = (int64_t)d->cfg.report_max_mib << 20,
                             .hooks = { .word = send_word, .wished = look_who_runs, .ended = drop_spool, .arg = d } };
    d->gpu_locks = (struct gpulocks){ d->cfg.gpu_locks, !d->cfg.private };
    d->removals = (struct removals){ .jobs = &d->jobs, .stopping = &d->stopping };
    d->retention = (struct retention){ .removals = &d->removals, .days = d->cfg.keep };
    d->runner = (struct runner){ .loop = d->loop,
                                 .jobs = &d->jobs,
                                 .gpus = &d->gpus,
                                 .gpu_locks = &d->gpu_locks,
                                 .events = &d->events,
                                 .user_running = d->cfg.user_running,
                                 .user_gpus = d->cfg.user_gpus,
                                 .shares = d->cfg.fair_share ? &d->shares : NULL,
                                 .log_max = (int64_t)d->cfg.log_max_mib << 20 };
}

static int open_store(struct daemon *d, struct err *err)
{
    int rc = store_open(d->cfg.state, d->loop, &d->store, err);
    int64_t highest = 0;

    d->events.store = d->jobs.store = d->runner.store = d->store;
    if (rc == 0)
        store_limit_queued(d->store, d->cfg.user_queued);
    if (rc == 0)
        rc = launch_highest(d->jobs_dir, &highest, err);
    if (rc == 0)
        store_skip_ids(d->store, highest);
    return rc;
}

static int open_threads(struct daemon *d, struct err *err)
{
    int rc = pool_start(d->loop, err);

    if (rc == 0)
        rc = errands_open(d->loop, &d->jobs.errands, err);
    if (rc == 0)
        rc = errands_open(d->loop, &d->names, err);
    d->audit = (struct audit){ &d->events, d->names };
    return rc;
}

static void scope_is_empty(void *arg, int64_t job, bool exited)
{
    struct daemon *d = arg;

    run_scope_is_empty(&d->runner, job, exited);
}

/* The journal says only once that detd-launch is missing; it may be started later. */
static int open_launcher(struct daemon *d, struct err *err)
{
    int rc;

    if (d->private)
        return 0;
    rc = launcher_open(d->loop, d->cfg.launch, d->jobs_dir, scope_is_empty, d, &d->launcher, err);
    d->runner.launcher = d->removals.launcher = d->launcher;
    if (rc == 0 && !launcher_is_there(d->launcher))
        log_line("info", "no detd-launch at '%s': no job is taken, and stored jobs wait", d->cfg.launch);
    return rc;
}

static int open_ingest(struct daemon *d, struct err *err)
{
    const struct ingest_config config = { .loop = d->loop,
                                          .wires = &d->wires,
                                          .store = d->store,
                                          .jobs = &d->jobs,
                                          .events = &d->events,
                                          .state = d->cfg.state,
                                          .others = !d->private,
                                          .connected = connected,
                                          .gone = gone,
                                          .arg = d };

    return ingest_open(&config, &d->ingest, err);
}

/* listen_fd: -1 to open a socket of its own. */
static int open_conns(struct daemon *d, int listen_fd, int admin_fd, struct err *err)
{
    const struct conns_config config = { .loop = d->loop,
                                         .wires = &d->wires,
                                         .turns = &d->turns,
                                         .gate = { d->cfg.socket, d->private, d->everyone_reads, d->admin_gid },
                                         .shares = &d->jobs.shares,
                                         .listen_fd = listen_fd,
                                         .admin_fd = admin_fd,
                                         .admin_path = d->admin_socket,
                                         .call = method_call,
                                         .d = d };

    return conns_open(&config, &d->conns, err);
}

static int open_gpus(struct daemon *d, struct err *err)
{
    const struct gpu_node_config config = { .loop = d->loop,
                                            .store = d->store,
                                            .jobs = &d->jobs,
                                            .gpus = &d->gpus,
                                            .events = &d->events,
                                            .locks = &d->gpu_locks,
                                            .deadline_s = d->cfg.gpu_deadline_s,
                                            .looked = take_slots,
                                            .ready = look_who_runs,
                                            .arg = d };
    int rc = gpu_node_open(&config, &d->gpu_node, err);

    d->runner.gpu_node = d->gpu_node;
    return rc;
}

/* ---- folders ---- */

static int make_path(const char *path, struct err *err)
{
    char part[CONFIG_PATH_MAX + 1];

    for (size_t i = 1; path[i - 1]; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (access(part, F_OK) < 0 && folder_make(part, 0700, err) < 0)
            return err->code;
    }
    return 0;
}

/* Each state folder has one daemon. The kernel drops the lock with the process, however that ends. But if the previous
 * daemon was killed while it started a child, the child holds the lock until it executes its program. */
static int lock_state(struct daemon *d, struct err *err)
{
    int rc = -1;

    d->state_lock = open("lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (d->state_lock < 0)
        return err_sys(err, "open '%s/lock'", d->cfg.state);
    for (int i = 0; i < LOCK_TRIES && (rc = flock(d->state_lock, LOCK_EX | LOCK_NB)) < 0 && errno == EWOULDBLOCK; i++)
        usleep(LOCK_PAUSE_US);
    if (rc == 0)
        return 0;
    if (errno == EWOULDBLOCK)
        return err_set(err, ERR_STATE, "'%s' belongs to a detd that is running", d->cfg.state);
    return err_sys(err, "lock '%s/lock'", d->cfg.state);
}

/* Lets users pass through to the folders that are their own. */
static int open_way(const struct daemon *d, struct err *err)
{
    const char *const folders[] = { d->cfg.state, d->jobs_dir };
    struct stat st;

    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        if (stat(folders[i], &st) < 0 || ((st.st_mode & 0011) != 0011 && chmod(folders[i], (st.st_mode & 07777) | 0011) < 0))
            return err_sys(err, "let users through '%s'", folders[i]);
    return 0;
}

static int enter_state(struct daemon *d, struct err *err)
{
    char real[4096 + 1];
    int rc = make_path(d->cfg.state, err);

    if (rc < 0)
        return rc;
    rc = node_check_filesystem(d->cfg.state, err);
    if (rc < 0)
        return rc;
    if (!realpath(d->cfg.state, real) || chdir(real) < 0)
        return err_sys(err, "enter '%s'", d->cfg.state);
    if (strlen(real) > CONFIG_PATH_MAX)
        return err_field(err, ERR_INPUT, "state", "state: '%s' is too long", real);
    memcpy(d->cfg.state, real, strlen(real) + 1);
    rc = lock_state(d, err);
    if (rc < 0)
        return rc;
    snprintf(d->jobs_dir, sizeof d->jobs_dir, "%s/jobs", real);
    if (d->cfg.jobs_mount && !node_is_mount(d->jobs_dir))
        return err_field(err, ERR_STATE, "jobs_mount", "jobs_mount: '%s' is no mount point: mount the file system of the jobs there",
                         d->jobs_dir);
    rc = folder_make(d->jobs_dir, 0700, err);
    if (rc == 0)
        rc = node_check_filesystem(d->jobs_dir, err);
    return rc < 0 || d->private ? rc : open_way(d, err);
}

static int make_socket_folder(const char *socket, struct err *err)
{
    char folder[CONFIG_SOCKET_MAX + 1];

    snprintf(folder, sizeof folder, "%s", socket);
    *strrchr(folder, '/') = '\0';
    return folder[0] ? make_path(folder, err) : 0;
}

/* Under systemd the folder exists. Everyone may look into it, whatever the umask is. Without it jobs on GPUs wait, and
 * say why. */
static void make_locks_folder(const struct daemon *d)
{
    const char *path = d->cfg.gpu_locks;

    if (d->private || access(path, F_OK) == 0)
        return;
    if (mkdir(path, 0755) < 0 || chmod(path, 0755) < 0)
        log_line("warning", "create the folder '%s' of locks of GPUs: %s", path, strerror(errno));
}

/* ---- the node ---- */

static void look_at_node(struct daemon *d)
{
    char folder[CONFIG_PATH_MAX], path[CONFIG_PATH_MAX + 32];
    const struct group *g = d->private ? NULL : getgrnam("detd");

    d->admin_gid = g ? g->gr_gid : (gid_t)-1;
    d->runner.cpu_slots = d->cfg.slots > 0 ? d->cfg.slots : node_cpu_slots();
    if (launch_program_dir(folder, sizeof folder, NULL) == 0) {
        snprintf(path, sizeof path, "%s/" WORKER_PLUGIN, folder);
        d->plugin = access(path, R_OK) == 0;
    }
}

/* Loads settings that admins made while detd ran, and other facts that outlive a daemon. */
static int load_settings(struct daemon *d, struct err *err)
{
    char name[16], running[32];
    int rc = store_get_setting(d->store, "tier", name, sizeof name, err);

    d->tier = rc == 0 && tier_parse(name) >= 0 ? tier_parse(name) : d->cfg.tier;
    if (rc == 0)
        rc = store_get_setting(d->store, "drained", d->runner.drained, sizeof d->runner.drained, err);
    if (rc == 0)
        drain_load(&d->runner);
    if (rc == 0)
        rc = store_get_setting(d->store, "running", running, sizeof running, err);
    d->retention.running = rc == 0 ? strtod(running, NULL) : 0;
    return rc;
}

/* ---- stopping ---- */

static void on_stop_deadline(uv_timer_t *timer)
{
    struct daemon *d = timer->data;

    uv_stop(d->loop);
}

/* Clients get the answers that are under way; jobs run on. A client that does not read its answers is left after two
 * seconds. */
static void stop(struct daemon *d)
{
    if (d->stopping)
        return;
    d->stopping = true;
    d->runner.stopping = true;
    log_line("info", "stops; jobs run on");
    notify_systemd("STOPPING=1");
    removal_stop(&d->removals);
    retention_note(&d->retention);
    gpu_node_stop(d->gpu_node);
    conns_close(d->conns);
    ingest_close(d->ingest);
    uv_timer_start(&d->tick, on_stop_deadline, STOP_MS, 0);
    uv_unref((uv_handle_t *)&d->tick);
    uv_close((uv_handle_t *)&d->sigterm, NULL);
    uv_close((uv_handle_t *)&d->sigint, NULL);
    uv_close((uv_handle_t *)&d->sighup, NULL);
}

static void on_signal(uv_signal_t *handle, int number)
{
    (void)number;
    stop(handle->data);
}

/* ---- the clock ---- */

static const char *const database_files[] = { "detd.db", "detd.db-wal" };

static void note_database(struct daemon *d)
{
    for (int i = 0; i < 2; i++)
        if (stat(database_files[i], &d->database[i]) < 0)
            d->database[i].st_ino = 0;
}

/* True if the name, looked up by the path of the state folder, leads to the open file. The folder that detd is in may
 * have been renamed or moved. If the answer is unknown, as on a failing disk, returns true. */
static bool is_same(const char *state, const char *name, const struct stat *was)
{
    char path[PATH_MAX + 32];
    struct stat st;

    snprintf(path, sizeof path, "%s/%s", state, name);
    if (was->st_ino == 0)
        return true;
    if (stat(path, &st) < 0)
        return errno != ENOENT && errno != ENOTDIR;
    return st.st_ino == was->st_ino && st.st_dev == was->st_dev;
}

static bool has_database(struct daemon *d)
{
    int i = 0;

    while (i < 2 && is_same(d->cfg.state, database_files[i], &d->database[i]))
        i++;
    if (i == 2)
        return true;
    err_set(&d->failure, ERR_STATE,
            "'%s/%s' was removed, renamed or replaced: changes stored from now on would be lost. Put it back, and start detd again",
            d->cfg.state, database_files[i]);
    return false;
}

/* Data written into a removed folder is lost, and another detd may take its place. Running jobs are left alone. */
static bool has_state(struct daemon *d)
{
    struct stat st;

    if (fstat(d->state_lock, &st) < 0 || st.st_nlink > 0)
        return has_database(d);
    err_set(&d->failure, ERR_STATE, "the state folder '%s', or the lock file in it, was removed: nothing can be stored any more",
            d->cfg.state);
    return false;
}

static void on_tick(uv_timer_t *timer)
{
    struct daemon *d = timer->data;
    uint64_t activity = conns_requests(d->conns) + d->jobs.rows;

    if (!has_state(d)) {
        stop(d);
        return;
    }
    conns_tick(d->conns);
    gpu_node_tick(d->gpu_node);
    launcher_tick(d->launcher);
    run_tick(&d->runner);
    usage_tick(&d->jobs, &d->gpus);
    removal_tick(&d->removals);
    retention_tick(&d->retention);
    shares_tick(&d->shares, &d->jobs, d->retention.running);
    d->idle_ticks = activity == d->last_activity ? d->idle_ticks + 1 : 0;
    d->last_activity = activity;
    if (d->idle_ticks == IDLE_TICKS) /* once in an idle period */
        store_shrink(d->store);
}

/* ---- freeing ---- */

static void close_left(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (uv_is_closing(handle))
        return;
    if (handle->type == UV_POLL)
        launch_forget((uv_poll_t *)handle);
    else
        uv_close(handle, NULL);
}

/* Threads that ask the store are waited for before it is closed. Queries that have begun break off; queries that wait
 * are answered without the store. */
static void leave_threads(struct daemon *d)
{
    store_stop_reading(d->store);
    errands_close(d->names);
    errands_close(d->jobs.errands);
    d->names = d->audit.names = d->jobs.errands = NULL;
    uv_run(d->loop, UV_RUN_NOWAIT); /* drops clients that have hung up, so that they hold up no work */
    while (d->turns.running > 0)
        uv_run(d->loop, UV_RUN_ONCE);
    d->jobs.turns = NULL;
}

static void free_all(struct daemon *d)
{
    d->stopping = true;
    d->runner.stopping = true;
    if (d->loop) {
        gpu_node_stop(d->gpu_node);
        conns_close(d->conns);
        ingest_close(d->ingest);
        launcher_close(d->launcher);
        conns_drop(d->conns);
        leave_threads(d);
        shares_close(&d->shares);
        store_close(d->store);
        uv_run(d->loop, UV_RUN_NOWAIT);
        uv_walk(d->loop, close_left, NULL);
        uv_run(d->loop, UV_RUN_DEFAULT);
        uv_loop_close(d->loop);
    }
    conns_free(d->conns);
    ingest_free(d->ingest);
    jobs_free(&d->jobs);
    gpu_node_free(d->gpu_node);
    launcher_free(d->launcher);
    if (d->state_lock >= 0)
        close(d->state_lock);
    free(d);
}

/* ---- life ---- */

/* A terminal that is closed sends SIGHUP. If detd was started to outlive that (nohup), the signal is ignored
 * already. */
static int hear_hangup(struct daemon *d)
{
    struct sigaction now;

    return sigaction(SIGHUP, NULL, &now) == 0 && now.sa_handler == SIG_IGN ? 0 : uv_signal_start(&d->sighup, on_signal, SIGHUP);
}

static int hear_signals(struct daemon *d, struct err *err)
{
    int rc;

    uv_signal_init(d->loop, &d->sigterm);
    uv_signal_init(d->loop, &d->sigint);
    uv_signal_init(d->loop, &d->sighup);
    d->sigterm.data = d->sigint.data = d->sighup.data = d;
    rc = uv_signal_start(&d->sigterm, on_signal, SIGTERM);
    if (rc == 0)
        rc = uv_signal_start(&d->sigint, on_signal, SIGINT);
    if (rc == 0)
        rc = hear_hangup(d);
    return rc < 0 ? err_set(err, rc, "signals: %s", uv_strerror(rc)) : 0;
}

static void start_clock(struct daemon *d)
{
    uv_timer_init(d->loop, &d->tick);
    d->tick.data = d;
    uv_timer_start(&d->tick, on_tick, TICK_MS, TICK_MS);
}

/* Beside the control socket, if that has its usual name: admin.sock is where detctl looks. */
static void name_admin_socket(struct daemon *d)
{
    size_t n = strlen(d->cfg.socket) - strlen(RPC_SOCKET);

    if (!d->private && strlen(d->cfg.socket) > strlen(RPC_SOCKET) && strcmp(d->cfg.socket + n, RPC_SOCKET) == 0 &&
        n + sizeof RPC_ADMIN_SOCKET <= sizeof d->admin_socket)
        snprintf(d->admin_socket, sizeof d->admin_socket, "%.*s" RPC_ADMIN_SOCKET, (int)n, d->cfg.socket);
}

/* The order matters. The lock comes before anything is touched, and the store before any client can ask. Signals (they
 * wait for the loop) come before others can know that there is a detd to stop, and supervisors before clients. */
static int start(struct daemon *d, struct err *err)
{
    int admin_fd, listen_fd, rc;

    name_admin_socket(d);
    listen_fd = notify_listen_fd(d->admin_socket, &admin_fd);
    rc = enter_state(d, err);
    if (rc == 0)
        rc = wires_open(&d->wires, d->loop, err);
    if (rc == 0)
        rc = open_store(d, err);
    if (rc == 0)
        note_database(d);
    if (rc == 0)
        rc = open_threads(d, err);
    if (rc == 0)
        rc = load_settings(d, err);
    if (rc == 0)
        rc = shares_open(&d->shares, d->store, d->retention.running, err);
    if (rc == 0)
        rc = jobs_load(&d->jobs, err);
    if (rc == 0)
        rc = hear_signals(d, err);
    if (rc == 0)
        rc = open_launcher(d, err);
    if (rc == 0)
        rc = open_ingest(d, err);
    if (rc == 0 && listen_fd < 0)
        rc = make_socket_folder(d->cfg.socket, err);
    if (rc < 0)
        return rc;
    make_locks_folder(d);
    look_at_node(d);
    run_adopt(&d->runner);
    spent_scan(&d->jobs, &d->stopping);
    removal_resume(&d->removals);
    rc = open_conns(d, listen_fd, admin_fd, err);
    if (rc < 0)
        return rc;
    rc = open_gpus(d, err);
    if (rc < 0)
        return rc;
    start_clock(d);
    log_line("info", "%s serves '%s', with %d CPU slots, its state in '%s' and %d jobs that have not ended", DETD_VERSION, d->cfg.socket,
             d->runner.cpu_slots, d->cfg.state, jobs_live(&d->jobs));
    notify_systemd("READY=1");
    return 0;
}

int daemon_run(const struct config *cfg, struct err *err)
{
    struct daemon *d = calloc(1, sizeof *d);
    uv_loop_t loop;
    int rc;

    if (!d)
        return err_set(err, -ENOMEM, "out of memory");
    rc = uv_loop_init(&loop);
    if (rc < 0) {
        free(d);
        return err_set(err, rc, "event loop: %s", uv_strerror(rc));
    }
    d->loop = &loop;
    d->cfg = *cfg;
    tie(d);
    d->private = cfg->private;
    d->everyone_reads = cfg->everyone_reads && !cfg->private;
    d->state_lock = -1;
    d->started = mono_s();
    rc = start(d, err);
    if (rc == 0)
        uv_run(&loop, UV_RUN_DEFAULT);
    if (d->failure.code) {
        *err = d->failure;
        rc = err->code;
    }
    free_all(d);
    return rc;
}

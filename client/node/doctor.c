/* SPDX-License-Identifier: Apache-2.0 */ /* client/node/doctor.c - doctor: finds problems of detd and its node, and
 * tells how to solve them. It only looks. */
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <pwd.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

#include "client/base/command.h"
#include "client/base/link.h"
#include "client/base/print.h"
#include "client/node/taken.h"
#include "proto/err.h"
#include "proto/version.h"

/* COUNT_S: seconds in which files are counted. TAKERS: users that are named. */
enum { PATH_LEN = 4096, COUNT_S = 20, TAKERS = 5, FOLDERS_ASKED = 2000, NAMED = 3, FIRST_ANSWER_S = 5, STORE_ID_MAX = 64 };
static const double FREE_MIN = 1 << 30, CLOCK_SLACK_S = 60;

/* ---- findings ---- */

struct doctor {
    struct context *ctx;
    json_t *rows; /* [{level, what, text, todo}] */
    json_t *info; /* daemon.info; NULL: detd does not answer */
};

/* level: ok; unknown: could not be looked at; warning: still works; wrong. todo: advice; "": there is nothing to do. */
static void add(struct doctor *d, const char *level, const char *what, const char *todo, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

static void add(struct doctor *d, const char *level, const char *what, const char *todo, const char *fmt, ...)
{
    char text[PATH_LEN + 512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    json_array_append_new(d->rows, json_pack("{s:s, s:s, s:s, s:s}", "level", level, "what", what, "text", text, "todo", todo));
}

static bool has(const struct doctor *d, const char *level)
{
    json_t *row;
    size_t i;

    json_array_foreach (d->rows, i, row) {
        if (strcmp(text_of(row, "level"), level) == 0)
            return true;
    }
    return false;
}

/* A call that may fail: the failure is a finding, and not the end. */
static json_t *ask(struct doctor *d, const char *method, json_t *params, struct err *err)
{
    json_t *result = NULL;

    if (link_call(d->ctx->link, method, params, &result, err) < 0)
        return NULL;
    return result;
}

/* ---- socket and program ---- */

static void tell_unanswered(struct doctor *d, const char *path, const struct err *err)
{
    if (err->code == ERR_TIMEOUT)
        add(d, "wrong", "socket",
            "is its process stopped (state T in ps) or stuck (D)? Its journal may say more; restarting it loses no job",
            "%s takes connections, but detd does not answer within %d s", path, (int)FIRST_ANSWER_S);
    else
        add(d, "wrong", "socket", "look into detd's journal: journalctl -u detd", "%s: %s", path, err->msg);
}

static void look_at_socket(struct doctor *d)
{
    const char *path = link_default_path(d->ctx->socket);
    struct err err = { 0 };
    struct stat st;

    if (link_open(path, FIRST_ANSWER_S, &d->ctx->link, &err) < 0) {
        if (err.code == ERR_TIMEOUT)
            tell_unanswered(d, path, &err);
        else if (lstat(path, &st) < 0)
            add(d, "wrong", "socket", "start detd, or the unit: systemctl start detd.socket detd.service", "%s: %s", path, strerror(errno));
        else if (!S_ISSOCK(st.st_mode))
            add(d, "wrong", "socket", "move it away and start detd again", "%s is no socket", path);
        else if (access(path, W_OK) < 0)
            add(d, "wrong", "socket", "ask an admin, or look at `read` in detd's settings", "%s belongs to uid %u, mode %04o: %s", path,
                (unsigned)st.st_uid, (unsigned)st.st_mode & 07777, strerror(errno));
        else
            add(d, "wrong", "socket", "start detd; its journal says why it left: journalctl -u detd",
                "%s is there, but no detd answers: %s", path, err.msg);
        return;
    }
    link_patience(d->ctx->link, 0);
    d->info = ask(d, "daemon.info", json_object(), &err);
    if (!d->info) {
        tell_unanswered(d, path, &err);
        return;
    }
    link_answer_within(d->ctx->link, LINK_ANSWER_S); /* the next questions may need the driver of the GPUs */
    add(d, "ok", "socket", "", "%s, detd %s, process %lld", path, text_of(d->info, "version"), int_of(d->info, "pid"));
    if (strcmp(text_of(d->info, "version"), DETD_VERSION) != 0)
        add(d, "warning", "version", "install both from one version, and restart detd: jobs go on", "detd is %s, this detctl %s",
            text_of(d->info, "version"), DETD_VERSION);
    if (*text_of(d->info, "libraries"))
        add(d, "ok", "libraries", "", "%s", text_of(d->info, "libraries"));
}

static void look_at_troubles(struct doctor *d)
{
    if (*text_of(d->info, "trouble"))
        add(d, "wrong", "store", "make room, or repair the disk: reports wait in the spools of the jobs till then", "%s",
            text_of(d->info, "trouble"));
    else
        add(d, "ok", "store", "", "%lld rows written since the start, %lld wait", int_of(d->info, "rows"), int_of(d->info, "backlog"));
    if (*text_of(d->info, "launch_trouble"))
        add(d, "wrong", "detd-launch",
            "running jobs continue, but no job can start: systemctl restart detd-launch; its journal says more: journalctl -u detd-launch",
            "%s", text_of(d->info, "launch_trouble"));
    else if (json_is_true(json_object_get(d->info, "launch")))
        add(d, "ok", "detd-launch", "", "it is there");
    if (int_of(d->info, "removals") > 0)
        add(d, "warning", "removals",
            "detd's journal says why; detd tries again by itself, later each time, and at once when it is restarted",
            "folders of %lld removed jobs wait, of job %lld among them", int_of(d->info, "removals"), int_of(d->info, "removal"));
    if (*text_of(d->info, "drained"))
        add(d, "warning", "drained", "detctl undrain, when that is over", "no job is started: %s", text_of(d->info, "drained"));
}

/* ---- disk and database ---- */

static void look_at_room(struct doctor *d, const char *folder)
{
    struct statvfs fs;
    double left;

    if (statvfs(folder, &fs) < 0) {
        add(d, "unknown", "disk", "run it as root or as the user of detd", "%s: %s", folder, strerror(errno));
        return;
    }
    left = (double)fs.f_bavail * (double)fs.f_frsize;
    if (left < FREE_MIN || (fs.f_files > 0 && fs.f_favail < 1000))
        add(d, "wrong", "disk", "make room: detctl prune --older 30d, or keep_jobs and keep_logs in detd's settings",
            "%s: %s and %llu files are left", folder, text_bytes(left).s, (unsigned long long)fs.f_favail);
    else
        add(d, "ok", "disk", "", "%s: %s are left", folder, text_bytes(left).s);
}

static void name_takers(const struct taken *t, char *ret, size_t size)
{
    size_t len = 0;

    ret[0] = '\0';
    for (int i = 0; i < t->count && i < TAKERS && len < size; i++) {
        const struct passwd *p = getpwuid(t->by[i].uid);
        char number[16];

        snprintf(number, sizeof number, "%u", (unsigned)t->by[i].uid);
        len += (size_t)snprintf(ret + len, size - len, "%s%s %s", i ? ", " : "", p ? p->pw_name : number, text_bytes(t->by[i].bytes).s);
    }
    if (t->count > TAKERS && len < size)
        snprintf(ret + len, size - len, ", and %d others", t->count - TAKERS);
}

/* The folders of jobs belong to their users, so only root sees all of them. */
static void look_at_users(struct doctor *d, const char *jobs)
{
    struct taken t;
    char list[512];
    bool whole = taken_below(jobs, COUNT_S, &t);

    name_takers(&t, list, sizeof list);
    if (whole)
        add(d, "ok", "users", "", "%s: %s", jobs, list);
    else
        add(d, "unknown", "users", geteuid() == 0 ? "" : "run it as root", "%s: not all files were counted; at least %s", jobs,
            t.count ? list : "none");
}

static void look_at_disk(struct doctor *d)
{
    const char *state = text_of(d->info, "state");
    char jobs[PATH_LEN + 16];
    struct stat of[2];

    snprintf(jobs, sizeof jobs, "%.*s/jobs", PATH_LEN, state);
    look_at_room(d, state);
    if (stat(state, &of[0]) == 0 && stat(jobs, &of[1]) == 0 && of[0].st_dev != of[1].st_dev)
        look_at_room(d, jobs);
    look_at_users(d, jobs);
}

/* Checks the database's pages and indexes. Writes "" if they are sound. Returns -1 if this user cannot read it. */
static int check_database(const char *path, char *ret, size_t size)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL);

    ret[0] = '\0';
    sqlite3_busy_timeout(db, 5000);
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v2(db, "PRAGMA quick_check(1)", -1, &st, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(st);
    if (rc != SQLITE_ROW)
        snprintf(ret, size, "%s", sqlite3_errmsg(db));
    else if (strcmp((const char *)sqlite3_column_text(st, 0), "ok") != 0)
        snprintf(ret, size, "%s", sqlite3_column_text(st, 0));
    sqlite3_finalize(st);
    sqlite3_close(db);
    return rc == SQLITE_ROW || rc == SQLITE_CORRUPT || rc == SQLITE_NOTADB ? 0 : -1;
}

static void look_at_database(struct doctor *d)
{
    char path[PATH_LEN + 16], found[300];

    snprintf(path, sizeof path, "%.*s/detd.db", PATH_LEN, text_of(d->info, "state"));
    if (access(path, R_OK) < 0 && errno == ENOENT && access(text_of(d->info, "state"), X_OK) == 0)
        add(d, "wrong", "database", "stop detd, put the file back, and start detd again: changes stored meanwhile are lost",
            "%s is missing, and detd runs", path);
    else if (access(path, R_OK) < 0)
        add(d, "unknown", "database", "run it as root or as the user of detd", "%s: %s", path, strerror(errno));
    else if (check_database(path, found, sizeof found) < 0)
        add(d, "unknown", "database", "run it as root or as the user of detd", "%s: %s", path, found);
    else if (found[0])
        add(d, "wrong", "database",
            "stop detd, copy the folder, then: sqlite3 detd.db .recover | sqlite3 new.db; reports wait in the spools", "%s is damaged: %s",
            path, found);
    else
        add(d, "ok", "database", "", "%s holds together", path);
}

/* ---- folders and processes without a job ---- */

/* 1: live, 0: known, -1: no job of that number, -2: detd could not be asked. */
static int state_of(struct doctor *d, int64_t id)
{
    struct err err = { 0 };
    json_t *job = ask(d, "job.get", json_pack("{s:I}", "id", (json_int_t)id), &err);
    const char *state = text_of(job, "state");
    int ret = strcmp(state, "starting") == 0 || strcmp(state, "running") == 0 || strcmp(state, "stopping") == 0;

    if (!job)
        ret = err.code == ERR_NOTFOUND ? -1 : -2;
    json_decref(job);
    return ret;
}

/* A number of names, and the first of them. */
struct named {
    char names[NAMED * 64];
    int n;
};

static void name_one(struct named *list, const char *name)
{
    size_t len = strlen(list->names);

    if (list->n++ < NAMED)
        snprintf(list->names + len, sizeof list->names - len, "%s%.60s", len ? ", " : "", name);
}

/* Whether the job was removed, and detd is still removing its remains. */
static bool is_going(const struct doctor *d, int64_t job)
{
    char path[PATH_LEN + 16];
    sqlite3 *db = NULL;
    sqlite3_stmt *st = NULL;
    bool going;

    snprintf(path, sizeof path, "%.*s/detd.db", PATH_LEN, text_of(d->info, "state"));
    going = sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK && sqlite3_busy_timeout(db, 5000) == SQLITE_OK &&
            sqlite3_prepare_v2(db, "SELECT 1 FROM removed WHERE job=?1 AND pending", -1, &st, NULL) == SQLITE_OK &&
            sqlite3_bind_int64(st, 1, job) == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW;
    sqlite3_finalize(st);
    sqlite3_close(db);
    return going;
}

/* Whether a folder in jobs/ has no job. detd gives a folder another name before it removes it. */
static bool is_orphan(struct doctor *d, const char *name, int *asked)
{
    char *end;
    long long id = strtoll(name, &end, 10);

    if (id <= 0 || (*end && strcmp(end, ".removed") != 0))
        return true;
    ++*asked;
    return (*end || state_of(d, id) == -1) && !is_going(d, id);
}

/* folder: jobs, or held, where detd keeps its own files about jobs that run as their submitters. */
static int look_into(struct doctor *d, const char *folder, struct named *orphans, int *asked)
{
    char path[PATH_LEN + 16], name[80];
    struct dirent *e;
    DIR *dir;

    snprintf(path, sizeof path, "%.*s/%s", PATH_LEN, text_of(d->info, "state"), folder);
    dir = opendir(path);
    if (!dir && errno == ENOENT && strcmp(folder, "held") == 0)
        return 0;
    if (!dir) {
        add(d, "unknown", "folders", "run it as root or as the user of detd", "%s: %s", path, strerror(errno));
        return -1;
    }
    while ((e = readdir(dir)) && *asked < FOLDERS_ASKED)
        if (e->d_name[0] != '.' && strcmp(e->d_name, "lost+found") != 0 && is_orphan(d, e->d_name, asked)) {
            snprintf(name, sizeof name, "%s/%.60s", folder, e->d_name);
            name_one(orphans, name);
        }
    closedir(dir);
    return 0;
}

static void look_at_folders(struct doctor *d)
{
    const char *state = text_of(d->info, "state");
    struct named orphans = { 0 };
    int asked[2] = { 0 };

    if (look_into(d, "jobs", &orphans, &asked[0]) < 0 || look_into(d, "held", &orphans, &asked[1]) < 0)
        return;
    if (orphans.n)
        add(d, "warning", "folders", "look into them, and remove them by hand: they belong to no job", "%d in %.*s belong to no job: %s%s",
            orphans.n, PATH_LEN, state, orphans.names, orphans.n > NAMED ? ", ..." : "");
    else
        add(d, "ok", "folders", "", "every folder in %.*s/jobs%s is a job's", PATH_LEN, state,
            asked[0] < FOLDERS_ASKED && asked[1] < FOLDERS_ASKED ? "" : ", of the 2000 looked at,");
}

struct process {
    int64_t job;              /* number in the job folder that its command line names, or that it runs in; 0: not one of ours */
    char store[STORE_ID_MAX]; /* a supervisor's: the database that numbered the job */
};

static int64_t job_in(const struct doctor *d, const char *path)
{
    char want[PATH_LEN + 16];

    snprintf(want, sizeof want, "%.*s/jobs/", PATH_LEN, text_of(d->info, "state"));
    return strncmp(path, want, strlen(want)) == 0 ? strtoll(path + strlen(want), NULL, 10) : 0;
}

/* The command line of a job that runs as its submitter has `.` and a number. Only root can see which folder `.` is. */
static int64_t job_around(const struct doctor *d, const char *pid, const char *store, int64_t number)
{
    char path[300], folder[PATH_LEN + 1];
    ssize_t n;

    snprintf(path, sizeof path, "/proc/%.20s/cwd", pid);
    n = readlink(path, folder, PATH_LEN);
    if (n < 0)
        return strcmp(store, text_of(d->info, "store_id")) == 0 ? number : 0;
    folder[n] = '\0';
    return job_in(d, folder);
}

static size_t read_command(const char *pid, char *ret, size_t size)
{
    char path[300];
    size_t n = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%.20s/cmdline", pid);
    f = fopen(path, "re");
    if (f)
        n = fread(ret, 1, size - 1, f);
    if (f)
        fclose(f);
    ret[n] = '\0';
    return n;
}

static void look_at_process(const struct doctor *d, const char *pid, struct process *ret)
{
    char line[PATH_LEN * 2];
    size_t n = read_command(pid, line, sizeof line);
    int64_t number = 0;
    bool here = false;

    *ret = (struct process){ 0 };
    if (!strstr(line, "detd-"))
        return;
    for (size_t at = 0, next; at < n; at = next) {
        next = at + strlen(line + at) + 1;
        if (ret->job == 0)
            ret->job = job_in(d, line + at);
        if (next >= n)
            break;
        if (strcmp(line + at, "--store-id") == 0)
            snprintf(ret->store, sizeof ret->store, "%s", line + next);
        else if (strcmp(line + at, "--job") == 0)
            number = strtoll(line + next, NULL, 10);
        else if (strcmp(line + at, "--job-dir") == 0)
            here = strcmp(line + next, ".") == 0;
    }
    if (here && ret->job == 0)
        ret->job = job_around(d, pid, ret->store, number);
}

/* Writes "" if there is no such file. */
static void read_store(const struct doctor *d, const char *folder, int64_t job, char ret[STORE_ID_MAX])
{
    char path[PATH_LEN + 64];
    FILE *f;

    ret[0] = '\0';
    snprintf(path, sizeof path, "%.*s/%s/%lld/store", PATH_LEN, text_of(d->info, "state"), folder, (long long)job);
    f = open_plain(path);
    if (f && !fgets(ret, STORE_ID_MAX, f))
        ret[0] = '\0';
    if (f)
        fclose(f);
    ret[strcspn(ret, "\n")] = '\0';
}

/* If a database was lost or put back, its jobs run on in folders with numbers that another database gives again. Each
 * process, or its folder, tells its database. */
static bool is_of_another(const struct doctor *d, const struct process *p)
{
    const char *ours = text_of(d->info, "store_id");
    char store[STORE_ID_MAX];

    if (p->store[0])
        return strcmp(p->store, ours) != 0;
    read_store(d, "held", p->job, store); /* first the folder that its submitter cannot write */
    if (!store[0])
        read_store(d, "jobs", p->job, store);
    return store[0] && strcmp(store, ours) != 0;
}

static void look_at_processes(struct doctor *d)
{
    struct named orphans = { 0 };
    struct dirent *e;
    DIR *dir = opendir("/proc");

    while (dir && (e = readdir(dir))) {
        char name[96];
        struct process p;
        int state;

        if (e->d_name[0] < '1' || e->d_name[0] > '9')
            continue;
        look_at_process(d, e->d_name, &p);
        state = p.job > 0 ? state_of(d, p.job) : -2;
        snprintf(name, sizeof name, "%.20s (job %lld of another database)", e->d_name, (long long)p.job);
        if (p.job > 0 && is_of_another(d, &p))
            name_one(&orphans, name);
        else if (state == 0 || state == -1)
            name_one(&orphans, e->d_name);
    }
    if (dir)
        closedir(dir);
    if (orphans.n)
        add(d, "warning", "processes", "wait a moment and look again; kill them if they stay", "%d belong to no job that runs: %s%s",
            orphans.n, orphans.names, orphans.n > NAMED ? ", ..." : "");
    else
        add(d, "ok", "processes", "", "every process found belongs to a job");
}

/* ---- GPUs and clock ---- */

static void look_at_gpus(struct doctor *d)
{
    struct err err = { 0 };
    json_t *list = ask(d, "gpu.list", json_object(), &err), *gpu;
    int quarantined = 0, count = (int)json_array_size(json_object_get(list, "gpus"));
    size_t i;

    json_array_foreach (json_object_get(list, "gpus"), i, gpu) {
        if (strcmp(text_of(gpu, "state"), "quarantined") != 0)
            continue;
        quarantined++;
        add(d, "wrong", "GPU", "see to it, then: detctl gpus --release UUID", "GPU %lld (%s) is in quarantine: %s", int_of(gpu, "index"),
            text_of(gpu, "uuid"), text_of(gpu, "reason"));
    }
    if (!list)
        add(d, "unknown", "GPUs", "", "%s", err.msg);
    else if (*text_of(list, "trouble"))
        add(d, "wrong", "GPUs", "nvidia-smi says more; no GPU is granted till the driver answers", "%s", text_of(list, "trouble"));
    else if (count == 0)
        add(d, "ok", "GPUs", "", "none: %s", text_of(list, "absent"));
    else if (!quarantined)
        add(d, "ok", "GPUs", "", "%d, driver %s", count, text_of(json_array_get(json_object_get(list, "gpus"), 0), "driver"));
    json_decref(list);
}

static void look_at_clock(struct doctor *d)
{
    struct timex t = { 0 };
    struct err err = { 0 };
    json_t *newest = ask(d, "event.query", json_pack("{s:i}", "limit", 1), &err);
    double ahead = real_of(json_array_get(json_object_get(newest, "events"), 0), "time") - (double)time(NULL);

    if (ahead > CLOCK_SLACK_S)
        add(d, "warning", "clock", "set it right: times in the database are wrong; deadlines use another clock and are not",
            "it was set back: the newest event is %s in the future", text_duration(ahead).s);
    else if (adjtimex(&t) == TIME_ERROR || (t.status & STA_UNSYNC))
        add(d, "warning", "clock", "run a time service, such as systemd-timesyncd or chrony",
            "the kernel reports that it is not synchronised");
    else
        add(d, "ok", "clock", "", "synchronised");
    json_decref(newest);
}

/* ---- all of it ---- */

static void print_findings(const struct doctor *d)
{
    json_t *row;
    size_t i;

    json_array_foreach (d->rows, i, row) {
        printf("%-8s %-11s ", text_of(row, "level"), text_of(row, "what"));
        print_clean(stdout, text_of(row, "text"));
        putchar('\n');
        if (*text_of(row, "todo"))
            printf("%-8s %-11s   -> %s\n", "", "", text_of(row, "todo"));
    }
}

int command_doctor(struct context *ctx, int argc, char **argv)
{
    struct doctor d = { .ctx = ctx };
    bool json;
    int rc;

    if (take_json(argc, argv, &json))
        return CODE_USAGE;
    if (optind < argc)
        return misuse(ctx, "'%s' is not expected", argv[optind]);
    d.rows = json_array();
    look_at_socket(&d);
    if (d.info) {
        look_at_troubles(&d);
        look_at_disk(&d);
        look_at_database(&d);
        look_at_folders(&d);
        look_at_processes(&d);
        look_at_gpus(&d);
        look_at_clock(&d);
    }
    if (json)
        print_json(d.rows);
    else
        print_findings(&d);
    rc = has(&d, "wrong") ? (d.info ? CODE_REFUSED : CODE_NO_DAEMON) : CODE_DONE;
    json_decref(d.info);
    json_decref(d.rows);
    return rc;
}

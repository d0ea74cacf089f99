/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/daemon/gpu/test_gpu.c - uses: proto daemon
 * The states that detd derives from a look at the GPUs, and the locks that keep daemons apart. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/gpu/gpu.h"
#include "proto/err.h"
#include "proto/host/gpulock.h"
#include "tests/stand/harness.h"

#define GB ((int64_t)1000000000)

enum { SESSION = 500 };

static struct gpu_seen seen(int64_t used, int64_t ecc)
{
    return (struct gpu_seen){ .uuid = "GPU-1", .name = "N", .memory_bytes = 80 * GB, .memory_used = used, .ecc_errors = ecc };
}

static struct gpu_seen busy(int64_t used, int64_t pid, long session)
{
    struct gpu_seen s = seen(used, 0);

    s.nprocesses = 1;
    s.processes[0] = (struct gpu_process){ .pid = pid, .memory_bytes = used, .session = session, .name = "python3" };
    return s;
}

static struct gpu idle_gpu(struct gpus *all)
{
    struct gpu_seen s = seen(0, 0);

    *all = (struct gpus){ 0 };
    assert_non_null(gpus_add(all, &s));
    gpu_take(&all->all[0], &s, 0, 1);
    assert_int_equal(gpu_state(&all->all[0]), GPU_FREE);
    return all->all[0];
}

static void assert_reason(const struct gpu *g, enum gpu_state state, const char *word)
{
    char why[GPU_REASON];

    gpu_reason(g, why, sizeof why);
    assert_string_equal(gpu_state_name(gpu_state(g)), gpu_state_name(state));
    if (!strstr(why, word))
        fail_msg("'%s' does not say '%s'", why, word);
}

static void lines_are_checked(void **state)
{
    static const char *const wrong[] = {
        "not json",
        "[]",
        "{\"done\":2}",
        "{\"uuid\":\"\",\"name\":\"N\",\"index\":0}",
        "{\"uuid\":\"a,b\",\"name\":\"N\",\"index\":0}",
        "{\"uuid\":\"../x\",\"name\":\"N\",\"index\":0}",
        "{\"uuid\":\"GPU-1\",\"name\":\"N\",\"index\":\"0\"}",
        "{\"uuid\":\"GPU-1\",\"name\":\"N\",\"index\":0,\"processes\":[{\"pid\":1}]}",
        "{\"uuid\":\"GPU-000000000000000000000000000000000000000000000000\",\"name\":\"N\",\"index\":0}",
    };
    struct gpu_seen s;
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(gpu_parse(wrong[i], &s, &err), ERR_PROTO);
    assert_int_equal(gpu_parse("{\"uuid\":\"GPU-1\",\"name\":\"N\",\"index\":3,\"memory_bytes\":5,\"memory_used\":2,\"divided\":true,"
                               "\"processes\":[{\"pid\":7,\"memory_bytes\":-1,\"session\":9,\"name\":\"p\"}]}",
                               &s, &err),
                     0);
    assert_string_equal(s.uuid, "GPU-1");
    assert_true(s.index == 3 && s.memory_bytes == 5 && s.memory_used == 2 && s.divided && s.nprocesses == 1);
    assert_true(s.utilisation == -1 && s.ecc_errors == -1 && s.processes[0].pid == 7 && s.processes[0].session == 9);
    assert_int_equal(gpu_parse("{\"uuid\":\"GPU-1\",\"name\":\"N\",\"index\":0,\"processes\":null}", &s, &err), 0);
    assert_int_equal(s.nprocesses, -1);
}

static void too_many_processes_are_cut(void **state)
{
    char line[4096] = "{\"uuid\":\"GPU-1\",\"name\":\"N\",\"index\":0,\"processes\":[";
    struct gpu_seen s;
    struct err err;

    (void)state;
    for (int i = 0; i < 40; i++)
        snprintf(line + strlen(line), sizeof line - strlen(line), "%s{\"pid\":%d,\"memory_bytes\":1,\"session\":1,\"name\":\"p\"}",
                 i ? "," : "", i + 1);
    strcat(line, "]}");
    assert_int_equal(gpu_parse(line, &s, &err), 0);
    assert_int_equal(s.nprocesses, GPU_PROCESSES);
}

static void foreign_use_begins_and_ends(void **state)
{
    struct gpus all;
    struct gpu g = idle_gpu(&all);
    struct gpu_seen used = busy(3 * GB, 4711, 77), empty = seen(0, 0), hidden = seen(2 * GB, 0);

    (void)state;
    gpu_take(&g, &used, 0, 2);
    assert_reason(&g, GPU_FOREIGN, "process 4711 (python3) with 3.0 GB");
    gpu_take(&g, &empty, 0, 3);
    assert_int_equal(gpu_state(&g), GPU_FREE);
    gpu_take(&g, &hidden, 0, 4);
    assert_reason(&g, GPU_FOREIGN, "2.0 GB are in use and no process is listed");
    gpu_take(&g, &empty, 0, 5);
    assert_int_equal(gpu_state(&g), GPU_FREE);
    used.processes[0].session = -1;
    gpu_take(&g, &used, 0, 6);
    assert_reason(&g, GPU_FOREIGN, "not visible from here");
    used.processes[0].session = 77;
    used.processes[0].name[0] = '\0';
    gpu_take(&g, &used, 0, 7);
    assert_reason(&g, GPU_FOREIGN, "process 4711 (of another user) with 3.0 GB");
}

static void a_job_is_not_foreign_to_itself(void **state)
{
    struct gpus all;
    struct gpu g = idle_gpu(&all);
    struct gpu_seen own = busy(3 * GB, 4711, SESSION), other = busy(3 * GB, 4712, 77), unseen = busy(3 * GB, 0, -1);

    (void)state;
    g.job = 5;
    gpu_take(&g, &own, SESSION, 2);
    assert_reason(&g, GPU_GRANTED, "");
    assert_string_equal(g.foreign, "");
    gpu_take(&g, &unseen, SESSION, 3); /* of a container with hidden processes: taken for the job's own */
    assert_string_equal(g.foreign, "");
    gpu_take(&g, &other, SESSION, 4);
    assert_reason(&g, GPU_GRANTED, "process 4712");
    gpu_take(&g, &other, 0, 5); /* it is not known which processes are the job's */
    assert_string_equal(g.foreign, "");
}

static void memory_is_verified_after_a_job(void **state)
{
    struct gpus all;
    struct gpu g = idle_gpu(&all);
    struct gpu_seen own = busy(3 * GB, 4711, SESSION), left = seen(3 * GB, 0), empty = seen(GPU_SLACK_BYTES, 0);

    (void)state;
    g.job = 5;
    gpu_take(&g, &own, SESSION, 2);
    gpu_leave(&g, 10);
    assert_reason(&g, GPU_CHECKING, "job 5 has left");
    gpu_take(&g, &own, SESSION, 11);
    assert_int_equal(gpu_state(&g), GPU_CHECKING);
    gpu_take(&g, &empty, SESSION, 12);
    assert_int_equal(gpu_state(&g), GPU_FREE);

    g.job = 6;
    gpu_leave(&g, 20);
    gpu_take(&g, &left, SESSION, 20 + GPU_LEAVE_S - 1);
    assert_int_equal(gpu_state(&g), GPU_CHECKING);
    gpu_take(&g, &left, SESSION, 20 + GPU_LEAVE_S);
    assert_reason(&g, GPU_QUARANTINED, "3.0 GB are still in use 10 s after job 6 left");
    gpu_take(&g, &empty, 0, 40);
    assert_int_equal(gpu_state(&g), GPU_QUARANTINED); /* an admin has to look at it first */
}

static void who_stays_after_a_job_is_named(void **state)
{
    struct gpus all;
    struct gpu g = idle_gpu(&all);
    struct gpu_seen own = busy(3 * GB, 4711, SESSION), empty = seen(0, 0);

    (void)state;
    g.job = 5;
    gpu_leave(&g, 10);
    gpu_take(&g, &own, SESSION, 10 + GPU_LEAVE_S);
    assert_reason(&g, GPU_FOREIGN, "process 4711");
    gpu_take(&g, &empty, 0, 30);
    assert_int_equal(gpu_state(&g), GPU_FREE);
}

static void errors_quarantine(void **state)
{
    static const int fatal[] = { 48, 74, 79, 94, 95 }, own[] = { 13, 31, 43, 45, 63, 0, -1 };
    struct gpus all;
    struct gpu g;

    (void)state;
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++) {
        char name[16];

        g = idle_gpu(&all);
        g.job = 3;
        assert_true(gpu_xid(&g, fatal[i], 9));
        snprintf(name, sizeof name, "Xid %d", fatal[i]);
        assert_reason(&g, GPU_QUARANTINED, name);
        assert_true(g.quarantined == 9 && g.job == 3);
        assert_true(gpu_xid(&g, 48, 11));
        assert_reason(&g, GPU_QUARANTINED, name); /* the first error is reported */
    }
    g = idle_gpu(&all);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        assert_false(gpu_xid(&g, own[i], 9));
    assert_int_equal(gpu_state(&g), GPU_FREE);
}

static void ecc_errors_count_when_they_grow(void **state)
{
    struct gpu_seen none = seen(0, -1), two = seen(0, 2), five = seen(0, 5), zero = seen(0, 0);
    struct gpus all;
    struct gpu g = idle_gpu(&all);

    (void)state;
    g.seen.ecc_errors = -1;
    gpu_take(&g, &two, 0, 2); /* from before our time */
    gpu_take(&g, &two, 0, 3);
    gpu_take(&g, &none, 0, 4);
    gpu_take(&g, &two, 0, 5);
    gpu_take(&g, &zero, 0, 6); /* the driver was loaded afresh */
    assert_int_equal(gpu_state(&g), GPU_FREE);
    gpu_take(&g, &two, 0, 7);
    assert_reason(&g, GPU_QUARANTINED, "2 uncorrected memory errors (ECC), 2 of them new");
    gpu_take(&g, &five, 0, 8);
    assert_reason(&g, GPU_QUARANTINED, "2 of them new");
}

static void what_vanishes(void **state)
{
    struct gpus all;
    struct gpu g = idle_gpu(&all), instance = g;

    (void)state;
    assert_false(gpu_vanish(&g, 3));
    assert_reason(&g, GPU_QUARANTINED, "disappeared");
    strcpy(instance.seen.uuid, "MIG-1");
    assert_true(gpu_vanish(&instance, 3));
    instance.job = 4;
    assert_false(gpu_vanish(&instance, 3));
    assert_reason(&instance, GPU_QUARANTINED, "disappeared");
}

static void counts(void **state)
{
    struct gpu_seen s = seen(0, 0);
    struct gpu_counts c;
    struct gpus all = { 0 };

    (void)state;
    for (int i = 0; i < 6; i++) {
        snprintf(s.uuid, sizeof s.uuid, "GPU-%d", i);
        s.divided = i == 5;
        assert_non_null(gpus_add(&all, &s));
    }
    all.all[1].job = 1;
    assert_true(gpu_xid(&all.all[2], 79, 1));
    strcpy(all.all[3].locked, "a job of another daemon has its lock");
    assert_reason(&all.all[3], GPU_FOREIGN, "another daemon");
    assert_reason(&all.all[5], GPU_DIVIDED, "MIG");
    gpus_count(&all, &c);
    assert_true(c.devices == 5 && c.usable == 4 && c.free == 2 && c.foreign == 1 && c.quarantined == 1);
    strcpy(all.trouble, "hangs");
    gpus_count(&all, &c);
    assert_true(c.devices == 5 && c.free == 0);
    gpus_remove(&all, &all.all[0]);
    assert_true(all.count == 5 && gpus_find(&all, "GPU-1") == &all.all[0] && !gpus_find(&all, "GPU-0"));
    all.count = GPU_MAX;
    assert_null(gpus_add(&all, &s));
}

/* ---- locks ---- */

static const struct gpulocks users = { "/nonexistent", false };

static void lock_file(const char *uuid, char *ret, size_t size)
{
    snprintf(ret, size, "/run/lock/detd-%s.lock", uuid);
    if (access(ret, F_OK) < 0)
        snprintf(ret, size, "/tmp/detd-%s.lock", uuid);
}

static bool is_held(const struct gpulocks *l, const char *uuid)
{
    struct err why;

    return gpulock_is_held(l, uuid, &why);
}

/* Both the query and the taking of a lock report the obstacle at its path. */
static void assert_in_the_way(const char *uuid, const char *what)
{
    struct err err, why;
    int fd;

    assert_int_equal(gpulock_take(&users, uuid, &fd, &err), -EWOULDBLOCK);
    assert_true(gpulock_is_held(&users, uuid, &why));
    assert_non_null(strstr(why.msg, what));
    assert_string_equal(why.msg, err.msg);
}

static void one_job_a_gpu(void **state)
{
    char uuid[64], path[128];
    struct stat st;
    struct err err;
    int a, b;

    (void)state;
    snprintf(uuid, sizeof uuid, "GPU-test-%d", (int)getpid());
    umask(077);
    assert_false(is_held(&users, uuid));
    assert_int_equal(gpulock_take(&users, uuid, &a, &err), 0);
    lock_file(uuid, path, sizeof path);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0666); /* other users' daemons must be able to see that it is held */
    assert_true(is_held(&users, uuid));
    assert_int_equal(gpulock_take(&users, uuid, &b, &err), -EWOULDBLOCK);
    assert_non_null(strstr(err.msg, uuid));
    close(a);
    assert_false(is_held(&users, uuid));
    a = open(path, O_RDONLY); /* as another program that looks */
    assert_int_equal(flock(a, LOCK_SH), 0);
    assert_false(is_held(&users, uuid));
    close(a);
    assert_int_equal(gpulock_take(&users, uuid, &b, &err), 0);
    close(b);
    unlink(path);
}

/* In a process of that user: 0 taken, 1 busy, 2 anything else. */
static int taken_by(uid_t uid, const char *uuid)
{
    struct err err = { 0 };
    int fd, rc, status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        umask(077);
        if (setresuid(uid, uid, uid) < 0)
            _exit(2);
        rc = gpulock_take(&users, uuid, &fd, &err);
        _exit(rc == 0 ? 0 : rc == -EWOULDBLOCK ? 1 : 2);
    }
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* The first daemon owns the file. The kernel refuses to open such a file with O_CREAT in a sticky folder for other
 * users. */
static void users_share_the_locks(void **state)
{
    char uuid[64], path[128];
    struct err err;
    int fd;

    (void)state;
    if (geteuid() != 0)
        SKIP("only root may become other users");
    snprintf(uuid, sizeof uuid, "GPU-users-%d", (int)getpid());
    assert_int_equal(taken_by(65533, uuid), 0);
    assert_int_equal(taken_by(65534, uuid), 0);
    assert_int_equal(gpulock_take(&users, uuid, &fd, &err), 0);
    assert_int_equal(taken_by(65534, uuid), 1);
    close(fd);
    lock_file(uuid, path, sizeof path);
    unlink(path);
}

static void links_are_refused(void **state)
{
    char uuid[64], path[128], other[136], longest[96], victim[TEMP_MAX], nothing[TEMP_MAX];
    struct err err;
    int fd = mkstemp(temp_path(victim, sizeof victim, "detd-victim-XXXXXX")), lock;

    (void)state;
    assert_true(fd >= 0);
    snprintf(uuid, sizeof uuid, "GPU-link-%d", (int)getpid());
    assert_int_equal(gpulock_take(&users, uuid, &lock, &err), 0);
    close(lock);
    lock_file(uuid, path, sizeof path);
    unlink(path);
    assert_int_equal(symlink(victim, path), 0);
    assert_in_the_way(uuid, "is a symbolic link; remove it");
    unlink(path);
    assert_int_equal(symlink(temp_path(nothing, sizeof nothing, "detd-no-such-file"), path), 0);
    assert_in_the_way(uuid, "is a symbolic link; remove it");
    assert_true(access(nothing, F_OK) < 0);
    unlink(path);
    assert_int_equal(mkfifo(path, 0666), 0);
    assert_in_the_way(uuid, "no plain file with one name");
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_in_the_way(uuid, "no plain file with one name");
    rmdir(path);
    assert_int_equal(gpulock_take(&users, uuid, &lock, &err), 0);
    close(lock);
    snprintf(other, sizeof other, "%s.2", path);
    assert_int_equal(link(path, other), 0); /* with a second name, a program that locks the file of another user would take this lock */
    assert_in_the_way(uuid, "no plain file with one name");
    unlink(other);
    unlink(path);
    memset(longest, 'a', sizeof longest);
    longest[81] = '\0';
    assert_int_equal(gpulock_take(&users, longest, &lock, &err), ERR_INPUT);
    assert_int_equal(gpulock_take(&users, "../../etc/passwd", &lock, &err), ERR_INPUT);
    assert_int_equal(gpulock_take(&users, "", &lock, &err), ERR_INPUT);
    close(fd);
    unlink(victim);
}

/* Locks of the system's daemon and of a user's daemon, with a folder for files with the inode numbers that the kernel
 * lists. */
struct two {
    char folder[64], uuid[64], shared[128], own[160];
    struct gpulocks system, user;
};

static void make_two(struct two *t, const char *name)
{
    int fd;
    struct err err;

    snprintf(t->folder, sizeof t->folder, "/dev/shm/detd-gpus-XXXXXX");
    assert_non_null(mkdtemp(t->folder));
    chmod(t->folder, 0755);
    t->system = (struct gpulocks){ t->folder, true };
    t->user = (struct gpulocks){ t->folder, false };
    snprintf(t->uuid, sizeof t->uuid, "GPU-%s-%d", name, (int)getpid());
    snprintf(t->own, sizeof t->own, "%s/%s.lock", t->folder, t->uuid);
    assert_int_equal(gpulock_take(&t->user, t->uuid, &fd, &err), 0);
    close(fd);
    lock_file(t->uuid, t->shared, sizeof t->shared);
}

static void remove_two(struct two *t)
{
    unlink(t->own);
    rmdir(t->own);
    unlink(t->shared);
    rmdir(t->shared);
    assert_int_equal(rmdir(t->folder), 0);
}

static void daemons_of_both_kinds_share_no_gpu(void **state)
{
    struct stat st;
    struct err err;
    struct two t = { 0 };
    int a, b;

    (void)state;
    make_two(&t, "both");
    umask(077);
    assert_int_equal(gpulock_take(&t.system, t.uuid, &a, &err), 0);
    assert_int_equal(stat(t.own, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600); /* a user with access to the file could keep the lock */
    assert_true(is_held(&t.user, t.uuid) && is_held(&t.system, t.uuid));
    assert_int_equal(gpulock_take(&t.user, t.uuid, &b, &err), -EWOULDBLOCK);
    assert_non_null(strstr(err.msg, "the system's daemon"));
    assert_int_equal(gpulock_take(&t.system, t.uuid, &b, &err), -EWOULDBLOCK);
    close(a);
    assert_false(is_held(&t.user, t.uuid) || is_held(&t.system, t.uuid));
    assert_int_equal(gpulock_take(&t.user, t.uuid, &a, &err), 0);
    assert_true(is_held(&t.system, t.uuid));
    assert_int_equal(gpulock_take(&t.system, t.uuid, &b, &err), -EWOULDBLOCK);
    assert_non_null(strstr(err.msg, "a user's daemon"));
    close(a);
    assert_int_equal(gpulock_take(&t.system, t.uuid, &b, &err), 0); /* also the lock that it released when refused */
    close(b);
    remove_two(&t);
}

static void take_as_system(const struct two *t)
{
    struct err err = { 0 };
    int fd;

    assert_false(is_held(&t->system, t->uuid));
    assert_int_equal(gpulock_take(&t->system, t->uuid, &fd, &err), 0);
    close(fd);
}

static void what_users_plant_takes_no_gpu_from_the_node(void **state)
{
    struct err err;
    struct two t = { 0 };
    int fd;

    (void)state;
    make_two(&t, "planted");
    take_as_system(&t); /* beside a file without a lock */
    fd = open(t.shared, O_RDONLY);
    assert_int_equal(flock(fd, LOCK_SH), 0);
    take_as_system(&t);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_true(is_held(&t.system, t.uuid));
    unlink(t.shared);
    assert_int_equal(symlink(t.own, t.shared), 0); /* also if the link leads to a locked file */
    take_as_system(&t);
    unlink(t.shared);
    assert_int_equal(mkdir(t.shared, 0777), 0);
    take_as_system(&t);
    rmdir(t.shared);
    assert_int_equal(mkfifo(t.shared, 0666), 0);
    take_as_system(&t);
    close(fd);
    unlink(t.own);
    assert_int_equal(mkdir(t.own, 0700), 0); /* with a folder in the place of its own file it is busy, which is no failure */
    assert_int_equal(gpulock_take(&t.system, t.uuid, &fd, &err), -EWOULDBLOCK);
    assert_true(is_held(&t.system, t.uuid));
    rmdir(t.own);
    chmod(t.folder, 0777);
    assert_int_equal(gpulock_take(&t.system, t.uuid, &fd, &err), -EPERM);
    assert_non_null(strstr(err.msg, t.folder));
    chmod(t.folder, 0755);
    remove_two(&t);
}

static void users_cannot_keep_the_locks_of_the_node(void **state)
{
    struct err err;
    struct two t = { 0 };
    int fd, status = 0;
    pid_t pid;

    (void)state;
    if (geteuid() != 0)
        SKIP("only root may become other users");
    make_two(&t, "kept");
    assert_int_equal(gpulock_take(&t.system, t.uuid, &fd, &err), 0);
    pid = fork();
    if (pid == 0) {
        int ok = setresuid(65534, 65534, 65534) == 0 && open(t.own, O_RDONLY) < 0 && errno == EACCES && is_held(&t.user, t.uuid) &&
                 gpulock_take(&t.user, t.uuid, &fd, &err) == -EWOULDBLOCK;

        _exit(ok ? 0 : 1);
    }
    assert_true(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(fd);
    remove_two(&t);
}

/* The process that the kernel lists as holder of a lock on that file; 0: no process. */
static pid_t listed(const char *path)
{
    FILE *f = fopen("/proc/locks", "r");
    unsigned long ino;
    struct stat st = { 0 };
    char line[256];
    pid_t pid, found = 0;

    assert_true(f && stat(path, &st) == 0);
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "%*d: FLOCK %*s WRITE %d %*x:%*x:%lu", &pid, &ino) == 2 && ino == st.st_ino)
            found = pid;
    fclose(f);
    return found;
}

static void a_lock_is_handed_on(void **state)
{
    int fd, other, words[2], status;
    struct err err = { 0 };
    struct two t = { 0 };
    char word;
    pid_t pid;

    (void)state;
    make_two(&t, "given");
    assert_int_equal(gpulock_take(&t.system, t.uuid, &fd, &err), 0);
    assert_int_equal(listed(t.own), getpid());
    assert_int_equal(pipe(words), 0);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* ends the child if the test ends early */
        word = gpulock_adopt(&t.system, t.uuid, fd, &err) == 0 ? 'y' : 'n';
        _exit(write(words[1], &word, 1) == 1 && pause() == 0);
    }
    close(fd); /* from here on only the other process holds it */
    assert_true(read(words[0], &word, 1) == 1 && word == 'y');
    assert_int_equal(listed(t.own), pid);
    assert_true(is_held(&t.user, t.uuid) && is_held(&t.system, t.uuid));
    assert_int_equal(gpulock_take(&t.system, t.uuid, &fd, &err), -EWOULDBLOCK);
    assert_true(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid);
    assert_false(is_held(&t.user, t.uuid) || is_held(&t.system, t.uuid));

    /* another program has locked the file meanwhile */
    assert_int_equal(gpulock_take(&t.system, t.uuid, &fd, &err), 0);
    other = open(t.own, O_RDONLY);
    assert_int_equal(gpulock_adopt(&t.system, t.uuid, other, &err), -EWOULDBLOCK);
    close(other);
    other = open(t.shared, O_RDONLY);
    assert_int_equal(flock(other, LOCK_EX), 0);
    assert_int_equal(gpulock_adopt(&t.system, t.uuid, fd, &err), -EWOULDBLOCK);
    assert_non_null(strstr(err.msg, "a user's daemon"));
    close(other);
    assert_int_equal(gpulock_adopt(&t.system, t.uuid, fd, &err), 0);
    close(fd);
    close(words[0]);
    close(words[1]);
    remove_two(&t);
}

static void a_lock_that_is_kept_in_vain(void **state)
{
    struct stat before, after, given;
    struct err err = { 0 };
    struct two t = { 0 };
    int kept, fd;

    (void)state;
    make_two(&t, "renewed");
    assert_int_equal(gpulock_take(&t.system, t.uuid, &kept, &err), 0);
    assert_int_equal(fstat(kept, &given), 0);
    gpulock_renew(&t.user, t.uuid, given.st_ino);       /* a user's daemon knows no lock of the system's daemon */
    gpulock_renew(&t.system, t.uuid, given.st_ino + 1); /* another daemon's job holds this lock */
    assert_true(is_held(&t.user, t.uuid) && is_held(&t.system, t.uuid));
    gpulock_renew(&t.system, t.uuid, given.st_ino);
    assert_false(is_held(&t.user, t.uuid) || is_held(&t.system, t.uuid));
    assert_int_equal(gpulock_take(&t.system, t.uuid, &fd, &err), 0);
    assert_true(is_held(&t.user, t.uuid));
    assert_true(stat(t.own, &before) == 0 && (before.st_mode & 0777) == 0600);
    gpulock_renew(&t.system, t.uuid, given.st_ino); /* once more, when the next daemon holds it */
    assert_true(is_held(&t.user, t.uuid));
    close(fd);
    close(kept);
    gpulock_renew(&t.system, t.uuid, before.st_ino); /* no process holds it */
    assert_true(stat(t.own, &after) == 0 && after.st_ino == before.st_ino);
    remove_two(&t);
}

/* The file is removed between open() and flock(), as by another daemon. */
static const char *renewed_at_lock;

int flock(int fd, int op)
{
    const char *path = op == (LOCK_EX | LOCK_NB) ? renewed_at_lock : NULL;
    char tmp[TEMP_MAX + 40];

    if (path) {
        renewed_at_lock = NULL;
        snprintf(tmp, sizeof tmp, "%s.new", path);
        close(open(tmp, O_RDONLY | O_CREAT, 0600));
        rename(tmp, path);
    }
    return (int)syscall(SYS_flock, fd, op);
}

static void a_lock_that_is_renewed_before_it_is_taken(void **state)
{
    struct stat mine, there;
    struct err err = { 0 };
    struct two t = { 0 };
    int first, fd;

    (void)state;
    make_two(&t, "late");
    assert_int_equal(gpulock_take(&t.system, t.uuid, &first, &err), 0);
    close(first);
    renewed_at_lock = t.own;
    assert_int_equal(gpulock_take(&t.system, t.uuid, &fd, &err), 0);
    assert_null(renewed_at_lock);
    assert_true(fstat(fd, &mine) == 0 && stat(t.own, &there) == 0 && mine.st_ino == there.st_ino);
    assert_true(is_held(&t.user, t.uuid));
    close(fd);
    remove_two(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_checked),
        cmocka_unit_test(too_many_processes_are_cut),
        cmocka_unit_test(foreign_use_begins_and_ends),
        cmocka_unit_test(a_job_is_not_foreign_to_itself),
        cmocka_unit_test(memory_is_verified_after_a_job),
        cmocka_unit_test(who_stays_after_a_job_is_named),
        cmocka_unit_test(errors_quarantine),
        cmocka_unit_test(ecc_errors_count_when_they_grow),
        cmocka_unit_test(what_vanishes),
        cmocka_unit_test(counts),
        cmocka_unit_test(one_job_a_gpu),
        cmocka_unit_test(users_share_the_locks),
        cmocka_unit_test(links_are_refused),
        cmocka_unit_test(daemons_of_both_kinds_share_no_gpu),
        cmocka_unit_test(what_users_plant_takes_no_gpu_from_the_node),
        cmocka_unit_test(a_lock_is_handed_on),
        cmocka_unit_test(a_lock_that_is_kept_in_vain),
        cmocka_unit_test(a_lock_that_is_renewed_before_it_is_taken),
        cmocka_unit_test(users_cannot_keep_the_locks_of_the_node),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

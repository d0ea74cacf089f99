/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/client/base/test_link.c - uses: proto client
 * detctl's connection: calls, errors reported by the daemon, lost connections, interrupts. The other end is a real
 * socket served by a child process. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/base/command.h"
#include "client/base/link.h"
#include "proto/err.h"
#include "proto/rpc.h"
#include "tests/stand/harness.h"

static char folder[TEMP_MAX], path[TEMP_MAX + 8];

static int listen_at(const char *where)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    strcpy(address.sun_path, where);
    unlink(where);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 8) < 0)
        exit(99);
    return fd;
}

/* Serves a single connection: reads a line for each answer and sends the answer. An empty answer closes the connection
 * at once. */
static void serve_one(int server, const char *const *answers)
{
    int fd = accept(server, NULL, NULL);
    char buf[4096];

    for (; *answers; answers++) {
        if (!**answers || read(fd, buf, sizeof buf) <= 0)
            break;
        if (write(fd, *answers, strlen(*answers)) < 0)
            break;
    }
    close(fd);
}

/* A child that serves the scripts one connection after the other. */
static pid_t serve(const char *const *const *scripts)
{
    int server = listen_at(path);
    pid_t pid = fork();

    if (pid == 0) {
        for (; *scripts; scripts++)
            serve_one(server, *scripts);
        _exit(0);
    }
    close(server);
    return pid;
}

#define OK(id) "{\"jsonrpc\":\"2.0\",\"id\":" #id ",\"result\":{\"n\":" #id "}}\n"

static void calls_and_errors(void **state)
{
    static const char *const first[] = { OK(1), "{\"jsonrpc\":\"2.0\",\"method\":\"news\",\"params\":{}}\n" OK(1) OK(2),
                                         "{\"jsonrpc\":\"2.0\",\"id\":3,\"error\":{\"code\":-32005,\"message\":\"no job "
                                         "9\",\"data\":{\"field\":\"id\",\"reason\":\"NOTFOUND\"}}}\n",
                                         NULL },
                             *const *const scripts[] = { first, NULL };
    pid_t child = serve(scripts);
    struct err err = { 0 };
    struct link *l = NULL;
    json_t *result = NULL;

    (void)state;
    assert_int_equal(link_open(path, LINK_ANSWER_S, &l, &err), 0);
    for (int i = 1; i <= 2; i++) {
        assert_int_equal(link_call(l, "m", json_object(), &result, &err), 0);
        assert_int_equal(json_integer_value(json_object_get(result, "n")), i);
        json_decref(result);
    }
    assert_int_equal(link_call(l, "m", json_object(), &result, &err), ERR_NOTFOUND);
    assert_string_equal(err.msg, "no job 9");
    assert_string_equal(err.field, "id");
    link_close(l);
    waitpid(child, NULL, 0);
}

/* The daemon goes away after it read the request; the call is repeated on the next connection. */
static void repeats_after_a_loss(void **state)
{
    static const char *const dies[] = { "", NULL }, *const half[] = { "{\"jsonrpc\":\"2.0\",\"id\":1,\"res", NULL },
                             *const good[] = { OK(1), NULL }, *const *const scripts[] = { dies, half, good, NULL };
    pid_t child = serve(scripts);
    struct err err = { 0 };
    struct link *l = NULL;
    json_t *result = NULL;

    (void)state;
    assert_int_equal(link_open(path, LINK_ANSWER_S, &l, &err), 0);
    assert_int_equal(link_call(l, "m", json_pack("{s:i}", "a", 1), &result, &err), 0);
    json_decref(result);
    link_close(l);
    waitpid(child, NULL, 0);
}

static void gives_up(void **state)
{
    static const char *const dies[] = { "", NULL }, *const *const scripts[] = { dies, NULL };
    pid_t child = serve(scripts);
    struct err err = { 0 };
    struct link *l = NULL;
    json_t *result = NULL;

    (void)state;
    assert_int_equal(link_open(path, LINK_ANSWER_S, &l, &err), 0);
    waitpid(child, NULL, 0); /* the socket has no listener any more */
    link_patience(l, 0.2);
    assert_int_equal(link_call(l, "m", json_object(), &result, &err), -ENOTCONN);
    link_close(l);
}

/* The socket for admins is not looked for in a folder like /tmp, where any user may have put it. */
static void no_socket_of_anybody(void **state)
{
    char usual[TEMP_MAX + 16], admin[TEMP_MAX + 16];
    struct err err = { 0 };
    struct link *l = NULL;
    int server;

    (void)state;
    snprintf(usual, sizeof usual, "%s" RPC_SOCKET, folder);
    snprintf(admin, sizeof admin, "%s" RPC_ADMIN_SOCKET, folder);
    server = listen_at(admin);
    assert_int_equal(link_open(usual, LINK_ANSWER_S, &l, &err), 0);
    link_close(l);
    chmod(folder, 01777);
    assert_int_equal(link_open(usual, LINK_ANSWER_S, &l, &err), -ENOTCONN);
    chmod(folder, 0700);
    close(server);
    unlink(admin);
}

static void bad_paths(void **state)
{
    char longer[200];
    struct err err = { 0 };
    struct link *l = NULL;

    (void)state;
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(link_open(longer, LINK_ANSWER_S, &l, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "longer than 107 bytes"));
    assert_int_equal(link_open("/nonexistent/s", LINK_ANSWER_S, &l, &err), -ENOTCONN);
    assert_null(l);
}

/* A process that sends SIGINT until it is killed. A signal that arrives too early does no harm. */
static pid_t keep_interrupting(void)
{
    pid_t parent = getpid(), killer = fork();

    if (killer > 0)
        return killer;
    while (getppid() == parent) {
        usleep(10000);
        kill(parent, SIGINT);
    }
    _exit(0);
}

static void stop_interrupting(pid_t killer)
{
    kill(killer, SIGKILL);
    waitpid(killer, NULL, 0);
    interrupted = 0;
}

/* Without a limit only a signal ends the wait for a detd that is away. */
static void patience_without_end(void **state)
{
    static const char *const dies[] = { "", NULL }, *const *const scripts[] = { dies, NULL };
    pid_t child = serve(scripts), killer;
    struct err err = { 0 };
    struct link *l = NULL;
    json_t *result = NULL;

    (void)state;
    catch_interrupt();
    assert_int_equal(link_open(path, LINK_ANSWER_S, &l, &err), 0);
    waitpid(child, NULL, 0);
    link_patience(l, -1);
    killer = keep_interrupting();
    assert_int_equal(link_call(l, "m", json_object(), &result, &err), -EINTR);
    stop_interrupting(killer);
    link_close(l);
}

static void refused_as_a_whole(void **state)
{
    static const char *const first[] = { "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32602,\"message\":\"too many\"}}\n", OK(3),
                                         NULL },
                             *const *const scripts[] = { first, NULL };
    pid_t child = serve(scripts);
    struct err err = { 0 };
    struct link *l = NULL;
    json_t *result = NULL;
    char *big = malloc(RPC_MAX_LINE + 1);

    (void)state;
    memset(big, 'x', RPC_MAX_LINE);
    big[RPC_MAX_LINE] = '\0';
    assert_int_equal(link_open(path, LINK_ANSWER_S, &l, &err), 0);
    assert_int_equal(link_call(l, "m", json_object(), &result, &err), ERR_INPUT); /* an answer without the id that could not be read */
    assert_string_equal(err.msg, "too many");
    assert_int_equal(link_call(l, "m", json_pack("{s:s}", "a", big), &result, &err), ERR_INPUT); /* not even sent */
    assert_non_null(strstr(err.msg, "detd takes at most 1048576"));
    assert_int_equal(link_call(l, "m", json_object(), &result, &err), 0);
    json_decref(result);
    link_close(l);
    waitpid(child, NULL, 0);
    free(big);
}

/* detd answers an unreadable request without an id. */
static void refused_without_an_id(void **state)
{
    static const char *const first[] = { "{\"jsonrpc\":\"2.0\",\"method\":\"news\",\"params\":{}}\n"
                                         "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32600,\"message\":\"too deep\"}}\n",
                                         NULL },
                             *const *const scripts[] = { first, NULL };
    pid_t child = serve(scripts);
    struct err err = { 0 };
    struct link *l = NULL;
    json_t *result = NULL;

    (void)state;
    assert_int_equal(link_open(path, LINK_ANSWER_S, &l, &err), 0);
    link_patience(l, 0.2);
    assert_int_equal(link_call(l, "m", json_object(), &result, &err), ERR_PROTO);
    assert_string_equal(err.msg, "too deep");
    link_close(l);
    waitpid(child, NULL, 0);
}

/* detd refuses a long line before it has read the whole line. The client must report the refusal although it could not
 * send the rest. */
static void refused_while_it_sends(void **state)
{
    static const char *const first[] = { "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32001,\"message\":\"no room\"}}\n", NULL },
                             *const *const scripts[] = { first, NULL };
    pid_t child = serve(scripts);
    struct err err = { 0 };
    struct link *l = NULL;
    json_t *result = NULL;
    char *big = malloc(RPC_MAX_LINE / 2);

    (void)state;
    memset(big, 'x', RPC_MAX_LINE / 2);
    big[RPC_MAX_LINE / 2 - 1] = '\0';
    assert_int_equal(link_open(path, LINK_ANSWER_S, &l, &err), 0);
    link_patience(l, 0.2);
    assert_int_equal(link_call(l, "m", json_pack("{s:s}", "a", big), &result, &err), ERR_STATE);
    assert_string_equal(err.msg, "no room");
    link_close(l);
    waitpid(child, NULL, 0);
    free(big);
}

/* The client also gives up on a server that accepts every connection and never answers. */
static void no_end_of_losses(void **state)
{
    enum { LOSSES = 60 };
    static const char *const dies[] = { "", NULL }, *const good[] = { OK(1), NULL };
    const char *const *scripts[LOSSES + 2] = { NULL };
    struct err err = { 0 };
    struct link *l = NULL;
    json_t *result = NULL;
    pid_t child;

    (void)state;
    for (int i = 0; i < LOSSES; i++)
        scripts[i] = dies;
    scripts[LOSSES] = good;
    child = serve(scripts);
    assert_int_equal(link_open(path, LINK_ANSWER_S, &l, &err), 0);
    link_patience(l, 0.2);
    assert_int_equal(link_call(l, "m", json_object(), &result, &err), -ENOTCONN);
    assert_non_null(strstr(err.msg, "lost detd"));
    link_close(l);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* A signal ends the wait for an answer that does not come. */
static void interrupt(void **state)
{
    static const char *const silent[] = { " ", " ", NULL }, *const *const scripts[] = { silent, NULL };
    pid_t child = serve(scripts);
    struct err err = { 0 };
    struct link *l = NULL;
    json_t *result = NULL;

    (void)state;
    catch_interrupt();
    assert_int_equal(link_open(path, LINK_ANSWER_S, &l, &err), 0);
    pid_t killer = keep_interrupting();
    assert_int_equal(link_call(l, "m", json_object(), &result, &err), -EINTR);
    stop_interrupting(killer);
    link_close(l);
    waitpid(child, NULL, 0);
}

static bool is_queued(int *ret_fd)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };

    strcpy(address.sun_path, path);
    *ret_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    return connect(*ret_fd, (struct sockaddr *)&address, sizeof address) == 0;
}

/* The daemon is stopped: the kernel queues connections and the daemon accepts no connection. Later the queue is full,
 * too. */
static void a_daemon_that_stands_still(void **state)
{
    enum { MOST = 100 };
    int server = listen_at(path), fds[MOST], n = 0;
    struct err err = { 0 };
    struct link *l = NULL;
    json_t *result = NULL;

    (void)state;
    assert_int_equal(link_open(path, 1, &l, &err), 0);
    assert_int_equal(link_call(l, "m", json_object(), &result, &err), ERR_TIMEOUT);
    assert_non_null(strstr(err.msg, "no answer within 1 s"));
    link_close(l);
    while (n < MOST - 1 && is_queued(&fds[n]))
        n++;
    assert_true(n < MOST - 1);
    err = (struct err){ 0 };
    assert_int_equal(link_open(path, 1, &l, &err), ERR_TIMEOUT);
    assert_non_null(strstr(err.msg, "no answer within 1 s"));
    for (; n >= 0; n--)
        close(fds[n]);
    close(server);
}

static void default_paths(void **state)
{
    (void)state;
    setenv("DETD_SOCKET", "/a/b", 1);
    assert_string_equal(link_default_path("/x"), "/x");
    assert_string_equal(link_default_path(NULL), "/a/b");
    unsetenv("DETD_SOCKET");
    setenv("XDG_RUNTIME_DIR", "/nonexistent", 1);
    assert_string_equal(link_default_path(NULL), "/run/detd/detd.sock");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_and_errors),
        cmocka_unit_test(repeats_after_a_loss),
        cmocka_unit_test(gives_up),
        cmocka_unit_test(no_socket_of_anybody),
        cmocka_unit_test(bad_paths),
        cmocka_unit_test(interrupt),
        cmocka_unit_test(a_daemon_that_stands_still),
        cmocka_unit_test(default_paths),
        cmocka_unit_test(patience_without_end),
        cmocka_unit_test(refused_as_a_whole),
        cmocka_unit_test(refused_without_an_id),
        cmocka_unit_test(refused_while_it_sends),
        cmocka_unit_test(no_end_of_losses),
    };

    if (!mkdtemp(temp_path(folder, sizeof folder, "test_link.XXXXXX")))
        return 1;
    snprintf(path, sizeof path, "%s/s", folder);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    rmdir(folder);
    return failed;
}

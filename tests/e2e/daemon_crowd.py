#!/usr/bin/env python3
"""detd with more clients than it has room for, and with clients that ask more than their share."""  # SPDX-License-Identifier: Apache-2.0
import json
import os
import resource
import select
import socket
import sqlite3
import sys
import time

from daemon import SANITIZED, Client, Daemon

MOST, OF_A_USER = 512, 128  # daemon/socket/door.h
IN_FLIGHT = 64  # proto/rpc.h
NOBODY = 65534


def is_closed(client):
    """Returns whether the daemon has closed the connection; drops its earlier messages."""
    client.sock.settimeout(60)
    try:
        while client.read():
            pass
        return True
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    finally:
        client.sock.settimeout(60)


def is_closed_now(client):
    return bool(select.select([client.sock], [], [], 0)[0]) and client.sock.recv(1, socket.MSG_PEEK) == b""


def refusal(path):
    """Returns the daemon's reason for refusing more."""
    c = Client(path)
    answer = c.read()
    assert answer["error"]["data"]["reason"] == "STATE" and answer["id"] is None and is_closed(c), answer
    return answer["error"]["message"]


def as_user(uid, what, *args):
    """Calls what(*args) as that user: the daemon sees the user's connections."""
    os.seteuid(uid)
    try:
        return what(*args)
    finally:
        os.seteuid(0)


def idle_ones_leave():
    """One connection more than there is room for: the connection that was idle longest is closed, but never a client
    that waits for something."""
    with Daemon() as d:
        listener = d.client()
        listener.call("subscribe", topics="events")
        clients = [d.client() for _ in range(MOST - 1)]
        for c in clients[::-1]:
            c.call("daemon.info")
            time.sleep(0.002)  # a turn of the loop has a time of its own
        extra = [d.client() for _ in range(3)]
        # a client that leaves is counted a moment longer
        Daemon.until(lambda: extra[0].call("daemon.info")["clients"] == MOST, "nobody leaves")
        assert all(is_closed(c) for c in clients[-3:])
        assert all(c.call("daemon.info") for c in clients[:-3] + extra)
        for c in clients[:-3] + extra:
            c.call("subscribe", topics="events")
        assert refusal(d.path) == "this daemon has at most %d connections, and all are used up" % MOST
        listener.close()
        Daemon.until(lambda: clients[0].call("daemon.info")["clients"] < MOST, "the place is not free")
        assert d.call("daemon.info")["protocol"] == 1


def one_user_has_all():
    """A system daemon keeps room for other users."""
    if os.geteuid() != 0:
        print("skip: only root may become other users", flush=True)
        return
    with Daemon(system=True) as d:
        held, admin = [as_user(NOBODY, d.client) for _ in range(OF_A_USER)], d.client()
        for c in held:
            c.call("subscribe", topics="events")
        assert "a user has at most %d" % OF_A_USER in as_user(NOBODY, refusal, d.path)
        assert as_user(1, d.client).call("daemon.info")["protocol"]
        before = admin.call("daemon.info")["clients"]
        held[7].close()
        Daemon.until(lambda: admin.call("daemon.info")["clients"] < before, "the place is not free")
        again = as_user(NOBODY, d.client)
        again.call("daemon.info")
        newer = as_user(NOBODY, d.client)  # `again` is idle: a user's own leave for him
        assert is_closed(again) and newer.call("daemon.info")["protocol"]


def no_descriptors_left():
    """A client that connects when detd can hardly open another file is told so, and the journal says it too. Jobs and
    supervisors still have descriptors."""
    with Daemon() as d:
        d.call("daemon.info")
        resource.prlimit(d.proc.pid, resource.RLIMIT_NOFILE, (100, 100))
        clients = [d.client() for _ in range(100)]
        for c in clients:
            try:
                c.sock.sendall(get(1) + b"\n")
            except BrokenPipeError:
                pass
        answers = [c.read() for c in clients]
        told = [a and a["error"]["message"] for a in answers if not a or a["id"] is None]  # None: closed without a reply
        assert 20 < len(told) < 80 and set(told) == {"detd is near its limit of open files, 100"}, told
        assert "refused a connection of user %d: detd is near its limit of open files" % os.geteuid() in open(d.root + "/log").read()
        for c in clients:
            c.close()
        assert d.call("daemon.info")["protocol"] == 1


def with_long_curve(d, steps):
    """Job 1, completed long ago with that many steps."""
    d.call("daemon.info")  # detd handles SIGTERM only after this reply
    d.stop()
    with sqlite3.connect(d.state + "/detd.db") as db:
        db.execute("INSERT INTO jobs (name, user, uid, token, state, tier, device, ranks, steps, submitted) "
                   "VALUES ('long', 'u', 0, 't', 'completed', 'rerun', 'cpu', 1, ?, 5)", (steps,))
        db.execute("INSERT INTO specs VALUES (1, '{}')")
        db.execute("INSERT INTO series VALUES (1, 1, 'train', 'total')")
        db.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
                   "INSERT INTO point SELECT 1, i, i, 1.0 / i, 1, 1, 5 FROM n", (steps,))
    d.start()


def slow(count, **params):
    """Returns requests that each take a thread for milliseconds."""
    return b"".join(
        json.dumps({"jsonrpc": "2.0", "id": i, "method": "loss.query", "params": dict({"id": 1, "points": 5000}, **params)}).encode() +
        b"\n" for i in range(count))


def a_job_starts_beside_a_pile_of_queries():
    """They have all threads of the pool, and hold them: supervisors are started on a thread of their own."""
    with Daemon(slots=1) as d:
        faults = d.preload("pool")
        with_long_curve(d, 10)
        first, job = d.submit(10, env={"HOLD": "5"}), d.submit(5)
        d.held(first, 5)
        open(faults + "/pool", "w").close()
        clients = [d.client() for _ in range(8)]
        for c in clients:
            c.sock.sendall(slow(1))
        d.go(first)
        Daemon.until(lambda: d.sql("SELECT state FROM jobs WHERE id=?", job) == [("completed",)], "it waits for queries")
        assert not select.select([c.sock for c in clients], [], [], 0)[0], "the pool is not held"
        os.unlink(faults + "/pool")
        assert all(c.read()["id"] == 0 for c in clients)


def so_many_in_flight():
    """While nothing can be written, 64 requests of a client are accepted and the others wait in its socket; afterwards
    all are answered."""
    with Daemon() as d:
        other, c = d.client(), d.client()
        db = sqlite3.connect(d.state + "/detd.db", isolation_level=None)
        db.execute("BEGIN IMMEDIATE")
        before = other.call("daemon.info")["requests"]
        wish = '{"jsonrpc":"2.0","id":%d,"method":"deterministic.set","params":{"tier":"off"}}\n'
        c.sock.sendall("".join(wish % i for i in range(200)).encode())
        c.sock.setblocking(False)
        asked = 0

        def taken():
            nonlocal asked
            asked += 1
            return other.call("daemon.info")["requests"] - before - asked

        Daemon.until(lambda: taken() >= IN_FLIGHT, "detd does not read")
        for _ in range(20):  # as many turns of the loop, and more
            assert taken() == IN_FLIGHT, taken()
        db.execute("ROLLBACK")
        c.sock.setblocking(True)
        assert [c.read()["id"] for _ in range(200)] == list(range(200))


def stays_small(d, meanwhile=lambda: None):
    """Waits while the daemon makes replies that are not read, until it makes no more."""
    seen = [0, 0]
    while len(seen) < 6 or seen[-1] - seen[-5] > 1 << 20:  # with sanitizers each call takes a little more
        meanwhile()
        time.sleep(0.2)
        seen.append(d.call("daemon.info")["rss_bytes"])
    print("   %d MB" % (max(seen) >> 20))
    assert SANITIZED or max(seen) < 256 << 20, seen


def lists_that_nobody_reads():
    """The same with replies that the loop makes from memory: 400 clients ask for 64 lists each."""
    with Daemon() as d:
        with_long_curve(d, 1)
        d.stop()
        with sqlite3.connect(d.state + "/detd.db") as db:
            db.execute("WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 128) "
                       "INSERT INTO jobs (name, user, uid, token, state, tier, device, ranks, steps, submitted) SELECT 'short', 'u', 0, "
                       "'t' || i, 'completed', 'rerun', 'cpu', 1, 1, 5 FROM n")
            db.execute("INSERT INTO specs SELECT id, '{}' FROM jobs WHERE id > 1")
        d.start()
        clients = [d.client() for _ in range(400)]
        line = b'{"jsonrpc":"2.0","id":%d,"method":"job.list","params":{"limit":128}}\n'
        for c in clients:
            c.sock.sendall(b"".join(line % i for i in range(64)))
        left = {c: 64 for c in clients[:4]}

        def read_one():
            """Reads a line from each of four clients, which must then stay connected."""
            for c in [c for c in left if left[c] > 0]:
                reply = c.read()
                assert reply["id"] == 64 - left[c] and len(reply["result"]["jobs"]) == 128
                left[c] -= 1

        stays_small(d, read_one)
        journal = lambda: open(d.root + "/log").read().count("closed a connection of user")
        Daemon.until(lambda: read_one() or journal(), "those who read nothing keep all the room", 120)
        while any(left.values()):  # and all of them come once they are read
            read_one()
        closed = journal()
        print("   %d who read nothing were closed" % closed)
        assert closed < 396 and not any(is_closed_now(c) for c in clients[:4])
        Daemon.until(lambda: d.call("daemon.info")["clients"] <= 401 - closed, "they are still counted")


def replies_that_nobody_reads():
    """Sixty clients ask for 64 long replies each, and do not read them: detd makes no more replies than it has room
    for."""
    with Daemon() as d:
        with_long_curve(d, 20000)
        clients = [d.client() for _ in range(60)]
        for c in clients:
            c.sock.sendall(slow(64))
        stays_small(d)
        for c in clients[4:]:
            c.close()
        left = {c.sock: 64 for c in clients[:4]}  # and all of them come once they are read
        while left:
            for s in select.select(list(left), [], [], 60)[0]:
                left[s] -= s.recv(1 << 20).count(b"\n")
                if left[s] == 0:
                    del left[s]


def padded(line, size=20000):
    """Returns a request of so many bytes, with a newline."""
    return line.rstrip(b"\n").ljust(size) + b"\n"


def get(number):
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "job.get", "params": {"id": 1}}).encode()


def large_requests_behind_unread_replies():
    """Four clients read no replies, and each has a large request behind those: another's large requests are answered,
    and theirs once they read."""
    with Daemon() as d:
        with_long_curve(d, 20000)
        hogs = [d.client() for _ in range(4)]
        for c in hogs:
            c.sock.sendall(slow(5) + padded(get(5)))
        stays_small(d)
        other = d.client()
        other.sock.settimeout(20)
        for i in range(3):
            assert other.raw(padded(get(i)))["result"]["id"] == 1
        for c in hogs:
            assert [c.read()["id"] for _ in range(6)] == list(range(6))


def large_requests_of_a_user_delay_no_admin():
    """A user has sixty large requests that take a thread for long; an admin's, sent after them, is answered before the last of those."""
    if os.geteuid() != 0:
        print("skip: only root may become other users", flush=True)
        return
    with Daemon(system=True) as d:
        with_long_curve(d, 200000)
        clients, admin = [as_user(1, d.client) for _ in range(60)], d.client()

        def is_first():
            """A busy machine may read the admin's answers late, but not each time."""
            for c in clients:
                c.sock.sendall(padded(slow(1, points=1)))
            admin.sock.sendall(b"".join(padded(get(i)) for i in range(3)))
            assert all(admin.read()["result"]["id"] == 1 for _ in range(3))
            done = len(select.select([c.sock for c in clients], [], [], 0)[0])
            print("   three answers while the user got %d of 60" % done)
            assert all(c.read()["id"] == 0 for c in clients)
            return done < 60

        Daemon.until(is_first, "an admin waits for a user's large requests")


def lines_without_an_end():
    """A user has begun 77 lines that never end. Lines over the user's share are refused; lines of another user or of
    root are accepted."""
    if os.geteuid() != 0:
        print("skip: only root may become other users", flush=True)
        return
    with Daemon(system=True) as d:
        with_long_curve(d, 1)
        hogs, fit = [as_user(1, d.client) for _ in range(77)], 19  # (1,040,000 - 64 Ki) bytes each of a quarter of 72 MiB
        for c in hogs:
            try:
                c.sock.sendall(b" " * 1040000)
            except (BrokenPipeError, ConnectionResetError):
                pass
        refused = lambda: [c for c in hogs if select.select([c.sock], [], [], 0)[0]]
        Daemon.until(lambda: len(refused()) == 77 - fit, "%d are not refused" % (77 - fit), 20)
        for client in (d.client(), as_user(2, d.client)):
            assert client.raw(padded(get(1), 400000))["result"]["id"] == 1
        assert all(is_closed(c) for c in refused()) and len(refused()) == 77 - fit


def stops_in_the_midst_of_queries():
    """Clients that do not read, and queries that have begun, do not keep detd from stopping. Sanitizers check that detd
    does not touch their memory afterwards."""
    with Daemon() as d:
        with_long_curve(d, 200000)
        clients = [d.client() for _ in range(20)]
        for c in clients:
            c.sock.sendall(slow(64))
        d.call("daemon.info")
        d.stop()
        d.start()
        clients = [d.client() for _ in range(20)]
        for c in clients:
            c.sock.sendall(slow(64, points=1))
            c.sock.sendall(
                json.dumps({"jsonrpc": "2.0", "id": 99, "method": "job.list", "params": {"state": "completed"}}).encode() + b"\n")
        for c in clients[::2]:
            c.close()
        d.call("daemon.info")
        d.stop()
        assert d.start().call("loss.query", id=1, **{"from": 200000})["rows"][0]["step"] == 200000


def stops_while_each_access_is_looked_at():
    """The same under valgrind, which is so slow that queries do not end within two seconds: detd must not touch freed
    memory."""
    if SANITIZED:
        print("skip: a sanitizer looks at memory itself", flush=True)
        return
    with Daemon() as d:
        with_long_curve(d, 100000)
        d.stop()
        d.under = ["valgrind", "--quiet", "--error-exitcode=99"]
        d.start()
        readers, hasty = [d.client() for _ in range(2)], [d.client() for _ in range(2)]
        for c in readers + hasty:
            c.sock.sendall(slow(8))
        for c in hasty:
            c.close()
        d.call("daemon.info")
        d.stop()


SCENARIOS = [
    idle_ones_leave, one_user_has_all, no_descriptors_left, a_job_starts_beside_a_pile_of_queries, so_many_in_flight,
    lists_that_nobody_reads, replies_that_nobody_reads, large_requests_behind_unread_replies, lines_without_an_end,
    large_requests_of_a_user_delay_no_admin, stops_in_the_midst_of_queries, stops_while_each_access_is_looked_at
]

for scenario in SCENARIOS:
    if len(sys.argv) < 2 or scenario.__name__ in sys.argv[1:]:
        start = time.time()
        scenario()
        print("ok %s (%.1f s)" % (scenario.__name__, time.time() - start), flush=True)

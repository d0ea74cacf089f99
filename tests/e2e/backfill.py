#!/usr/bin/env python3
"""Jobs that run as backfill past a job that waits for more slots than are free, under a real detd and a real detd-job,
with rank.py as the trainer."""  # SPDX-License-Identifier: Apache-2.0
import signal

from daemon import Daemon, leave_fault


def three_jobs(d):
    """Returns three jobs. The first holds three slots of four; the second waits for all four; the third runs as
    backfill on the last slot. The third stands at step 25 and goes no further than step 40 of 60."""
    holder = d.submit(1000000, threads=3)
    d.wait(holder, "running")
    head = d.submit(5, threads=4)
    past = d.submit(60, threads=1, env={"HOLD": "25 40"})
    d.held(past, 25)
    return holder, head, past


def makes_room():
    """The backfill job writes a checkpoint and is queued again, and no other job comes in between; afterwards it
    continues from its checkpoint."""
    with Daemon() as d:
        holder, head, past = three_jobs(d)
        late = d.submit(5, threads=1)
        assert (d.job(past)["backfill"], d.job(holder)["backfill"]) == (True, False)
        assert "runs as backfill: it is checkpointed and queued again as soon as its slots complete those of a waiting job" in d.call(
            "job.why", id=past)["text"], d.call("job.why", id=past)
        assert d.call("job.why", id=head)["text"] == "needs 4 CPU slots at once, 0 of 4 are free", d.call("job.why", id=head)
        assert "waits behind job %d" % head in d.call("job.why", id=late)["text"], d.call("job.why", id=late)
        assert "starting as backfill, before a job that waits for more slots" in d.events("state", past)
        d.call("job.cancel", id=holder)
        d.wait_event("room", past)
        d.go(past, 25)
        first = d.wait(head, "completed")
        d.go(past)
        assert d.events("room",
                        past) == ["makes room for job %d: it writes a checkpoint and is queued again" % head], d.events("room", past)
        second, third = d.wait(past, "completed"), d.wait(late, "completed")
        assert first["started"] < third["started"], (first, third)
        resumed = sorted(a["resume_step"] for a in second["attempts"])
        assert len(resumed) == 2 and 24 <= resumed[1] <= 40, second["attempts"]
        assert not second["backfill"] and len(d.events("room")) == 1
        d.check_rows(past, 60)


def the_next_detd_knows():
    """Backfill marks are stored. A supervisor that cannot be reached is told to leave as soon as it reconnects."""
    with Daemon() as d:
        holder, head, past = three_jobs(d)
        d.signal_supervisor(past, signal.SIGSTOP)
        d.kill()
        d.start()
        assert d.job(past)["backfill"]
        d.call("job.cancel", id=holder)
        d.wait_event("room", past)
        assert "; job %d makes room for it" % past in d.call("job.why", id=head)["text"], d.call("job.why", id=head)
        assert d.call("job.why", id=past)["text"].startswith("makes room for job %d" % head), d.call("job.why", id=past)
        d.go(past, 25)
        d.signal_supervisor(past, signal.SIGCONT)
        d.wait(head, "completed")
        d.go(past)
        d.wait(past, "completed")
        d.check_rows(past, 60)


def who_does_not_make_room():
    """Ranks that ignore the request are killed in the end, and the job continues from the checkpoint before."""
    with Daemon(conf="leave_deadline = 1\n") as d:
        holder, head, past = three_jobs(d)
        leave_fault(d, past, "deaf 25")
        d.go(past, 25)
        d.wait(past, lambda j: j["phase"] == "data")  # nothing else of rank.py has that phase
        d.call("job.cancel", id=holder)
        d.wait(head, "completed")
        d.go(past)
        attempts = d.wait(past, "completed")["attempts"]
        assert [a["resume_step"] for a in attempts] == [20, 0] and attempts[1]["outcome"] == "stopped", attempts
        assert d.events("stop", past) == ["the ranks did not obey pause in time and were killed"] and not d.events("kill"), d.events("stop")
        d.check_rows(past, 60)


def who_is_paused_before():
    """A pause that the job's owner asks for has no deadline, and the waiting job does not wait for it any longer; the
    job is paused afterwards, as its owner wanted."""
    with Daemon(conf="leave_deadline = 1\n") as d:
        holder, head, past = three_jobs(d)
        leave_fault(d, past, "deaf 25")
        d.go(past, 25)
        d.wait(past, lambda j: j["phase"] == "data")
        d.call("job.pause", id=past)
        d.wait(past, "stopping")
        d.call("job.cancel", id=holder)
        d.wait(head, "completed")
        assert d.events("room", past) == ["makes room for job %d: its pause has a deadline from now on" % head], d.events("room", past)
        assert d.events("stop", past) == ["the ranks did not obey pause in time and were killed"] and not d.events("kill"), d.events("stop")
        d.wait(past, "paused")
        d.go(past)
        d.call("job.resume", id=past)
        d.wait(past, "completed")
        d.check_rows(past, 60)


def main():
    for test in (makes_room, the_next_detd_knows, who_does_not_make_room, who_is_paused_before):
        test()
        print("ok", test.__name__)


if __name__ == "__main__":
    main()

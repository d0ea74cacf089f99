-- SPDX-License-Identifier: Apache-2.0
-- How long a job ran: with its slots, pauses and the time before more steps were asked for left out. And what it does.

ALTER TABLE jobs ADD COLUMN seconds REAL NOT NULL DEFAULT 0;        -- all of it
ALTER TABLE jobs ADD COLUMN seconds_before REAL NOT NULL DEFAULT 0; -- of it, by supervisors before the running one
ALTER TABLE jobs ADD COLUMN limited REAL NOT NULL DEFAULT 0;        -- of it, since the job was submitted, extended or resumed after a failure: counts against run.time_limit
ALTER TABLE jobs ADD COLUMN kind TEXT NOT NULL DEFAULT 'train';     -- or verify: it trains steps of another run again; or eval: it evaluates a checkpoint of one

DROP VIEW job_summary;
CREATE VIEW job_summary AS
    SELECT id, name, user, state, reason, attempt, step, steps, tier, device, ranks, submitted, started, ended, seconds,
           coalesce(ended, CAST(strftime('%s', 'now') AS REAL)) - started AS elapsed, cpu_seconds, max_rss,
           (SELECT value FROM loss_latest l WHERE l.job = jobs.id AND l.split = 'train' AND l.term = 'total') AS train_total,
           (SELECT value FROM loss_latest l WHERE l.job = jobs.id AND l.split = 'val' AND l.term = 'total') AS val_total
    FROM jobs;

-- SPDX-License-Identifier: Apache-2.0
-- detd.db: detd's records of jobs. The tables and views are an interface: query them with any SQLite client.
-- Times are Unix seconds. NNN_*.sql is never edited once it has been released: later changes go into a file of the next number.

-- A value per key: store_id (a random name of this database), tier (deterministic tier given to new jobs), running (seconds
-- that detd has run on this database; the wall clock does not count).
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- A row per job, kept until the job is removed. `want` is the user's last request; the want_ columns are commands not yet carried out.
CREATE TABLE jobs (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    name            TEXT NOT NULL,
    user            TEXT NOT NULL,
    uid             INTEGER NOT NULL,
    token           TEXT NOT NULL,                  -- chosen by the client: a repeated submission is the same job
    admin           INTEGER NOT NULL DEFAULT 0,     -- 1: submitted by an admin: limits of users do not hold for it
    kind            TEXT NOT NULL DEFAULT 'train',  -- verify: it trains steps of another run again; eval: it evaluates another run's checkpoint; program: it runs a command
    state           TEXT NOT NULL CHECK (state IN ('queued', 'starting', 'running', 'stopping', 'paused', 'completed', 'failed', 'cancelled')),
    reason          TEXT NOT NULL DEFAULT '',
    want            TEXT NOT NULL DEFAULT 'run' CHECK (want IN ('run', 'pause', 'cancel')),
    want_tier       TEXT NOT NULL DEFAULT '',
    want_checkpoint INTEGER NOT NULL DEFAULT 0,
    want_eval       INTEGER NOT NULL DEFAULT 0,
    tier            TEXT NOT NULL,                  -- off, rerun or world: of the newest steps
    device          TEXT NOT NULL,                  -- cpu or cuda
    ranks           INTEGER NOT NULL,
    ranks_per_gpu   INTEGER NOT NULL DEFAULT 1,
    gpus_asked      INTEGER NOT NULL DEFAULT 0,     -- by a program, in all; 0: the ranks decide
    fixed           INTEGER NOT NULL DEFAULT 0,     -- 1: a program that cannot be paused; it never runs as backfill
    threads         INTEGER NOT NULL DEFAULT 0,     -- of a rank; 0: computed when the job is given slots
    priority        INTEGER NOT NULL DEFAULT 0,
    restarts        INTEGER NOT NULL DEFAULT 0,     -- the budget of the spec
    deaths          INTEGER NOT NULL DEFAULT 0,     -- supervisors lost in a row without a newer checkpoint
    attempt         INTEGER NOT NULL DEFAULT 0,
    after           INTEGER NOT NULL DEFAULT 0,     -- the job that it must run after (run.after); 0: no job to wait for
    after_ok        INTEGER NOT NULL DEFAULT 0,     -- 1: that job must complete
    backfill        INTEGER NOT NULL DEFAULT 0,     -- 1: it runs past jobs that wait for more slots, and makes room once they lack only its own
    ticket          TEXT NOT NULL DEFAULT '',       -- proof of its submitter for detd-launch (proto/launch.h); '': it runs as the daemon's user
    nonce           TEXT NOT NULL DEFAULT '',       -- random word that identifies the running supervisor
    gpus            TEXT NOT NULL DEFAULT '',       -- UUIDs of the GPUs it holds
    last_seq        INTEGER NOT NULL DEFAULT 0,     -- newest report committed
    reported        INTEGER NOT NULL DEFAULT 0,     -- about the bytes of its job file and its reports, also of those not kept (report_max of detd.conf)
    step            INTEGER NOT NULL DEFAULT 0,
    steps           INTEGER NOT NULL,
    images_per_s    REAL NOT NULL DEFAULT 0,
    cpu_seconds     REAL NOT NULL DEFAULT 0,        -- all ranks
    cpu_before      REAL NOT NULL DEFAULT 0,        -- part of it by supervisors before the running one
    seconds         REAL NOT NULL DEFAULT 0,        -- for which it ran, with its slots: without pauses
    seconds_before  REAL NOT NULL DEFAULT 0,        -- part of it by supervisors before the running one
    limited         REAL NOT NULL DEFAULT 0,        -- part of it since submit, extend or resume after a failure: counts against run.time_limit
    held            REAL NOT NULL DEFAULT 0,        -- the same seconds by detd's own clock, while detd ran
    time_limit      REAL NOT NULL DEFAULT 0,        -- run.time_limit in seconds; 0: no limit
    max_rss         INTEGER NOT NULL DEFAULT 0,     -- bytes
    submitted       REAL NOT NULL,
    started         REAL,                           -- first grant of slots
    ended           REAL,
    ended_running   REAL,                           -- value of meta.running at that time: keep_jobs, keep_points and keep_logs count from it
    cleared         INTEGER NOT NULL DEFAULT 0,     -- 1: only last points of curves are left; 2: logs are removed; 3: both (keep_points, keep_logs)
    note            TEXT NOT NULL DEFAULT '',       -- in the words of its owner
    tags            TEXT NOT NULL DEFAULT ''        -- words with commas between, sorted: 'base,night'
);
CREATE UNIQUE INDEX jobs_token ON jobs (uid, token);
CREATE INDEX jobs_state ON jobs (state, id);

-- Job files with all defaults filled in, JSON. They have a table of their own, so that a list of jobs need not read them.
CREATE TABLE specs (
    job  INTEGER PRIMARY KEY,
    spec TEXT NOT NULL
);

-- Removed jobs. No later job gets this id. `token`: a repeated submission of the job is still recognized. A row stays
-- for a week after the removal, and until the removal is complete.
CREATE TABLE removed (
    job       INTEGER PRIMARY KEY,
    name      TEXT NOT NULL,
    user      TEXT NOT NULL,
    uid       INTEGER NOT NULL,
    token     TEXT NOT NULL,
    time      REAL NOT NULL,
    submitted REAL NOT NULL,                        -- of the job; this and its attempts tell which folder of that number is its own
    attempt   INTEGER NOT NULL,
    pending   INTEGER NOT NULL DEFAULT 1            -- its rows or its folder may still be there
);
CREATE INDEX removed_token ON removed (uid, token);
CREATE INDEX removed_pending ON removed (job) WHERE pending;

CREATE TABLE attempts (
    job         INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    node        TEXT NOT NULL,
    resume_step INTEGER NOT NULL,                   -- completed steps in the checkpoint it started from
    started     REAL NOT NULL,
    ended       REAL,
    outcome     TEXT NOT NULL DEFAULT '',
    reason      TEXT NOT NULL DEFAULT '',
    identity    JSON TEXT NOT NULL DEFAULT '',      -- object, all that its bits depend on: program, device, libraries, data; '': not reported
    PRIMARY KEY (job, attempt)
) WITHOUT ROWID;

-- Losses: a curve is a series, a value of it is a point. Read them through the view `loss`.
CREATE TABLE series (
    id    INTEGER PRIMARY KEY,
    job   INTEGER NOT NULL,
    split TEXT NOT NULL,
    term  TEXT NOT NULL,
    UNIQUE (job, split, term)
);
CREATE TABLE point (
    series INTEGER NOT NULL,
    step   INTEGER NOT NULL,
    epoch  REAL,
    num    REAL,                                    -- NULL: not finite
    den    REAL,
    tier   INTEGER NOT NULL,                        -- 0 off, 1 rerun, 2 world
    time   REAL NOT NULL,
    PRIMARY KEY (series, step)
) WITHOUT ROWID;

CREATE TABLE eval (
    job    INTEGER NOT NULL,
    metric TEXT NOT NULL,
    step   INTEGER NOT NULL,
    value  REAL,                                    -- NULL: not defined, like the AP of a class without objects
    time   REAL NOT NULL,
    PRIMARY KEY (job, metric, step)
) WITHOUT ROWID;

CREATE TABLE events (
    id    INTEGER PRIMARY KEY AUTOINCREMENT,
    job   INTEGER,                                  -- NULL: of the node
    time  REAL NOT NULL,
    level TEXT NOT NULL,                            -- info, warning, error
    kind  TEXT NOT NULL,
    text  TEXT NOT NULL
);
CREATE INDEX events_job ON events (job, id);

-- A row per day that detd has run (meta.running / 86400): the newest event at its begin. keep_events counts these days.
CREATE TABLE days (
    day   INTEGER PRIMARY KEY,
    event INTEGER NOT NULL
);

CREATE TABLE checkpoints (
    job      INTEGER NOT NULL,
    step     INTEGER NOT NULL,
    path     TEXT NOT NULL,
    bytes    INTEGER NOT NULL,
    val_loss REAL,
    best     BOOLEAN NOT NULL,                      -- best validation loss when it was written
    time     REAL NOT NULL,
    PRIMARY KEY (job, step)
) WITHOUT ROWID;

-- From step `step` on the job ran in this tier.
CREATE TABLE tiers (
    job  INTEGER NOT NULL,
    step INTEGER NOT NULL,
    tier TEXT NOT NULL,
    PRIMARY KEY (job, step)
) WITHOUT ROWID;

CREATE TABLE gpus (
    uuid         TEXT PRIMARY KEY,
    name         TEXT NOT NULL,
    memory_bytes INTEGER NOT NULL,
    seen         REAL NOT NULL,
    quarantine   TEXT NOT NULL DEFAULT '',          -- why it is not granted; '': it is healthy
    quarantined  REAL,                              -- since
    ecc_errors   INTEGER NOT NULL DEFAULT -1        -- uncorrected errors at the last look; -1: not reported
) WITHOUT ROWID;

-- CPU, memory and GPU use of jobs, over time.
CREATE TABLE usage (
    job        INTEGER NOT NULL,
    time       INTEGER NOT NULL, -- seconds since 1970: the end of the row's span, which begins at the row before
    cpu        REAL NOT NULL,    -- cores, of all ranks together: 1.5 is one and a half
    memory     INTEGER NOT NULL, -- bytes resident, of all ranks together; shared memory counts for each
    gpu        REAL,             -- mean of its GPUs, percent, as the driver last reported; NULL: it has no GPU, or the value is unknown
    gpu_memory INTEGER,          -- bytes of its GPUs in use; NULL: the same
    PRIMARY KEY (job, time)
) WITHOUT ROWID;

-- Slots granted to users, by hours for which detd has run. It serves fair_share of detd.conf and `detctl usage --by user`.
CREATE TABLE granted (
    hour         INTEGER NOT NULL, -- 0: the first hour that detd ran on this database; the wall clock does not count
    uid          INTEGER NOT NULL,
    device       TEXT NOT NULL,    -- cpu or cuda: the slots are those of the CPU, or GPUs
    user         TEXT NOT NULL,
    slot_seconds REAL NOT NULL,
    PRIMARY KEY (hour, uid, device)
) WITHOUT ROWID;

-- Evaluations of jobs' checkpoints on other sets than the validation split, by jobs of their own (detctl eval ID --on SET).

CREATE TABLE evaluations (
    by      INTEGER PRIMARY KEY,                    -- the job that evaluated: loss and eval have its results, like those of a validation
    job     INTEGER NOT NULL,                       -- the job with the checkpoint
    step    INTEGER NOT NULL,                       -- of that checkpoint
    dataset TEXT NOT NULL                           -- the name given to the set
);
CREATE INDEX evaluations_job ON evaluations (job, dataset, step);

-- Results of evaluations, by the job with the checkpoint: metrics, and losses as loss/total. The newest evaluation of a set counts.
CREATE VIEW eval_on AS
    WITH newest AS (SELECT max(v.by) AS by, v.job, v.dataset, v.step FROM evaluations v JOIN jobs j ON j.id = v.by AND j.state = 'completed'
                    GROUP BY v.job, v.dataset, v.step)
    SELECT n.job, n.dataset, n.step, e.metric, e.value, e.time, n.by FROM newest n JOIN eval e ON e.job = n.by
    UNION ALL
    SELECT n.job, n.dataset, n.step, 'loss/' || s.term, p.num / p.den, p.time, n.by
    FROM newest n JOIN series s ON s.job = n.by AND s.split = 'val' JOIN point p ON p.series = s.id;

-- A row per loss value. To average over a group, sum num and den over it, then divide.
CREATE VIEW loss AS
    SELECT s.job, s.split, s.term, p.step, p.epoch, p.num / p.den AS value, p.num, p.den,
           CASE p.tier WHEN 0 THEN 'off' WHEN 1 THEN 'rerun' ELSE 'world' END AS tier, p.time
    FROM series s JOIN point p ON p.series = s.id;

-- The newest value of every curve.
CREATE VIEW loss_latest AS
    SELECT s.job, s.split, s.term, p.step, p.epoch, p.num / p.den AS value, p.num, p.den,
           CASE p.tier WHEN 0 THEN 'off' WHEN 1 THEN 'rerun' ELSE 'world' END AS tier, p.time
    FROM series s JOIN point p ON p.series = s.id AND p.step = (SELECT max(step) FROM point WHERE series = s.id);

-- Training and validation side by side.
CREATE VIEW loss_wide AS
    SELECT job, step, max(CASE split WHEN 'train' THEN value END) AS train_total, max(CASE split WHEN 'val' THEN value END) AS val_total
    FROM loss WHERE term = 'total' GROUP BY job, step;

CREATE VIEW job_summary AS
    SELECT id, name, user, state, reason, attempt, step, steps, tier, device, ranks, submitted, started, ended, seconds,
           coalesce(ended, CAST(strftime('%s', 'now') AS REAL)) - started AS elapsed, cpu_seconds, max_rss,
           (SELECT value FROM loss_latest l WHERE l.job = jobs.id AND l.split = 'train' AND l.term = 'total') AS train_total,
           (SELECT value FROM loss_latest l WHERE l.job = jobs.id AND l.split = 'val' AND l.term = 'total') AS val_total
    FROM jobs;

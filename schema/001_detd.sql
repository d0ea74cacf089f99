-- SPDX-License-Identifier: Apache-2.0
-- detd.db: what detd knows about jobs. The tables and views are an interface: query them with any SQLite client.
-- Times are Unix seconds. NNN_*.sql is never edited once it has been released: what is new then comes in a file of the next number.

-- One value a key: store_id (a random name of this database), tier (deterministic tier given to new jobs).
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- A job, for ever. `want` is what the user asked for last; the want_ columns are commands not yet carried out.
CREATE TABLE jobs (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    name            TEXT NOT NULL,
    user            TEXT NOT NULL,
    uid             INTEGER NOT NULL,
    token           TEXT NOT NULL,                  -- chosen by the client: a repeated submission is the same job
    kind            TEXT NOT NULL DEFAULT 'train',  -- or verify: it trains steps of another run again; or eval: it evaluates a checkpoint of one
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
    threads         INTEGER NOT NULL DEFAULT 0,     -- of a rank; 0: worked out when the job is given slots
    priority        INTEGER NOT NULL DEFAULT 0,
    restarts        INTEGER NOT NULL DEFAULT 0,     -- the budget of the spec
    deaths          INTEGER NOT NULL DEFAULT 0,     -- supervisors lost in a row without a newer checkpoint
    attempt         INTEGER NOT NULL DEFAULT 0,
    after           INTEGER NOT NULL DEFAULT 0,     -- the job that it is to run after (run.after); 0: none, or that has ended as it has to
    after_ok        INTEGER NOT NULL DEFAULT 0,     -- 1: that has to have completed
    backfill        INTEGER NOT NULL DEFAULT 0,     -- 1: it was let past jobs that wait for more slots, and makes room when its own are all that they lack
    ticket          TEXT NOT NULL DEFAULT '',       -- what detd shows detd-launch to start it as its submitter (proto/launch.h); '': it runs as the daemon's user
    nonce           TEXT NOT NULL DEFAULT '',       -- what the running supervisor calls itself by
    gpus            TEXT NOT NULL DEFAULT '',       -- UUIDs of the GPUs it holds
    last_seq        INTEGER NOT NULL DEFAULT 0,     -- newest report committed
    reported        INTEGER NOT NULL DEFAULT 0,     -- bytes that its reports take up here, about; also of those that were not kept (report_max of detd.conf)
    step            INTEGER NOT NULL DEFAULT 0,
    steps           INTEGER NOT NULL,
    images_per_s    REAL NOT NULL DEFAULT 0,
    cpu_seconds     REAL NOT NULL DEFAULT 0,        -- all ranks
    cpu_before      REAL NOT NULL DEFAULT 0,        -- of it, by supervisors before the running one
    seconds         REAL NOT NULL DEFAULT 0,        -- that it ran, with its slots: without pauses
    seconds_before  REAL NOT NULL DEFAULT 0,        -- of it, by supervisors before the running one
    limited         REAL NOT NULL DEFAULT 0,        -- of it, since it was submitted, extended or resumed after a failure: counts against run.time_limit
    max_rss         INTEGER NOT NULL DEFAULT 0,     -- bytes
    submitted       REAL NOT NULL,
    started         REAL,                           -- first grant of slots
    ended           REAL,
    cleared         INTEGER NOT NULL DEFAULT 0,     -- 1: of its curves the last points are left; 2: its logs are removed; 3: both (keep_points and keep_logs of detd.conf)
    note            TEXT NOT NULL DEFAULT '',       -- in the words of its owner
    tags            TEXT NOT NULL DEFAULT ''        -- words with commas between, sorted: 'base,night'
);
CREATE UNIQUE INDEX jobs_token ON jobs (uid, token);
CREATE INDEX jobs_state ON jobs (state, id);

-- Job files with all defaults filled in, JSON: a list of jobs reads none.
CREATE TABLE specs (
    job  INTEGER PRIMARY KEY,
    spec TEXT NOT NULL
);

-- What is left for a while of a job that was removed. No row of table jobs has this id again. `token`: a submission that is sent once more is known still. A row is
-- forgotten a week after it is done with.
CREATE TABLE removed (
    job       INTEGER PRIMARY KEY,
    name      TEXT NOT NULL,
    user      TEXT NOT NULL,
    uid       INTEGER NOT NULL,
    token     TEXT NOT NULL,
    time      REAL NOT NULL,
    submitted REAL NOT NULL,                        -- of the job, and its attempts: which folder of that number is its own
    attempt   INTEGER NOT NULL,
    pending   INTEGER NOT NULL DEFAULT 1            -- rows of it, or its folder, may be there still
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
    identity    JSON TEXT NOT NULL DEFAULT '',      -- what its bits depend on, an object: program, device, libraries, data; '': not told
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
    value  REAL,                                    -- NULL: not defined, as the AP of a class without objects
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
    ecc_errors   INTEGER NOT NULL DEFAULT -1        -- uncorrected ones when it was looked at last; -1: not told
) WITHOUT ROWID;

-- What jobs use of the machine, over time.
CREATE TABLE usage (
    job        INTEGER NOT NULL,
    time       INTEGER NOT NULL, -- seconds since 1970: the end of the span that the row is about, which begins at the row before
    cpu        REAL NOT NULL,    -- cores, of all ranks together: 1.5 is one and a half
    memory     INTEGER NOT NULL, -- bytes resident, of all ranks together; what they share counts for each
    gpu        REAL,             -- mean of its GPUs, percent, as the driver told last; NULL: it has none, or that is not known
    gpu_memory INTEGER,          -- bytes of its GPUs in use; likewise
    PRIMARY KEY (job, time)
) WITHOUT ROWID;

-- Checkpoints of jobs that were looked at on other sets than the validation split, by jobs of their own (detctl eval ID --on SET).

CREATE TABLE evaluations (
    by      INTEGER PRIMARY KEY,                    -- the job that looked: loss and eval have what it found, as of a validation
    job     INTEGER NOT NULL,                       -- whose checkpoint it was
    step    INTEGER NOT NULL,                       -- of that checkpoint
    dataset TEXT NOT NULL                           -- the name that the set was given
);
CREATE INDEX evaluations_job ON evaluations (job, dataset, step);

-- What was found, as of the job whose checkpoint it was: metrics, and losses as loss/total. Where a set was looked at once more the newest counts.
CREATE VIEW eval_on AS
    WITH newest AS (SELECT max(v.by) AS by, v.job, v.dataset, v.step FROM evaluations v JOIN jobs j ON j.id = v.by AND j.state = 'completed'
                    GROUP BY v.job, v.dataset, v.step)
    SELECT n.job, n.dataset, n.step, e.metric, e.value, e.time, n.by FROM newest n JOIN eval e ON e.job = n.by
    UNION ALL
    SELECT n.job, n.dataset, n.step, 'loss/' || s.term, p.num / p.den, p.time, n.by
    FROM newest n JOIN series s ON s.job = n.by AND s.split = 'val' JOIN point p ON p.series = s.id;

-- One row a loss value: sum num and den over whatever you group by, then divide.
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

-- SPDX-License-Identifier: Apache-2.0
-- detd.db: what detd knows about jobs. The tables and views are an interface: query them with any SQLite client.
-- Times are Unix seconds. Migrations are append-only: NNN_*.sql is never edited once it has been released.

-- One value a key: store_id (a random name of this database), tier (deterministic tier given to new jobs).
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- A job, for ever. `want` is what the user asked for last; the want_ columns are commands not yet carried out.
CREATE TABLE jobs (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    name            TEXT NOT NULL,
    user            TEXT NOT NULL,
    uid             INTEGER NOT NULL,
    token           TEXT NOT NULL,                  -- chosen by the client: a repeated submission is the same job
    spec            TEXT NOT NULL,                  -- the job file with all defaults filled in, JSON
    state           TEXT NOT NULL CHECK (state IN ('queued', 'starting', 'running', 'stopping', 'paused', 'completed', 'failed', 'cancelled')),
    reason          TEXT NOT NULL DEFAULT '',
    want            TEXT NOT NULL DEFAULT 'run' CHECK (want IN ('run', 'pause', 'cancel')),
    want_tier       TEXT NOT NULL DEFAULT '',
    want_checkpoint INTEGER NOT NULL DEFAULT 0,
    want_eval       INTEGER NOT NULL DEFAULT 0,
    tier            TEXT NOT NULL,                  -- off, rerun or world: of the newest steps
    device          TEXT NOT NULL,                  -- cpu or cuda
    ranks           INTEGER NOT NULL,
    threads         INTEGER NOT NULL DEFAULT 0,     -- of a rank; 0: worked out when the job is given slots
    priority        INTEGER NOT NULL DEFAULT 0,
    restarts        INTEGER NOT NULL DEFAULT 0,     -- the budget of the spec
    deaths          INTEGER NOT NULL DEFAULT 0,     -- supervisors lost in a row without a newer checkpoint
    attempt         INTEGER NOT NULL DEFAULT 0,
    nonce           TEXT NOT NULL DEFAULT '',       -- what the running supervisor calls itself by
    gpus            TEXT NOT NULL DEFAULT '',       -- UUIDs of the GPUs it holds
    last_seq        INTEGER NOT NULL DEFAULT 0,     -- newest report committed
    step            INTEGER NOT NULL DEFAULT 0,
    steps           INTEGER NOT NULL,
    images_per_s    REAL NOT NULL DEFAULT 0,
    cpu_seconds     REAL NOT NULL DEFAULT 0,        -- all ranks
    cpu_before      REAL NOT NULL DEFAULT 0,        -- of it, by supervisors before the running one
    max_rss         INTEGER NOT NULL DEFAULT 0,     -- bytes
    submitted       REAL NOT NULL,
    started         REAL,                           -- first grant of slots
    ended           REAL
);
CREATE UNIQUE INDEX jobs_token ON jobs (uid, token);
CREATE INDEX jobs_live ON jobs (id) WHERE state IN ('queued', 'starting', 'running', 'stopping', 'paused');

CREATE TABLE attempts (
    job         INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    node        TEXT NOT NULL,
    resume_step INTEGER NOT NULL,                   -- completed steps in the checkpoint it started from
    started     REAL NOT NULL,
    ended       REAL,
    outcome     TEXT NOT NULL DEFAULT '',
    reason      TEXT NOT NULL DEFAULT '',
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
    seen         REAL NOT NULL
) WITHOUT ROWID;

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
    SELECT id, name, user, state, reason, attempt, step, steps, tier, device, ranks, submitted, started, ended,
           coalesce(ended, CAST(strftime('%s', 'now') AS REAL)) - started AS seconds, cpu_seconds, max_rss,
           (SELECT value FROM loss_latest l WHERE l.job = jobs.id AND l.split = 'train' AND l.term = 'total') AS train_total,
           (SELECT value FROM loss_latest l WHERE l.job = jobs.id AND l.split = 'val' AND l.term = 'total') AS val_total
    FROM jobs;

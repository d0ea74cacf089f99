-- SPDX-License-Identifier: Apache-2.0
-- Jobs can be removed: what is left of one for a while.

-- No row of table jobs has this id again. `token`: a submission that is sent once more is known still. A row is forgotten a week after it is done with.
CREATE TABLE removed (
    job     INTEGER PRIMARY KEY,
    name    TEXT NOT NULL,
    user    TEXT NOT NULL,
    uid     INTEGER NOT NULL,
    token   TEXT NOT NULL,
    time    REAL NOT NULL,
    submitted REAL NOT NULL,                        -- of the job, and its attempts: which folder of that number is its own
    attempt INTEGER NOT NULL,
    pending INTEGER NOT NULL DEFAULT 1              -- rows of it, or its folder, may be there still
);
CREATE INDEX removed_token ON removed (uid, token);
CREATE INDEX removed_pending ON removed (job) WHERE pending;

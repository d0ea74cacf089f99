-- SPDX-License-Identifier: Apache-2.0
-- A list of jobs reads no job files, and finds those of a state by index.

CREATE TABLE specs (
    job  INTEGER PRIMARY KEY,
    spec TEXT NOT NULL                              -- the job file with all defaults filled in, JSON; before schema 4 a column of jobs
);
INSERT INTO specs SELECT id, spec FROM jobs;
ALTER TABLE jobs DROP COLUMN spec;
DROP INDEX jobs_live;
CREATE INDEX jobs_state ON jobs (state, id);

-- SPDX-License-Identifier: Apache-2.0
-- A job that is to run after another one (run.after of its spec).

ALTER TABLE jobs ADD COLUMN after INTEGER NOT NULL DEFAULT 0;    -- the other job, 0: none, or it has ended as it has to
ALTER TABLE jobs ADD COLUMN after_ok INTEGER NOT NULL DEFAULT 0; -- 1: it has to have completed

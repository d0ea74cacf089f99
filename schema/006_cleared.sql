-- SPDX-License-Identifier: Apache-2.0
-- What is kept of jobs that ended long ago is bounded (keep_points and keep_logs of detd.conf).

ALTER TABLE jobs ADD COLUMN cleared INTEGER NOT NULL DEFAULT 0; -- 1: of its curves the last points are left; 2: its logs are removed; 3: both

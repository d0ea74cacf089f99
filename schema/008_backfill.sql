-- SPDX-License-Identifier: Apache-2.0
-- A job that was let past others, which waited for more slots than were free, makes room when its own are all that they lack.

ALTER TABLE jobs ADD COLUMN backfill INTEGER NOT NULL DEFAULT 0; -- 1: so it is with the slots that it has, or had last

-- SPDX-License-Identifier: Apache-2.0
-- Jobs that run as their submitters: what detd shows detd-launch to start them (proto/launch.h). '': the job runs as the daemon's user.

ALTER TABLE jobs ADD COLUMN ticket TEXT NOT NULL DEFAULT '';

-- SPDX-License-Identifier: Apache-2.0
-- GPUs that are not granted because they cannot be trusted, and several ranks on one GPU.

ALTER TABLE gpus ADD COLUMN quarantine TEXT NOT NULL DEFAULT '';    -- why it is not granted; '': it is healthy
ALTER TABLE gpus ADD COLUMN quarantined REAL;                       -- since
ALTER TABLE gpus ADD COLUMN ecc_errors INTEGER NOT NULL DEFAULT -1; -- uncorrected ones when it was looked at last; -1: not told
ALTER TABLE jobs ADD COLUMN ranks_per_gpu INTEGER NOT NULL DEFAULT 1;

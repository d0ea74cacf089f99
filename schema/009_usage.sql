-- SPDX-License-Identifier: Apache-2.0
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

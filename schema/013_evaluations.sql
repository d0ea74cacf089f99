-- SPDX-License-Identifier: Apache-2.0
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

-- SPDX-License-Identifier: Apache-2.0
-- What the reports of a job take up here is bounded (report_max of detd.conf).

ALTER TABLE jobs ADD COLUMN reported INTEGER NOT NULL DEFAULT 0; -- bytes, about; also of reports that were not kept any more

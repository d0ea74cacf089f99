-- SPDX-License-Identifier: Apache-2.0
-- What people say of their jobs.

ALTER TABLE jobs ADD COLUMN note TEXT NOT NULL DEFAULT ''; -- in the words of its owner
ALTER TABLE jobs ADD COLUMN tags TEXT NOT NULL DEFAULT ''; -- words with commas between, sorted: 'base,night'

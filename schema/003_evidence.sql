-- SPDX-License-Identifier: Apache-2.0
-- What the bits of an attempt depend on.

ALTER TABLE attempts ADD COLUMN identity JSON TEXT NOT NULL DEFAULT ''; -- an object: program, device, libraries, data; '': not told

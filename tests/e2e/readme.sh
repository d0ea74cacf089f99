#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # The commands of README.md and docs/*.md, typed line by line.
set -eu
exec python3 tests/harness/readme/readme.py "${DETD_BUILD:-build}"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # detctl diff: two runs' evidence, of jobs and of folders.
set -eu
exec python3 tests/e2e/diff.py "$@"

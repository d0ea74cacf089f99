#!/usr/bin/env bash
# detctl diff and run.diff: two runs' evidence, of jobs and of folders.
set -eu
exec python3 tests/e2e/diff.py "$@"

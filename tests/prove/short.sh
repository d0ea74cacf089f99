#!/usr/bin/env bash
# Every cell of the matrix of make prove with every third model, once.
set -eu
cd "$(dirname "$0")/../.."
exec python3 tests/prove/prove.py "${DETD_BUILD:-build}" --runs 1 --thin 3 --report /dev/null

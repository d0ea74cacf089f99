#!/usr/bin/env bash
# Every cell of the matrix of make prove, once.
set -eu
cd "$(dirname "$0")/../.."
exec python3 tests/prove/prove.py "${DETD_BUILD:-build}" --runs 1 --report /dev/null

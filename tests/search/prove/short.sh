#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # Every cell of the matrix of make prove with every fifth model, once.
set -eu
cd "$(dirname "$0")/../../.."
exec python3 tests/search/prove/prove.py "${DETD_BUILD:-build}" --runs 1 --thin 5 --report /dev/null

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # tests/bench/bench.sh BUILD [--only PART,...] [--json FILE] - the output of `make
# bench`: speed as ratios from a single run, each beside its peer and its target. bench.py says which parts there are
# and what they need.
set -eu
cd "$(dirname "$0")/../.."
exec python3 tests/bench/bench.py "$@"

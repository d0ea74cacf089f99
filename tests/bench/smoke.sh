#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # tests/bench/smoke.sh - every part of `make bench` once in its smallest form:
# each part has its rows, and each row its numbers. No number is judged. Programs that need a GPU must say so if there
# is no GPU.
set -eu
cd "$(dirname "$0")/../.."
build=${DETD_BUILD:-build}
if [ -x "$build/tests/bench/bench_engines" ]; then
    said=$("$build/tests/bench/bench_engines" size=32 seconds=2 compiled=0) || { echo "bench_engines: $said" >&2; exit 1; }
    grep -q '^bench_engines: skipped, there is no GPU' <<<"$said" ||
        { grep -q '^candidate us=' <<<"$said" && grep -q '^total ' <<<"$said"; } ||
        { echo "bench_engines: $said" >&2; exit 1; }
    ! "$build/tests/bench/bench_engines" size=32 table=/nowhere/table 2>/dev/null ||
        { echo "bench_engines: a table that cannot be written" >&2; exit 1; }
fi
exec python3 tests/bench/bench.py "$build" --smoke

#!/usr/bin/env bash
# tests/bench/smoke.sh - every part of `make bench` once in its smallest form: each part has its rows, and each row its numbers. No number is judged. And
# what needs a GPU says so where there is none, or a few of its lines.
set -eu
cd "$(dirname "$0")/../.."
build=${DETD_BUILD:-build}
if [ -x "$build/tests/bench/bench_engines" ]; then
    said=$("$build/tests/bench/bench_engines" size=32 seconds=2 compiled=0) || true
    grep -qE '^bench_engines: skipped, there is no GPU|^candidate us=' <<<"$said" || { echo "bench_engines: $said" >&2; exit 1; }
fi
exec python3 tests/bench/bench.py "$build" --smoke

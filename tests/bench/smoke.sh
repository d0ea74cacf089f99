#!/usr/bin/env bash
# tests/bench/smoke.sh - every part of `make bench` once in its smallest form: each part has its rows, and each row its numbers. No number is judged.
set -eu
cd "$(dirname "$0")/../.."
exec python3 tests/bench/bench.py "${DETD_BUILD:-build}" --smoke

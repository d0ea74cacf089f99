#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # Three parsers under libFuzzer for a few seconds each, others every day.
set -eu
cd "$(dirname "$0")/../.."
command -v clang >/dev/null || { echo "skip: no clang"; exit 77; }
all=(tests/fuzz/test_*.c)
chosen=()
for k in 0 1 2; do
    t=${all[$((($(date +%j | sed 's/^0*//') * 3 + k) % ${#all[@]}))]##*/test_}
    chosen+=("${t%.c}")
done
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
FUZZ_CORPUS=$tmp tests/fuzz/run.sh "${chosen[@]}" -- 15

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # libFuzzer on parsers, with address and undefined: run.sh TARGET... -- SECONDS,
# each for so long (make fuzz). It starts from the seeds, and from the inputs in build-fuzz/corpus/TARGET with which
# earlier runs reached new code. An input that breaks a target is kept in build-fuzz/found and named. FUZZ_CORPUS:
# another folder than build-fuzz/corpus.
set -eu
cd "$(dirname "$0")/../.."
targets=()
while [ "$1" != -- ]; do targets+=("$1"); shift; done
seconds=$2
command -v clang >/dev/null || { echo "fuzz: needs clang, with libFuzzer: apt-get install clang libclang-rt-14-dev" >&2; exit 1; }
corpus=${FUZZ_CORPUS:-build-fuzz/corpus}
# gcc's and clang's warnings differ; only gcc's count.
make --no-print-directory -s -j"$(nproc)" B=build-fuzz CC=clang SAN=address,undefined,fuzzer-no-link CFLAGS=-w NVCC= \
    "${targets[@]/#/build-fuzz/tests/fuzz/fuzz_}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0
for t in "${targets[@]}"; do
    mkdir -p "$corpus/$t" "build-fuzz/found/$t"
    if TMPDIR=$work "build-fuzz/tests/fuzz/fuzz_$t" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 \
        -max_len=65536 -print_final_stats=1 \
        -artifact_prefix="build-fuzz/found/$t/" "$corpus/$t" "tests/fuzz/$t" >"$work/log" 2>&1; then
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/log")
        echo "fuzz $t: $runs runs, $(grep -aoE 'cov: [0-9]+ ft: [0-9]+ corp: [0-9]+' "$work/log" | tail -1)"
    else
        tail -40 "$work/log" >&2
        echo "fuzz $t: FOUND, kept in build-fuzz/found/$t" >&2
        status=1
    fi
done
exit $status

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # tests/bench/smoke_gpu.sh - every part of `make bench-gpu` once in its smallest
# form, on the emulated GPU, beside PyTorch on the CPU if it is installed. If it is ended early or its time is too
# short, it must print the rows so far. No number is judged.
set -eu
cd "$(dirname "$0")/../.."
build=${DETD_BUILD:-build}
tmp=$(mktemp -d)
export TMPDIR=$tmp # compilers leave caches
# benches end with the device open, and the leak detector cannot read the stacks of its fibers
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
trap 'kill $(jobs -p) 2>/dev/null || :; rm -rf "$tmp"' EXIT
fail() { echo "smoke_gpu: $*" >&2; cat "$tmp/said" >&2; exit 1; }
says() { grep -qE -- "$1" "$tmp/said" || fail "does not say: $1"; }
bench() { python3 tests/bench/bench_gpu.py "$build" --dry "$@" >"$tmp/said"; }

bench --only ours,layers,link
says '^bf16 +32 +2 +1 +[0-9.]+ +- +- +[0-9.]+ +[0-9.]+ +no peer$'
says '^conv 3x3/1 +16->32 .*( +[0-9.]+ ms +[0-9.]+ TFLOP/s [0-9.]+){3}$'
says '^norm bwd dx +32x32 +32 +[0-9.]+ ms +[0-9]+ GB/s [0-9.]+$'
says '^link: ranks 4, +1 MiB: tree +[0-9.]+ ms'
! grep -E 'exit|no end|no time' "$tmp/said" || fail "a part failed"

python=
for p in "${DETD_TORCH_PYTHON:-}" python3; do
    if [ -n "$p" ] && "$p" -c 'import torch; assert tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 4)' 2>/dev/null; then
        python=$p
        break
    fi
done
if [ -n "$python" ]; then
    DETD_TORCH_PYTHON=$python bench --only peer
    for mode in eager graph compile compile-graph; do
        says "^  peer precision=bf16 size=32 batch=2 mode=$mode images_per_s=[0-9.]+ ms=[0-9.]+\$"
    done
    says '^bf16 +32 +2 +1 +- +[0-9.]+ +- +- +- +(eager|graph|compile|compile-graph)$'
    DETD_TORCH_PYTHON=$python bench --only models --models featdepth_r18
    says '^featdepth_r18 +bf16 +[0-9.]+ +[0-9.]+ +[0-9.]+ +--layout (channels_last|plain)$'
else
    bench --only models --models featdepth_r18
    says '^featdepth_r18 +bf16 +[0-9.]+ +- +- +no peer$'
    echo "skip: no Python with PyTorch 2.4 or newer: the peer did not run (DETD_TORCH_PYTHON)"
fi
! grep -E 'exit|no end|no time' "$tmp/said" || fail "a model failed"

# A peer with one figure and no end.
cat >"$tmp/python" <<'T'
#!/bin/sh
[ "$1" = -c ] && exit
echo 'peer precision=bf16 size=32 batch=2 mode=eager images_per_s=10.00 ms=200.000'
exec sleep 1000
T
chmod +x "$tmp/python"
export DETD_TORCH_PYTHON=$tmp/python
bench --only peer --seconds 8 --batches 2,4
says 'peer_gpu.py .* --batches 2 .*: no end after '
says '^bf16 +32 +2 +1 +- +10.0 +- +- +- +eager$'
says '^no time left for: .*peer_gpu.py .* --batches 4 '

rm "$tmp/said" # or the lines of the run before would be taken for this one's
python3 tests/bench/bench_gpu.py "$build" --dry --only ours,peer --batches 2,4 >"$tmp/said" &
while ! grep -qs '^  peer' "$tmp/said"; do
    kill -0 $! 2>/dev/null || fail "it ended before it was told to"
    sleep 0.1
done
kill $!
status=0
wait $! || status=$?
[ "$status" -eq 143 ] || fail "status $status instead of 143"
says '^bf16 +32 +2 +1 +[0-9.]+ +10.0 +[0-9.]+ +[0-9.]+ +[0-9.]+ +eager$'

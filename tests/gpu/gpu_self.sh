#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # tests/gpu/gpu_self.sh - tests/gpu.sh with misbehaving programs: a program that
# never ends is ended, programs after its part's time are skipped, and all of this is in the table and in the logs.
set -eu
cd "$(dirname "$0")/../.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail() { echo "gpu_self: $*" >&2; cat "$tmp/said" >&2; exit 1; }
says() { grep -qE -- "$1" "$tmp/said" || fail "does not say: $1"; }
program() { mkdir -p "$(dirname "$tmp/b/$1")" && cat >"$tmp/b/$1" && chmod +x "$tmp/b/$1"; }

# Every program that it would run is there, and every test that computes on the device that DETD_TEST_CUDA names is
# among them.
tests/gpu.sh --programs | sort >"$tmp/said"
while read -r name; do [ -f "tests/$name.c" ] || fail "there is no tests/$name.c"; done <"$tmp/said"
seen=0
for deps in "${DETD_BUILD:-build}"/tests/{device,golden}/test_*.d; do
    name=${deps#"${DETD_BUILD:-build}"/tests/} name=${name%.d}
    if [ -f "tests/$name.c" ] && grep -q 'tests/device/plugin\.h' "$deps" && head -n 3 "tests/$name.c" | grep -qE 'uses: .*\bcuda\b'; then
        says "^$name\$"
        seen=$((seen + 1))
    fi
done
[ "$seen" -ge 30 ] || fail "only $seen tests compute on a device"

program libdetd-cuda.so </dev/null
program tests/device/test_memory <<'T'
#!/bin/sh
echo 'GPU: a made-up one, driver 1.2' && echo 'cuda: 3 times the same bits'
T
program tests/device/test_act <<'T'
#!/bin/sh
echo 'FAULT everything' && exit 3
T
program tests/device/test_stem <<'T'
#!/bin/sh
T
program tests/device/test_conv_gpu <<'T'
#!/bin/sh
echo $$ >"$0.pid" && echo 'NO PLAN: for anything' && sleep 1000
T

status=0
GPU_SECONDS=12 tests/gpu.sh "$tmp/b" device >"$tmp/said" 2>&1 || status=$?
[ "$status" -eq 1 ] || fail "status $status"
says '^ok      device/test_memory '
says '^FAILED  device/test_act: exit 3, '
says '^          FAULT everything$'
says '^FAILED  device/test_conv_gpu: no end after [0-9]+ s, '
says "^skipped device/test_norm: the part's time is over$"
says '^\| device/test_memory \| ok \| [0-9]+ \| cuda: 3 times the same bits; \|$'
says '^\| device/test_conv_gpu \| \*\*no end after [0-9]+ s\*\* \| [0-9]+ \| NO PLAN: for anything; \|$'
says '^GPU: a made-up one, driver 1.2$'
says '^2 passed, 2 failed, [0-9]+ skipped; logs in '
! kill -0 "$(cat "$tmp/b/tests/device/test_conv_gpu.pid")" 2>/dev/null || fail "what never ends is still there"
grep -q 'NO PLAN' "$tmp"/b/gpu-log/device/*test_conv_gpu.log || fail "no log of what was ended"

# A quarter, with a script in place of Python. NCCL works by host memory alone: all later programs must use host memory.
program bin/python3 <<'T'
#!/bin/sh
[ "$1" != -c ] && echo "cuda: 3 times the same bits, $*"
T
program tests/bench/bench_link <<'T'
#!/bin/sh
case "$*" in ranks=1*) exit 0 ;; esac
echo "$*, $NCCL_P2P_DISABLE$NCCL_SHM_DISABLE" >>"$0.calls"
[ "$NCCL_MULTI_RANK_GPU_ENABLE$NCCL_P2P_DISABLE$NCCL_SHM_DISABLE" = 11 ] && echo 'link: 2 ranks share one GPU'
T
for t in nccl nccl_gradients; do
    program tests/device/test_$t <<'T'
#!/bin/sh
[ "$NCCL_P2P_DISABLE" = 1 ] && echo 'nccl: script, 2 ranks'
T
done
mkdir "$tmp/nccl"
status=0
PATH=$tmp/b/bin:$PATH DETD_NCCL=$tmp/nccl tests/gpu.sh "$tmp/b" quarter >"$tmp/said" 2>&1 || status=$?
[ "$status" -eq 1 ] || fail "status $status of a quarter"
cut -d '|' -f 2 "$tmp"/b/gpu-log/quarter[12]/table.md | sed -n '/^ [^-]/s/^ \(.*\) $/\1/p' | grep -v '^what$' >"$tmp/rows"
cat >"$tmp/want" <<'T'
one rank on NCCL
NCCL as it comes, 2 ranks on one GPU
NCCL by host memory, 2 ranks on one GPU
NCCL by host memory, 4 ranks on one GPU
device/test_nccl
device/test_nccl_gradients
jobs of 1, 2 and 4 ranks over NCCL
NCCL by sockets, 2 ranks on one GPU
T
head -8 "$tmp/rows" | diff "$tmp/want" - >>"$tmp/said" || fail "another order"
printf '%s\n' 'jobs on one GPU' 'bits of 1 and 3 ranks, every kind of model' 'Mask R-CNN twice' \
    "torchvision's Mask R-CNN twice" 'speed of steps' >"$tmp/want"
tail -5 "$tmp/rows" | diff "$tmp/want" - >>"$tmp/said" || fail "another order at the end"
says '^\| jobs of 1, 2 and 4 ranks over NCCL \| ok \| [0-9]+ \| cuda: .*gpu_nccl.py NCCL_P2P_DISABLE=1; \|$'
says '^\| NCCL by host memory, 4 ranks on one GPU \| ok \| [0-9]+ \| link: 2 ranks share one GPU; \|$'
says "^skipped torchvision's Mask R-CNN twice: "
grep -q 'ranks=4 .*, 1$' "$tmp/b/tests/bench/bench_link.calls" || fail "four ranks by another way"

# No program ends by itself: each half of a quarter is ended, and its table then has the programs that ran.
for p in bin/python3 tests/bench/bench_link; do
    program $p <<'T'
#!/bin/sh
trap '' TERM
while :; do sleep 1; done
T
done
status=0
PATH=$tmp/b/bin:$PATH DETD_NCCL=$tmp/nccl GPU_SECONDS=16 timeout 150 tests/gpu.sh "$tmp/b" quarter >"$tmp/said" 2>&1 || status=$?
[ "$status" -eq 1 ] || fail "status $status of a quarter in which nothing ends"
for row in 'quarter1/table.md:\| one rank on NCCL' 'quarter2/table.md:\| bits of 1 and 3 ranks, every kind of model'; do
    grep -E 'no end after' "$tmp"/b/gpu-log/quarter?/table.md | grep -qE "$row \\| \\*\\*no end" || fail "no row of ${row#*: }"
done
says '^skipped device/test_families: '
says '^skipped speed of steps: '

status=0
tests/gpu.sh "$tmp/b" nonsense >"$tmp/said" 2>&1 || status=$?
[ "$status" -eq 2 ] || fail "a part that there is not: status $status"

#!/usr/bin/env bash
# tests/gpu_self.sh - tests/gpu.sh with programs that do as they please: one that never ends is ended, what comes after its part's time is skipped, and all
# of it stands in the table and in the logs.
set -eu
cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail() { echo "gpu_self: $*" >&2; cat "$tmp/said" >&2; exit 1; }
says() { grep -qE -- "$1" "$tmp/said" || fail "does not say: $1"; }
program() { mkdir -p "$(dirname "$tmp/b/$1")" && cat >"$tmp/b/$1" && chmod +x "$tmp/b/$1"; }

# Every program that it would run is there, and every test that computes on the device that DETD_TEST_CUDA names is among them.
tests/gpu.sh --programs | sort >"$tmp/said"
while read -r name; do [ -f "tests/$name.c" ] || fail "there is no tests/$name.c"; done <"$tmp/said"
seen=0
for deps in "${DETD_BUILD:-build}"/tests/*/test_*.d; do
    name=${deps#"${DETD_BUILD:-build}"/tests/} name=${name%.d}
    if grep -q 'tests/device/plugin\.h' "$deps" && grep -qE '^ \* .*uses: .*\bcuda\b' "tests/$name.c"; then
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

status=0
tests/gpu.sh "$tmp/b" nonsense >"$tmp/said" 2>&1 || status=$?
[ "$status" -eq 2 ] || fail "a part that there is not: status $status"

#!/usr/bin/env bash
# tests/gpu.sh BUILD - what only a GPU can show: every op against the CPU device, steps repeated beside a busy queue, whole jobs with several ranks, waves and
# kills, a real data set beside the CPU, and compute-sanitizer. BUILD holds the programs, tests/device and libdetd-cuda.so, built here or elsewhere.
#   DETD_DATA      the folder with bccd/ (default ../shared/data); DETD_CUDA_PATH as for detd, where cuDNN and NCCL are not found
#   GPU_PARTS      which of: ops repeat jobs bccd sanitizer (default: all)
set -u
cd "$(dirname "$0")/.." || exit
build=$(cd "$1" && pwd)
plugin=$build/libdetd-cuda.so
data=${DETD_DATA:-../shared/data}
parts=${GPU_PARTS:-ops repeat jobs bccd sanitizer}
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
passed=0 failed=0 skipped=0

run() { # run NAME COMMAND...
    local name=$1 log=$logs/log start=$SECONDS
    shift
    if "$@" >"$log" 2>&1; then
        passed=$((passed + 1))
        echo "ok      $name ($((SECONDS - start)) s)"
        grep -E 'losses at most|times the same bits|equal$' "$log" | sed 's/^/          /'
    else
        failed=$((failed + 1))
        echo "FAILED  $name"
        grep -vE '^\[ (RUN|      OK) ' "$log" | tail -25 | sed 's/^/          /'
    fi
}
skip() {
    skipped=$((skipped + 1))
    echo "skipped $1: $2"
}
wants() { [[ " $parts " == *" $1 "* ]]; }

command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
[ -f "$plugin" ] || { echo "there is no $plugin" >&2; exit 1; }
export DETD_TEST_CUDA=$plugin

if wants ops; then
    for t in "$build"/tests/device/test_* "$build"/tests/golden/test_*; do
        case $t in *.o | *.d | */test_repeat | */test_emu* | */test_nccl*) continue ;; esac
        run "${t#"$build"/}" "$t"
    done
fi
if wants repeat; then
    DETD_TEST_REPEATS=50 DETD_TEST_SIZE=416 DETD_TEST_WIDTH=1 DETD_TEST_NOISE=16777216 run "50 repeats of yolov3-tiny 416" "$build/tests/device/test_repeat"
fi
if wants jobs; then
    DETD_BUILD=$build DETD_PLUGIN=$plugin DETD_REAL_GPU=1 run "jobs on one GPU" python3 tests/e2e/cuda_train.py
fi
if wants bccd; then
    if [ -d "$data/bccd" ]; then
        DETD_BUILD=$build DETD_PLUGIN=$plugin DETD_REAL_GPU=1 run "BCCD beside the CPU" python3 tests/e2e/gpu_bccd.py "$data/bccd"
    else
        skip "BCCD beside the CPU" "no $data/bccd (DETD_DATA)"
    fi
fi
if wants sanitizer; then
    if command -v compute-sanitizer >/dev/null; then
        for t in act norm pool resample reduce optimizer yolo conv; do
            for tool in memcheck racecheck; do
                run "$tool: test_$t" compute-sanitizer --tool "$tool" --error-exitcode 1 --target-processes all "$build/tests/device/test_$t"
            done
        done
    else
        skip "compute-sanitizer" "it is not on the PATH"
    fi
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # tests/gpu.sh BUILD [PART...] - tests that need a real GPU, in parts of at most
# ten minutes each, the most important first (default: all except the quarters):
#   device   does it open; every op against the CPU device; a whole model's gradients; which algorithms compute its
#            convolutions
#   jobs     jobs of 1 to 4 ranks, waves, a killed rank; steps repeated beside a busy queue; the bits of every kind of
#            model on 1, 3 and 8 ranks; the first steps of BCCD beside the CPU
#   deep     all of BCCD to its scores, and compute-sanitizer on the kernels
#   races    compute-sanitizer's racecheck on them
#   quarter  for a GPU that is lent for minutes: quarter1, then quarter2, of four minutes each, which may be named alone
#   quarter1 does it open; the real NCCL with 2 and 4 ranks on this GPU; the tests of code that changed since the last
#            figures in tests/GPU.md; jobs of 1 to 4 ranks
#   quarter2 the bits of every kind of model; Mask R-CNN twice; the speed of steps
# tests/gpu.sh --programs names the test programs that these run.
# BUILD holds the programs, tests/ and libdetd-cuda.so, built here or unpacked (tests/gpu/gpu_pack.sh). Speed is
# tests/bench/bench_gpu.py's.
#   GPU_PARTS      the same as naming parts (default: all)
#   GPU_LOG        where each part leaves a folder with all output and the table that it prints, for tests/GPU.md
#                  (default: BUILD/gpu-log)
#   GPU_SECONDS    the longest time of a part (default 570, of quarter1 and quarter2 240)
#   DETD_NCCL      the folder with an NCCL of 2.30 or newer for several ranks on one GPU (default nccl if it exists,
#                  else ../shared/data/nccl)
#   DETD_TORCH_PYTHON  a Python with torchvision for CUDA, the peer of quarter2 (default python3)
#   DETD_DATA      the folder with bccd/ (default data if it has that, else ../shared/data); DETD_CUDA_PATH as for detd,
#                  if cuDNN and NCCL are not found
set -u
cd "$(dirname "$0")/.." || exit

# The tests of results of the CUDA device, the most important first; SECONDS for a program that needs more than 60.
ops=(memory act stem conv_gpu dtypes hash norm norm_shards norm_running norm_uses norm_pooled pool resize smooth view roi roi_layer warp
    photo photo_loss depth_layers reduce optimizer feed families yolo yolo_decode layers frozen shard_shapes rpn rcnn rcnn_layers
    rcnn_masks rcnn_found rcnn_detect assign set set_layers mat mat_layer layernorm attention row_layers)
plans=(lt_plan plan_names plan_cache cuda_plans)
linked=(nccl nccl_gradients) # over the real NCCL
# The tests with code or expectations that changed after the last figures in tests/GPU.md.
changed=(assign set set_layers mat mat_layer layernorm attention row_layers optimizer families norm_pooled layers frozen view roi rpn
    rcnn resize warp photo smooth)
declare -A seconds=([conv_gpu]=150 [cuda_plans]=200 [nccl]=60)
if [ "${1-}" = --programs ]; then
    printf '%s\n' "${ops[@]/#/device/test_}" golden/test_yolov3 "${plans[@]/#/device/test_}" device/test_repeat \
        "${linked[@]/#/device/test_}"
    exit
fi

build=$(cd "$1" && pwd) || exit
shift
plugin=$build/libdetd-cuda.so
data=${DETD_DATA:-$([ -d data/bccd ] && echo data || echo ../shared/data)}
logs=${GPU_LOG:-$build/gpu-log}
nccl=$(cd "${DETD_NCCL:-$([ -d nccl ] && echo nccl || echo ../shared/data/nccl)}" 2>/dev/null && pwd)
passed=0 failed=0 skipped=0 late=0 parts=() child=

# Lines with figures, and lines with errors.
figures='losses at most|times the same bits|last three|^link: |^nccl: |: equal$|equal to the last bit'
figures+='|^twice |^job [0-9]+: |^(bf16|tf32|fp32) '
wrong='^FAULT |^NO PLAN: |ERROR|Error|FAILED|assert|No space|^bench_|Segmentation|Sanitizer|=========.*(Invalid|hazard|ERROR SUMMARY)'

row() { printf '| %s | %s | %s | %s |\n' "$@" >>"$table"; }

run() { # run SECONDS NAME COMMAND...: returns whether the command succeeded
    local limit=$1 name=$2 start=$SECONDS left=$((until - SECONDS)) rc what log
    shift 2
    [ "$left" -ge 5 ] || { late=1 && skip "$name" "the part's time is over"; return 1; }
    [ "$limit" -le "$left" ] || limit=$left
    n=$((n + 1))
    log=$folder/$(printf '%02d-%s.log' "$n" "${name//[^A-Za-z0-9_]/-}")
    timeout -k "$grace" "$limit" "$@" >"$log" 2>&1 &
    child=$!
    wait "$child"
    rc=$?
    child=
    what=$(grep -aE "$figures" "$log" | tr '\n|' ';/' | cut -c1-1000)
    if [ "$rc" -eq 0 ]; then
        passed=$((passed + 1))
        echo "ok      $name ($((SECONDS - start)) s)"
        grep -aE "$figures" "$log" | sed 's/^/          /'
        row "$name" ok $((SECONDS - start)) "$what"
        return
    fi
    failed=$((failed + 1))
    case $rc in 124 | 137) rc="no end after $limit s" ;; *) rc="exit $rc" ;; esac
    echo "FAILED  $name: $rc, $log"
    { grep -aE "$wrong" "$log" | head -12; echo ...; grep -avE '^\[ (RUN|      OK) |^ *\^+$' "$log" | tail -12; } |
        cut -c1-300 | sed 's/^/          /'
    what=$what$(grep -aE "$wrong" "$log" | head -2)
    row "$name" "**$rc**" $((SECONDS - start)) "$(tr '\n|' ';/' <<<"${what:-$(tail -1 "$log")}" | cut -c1-300)"
    return 1
}
skip() {
    skipped=$((skipped + 1))
    echo "skipped $1: $2"
    row "$1" skipped - "$2"
}
op() { for t in "$@"; do run "${seconds[$t]:-60}" "device/test_$t" "$build/tests/device/test_$t"; done; } # op TEST...

part_device() {
    [ ! -x "$build/tests/bench/bench_link" ] || run 60 "one rank on NCCL" "$build/tests/bench/bench_link" ranks=1 sizes=1
    op "${ops[@]}"
    run 90 golden/test_yolov3 "$build/tests/golden/test_yolov3"
    op "${plans[@]}"
}

bccd() { # bccd SECONDS NAME HOW: how is gpu_bccd.py's
    if [ -d "$data/bccd" ]; then
        run "$1" "$2" python3 tests/e2e/gpu_bccd.py "$data/bccd" "$3"
    else
        skip "$2" "no $data/bccd (DETD_DATA)"
    fi
}

part_jobs() {
    run 300 "jobs on one GPU" python3 tests/e2e/cuda_train.py
    DETD_TEST_REPEATS=20 DETD_TEST_SIZE=416 DETD_TEST_WIDTH=1 DETD_TEST_NOISE=16777216 run 150 "20 repeats of yolov3-tiny 416" \
        "$build/tests/device/test_repeat"
    run 300 "bits of 1, 3 and 8 ranks, every kind of model" env TEST_LONG=2 python3 tests/e2e/bits.py
    bccd 200 "60 steps of BCCD beside the CPU" 60
}

sanitize() { # sanitize TOOL TEST...
    local tool=$1
    shift
    for t in "$@"; do
        run 100 "$tool: test_$t" compute-sanitizer --tool "$tool" --error-exitcode 1 --target-processes all "$build/tests/device/test_$t"
    done
}
# Under memcheck a case of the convolutions takes seconds, so it is every seventh. For races there are only our own
# kernels to look at.
own=(stem norm norm_shards norm_uses pool yolo yolo_decode act reduce resize optimizer view roi warp photo photo_loss smooth rpn rcnn
    rcnn_masks depth_layers assign set mat layernorm attention)
part_deep() {
    bccd 300 "all of BCCD" whole
    if command -v compute-sanitizer >/dev/null; then
        DETD_TEST_ONE_OF=7 sanitize memcheck conv_gpu
        sanitize memcheck "${own[@]}"
    else
        skip "compute-sanitizer" "it is not on the PATH"
    fi
}
part_races() {
    if command -v compute-sanitizer >/dev/null; then
        sanitize racecheck "${own[@]}"
    else
        skip "compute-sanitizer" "it is not on the PATH"
    fi
}

# ---- in little time ----

# NCCL's transports for ranks that share a GPU, each with its other settings.
ways=('as it comes' 'by host memory' 'by sockets' 'by sockets, no windows')
ways_env=('' NCCL_P2P_DISABLE=1 'NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_NET_GDR_LEVEL=LOC'
    'NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_NET_GDR_LEVEL=LOC NCCL_WIN_ENABLE=0')
on_nccl() { # on_nccl SECONDS NAME ENVIRONMENT COMMAND...
    local limit=$1 name=$2 more
    read -ra more <<<"$3"
    shift 3
    run "$limit" "$name" env DETD_CUDA_PATH="$nccl:${DETD_CUDA_PATH-}" NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_SOCKET_IFNAME=lo \
        NCCL_DEBUG=INFO "${more[@]}" "$@"
}
try_way() { # try_way WAY RANKS
    on_nccl 15 "NCCL ${ways[$1]}, $2 ranks on one GPU" "${ways_env[$1]}" "$build/tests/bench/bench_link" \
        shared=nccl ranks="$2" sizes=1 repeats=2 seconds=14
}
# Tests everything through the first working transport, then the other transports.
one_gpu_nccl() {
    local way=0 more
    [ -n "$nccl" ] || { skip "NCCL on one GPU" "no folder with NCCL 2.30 (DETD_NCCL)"; return; }
    until try_way "$way" 2; do
        way=$((way + 1))
        [ "$way" -lt "${#ways[@]}" ] || { skip "the rest of NCCL on one GPU" "no transport works"; return; }
    done
    read -ra more <<<"${ways_env[$way]}"
    try_way "$way" 4
    for t in "${linked[@]}"; do on_nccl "${seconds[$t]:-40}" "device/test_$t" "${ways_env[$way]}" "$build/tests/device/test_$t"; done
    on_nccl 75 "jobs of 1, 2 and 4 ranks over NCCL" "" python3 tests/e2e/gpu_nccl.py "${more[@]}"
    while way=$((way + 1)) && [ "$way" -lt 3 ]; do try_way "$way" 2; done
}
part_quarter1() {
    run 25 "one rank on NCCL" "$build/tests/bench/bench_link" ranks=1 sizes=1
    one_gpu_nccl
    op "${changed[@]}"
    run 90 "jobs on one GPU" python3 tests/e2e/cuda_train.py
}
part_quarter2() {
    local python=${DETD_TORCH_PYTHON:-python3} peer=0 left
    timeout -k 1 "$grace" "$python" -c 'import importlib.util as u; exit(not u.find_spec("torchvision"))' || peer=$?
    run 85 "bits of 1 and 3 ranks, every kind of model" env TEST_LONG=2 BITS_GPU_ALONE=1 python3 tests/e2e/bits.py
    run 100 "Mask R-CNN twice" python3 tests/e2e/gpu_twice.py
    if [ "$peer" -eq 0 ]; then
        run 30 "torchvision's Mask R-CNN twice" "$python" tests/bench/peer_rcnn.py twice --cuda --bf16 --no-search \
            --px 800 --batch 8 --steps 20
    else
        skip "torchvision's Mask R-CNN twice" "$python has no torchvision (DETD_TORCH_PYTHON)"
    fi
    left=$((until - SECONDS))
    run "$left" "speed of steps" python3 tests/bench/bench_gpu.py "$build" --only ours,models --precisions bf16 \
        --sizes 416 --batches 64 --seconds "$left"
}

head_of() { # the first lines of a part's table
    echo
    local gpu
    gpu=$(timeout -k 1 5 nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | head -1 || true)
    echo "### ${1}: $gpu"
    echo
    echo "Commit $(cat "$build/commit" 2>/dev/null || git rev-parse --short HEAD 2>/dev/null), $(date -u +%F), $(nproc) CPUs."
    echo
    echo "| what | result | s | figures |"
    echo "|---|---|---|---|"
}
show() { # the table, with the GPU that the first program opened
    { echo && grep -hm 1 '^GPU: ' "$folder"/*.log | head -1; } 2>/dev/null >>"$table"
    cat "$table"
}
part() {
    local time=${GPU_SECONDS:-570}
    [[ $1 != quarter? ]] || time=${GPU_SECONDS:-240}
    grace=$((time / 16 + 1)) # until a program that does not end by itself is killed
    [ "$grace" -lt 15 ] || grace=15
    folder=$logs/$1 table=$logs/$1/table.md n=0 until=$((SECONDS + time - grace))
    rm -rf "$folder" && mkdir -p "$folder" || exit
    head_of "$1" >"$table"
    "part_$1"
    show
}
# When a user ends this, print the results so far and free the GPU.
ended() {
    trap '' TERM INT
    [ -z "$child" ] || { kill "$child"; wait "$child"; }
    show
    exit 143
}

[ -f "$plugin" ] || { echo "there is no $plugin" >&2; exit 1; }
export DETD_TEST_CUDA=$plugin DETD_BUILD=$build DETD_PLUGIN=$plugin DETD_REAL_GPU=1
# shellcheck disable=SC2086 # words
[ $# -gt 0 ] || set -- ${GPU_PARTS:-device jobs deep races}
for p in "$@"; do
    case $p in
        quarter) parts+=(quarter1 quarter2) ;;
        device | jobs | deep | races | quarter1 | quarter2) parts+=("$p") ;;
        *) echo "there is no part $p: device, jobs, deep, races, quarter, quarter1, quarter2" >&2; exit 2 ;;
    esac
done
trap ended TERM INT
for p in "${parts[@]}"; do part "$p"; done
echo
echo "$passed passed, $failed failed, $skipped skipped; logs in $logs"
[ "$failed" -eq 0 ] && [ "$late" -eq 0 ]

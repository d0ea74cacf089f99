#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # tests/harness/layers.sh - checks the include direction off the compiler's .d files: each folder may use only what its row allows. DETD_BUILD: the folder of
# the build.
set -u
build=${DETD_BUILD:-build}
bad=0
checked=
allow() { # allow FOLDER ALLOWED...: includes of FOLDER's files stay inside FOLDER and ALLOWED
    local folder=$1 pattern d
    checked+=" $folder "
    pattern="^($(echo "$@" | tr ' ' '|'))/[^/]*$"
    for d in "$build/$folder"/*.d; do
        [ -f "$d" ] || continue
        while read -r file; do
            echo "$d: includes $file, but $folder may use only: $*" >&2
            bad=1
        done < <(sed -n '1,/^$/p' "$d" | tr -s ' :' '\n' | sed 's|^\./||' | grep -E '^(proto|daemon|launch|supervisor|client|worker|cuda)/.*\.h$' | grep -vE "$pattern")
    done
}
allow proto
allow daemon proto
allow supervisor proto
allow client proto
allow launch proto
# The floors of the worker, from the ground up: each may use all below it. Headers of kernels/ and ops/ are read with those that include them.
below="worker/kernels worker/core worker/ops"
allow worker/core worker/kernels proto
for isa in avx512 avx2 generic; do
    mkdir -p "$build/worker"
    ln -sfn "../cpu-$isa" "$build/worker/cpu"
    # shellcheck disable=SC2086 # a list
    allow worker/cpu $below proto
    rm -f "$build/worker/cpu"
done
inside() { # INSIDE FLOOR: the folders in it, which make one floor with it
    case $1 in models | data) find "worker/$1" -mindepth 1 -maxdepth 1 -type d | sort ;; esac
}
for floor in comm backend gradients mask eval data layers optim models report checkpoint evidence train predict; do
    for folder in $(inside "$floor"); do
        # shellcheck disable=SC2086
        allow "$folder" "worker/$floor" $below proto
    done
    # shellcheck disable=SC2086,SC2046
    allow "worker/$floor" $(inside "$floor") $below proto
    # shellcheck disable=SC2086
    [ "$floor" != comm ] || allow cuda worker/comm $below proto
    below="worker/$floor $(inside "$floor") $below"
done
# shellcheck disable=SC2086
allow worker $below proto
while read -r folder; do
    [[ $checked = *" $folder "* ]] || { echo "$folder: is compiled, but no row says what it may use" >&2; bad=1; }
done < <(find worker -name '*.c' -printf '%h\n' | sort -u)
# The floors of the daemon, by file, from the ground up: a file may use headers of its own room (what its pattern matches) and those of the floors below.
# Only the highest sees struct daemon.
rooms=
for floor in "clock door errand pool gate job life lock+lock_holder log node notify reserve schema sched text turns" "config gpu gpu_nvml label report wire" "view" "device gpu_child gpu_probe store*" \
    "event launch+launch_[a-z]*" "launcher" "audit jobs*" "after gpu_node ingest removal spent usage" "retention kill+run+slots+why" "conn" "daemon+main+methods*"; do
    lower=$rooms
    for room in $floor; do
        pattern=${room//+/|}
        pattern=${pattern//\*/[a-z_]*}
        rooms+="$pattern|"
        while read -r d; do
            while read -r file; do
                echo "$d: includes $file, which is not below it" >&2
                bad=1
            done < <(sed -n '1,/^$/p' "$d" | tr -s ' :' '\n' | sed 's|^\./||' | grep -E '^daemon/.*\.h$' | grep -vE "^daemon/($lower$pattern)\.h$")
        done < <(find "$build/daemon" -name '*.d' | grep -E "/($pattern)\.d$")
    done
done
while read -r file; do
    echo "$file: stands on no floor of the daemon" >&2
    bad=1
done < <(find daemon -name '*.c' | grep -vE "^daemon/(${rooms%|})\.c$")
python3 "$(dirname "$0")/layers_circles.py" || bad=1
# A function of ours with the name of a library's would be called instead of it.
ours=$(nm --defined-only "$build"/detd "$build"/detctl "$build"/detd-job "$build"/detd-worker 2>/dev/null | awk '$2 == "T" {print $3}' | sort -u)
for library in $(ldd "$build"/detd "$build"/detd-worker | awk '/=> \// {print $3}' | grep -E 'jansson|libuv|sqlite|jpeg|png|libz|webp|expat|yaml' | sort -u); do
    while read -r name; do
        echo "$name: defined here and in $library" >&2
        bad=1
    done < <(comm -12 <(echo "$ours") <(nm -D --defined-only "$library" | awk '$2 == "T" {sub(/@.*/, "", $3); print $3}' | grep -vE '^_(init|fini)$' | sort -u))
done
# Functions of libm that are rounded as its version sees fit: no bit of a training may depend on that (kernels/math.h has ours).
inexact='(exp|exp2|exp10|expm1|log|log2|log10|log1p|pow|sin|cos|sincos|tan|asin|acos|atan|atan2|sinh|cosh|tanh|asinh|acosh|atanh|cbrt|hypot)f?'
while read -r name; do
    echo "detd-worker calls $name() of libm, whose bits are its version's" >&2
    bad=1
done < <(nm -D --undefined-only "$build"/detd-worker | awk '{sub(/@.*/, "", $2); print $2}' | grep -xE "$inexact")
[ "$bad" -eq 0 ] && echo "layers: every include points down"
exit "$bad"

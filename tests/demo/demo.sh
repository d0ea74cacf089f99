#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # tests/demo/demo.sh BUILD DIR - the demo of `make demo`: a private detd trains a
# small detector on generated images with two ranks. State stays in DIR; Ctrl-C cancels the job and stops the daemon.
set -eu
build=$(cd "$1" && pwd)
dir=$2
detctl=$build/detctl
daemon=
export DETD_SOCKET=$dir/detd.sock

cleanup() {
    trap - EXIT INT TERM
    if [ -n "$daemon" ] && kill -0 "$daemon" 2>/dev/null; then
        for job in $("$detctl" ls --json 2>/dev/null | sed -n 's/.*"id": *\([0-9]*\).*/\1/p'); do
            "$detctl" cancel "$job" >/dev/null 2>&1 || true
        done
        for _ in $(seq 100); do
            "$detctl" ls 2>/dev/null | grep -qE 'starting|running|stopping' || break
            sleep 0.2
        done
        kill "$daemon" 2>/dev/null || true
        wait "$daemon" 2>/dev/null || true
    fi
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say() { printf '\n== %s\n' "$*"; }

rm -rf "$dir"
mkdir -p "$dir"
chmod 700 "$dir"
say "Drawing 400 training and 80 validation images"
python3 tests/demo/make_shapes.py "$dir/shapes" --train 400 --val 80 --seed 1

cp tests/demo/job.json "$dir/job.json"

say "Starting a private detd in $dir"
# In a session of its own: Ctrl-C must reach the daemon as cancel, not as a signal, which would leave the job running.
setsid "$build/detd" --state "$dir/state" --socket "$DETD_SOCKET" >"$dir/detd.log" 2>&1 &
daemon=$!
for ((i = 0; ; i++)); do
    "$detctl" info >/dev/null 2>&1 && break
    { [ $i -lt 600 ] && kill -0 "$daemon" 2>/dev/null; } || { cat "$dir/detd.log" >&2; echo "detd does not come up" >&2; exit 1; }
    sleep 0.1
done

say "detctl submit job.json --watch        (yolov3-tiny at half width, two ranks; about two minutes)"
"$detctl" submit "$dir/job.json" --watch
job=1

say "detctl loss $job --split val --term total --csv"
"$detctl" loss "$job" --split val --term total --csv
say "The same by SQL: sqlite3 $dir/state/detd.db 'select step, value from loss where ...'"
sqlite3 -header -column "$dir/state/detd.db" "select step, split, round(value, 4) as loss from loss
    where job=$job and term='total' and step % 100 = 0 order by step, split"
say "detctl eval $job"
"$detctl" eval "$job"

say "detctl predict $job IMAGE... -o pictures"
mapfile -t images < <(find "$dir/shapes/images" -name "val-*.png" | sort | head -4)
"$detctl" predict "$job" "${images[@]}" -o "$dir/pictures"
say "Done. Look at $dir/pictures/*.png; the logs are in $dir/state/jobs/$job/log."

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # tests/checkpoints/make.sh WORKER - made what lies here, once: two jobs as they stood after step 4 of 8, and in rows.jsonl the losses that
# followed. WORKER was detd-worker of commit caa5fd3; files made anew by a later one would not show that it reads what older ones wrote.
set -eu
worker=$(realpath "$1")
cd "$(dirname "$0")"
python3 ../demo/make_shapes.py . --train 6 --val 2 --size 32 >/dev/null
for job in plain ema; do
    rm -rf "$job"
    "$worker" --dir "$job" "$job.json" | grep '"type":"loss"' | sed 's/,"time":.*,"terms"/,"terms"/' >"$job.rows"
    grep -E '"step":[5-8],' "$job.rows" >"$job/rows.jsonl"
    rm -rf "$job.rows" "$job/checkpoints/step-8"
done

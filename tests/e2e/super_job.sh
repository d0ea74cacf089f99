#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # detd-job alone: crashes, hangs, kills, a full spool, detd coming and going; tests/e2e/rank.py trains.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
exec python3 super_job.py "$build/detd-job"

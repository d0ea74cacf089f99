#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # Checkpoints of commit caa5fd3 (tests/checkpoints) are resumed: by this worker, and by one whose job files know a key more.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
exec python3 resume.py "$build/detd-job" "$build/detd-worker" "$build/later/detd-worker"

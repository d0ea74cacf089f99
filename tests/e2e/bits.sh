#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # tests/e2e/bits.sh [write [KIND...] | keep FOLDER [KIND...]]: the bits of small jobs, rows and tensors, are those that bits.json holds. A commit that means to change no bits leaves
# that file alone; one that means to says why, and writes it anew, or the kinds of jobs that are named.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
DETD_BUILD=$build DETD_PLUGIN=$build/emu/libdetd-cuda.so exec python3 bits.py "$@"

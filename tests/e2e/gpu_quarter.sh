#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # The scripts of tests/gpu.sh's quarters on the emulated GPU: Mask R-CNN trained
# twice, and with TEST_LONG the jobs that meet on NCCL where there is a real one.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
export DETD_BUILD=$build DETD_PLUGIN=$build/emu/libdetd-cuda.so
python3 gpu_twice.py
[ -z "${TEST_LONG-}" ] || python3 gpu_nccl.py

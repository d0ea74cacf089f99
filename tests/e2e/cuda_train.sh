#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # Jobs on the CUDA device of an emulated GPU: the same bits for reruns, ranks, waves and kills, and the CPU's losses.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
DETD_BUILD=$build DETD_PLUGIN=$build/emu/libdetd-cuda.so exec python3 cuda_train.py

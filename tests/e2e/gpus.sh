#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # A real detd, detd-job and detctl on GPUs that a mock of the driver's library
# makes up (tests/stand/mock/nvml.c); tests/e2e/rank.py trains.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
mock=$(mktemp -d)
trap 'rm -rf "$mock"' EXIT
gcc -std=c17 -O1 -D_GNU_SOURCE -shared -fPIC -o "$mock/libnvidia-ml.so.1" ../stand/mock/nvml.c -lpthread
DETD_BUILD=$build LD_LIBRARY_PATH=$mock python3 gpus.py "$@"

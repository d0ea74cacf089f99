#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # Jobs of a node run as their submitters, one of them an attacker; the GPUs are
# made up (tests/stand/mock/nvml.c).
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
mock=$(mktemp -d)
trap 'rm -rf "$mock"' EXIT
chmod 755 "$mock"
gcc -std=c17 -O1 -D_GNU_SOURCE -shared -fPIC -o "$mock/libnvidia-ml.so.1" ../stand/mock/nvml.c -lpthread
DETD_BUILD=$build LD_LIBRARY_PATH=$mock python3 launch.py "$@"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # Weights for other programs: darknet's pair, whose numbers are those of the safetensors file, and begin a job of ours again.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
DETD_BUILD=$build exec python3 export.py

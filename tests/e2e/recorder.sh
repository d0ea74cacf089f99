#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # The evidence of a real training: the same for any number of ranks and kills, of what was trained, and a flipped bit shows.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
DETD_BUILD=$build exec python3 recorder.py

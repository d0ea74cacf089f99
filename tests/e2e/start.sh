#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # What programs find at their start: closed descriptors, ignored and blocked signals, limits, an output that takes nothing, a log that nobody reads.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
DETD_BUILD=$build exec python3 start.py

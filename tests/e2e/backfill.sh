#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # Smaller jobs that are let past one that waits for more slots, and make room for it.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
DETD_BUILD=$build exec python3 backfill.py

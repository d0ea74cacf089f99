#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # Splits with pictures and no box: the real trainer under the real detd takes them as background.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
DETD_BUILD=$build exec python3 background.py

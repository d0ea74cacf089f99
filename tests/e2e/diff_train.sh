#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # detctl diff of runs of the real trainer: what was changed is what it names.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
DETD_BUILD=$build exec python3 diff_train.py

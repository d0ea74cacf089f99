#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # detctl extend and clone: a job that trains on is, to the bit, one that was given so many steps at first.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
DETD_BUILD=$build exec python3 extend.py

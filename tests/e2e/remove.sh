#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # Jobs that are removed from a real detd: rows, folders, and what a kill in the middle leaves. tests/e2e/rank.py trains.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
DETD_BUILD=$build exec python3 remove.py

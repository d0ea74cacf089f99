#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # A month of jobs on a real detd that keeps them for a week: its state folder stays as large as it was. TEST_LONG=1: 10,000 jobs.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
DETD_BUILD=$build exec python3 month.py

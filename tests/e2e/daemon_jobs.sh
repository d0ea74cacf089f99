#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # A real detd and a real detd-job through the life of a job, kills included; tests/e2e/rank.py trains.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
DETD_BUILD=$build exec python3 daemon_jobs.py

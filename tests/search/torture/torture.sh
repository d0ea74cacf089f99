#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # Kills, stops, full disks and a wrong clock, at random for half a minute: no job
# is lost, and no row.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../../.. && pwd)/$build ;; esac
DETD_BUILD=$build exec python3 torture.py

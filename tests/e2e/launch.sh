#!/usr/bin/env bash
# Jobs of a node run as those who submit them, one of whom is hostile.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
DETD_BUILD=$build exec python3 launch.py

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # What clients may send to a real detd, and what it does not start with.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
DETD_BUILD=$build exec python3 daemon_socket.py

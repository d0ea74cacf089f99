#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # Who may do what on a system daemon.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
DETD_BUILD=$build exec python3 daemon_rights.py

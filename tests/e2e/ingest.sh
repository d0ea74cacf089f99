#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # detd's side of sup.sock, against a supervisor that does what none should.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
DETD_BUILD=$build exec python3 ingest.py

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 # tests/e2e/demo_evidence.sh [write]: the demo's job leaves the evidence that is committed in tests/demo/evidence.
set -eu
cd "$(dirname "$0")"
build=${DETD_BUILD:-build}
case $build in /*) ;; *) build=$(cd ../.. && pwd)/$build ;; esac
DETD_BUILD=$build exec python3 demo_evidence.py "$@"
